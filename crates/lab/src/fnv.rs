//! FNV-1a, the same on every machine.

/// A hash that grows.
pub(crate) struct Fnv(u64);

impl Fnv {
    /// Of nothing.
    pub(crate) fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    /// Of these bytes, too.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// What it is.
    pub(crate) fn get(&self) -> u64 {
        self.0
    }
}
