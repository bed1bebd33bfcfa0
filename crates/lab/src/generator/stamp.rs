//! What a stamped block carries: its address.

const STAMP_BYTES: usize = 16;
/// Makes the second word differ from the first, also for block 0.
const MARK: u64 = 0x6c61_622e_6765_6e31;

/// Stamps the blocks from `lba` on.
pub(super) fn fill(data: &mut [u8], lba: u64, block_bytes: usize) {
    for (lba, block) in (lba..).zip(data.chunks_exact_mut(block_bytes)) {
        block[..8].copy_from_slice(&lba.to_le_bytes());
        block[8..STAMP_BYTES].copy_from_slice(&(lba ^ MARK).to_le_bytes());
    }
}

/// Checks the blocks from `lba` on: each carries its own stamp, or none.
///
/// # Errors
/// The first that does not, in words.
pub(super) fn check(data: &[u8], lba: u64, block_bytes: usize) -> Result<(), String> {
    for (lba, block) in (lba..).zip(data.chunks_exact(block_bytes)) {
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&block[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let (first, second) = (word(0), word(8));
        let own = first == lba && second == lba ^ MARK;
        if own || (first, second) == (0, 0) {
            continue;
        }
        return Err(if second == first ^ MARK {
            format!("block {lba} holds what was written to block {first}")
        } else {
            format!("block {lba} holds no stamp: it begins with {first:#x}, {second:#x}")
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_fit_and_foreign_ones_are_named() {
        let mut data = vec![0; 4 * 512];
        assert_eq!(check(&data, 0, 512), Ok(()));
        fill(&mut data, 7, 512);
        assert_eq!(check(&data, 7, 512), Ok(()));
        assert_eq!(check(&data[512..], 8, 512), Ok(()));
        let text = check(&data, 0, 512).expect_err("blocks of another place");
        assert_eq!(text, "block 0 holds what was written to block 7");
        data[1024] ^= 1;
        let text = check(&data, 7, 512).expect_err("a torn stamp");
        assert!(text.starts_with("block 9 holds no stamp"), "{text}");
        fill(&mut data, 0, 512);
        assert_eq!(check(&data, 0, 512), Ok(()));
        assert!(check(&data, 1, 512).is_err());
    }
}
