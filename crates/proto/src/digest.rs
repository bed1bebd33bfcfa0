//! Header and data digests: CRC-32C (Castagnoli), initial value and final inversion all ones.
//!
//! On the wire a digest is four bytes, least significant first.

use core::fmt;
use crc_fast::{CrcAlgorithm, Digest};

/// Bytes of a digest on the wire.
pub const DIGEST_BYTES: usize = 4;

/// The digest of bytes that lie in one piece.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    low_half(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

/// A digest over bytes that come in pieces. Never allocates.
#[derive(Clone, Copy)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// A digest over nothing yet.
    #[must_use]
    pub fn new() -> Crc32c {
        Crc32c(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Takes the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest over all pieces; starts again from nothing.
    pub fn take(&mut self) -> u32 {
        let value = low_half(self.0.finalize());
        self.0.reset();
        value
    }
}

impl Default for Crc32c {
    fn default() -> Crc32c {
        Crc32c::new()
    }
}

impl fmt::Debug for Crc32c {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Crc32c({:#010x})", low_half(self.0.finalize()))
    }
}

/// The library keeps every width in 64 bits; the upper half of a 32-bit one is zero.
const fn low_half(value: u64) -> u32 {
    (value & 0xffff_ffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720 B.4.
    #[test]
    fn published_values() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn pieces_equal_the_whole_and_another_implementation() {
        let bytes: alloc::vec::Vec<u8> = (0..5000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        let mut digest = Crc32c::new();
        for len in [1, 3, 15, 16, 17, 63, 255, 256, 1000, 4096, 5000] {
            let whole = crc32c(&bytes[..len]);
            assert_eq!(whole, crc32c::crc32c(&bytes[..len]), "length {len}");
            for cut in [0, 1, len / 3, len / 2, len - 1, len] {
                digest.update(&bytes[..cut]);
                digest.update(&bytes[cut..len]);
                assert_eq!(digest.take(), whole, "length {len} cut at {cut}");
            }
        }
    }
}
