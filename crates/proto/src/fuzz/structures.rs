//! Structures of commands, completions, Identify and log pages.

use crate::nvme::aer::AsyncEvent;
use crate::nvme::fabrics::{ConnectCommand, ConnectData, PropertyGet, PropertySet};
use crate::nvme::identify::{
    ActiveNamespaceList, BYTES, Controller, IoCommandLimits, Namespace, NamespaceIdDescriptors,
};
use crate::nvme::io::{BlockFields, DsmFields};
use crate::nvme::log::{
    Ana, AnaLimits, ChangedNamespaces, DiscoveryEntry, DiscoveryHeader, ErrorEntry, GetLogPage,
    Smart,
};
use crate::nvme::{Cqe, Nqn, Sqe, pretty};
use alloc::string::ToString;
use alloc::vec::Vec;

/// Reads `bytes` as every structure; what is accepted must come back the same after being written
/// and read again.
///
/// # Panics
/// When a structure does not keep that.
pub fn structures(bytes: &[u8]) {
    fixed(bytes);
    identify(bytes);
    logs(bytes);
    let limits = AnaLimits { group_id: 1 << 16, groups: 1 << 10 };
    if let Ok(log) = Ana::parse(bytes, limits) {
        assert!(log.bytes(false) <= bytes.len(), "no more than there was");
        assert_eq!(Ana::parse(&log.to_bytes(false), limits), Ok(log));
    }
}

fn fixed(bytes: &[u8]) {
    if let Some(first) = bytes.first_chunk::<{ Cqe::BYTES }>() {
        let cqe = Cqe::from_bytes(first);
        assert_eq!(Cqe::from_bytes(&cqe.to_bytes()), cqe);
        assert!(!cqe.to_string().is_empty());
        let _ = AsyncEvent::from_result(cqe.result);
    }
    if let Some(first) = bytes.first_chunk::<{ Sqe::BYTES }>() {
        command(&Sqe::from_bytes(first), bytes);
    }
    if let Some(field) = bytes.first_chunk::<{ Nqn::FIELD_BYTES }>()
        && let Ok(nqn) = Nqn::from_field(field)
    {
        assert_eq!(&nqn.to_field(), field);
        assert_eq!(Nqn::as_named(nqn.as_str()), Ok(nqn));
    }
    if let Ok(data) = ConnectData::parse(bytes) {
        assert_eq!(ConnectData::parse(&data.to_bytes()), Ok(data));
    }
}

fn command(sqe: &Sqe, data: &[u8]) {
    assert!(!pretty::command(sqe, true).to_string().is_empty());
    assert!(!pretty::command(sqe, false).to_string().is_empty());
    if let Ok(connect) = ConnectCommand::parse(sqe) {
        assert_eq!(ConnectCommand::parse(&connect.sqe().with_sgl(sqe.sgl())), Ok(connect));
    }
    if let Ok(get) = PropertyGet::parse(sqe) {
        assert_eq!(PropertyGet::parse(&get.sqe()), Ok(get));
    }
    if let Ok(set) = PropertySet::parse(sqe) {
        assert_eq!(PropertySet::parse(&set.sqe()), Ok(set));
    }
    if let Ok(page) = GetLogPage::parse(sqe) {
        assert_eq!(GetLogPage::parse(&page.sqe()), Ok(page));
    }
    let fields = BlockFields::of(sqe);
    assert!((1..=65536).contains(&fields.blocks));
    if fields.check(1 << 40).is_ok() {
        assert!(fields.lba + u64::from(fields.blocks) <= 1 << 40);
    }
    let ranges = DsmFields::of(sqe);
    if let Ok(read) = ranges.read(data) {
        assert_eq!(read.count(), ranges.ranges as usize);
    }
}

fn identify(bytes: &[u8]) {
    let mut again = [0; BYTES];
    if let Ok(it) = Controller::parse(bytes) {
        it.emit(&mut again);
        assert_eq!(Controller::parse(&again), Ok(it));
    }
    if let Ok(it) = Namespace::parse(bytes) {
        it.emit(&mut again);
        assert_eq!(Namespace::parse(&again), Ok(it));
        assert_eq!(it.bytes() / u64::from(it.block_bytes()), it.nsze);
    }
    if let Ok(it) = IoCommandLimits::parse(bytes) {
        it.emit(&mut again);
        assert_eq!(IoCommandLimits::parse(&again), Ok(it));
    }
    if let Ok(it) = NamespaceIdDescriptors::parse(bytes) {
        it.emit(&mut again);
        assert_eq!(NamespaceIdDescriptors::parse(&again), Ok(it));
    }
    if let Ok(it) = ActiveNamespaceList::parse(bytes, 0) {
        it.emit(&mut again);
        assert_eq!(ActiveNamespaceList::parse(&again, 0), Ok(it));
    }
}

fn logs(bytes: &[u8]) {
    if let Ok(it) = DiscoveryHeader::parse(bytes, 1 << 16) {
        assert_eq!(DiscoveryHeader::parse(&it.to_bytes(), 1 << 16), Ok(it));
        let entries = bytes.chunks_exact(DiscoveryEntry::BYTES).skip(1);
        let good: Vec<DiscoveryEntry> =
            entries.filter_map(|e| DiscoveryEntry::parse(e).ok()).collect();
        let log = DiscoveryEntry::log(it.generation, &good);
        for (entry, bytes) in good.iter().zip(log.chunks_exact(DiscoveryEntry::BYTES).skip(1)) {
            assert_eq!(DiscoveryEntry::parse(bytes).as_ref(), Ok(entry));
        }
    }
    if let Some(first) = bytes.first_chunk() {
        let it = ErrorEntry::from_bytes(first);
        assert_eq!(ErrorEntry::from_bytes(&it.to_bytes()), it);
    }
    if let Ok(it) = Smart::parse(bytes) {
        assert_eq!(Smart::parse(&it.to_bytes()), Ok(it));
    }
    if let Ok(it) = ChangedNamespaces::parse(bytes) {
        let mut again = [0; ChangedNamespaces::BYTES];
        it.emit(&mut again);
        assert_eq!(ChangedNamespaces::parse(&again), Ok(it));
    }
}
