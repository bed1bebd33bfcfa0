//! Sets of data workers as attributes: hexadecimal bitmaps, as the kernel writes and reads sets of
//! CPUs (device-mapper's io-affinity takes one per path). Bit 0 is the first data worker.

use super::Refused;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use core::fmt::Write;

/// Bits of one group of digits.
const GROUP: u16 = 32;

/// Groups of 32 bits with commas between, the first as wide as the number of workers asks for.
pub(super) fn print(members: &BTreeSet<u16>, workers: u16) -> String {
    let mut text = String::new();
    for group in (0..workers.div_ceil(GROUP)).rev() {
        let first = group * GROUP;
        let bits = (workers - first).min(GROUP);
        let set = (0..bits).filter(|bit| members.contains(&(first + bit)));
        let word = set.fold(0_u32, |word, bit| word | 1 << bit);
        let comma = if text.is_empty() { "" } else { "," };
        let digits = usize::from(bits.div_ceil(4));
        // Writing to a String does not fail.
        let _ = write!(text, "{comma}{word:0digits$x}");
    }
    text
}

/// The reverse; a group may have fewer digits. Nonsense and the empty set are invalid, a worker
/// that does not exist is out of range.
pub(super) fn parse(text: &str, workers: u16) -> Result<BTreeSet<u16>, Refused> {
    let nonsense = || {
        let text = text.escape_debug();
        Refused::Invalid(format!("\"{text}\" is no hexadecimal bitmap of workers"))
    };
    let too_large = || {
        let last = workers.saturating_sub(1);
        Refused::OutOfRange(format!("the data workers are bits 0 to {last}"))
    };
    let mut members = BTreeSet::new();
    for (index, group) in text.rsplit(',').enumerate() {
        if !(1..=8).contains(&group.len()) || !group.bytes().all(|digit| digit.is_ascii_hexdigit())
        {
            return Err(nonsense());
        }
        let word = u32::from_str_radix(group, 16).map_err(|_| nonsense())?;
        for bit in (0..u32::from(GROUP)).filter(|bit| word >> bit & 1 == 1) {
            let worker = index as u64 * u64::from(GROUP) + u64::from(bit);
            let worker = u16::try_from(worker).ok().filter(|worker| *worker < workers);
            members.insert(worker.ok_or_else(too_large)?);
        }
    }
    if members.is_empty() {
        return Err("names no worker".into());
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_look_like_the_kernels() {
        for (members, workers, text) in [
            (&[0][..], 1, "1"),
            (&[], 2, "0"),
            (&[0, 1], 2, "3"),
            (&[4], 5, "10"),
            (&[0, 31], 32, "80000001"),
            (&[32], 33, "1,00000000"),
            (&[0, 35, 39], 40, "88,00000001"),
        ] {
            let members: BTreeSet<u16> = members.iter().copied().collect();
            assert_eq!(print(&members, workers), text);
            if !members.is_empty() {
                assert_eq!(parse(text, workers), Ok(members));
            }
        }
        for (text, members) in [("0F", &[0, 1, 2, 3][..]), ("0,2", &[1]), ("1,0", &[32])] {
            assert_eq!(parse(text, 40), Ok(members.iter().copied().collect()), "{text}");
        }
    }

    #[test]
    fn nonsense_and_workers_that_do_not_exist_are_refused() {
        for text in ["", ",", "1,", ",1", "0x1", "-1", "+1", " 1", "g", "000000001", "0", "0,0"] {
            assert!(matches!(parse(text, 40), Err(Refused::Invalid(_))), "{text:?}");
        }
        for (text, workers) in [("4", 2), ("1,0", 32), ("ffffffff,ffffffff,ffffffff", 64)] {
            assert!(matches!(parse(text, workers), Err(Refused::OutOfRange(_))), "{text}");
        }
    }
}
