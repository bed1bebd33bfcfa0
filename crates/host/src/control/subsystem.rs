//! Subsystems, heads and paths as control keeps them.
//!
//! As in Linux (`nvme_init_subsystem`), controllers belong to one subsystem when they report the
//! same subsystem NQN. Serial number and model are mostly the same then, but not of the nodes of a
//! cluster that each draw their own. Two targets that carry the same NQN by mistake are told apart
//! by the identifiers of their namespaces: what has none is never merged, and known as its target's
//! by serial number and model.

use super::facts::Identity;
use super::namespace::Ids;
use super::pace::Pace;
use super::sizes::Sizing;
use crate::config::DeviceSettings;
use crate::load::PathLoad;
use crate::topology::{ControllerId, HeadId, Limits, PathId};
use crate::verb::PolicySource;
use crate::{FailedFlushes, Leftovers, WriteMarks, WrittenUnder};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::{NodeLatency, Parameters};
use anabranch_proto::machine::Time;
use anabranch_proto::nvme::ana::AnaState;

/// A namespace of a head as seen through one controller.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) id: PathId,
    pub(super) controller: ControllerId,
    /// The C of `nvmeXcCnY`.
    pub(super) controller_instance: u32,
    /// Under which NSID that controller has shown the namespace. The device may have another one by
    /// now: then it is to show it there before it is used again.
    pub(super) nsid: u32,
    /// What that controller says the size is.
    pub(super) blocks: u64,
    /// How many of them are in use, as of the last scan.
    pub(super) used_blocks: u64,
    pub(super) ana_group: u32,
    pub(super) write_protected: bool,
    /// Write Zeroes may be told to give the space back.
    pub(super) zeroes_may_deallocate: bool,
    /// What its controller says of it could not be read: out of use until it can be.
    pub(super) unread: bool,
    /// There may be another namespace under this NSID: out of use until its controller has ended a
    /// scan that began after the scan of this number.
    pub(super) doubted: Option<u64>,
    /// Its controller has said that namespaces have changed before the path was first looked at, or
    /// joined: out of use until the controller has said which ones.
    pub(super) awaits_news: bool,
    /// How often a worker has said so.
    pub(super) doubts: u32,
    /// How often it came into doubt at all, modulo 2^32.
    pub(super) doubted_times: u32,
    /// What all share until a policy counts by path.
    pub(super) load: Arc<PathLoad>,
    /// What the workers of each NUMA node measure together; nothing unless `latency` averages so.
    pub(super) nodes: Vec<Arc<NodeLatency>>,
    pub(super) writes: Arc<WriteMarks>,
    /// The ANA state that was last published, to tell changes.
    pub(super) shown: Option<AnaState>,
    /// It was told that its size is not the device's.
    pub(super) disagrees: bool,
    /// The data workers, from 0, that it belongs to under `io-affinity`; `None` until that is set.
    pub(super) io_affinity: Option<BTreeSet<u16>>,
    /// `multipath_failover_count` starts from here since it was reset, …
    pub(super) failovers_base: u64,
    /// … `command_error_count` from here …
    pub(super) errors_base: u64,
    /// … and `command_retries_count` from here.
    pub(super) retries_base: u64,
}

/// A device.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) id: HeadId,
    /// The Y of `nvmeXnY`.
    pub(super) instance: u32,
    pub(super) nsid: u32,
    pub(super) ids: Ids,
    /// Of the controller that showed it first.
    pub(super) origin: Arc<Identity>,
    pub(super) shared: bool,
    pub(super) blocks: u64,
    /// Hardly any head has one.
    pub(super) disputes: Option<Box<Disputes>>,
    pub(super) block_bytes: u32,
    pub(super) paths: Vec<Path>,
    /// It has had a path that could carry I/O, so users see it.
    pub(super) visible: bool,
    /// It was told that none of its paths is usable.
    pub(super) stranded: bool,
    pub(super) settings: DeviceSettings,
    /// Without a path: when it goes.
    pub(super) remove_at: Option<Time>,
    pub(super) quiesced: u32,
    pub(super) frozen: u32,
    /// Grows when its settings change so that what was measured is worth nothing any more.
    pub(super) policy_epoch: u32,
    /// The counters start from here since they were reset.
    pub(super) requeues_base: u64,
    pub(super) no_path_base: u64,
    /// It has refused to make zeroes: it is not asked to again.
    pub(super) zeroes_refused: bool,
    /// Under which picture a write was acknowledged last.
    pub(super) written: Arc<WrittenUnder>,
    /// What users have withdrawn and that has not ended.
    pub(super) leftovers: Arc<Leftovers>,
    /// Flushes that a controller has failed.
    pub(super) failed_flushes: Arc<FailedFlushes>,
    /// What held when it last had a path: that goes for requests that come without one.
    pub(super) last_limits: Option<Limits>,
}

