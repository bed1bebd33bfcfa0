//! CPU load beside the jobs: threads that work for a chunk and then pause, by their share.

use super::LiveError;
use crate::rng::Rng;
use crate::scenario::{Burner, BurnerMode};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a burner sorts.
const SORTED: usize = 4096;
/// Between two looks at the clock.
const SPINS: u32 = 1000;

/// Burners at work; dropping them ends them.
pub(super) struct Burners {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Burners {
    /// Each host's burners, none of them pinned.
    pub(super) fn start(
        burners: &[Burner],
        hosts: u32,
        thread: &str,
    ) -> Result<Burners, LiveError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut started = Burners { stop, threads: Vec::new() };
        let all = burners.iter().flat_map(|burner| (0..burner.clones).map(move |_| burner));
        for burner in (0..hosts).flat_map(|_| all.clone()) {
            let (burner, stop) = (burner.clone(), started.stop.clone());
            let seed = started.threads.len() as u64;
            let thread = std::thread::Builder::new()
                .name(thread.to_owned())
                .spawn(move || burn(&burner, seed, &stop))
                .map_err(|error| LiveError::failed("start a burner", error))?;
            started.threads.push(thread);
        }
        Ok(started)
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // It cannot panic, and there is nobody to tell.
            let _ = thread.join();
        }
    }
}

fn burn(burner: &Burner, seed: u64, stop: &AtomicBool) {
    let mut rng = Rng::new(seed);
    let mut values: Vec<u64> = (0..SORTED as u64).collect();
    let chunk = Duration::from_nanos(burner.chunk_ns);
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        while begin.elapsed() < chunk && !stop.load(Ordering::Relaxed) {
            match burner.mode {
                BurnerMode::Noop => (0..SPINS).for_each(|turn| {
                    black_box(turn);
                }),
                BurnerMode::Qsort => {
                    values.fill_with(|| rng.below(u64::MAX));
                    values.sort_unstable();
                    black_box(&values);
                }
            }
        }
        rest(begin.elapsed(), burner.load_percent, stop);
    }
}

/// So long that what was worked is `percent` of all.
fn rest(worked: Duration, percent: u32, stop: &AtomicBool) {
    let percent = percent.clamp(1, 100);
    let until = Instant::now() + worked * (100 - percent) / percent;
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burners_of_every_host_begin_and_end() {
        let burner = |mode| Burner {
            name: "cpu".to_owned(),
            load_percent: 10,
            chunk_ns: 1_000_000,
            mode,
            clones: 2,
        };
        let both = [burner(BurnerMode::Noop), burner(BurnerMode::Qsort)];
        let burners = Burners::start(&both, 2, "lab-burn").unwrap();
        assert_eq!(burners.threads.len(), 8);
        let stop = burners.stop.clone();
        drop(burners);
        // Every thread held one, and all have ended.
        assert_eq!(Arc::strong_count(&stop), 1);
    }
}
