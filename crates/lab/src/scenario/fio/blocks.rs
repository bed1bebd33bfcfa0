//! Block sizes: `bs`, `bsrange`, `bssplit`, each for reads, writes and trims.

use super::super::job::{BlockSize, PerOp, Sizes};
use super::super::limits::MAX_SPLIT;
use super::super::mistake::shorten;
use super::units;

/// The parts of `READ,WRITE,TRIM`. One part is for all, the last one also for those behind it; an
/// empty part changes nothing.
pub(super) fn per_op<'a>(value: &'a str, wanted: &str) -> Result<PerOp<Option<&'a str>>, String> {
    let parts: Vec<&str> = value.split(',').collect();
    let set = |part: &'a str| (!part.trim().is_empty()).then_some(part);
    match parts[..] {
        [all] => Ok(PerOp { read: set(all), write: set(all), trim: set(all) }),
        [read, rest] => Ok(PerOp { read: set(read), write: set(rest), trim: set(rest) }),
        [read, write, trim] => Ok(PerOp { read: set(read), write: set(write), trim: set(trim) }),
        _ => Err(format!("has {} parts; write {wanted}", parts.len())),
    }
}

fn size(value: &str) -> Result<u32, String> {
    match u32::try_from(units::bytes(value)?) {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(format!("{} is out of range; a block has 1 byte to 16m", shorten(value))),
    }
}

/// `bs=4k` or `bs=4k,128k,1m`.
pub(super) fn fixed(value: &str, sizes: &mut PerOp<Sizes>) -> Result<(), String> {
    let parts = per_op(value, "READ,WRITE,TRIM")?;
    if parts == PerOp::default() {
        return Err("has no value; write a size: bs=4k".to_owned());
    }
    let set = |part: Option<&str>, to: &mut Sizes| {
        part.map_or(Ok(()), |part| {
            *to = Sizes::fixed(size(part)?);
            Ok(())
        })
    };
    set(parts.read, &mut sizes.read)?;
    set(parts.write, &mut sizes.write)?;
    set(parts.trim, &mut sizes.trim)
}

/// `bsrange=4k-64k`, also written with a colon, or one range per operation.
pub(super) fn range(value: &str, sizes: &mut PerOp<Sizes>) -> Result<(), String> {
    let parts = per_op(value, "READ,WRITE,TRIM")?;
    if parts == PerOp::default() {
        return Err("has no value; write bsrange=4k-64k".to_owned());
    }
    let set = |part: Option<&str>, to: &mut Sizes| {
        let Some(part) = part else { return Ok(()) };
        let ends = part.split_once('-').or_else(|| part.split_once(':'));
        let (min, max) =
            ends.ok_or_else(|| format!("{} is no range; write 4k-64k", shorten(part)))?;
        let (min, max) = (size(min)?, size(max)?);
        if min > max {
            return Err(format!("{} ends below its beginning", shorten(part)));
        }
        *to = Sizes::Range { min, max };
        Ok(())
    };
    set(parts.read, &mut sizes.read)?;
    set(parts.write, &mut sizes.write)?;
    set(parts.trim, &mut sizes.trim)
}

/// `bssplit=4k/60:64k/40`, or one list per operation.
pub(super) fn split(value: &str) -> Result<PerOp<Option<Sizes>>, String> {
    let parts = per_op(value, "READ,WRITE,TRIM")?;
    if parts == PerOp::default() {
        return Err("has no value; write SIZE/PERCENT:SIZE/PERCENT".to_owned());
    }
    let list = |part: Option<&str>| part.map(split_list).transpose();
    Ok(PerOp { read: list(parts.read)?, write: list(parts.write)?, trim: list(parts.trim)? })
}

/// Sizes without a percentage share what is left, as fio shares it: whole percents, and what
/// remains after that goes to the last size of the list.
fn split_list(part: &str) -> Result<Sizes, String> {
    let mut sizes = Vec::new();
    let mut missing = Vec::new();
    let mut sum = 0_u32;
    for entry in part.trim().split(':').filter(|entry| !entry.is_empty()) {
        if sizes.len() == MAX_SPLIT {
            return Err(format!("has more than {MAX_SPLIT} block sizes"));
        }
        let (bytes, percent) = entry.split_once('/').unwrap_or((entry, ""));
        let weight =
            if percent.is_empty() {
                missing.push(sizes.len());
                0
            } else {
                percent.parse::<u32>().ok().filter(|p| *p <= 100).ok_or_else(|| {
                    format!("{} is no percentage; write 0 to 100", shorten(percent))
                })?
            };
        sum += weight;
        sizes.push(BlockSize { bytes: size(bytes)?, weight });
    }
    let Some(last) = sizes.len().checked_sub(1) else {
        return Err("has no block size; write SIZE/PERCENT:SIZE/PERCENT".to_owned());
    };
    let all =
        |sum| format!("the percentages of {} add up to {sum}; they must be 100", shorten(part));
    if sum > 100 || (missing.is_empty() && sum != 100) {
        return Err(all(sum));
    }
    // At most MAX_SPLIT.
    let n = u32::try_from(missing.len()).unwrap_or(u32::MAX);
    if let Some(share) = (100 - sum).checked_div(n) {
        for index in missing {
            sizes[index].weight = share;
        }
        sizes[last].weight += 100 - sum - share * n;
    }
    Ok(Sizes::Split(sizes))
}