impl Path {
    /// There may be another namespace under its NSID until its controller has ended a scan that
    /// began after the one of this number.
    pub(super) fn doubt(&mut self, since: Option<u64>) {
        if since > self.doubted {
            self.doubted = since;
            self.doubted_times = self.doubted_times.wrapping_add(1);
        }
    }
}

/// What the paths of a head do not agree about.
#[derive(Debug, Default)]
pub(super) struct Disputes {
    pub(super) sizing: Sizing,
    /// Which controllers show another namespace under its NSID, and how often its other paths are
    /// asked for that.
    pub(super) contradicted: BTreeMap<ControllerId, Pace>,
}

impl Disputes {
    fn due(&self) -> Option<Time> {
        let contradicted = self.contradicted.values().filter_map(Pace::owed_at).min();
        [self.sizing.due(), contradicted].into_iter().flatten().min()
    }
}

impl Head {
    /// As the kernel's `wwid`: the first identifier there is, else what the subsystem says.
    pub(super) fn wwid(&self) -> String {
        let ids = &self.ids;
        let mut wwid = if !ids.uuid.is_zero() {
            format!("uuid.{}", ids.uuid)
        } else if !ids.nguid.is_zero() {
            format!("eui.{:x}", ids.nguid)
        } else if !ids.eui64.is_zero() {
            format!("eui.{:x}", ids.eui64)
        } else {
            let hex =
                |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
            let (serial, model) = (hex(&self.origin.serial), hex(&self.origin.model));
            format!("nvme.{:04x}-{serial}-{model}-{:08x}", self.origin.vendor, self.nsid)
        };
        // A text that was put together has room for more.
        wwid.shrink_to_fit();
        wwid
    }

    pub(super) fn path(&self, controller: ControllerId) -> Option<&Path> {
        self.paths.iter().find(|path| path.controller == controller)
    }

    pub(super) fn path_mut(&mut self, controller: ControllerId) -> Option<&mut Path> {
        self.paths.iter_mut().find(|path| path.controller == controller)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_bytes))
    }

    /// When it goes, or something that its paths do not agree about is to be looked at.
    pub(super) fn due(&self) -> Option<Time> {
        let disputed = self.disputes.as_ref().and_then(|disputes| disputes.due());
        [self.remove_at, disputed].into_iter().flatten().min()
    }

    /// What its paths do not agree about, if they ever did not.
    pub(super) fn known_disputes(&self) -> Option<&Disputes> {
        self.disputes.as_deref()
    }

    pub(super) fn disputes(&mut self) -> &mut Disputes {
        self.disputes.get_or_insert_default()
    }

    /// Whether somebody is to be asked now about what contradicts it.
    pub(super) fn take_owed(&mut self, now: Time) -> bool {
        let Some(disputes) = &mut self.disputes else { return false };
        // Each of them, not the first alone.
        let owed = disputes.contradicted.values_mut().map(|pace| pace.take_owed(now));
        owed.filter(|&owed| owed).count() > 0
    }

    /// A path whose size is the device's (M20).
    pub(super) fn agrees(&self, path: &Path) -> bool {
        path.blocks == self.blocks
    }
}

/// A subsystem.
#[derive(Debug)]
pub(super) struct Subsystem {
    /// The N of `nvme-subsysN`: the number of its first controller, as in Linux.
    pub(super) instance: u32,
    pub(super) identity: Arc<Identity>,
    pub(super) firmware: String,
    pub(super) parameters: Parameters,
    /// Where its policy comes from.
    pub(super) policy_source: PolicySource,
    pub(super) policy_epoch: u32,
    pub(super) controllers: Vec<ControllerId>,
    pub(super) heads: Vec<Head>,
    /// Whose number each is, also of heads that are gone.
    pub(super) numbers: Numbers,
}

impl Subsystem {
    /// Makes room for so many heads, and no more: most come at once, with the first controller.
    pub(super) fn make_room(&mut self, heads: usize) {
        self.heads.reserve_exact(heads.saturating_sub(self.heads.len()));
        let owners = &mut self.numbers.owners;
        owners.reserve_exact(heads.saturating_sub(owners.len()));
    }

    pub(super) fn name(&self) -> String {
        format!("nvme-subsys{}", self.instance)
    }

    pub(super) fn head_name(&self, head: &Head) -> String {
        format!("nvme{}n{}", self.instance, head.instance)
    }

