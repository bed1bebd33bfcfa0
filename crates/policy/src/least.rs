//! The scans in list order.

use crate::{AnaRank, AsCandidate, Candidate, Choice, Reason, Selector};

/// The usable path with the least key, the first in the list of equal ones.
#[inline]
pub(crate) fn first<P: AsCandidate, K: Copy>(
    selector: &mut Selector,
    paths: &[P],
    mut key: impl FnMut(&Candidate<'_>) -> K,
    less: impl Fn(K, K) -> bool,
) -> Option<(usize, K)> {
    scan(selector, 0, paths, &mut key, less, |_| false)
}

/// By a number of commands: any optimized path, however deep, beats every non-optimized one; an
/// optimized path with nothing in flight ends the scan. Of equal ones the first wins, from the head
/// of the list when kernel-exact, else from behind the path that this worker used last.
#[inline]
pub(crate) fn fewest<P: AsCandidate>(
    selector: &mut Selector,
    kernel_exact: bool,
    paths: &[P],
    commands: impl Fn(&Candidate<'_>) -> u32,
) -> Option<Choice> {
    let mut key = |path: &Candidate<'_>| {
        let class = u64::from(path.rank == AnaRank::NonOptimized) << 32;
        class | u64::from(commands(path))
    };
    let start = if kernel_exact { 0 } else { selector.rotation_start(paths) };
    let (index, key) = scan(selector, start, paths, &mut key, |a, b| a < b, |key| key == 0)?;
    let reason = if key >> 32 == 0 { Reason::FewestCommands } else { Reason::NoOptimized };
    Some(Choice { index, reason })
}

/// Once around the list, from `start`. A path whose key is `perfect` ends the scan.
#[inline]
fn scan<P: AsCandidate, K: Copy>(
    selector: &mut Selector,
    start: usize,
    paths: &[P],
    key: &mut impl FnMut(&Candidate<'_>) -> K,
    less: impl Fn(K, K) -> bool,
    perfect: impl Fn(K) -> bool,
) -> Option<(usize, K)> {
    // Two plain loops instead of one that wraps: the compiler drops the bounds checks.
    let (before, from) = paths.split_at(start);
    let mut best: Option<(usize, K)> = None;
    'scan: for (base, stretch) in [(start, from), (0, before)] {
        for (offset, path) in stretch.iter().enumerate() {
            let path = path.candidate();
            if !path.usable {
                continue;
            }
            let key = key(&path);
            if best.is_none_or(|(_, least)| less(key, least)) {
                best = Some((base + offset, key));
                if perfect(key) {
                    break 'scan;
                }
            }
        }
    }
    // The kernel's cache pointer is not touched by these policies; only the rotation is.
    let (index, _) = best?;
    selector.last = Some(index as u32);
    best
}
