//! A namespace: its identity, size, group and blocks.

use crate::backend::Backend;
use crate::config::NamespaceConfig;
use anabranch_proto::nvme::{Nguid, Nqn, Uuid};

/// What was done to a namespace since the target started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceCounters {
    /// Reads that were answered with success.
    pub reads: u64,
    /// Bytes of those.
    pub read_bytes: u64,
    /// Writes that were answered with success.
    pub writes: u64,
    /// Bytes of those.
    pub written_bytes: u64,
    /// Writes with force unit access among them.
    pub fua_writes: u64,
    /// Flushes that were answered with success.
    pub flushes: u64,
    /// Compare, Write Zeroes and Dataset Management commands answered with success.
    pub others: u64,
    /// I/O commands that were answered with an error, ANA states included.
    pub errors: u64,
}

/// One namespace of a subsystem.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) nsid: u32,
    /// Block size is `1 << block_shift` bytes.
    pub(crate) block_shift: u8,
    pub(crate) blocks: u64,
    pub(crate) uuid: Uuid,
    pub(crate) nguid: Nguid,
    pub(crate) ana_group: u32,
    pub(crate) backend: Backend,
    pub(crate) counters: NamespaceCounters,
    /// Tells this namespace from an earlier one with the same NSID.
    pub(crate) generation: u64,
}

impl Namespace {
    pub(crate) fn new(config: &NamespaceConfig, subsystem: &Nqn, generation: u64) -> Namespace {
        let uuid = config.uuid.unwrap_or_else(|| derived_ids(subsystem, config.nsid, &[]).0);
        Namespace {
            nsid: config.nsid,
            block_shift: if config.block_bytes == 4096 { 12 } else { 9 },
            blocks: config.backend.bytes() / u64::from(config.block_bytes),
            uuid,
            nguid: config.nguid.unwrap_or_else(|| derived_nguid(uuid)),
            ana_group: config.ana_group,
            backend: Backend::new(&config.backend),
            counters: NamespaceCounters::default(),
            generation,
        }
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        1 << self.block_shift
    }

    pub(crate) fn resize(&mut self, bytes: u64) {
        self.backend.resize(bytes);
        self.blocks = bytes >> self.block_shift;
    }
}

/// Identifiers of a namespace for which none were chosen. The same arguments give the same in every
/// run and on every machine. `origin` says which blocks they are: two namespaces that a host must
/// never take for one differ in it.
#[must_use]
pub fn derived_ids(subsystem: &Nqn, nsid: u32, origin: &[u8]) -> (Uuid, Nguid) {
    let place = nsid.to_le_bytes();
    let id = derived_id(1, &[subsystem.as_str().as_bytes(), &[0], &place, origin]);
    let uuid = Uuid(as_uuid(id));
    (uuid, derived_nguid(uuid))
}

/// The NGUID of a namespace for which none was chosen. It follows from the UUID alone: hosts take a
/// namespace for the same only where all its identifiers are. So it stays the same under another
/// NSID, in another subsystem and with its blocks elsewhere, once its UUID is chosen; and another
/// namespace in its place has another.
#[must_use]
pub fn derived_nguid(uuid: Uuid) -> Nguid {
    Nguid(derived_id(2, &[&uuid.0]))
}

/// Bytes that only this subsystem has, for its serial number: the same in every run and on every
/// machine.
#[must_use]
pub fn derived_serial(subsystem: &Nqn) -> [u8; 16] {
    derived_id(2, &[subsystem.as_str().as_bytes(), &[0], &0_u32.to_le_bytes()])
}

/// A fixed hash (FNV-1a of 128 bits, then a final mix).
fn derived_id(salt: u8, parts: &[&[u8]]) -> [u8; 16] {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mut eat = |byte: u8| hash = (hash ^ u128::from(byte)).wrapping_mul(PRIME);
    eat(salt);
    parts.iter().copied().flatten().copied().for_each(&mut eat);
    for _ in 0..2 {
        hash ^= hash >> 67;
        hash = hash.wrapping_mul(0xf135_7aea_2e62_a9c5_8a5c_d789_635d_2dff);
    }
    (hash ^ (hash >> 61)).to_be_bytes()
}

/// Marks 16 bytes as a UUID of version 8 (custom) and the usual variant.
fn as_uuid(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}