    /// The name of the path through the controller with this number.
    pub(super) fn path_name(&self, head: &Head, controller: u32) -> String {
        format!("nvme{}c{controller}n{}", self.instance, head.instance)
    }
}

/// A namespace; one that its identifiers do not tell from others is the NSID of who showed it.
type Owner = (Ids, Option<(u32, Arc<Identity>)>);

/// The Y of `nvmeXnY`: each number is one namespace's while the subsystem is connected. Exports,
/// attributes and users know a device by its name, so another namespace must not turn up under it,
/// and the same one comes back under the same.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// By number, from 1.
    owners: Vec<Owner>,
    /// By NSID, the number of the device that had it and is gone.
    left: BTreeMap<u32, u32>,
}

impl Numbers {
    /// Numbers that are remembered; beyond them the lowest that no head has is given again.
    const MAX: usize = 65_536;

    /// A device that users knew is gone.
    pub(super) fn leave(&mut self, nsid: u32, number: u32) {
        if self.left.len() < Numbers::MAX {
            self.left.insert(nsid, number);
        }
    }

    /// A device gets this NSID: the number of another one that had it before.
    pub(super) fn former(&mut self, nsid: u32, number: u32) -> Option<u32> {
        self.left.remove(&nsid).filter(|&former| former != number)
    }

    /// The number of a namespace that no head stands for; `taken` are those of heads. There may
    /// have been another one with its identifiers (`twin`).
    pub(super) fn give(
        &mut self,
        (ids, twin): (Ids, bool),
        (nsid, origin): (u32, &Arc<Identity>),
        taken: impl Fn(u32) -> bool,
    ) -> u32 {
        let told_by_place = ids.is_none() || twin;
        let owner: Owner = (ids, told_by_place.then(|| (nsid, origin.clone())));
        let known = self.owners.iter().position(|known| *known == owner);
        // `MAX` fits.
        let number = |at: usize| at as u32 + 1;
        if let Some(at) = known.filter(|&at| !taken(number(at))) {
            return number(at);
        }
        if self.owners.len() < Numbers::MAX {
            self.owners.push(owner);
            return number(self.owners.len() - 1);
        }
        let free = (1..=u32::MAX).find(|&number| !taken(number)).unwrap_or(u32::MAX);
        if let Some(place) = self.owners.get_mut(free as usize - 1) {
            *place = owner;
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_proto::nvme::ids::Uuid;

    fn ids(number: u32) -> Ids {
        let mut uuid = [7; 16];
        uuid[..4].copy_from_slice(&number.to_le_bytes());
        Ids { uuid: Uuid(uuid), ..Ids::default() }
    }

    fn identity(serial: &str) -> Arc<Identity> {
        let nqn = "nqn.2024-01.test:one".parse().unwrap();
        Arc::new(Identity { nqn, serial: serial.into(), model: "Fake".into(), vendor: 0 })
    }

    #[test]
    fn a_number_is_one_namespaces_and_comes_back_with_it() {
        let mut numbers = Numbers::default();
        let (none, a, b) = (|_| false, identity("A"), identity("B"));
        assert_eq!(numbers.give((ids(1), false), (1, &a), none), 1);
        assert_eq!(
            numbers.give((ids(2), false), (1, &a), none),
            2,
            "the NSID does not make the namespace"
        );
        assert_eq!(numbers.give((ids(1), false), (9, &b), none), 1);
        // Without identifiers the NSID and whose it is are all there is to know it by.
        assert_eq!(numbers.give((Ids::default(), false), (4, &a), none), 3);
        assert_eq!(numbers.give((Ids::default(), false), (5, &a), none), 4);
        assert_eq!(numbers.give((Ids::default(), false), (4, &a), none), 3);
        assert_eq!(numbers.give((Ids::default(), false), (4, &b), none), 5);
        assert_eq!(
            numbers.give((ids(1), false), (1, &a), |number| number == 1),
            6,
            "a head has it"
        );
        assert_eq!(numbers.give((ids(1), true), (2, &a), none), 7, "not for what looks like it");
    }

    #[test]
    fn when_too_many_were_given_those_that_no_head_has_are_given_again() {
        let mut numbers = Numbers::default();
        let (taken, a) = (|number| number <= 100, identity("A"));
        for number in 1..=Numbers::MAX as u32 {
            numbers.owners.push((ids(number), None));
        }
        assert_eq!(numbers.give((ids(u32::MAX), false), (1, &a), taken), 101);
        assert_eq!(numbers.give((ids(u32::MAX), false), (1, &a), taken), 101);
        assert_eq!(numbers.owners.len(), Numbers::MAX);
    }
}
