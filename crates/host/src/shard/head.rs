//! A head as this shard works on it: the published view plus what only this worker knows.

use super::stats::StatsTable;
use crate::table::List;
use crate::topology::{
    Association, ControllerId, ControllerState, ControllerView, HeadView, PathView,
};
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::{
    AnaRank, AsCandidate, Candidate, ControllerLedger, LOCAL_DISTANCE, Selector,
};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::ana::AnaState;

/// How this worker reaches a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// Through its own queue pair.
    Own { slot: u16 },
    /// Through another worker's.
    Peer { worker: WorkerId },
    /// Not at all, now.
    None,
}

/// A controller as this shard works on it.
pub(super) struct ControllerEntry {
    pub(super) view: Arc<ControllerView>,
    /// The controller is in the present picture.
    pub(super) present: bool,
    /// Our open queue pair of its present association.
    pub(super) slot: Option<u16>,
    /// Commands that hold a charge on its ledger.
    pub(super) charges: u32,
    /// The worker that carries our commands has lost its queue pair of this association.
    pub(super) carrier_lost: Option<Association>,
}

impl ControllerEntry {
    pub(super) fn new(view: Arc<ControllerView>) -> ControllerEntry {
        ControllerEntry { view, present: true, slot: None, charges: 0, carrier_lost: None }
    }

    fn carrier(&self, me: WorkerId) -> Carrier {
        if !self.present {
            return Carrier::None;
        }
        let usable = matches!(self.view.state, ControllerState::Live | ControllerState::Deleting);
        let index = usize::from(me.0.saturating_sub(1));
        match self.view.queue_of_worker.get(index) {
            Some(&owner) if owner == me => match self.slot {
                Some(slot) if usable => Carrier::Own { slot },
                _ => Carrier::None,
            },
            Some(&owner) if usable && self.carrier_lost != Some(self.view.association) => {
                Carrier::Peer { worker: owner }
            }
            _ => Carrier::None,
        }
    }
}

/// One path of a head on this worker.
pub(super) struct PathState {
    pub(super) view: PathView,
    pub(super) carrier: Carrier,
    pub(super) ledger: Arc<ControllerLedger>,
    /// May be chosen (statement M1).
    pub(super) usable: bool,
    /// An ANA status came back when the controller's log had this generation: out until it grows.
    pub(super) ana_suspect: Option<u64>,
    pub(super) distance: u32,
    pub(super) stats: u32,
}

impl AsCandidate for PathState {
    fn candidate(&self) -> Candidate<'_> {
        Candidate {
            usable: self.usable,
            rank: match self.view.ana_state {
                AnaState::Optimized => AnaRank::Optimized,
                _ => AnaRank::NonOptimized,
            },
            numa_distance: self.distance,
            controller: &self.ledger,
        }
    }
}

/// A head on this worker.
pub(super) struct HeadState {
    pub(super) view: Arc<HeadView>,
    pub(super) paths: Vec<PathState>,
    pub(super) selector: Selector,
    /// Commands without a path.
    pub(super) requeue: List,
    /// Requests that came while the head was frozen.
    pub(super) held: List,
    /// Requests that are not held and not answered.
    pub(super) active: u32,
    /// The head has left the picture, or is marked gone in it.
    pub(super) gone: bool,
    /// The epoch in which `Frozen` was last reported.
    pub(super) frozen_reported: Option<u64>,
    /// The epoch in which `Quiesced` was last reported.
    pub(super) quiesced_reported: Option<u64>,
    pub(super) stats: u32,
}

impl HeadState {
    pub(super) fn new(view: Arc<HeadView>, stats: &mut StatsTable) -> HeadState {
        HeadState {
            stats: stats.head(view.id),
            paths: Vec::new(),
            selector: Selector::new(),
            requeue: List::default(),
            held: List::default(),
            active: 0,
            gone: view.gone,
            frozen_reported: None,
            quiesced_reported: None,
            view,
        }
    }

    /// Takes over a new picture of the head; what this worker knows of a path stays with it.
    pub(super) fn update(
        &mut self,
        view: Arc<HeadView>,
        me: WorkerId,
        controllers: &[Option<ControllerEntry>],
        stats: &mut StatsTable,
    ) {
        let paths_changed =
            self.paths.len() != view.paths.len()
                || self.paths.iter().zip(&view.paths).any(|(a, b)| {
                    a.view.controller != b.controller || a.view.ana_state != b.ana_state
                });
        if paths_changed || view.policy_epoch != self.view.policy_epoch {
            self.selector.clear_cache();
        }
        let worker = usize::from(me.0.saturating_sub(1));
        let old = core::mem::take(&mut self.paths);
        for path in &view.paths {
            let Some(entry) = entry(controllers, path.controller) else { continue };
            let known = old.iter().find(|known| known.view.controller == path.controller);
            self.paths.push(PathState {
                carrier: Carrier::None,
                ledger: Arc::clone(&entry.view.ledger),
                usable: false,
                ana_suspect: known.and_then(|known| known.ana_suspect),
                distance: path.distance.get(worker).copied().unwrap_or(LOCAL_DISTANCE),
                stats: known
                    .map_or_else(|| stats.path(view.id, path.controller), |known| known.stats),
                view: path.clone(),
            });
        }
        self.gone = view.gone;
        self.view = view;
        self.rebind(me, controllers);
    }

    /// Works out anew which paths may be chosen.
    pub(super) fn rebind(&mut self, me: WorkerId, controllers: &[Option<ControllerEntry>]) {
        for (index, path) in self.paths.iter_mut().enumerate() {
            let was = path.usable;
            path.carrier = Carrier::None;
            if let Some(entry) = entry(controllers, path.view.controller) {
                path.carrier = entry.carrier(me);
                if path.ana_suspect.is_some_and(|at| entry.view.ana_generation > at) {
                    path.ana_suspect = None;
                }
            }
            path.usable = path.carrier != Carrier::None
                && path.view.ready
                && !path.view.ana_pending
                && path.ana_suspect.is_none()
                && matches!(path.view.ana_state, AnaState::Optimized | AnaState::NonOptimized);
            if was && !path.usable {
                self.selector.forget_path(index);
            }
        }
    }

    /// Whether a command without a usable path should wait: some controller may carry it again.
    pub(super) fn may_come_back(&self, controllers: &[Option<ControllerEntry>]) -> bool {
        if self.gone {
            return false;
        }
        let some_path = self.paths.iter().any(|path| {
            entry(controllers, path.view.controller).is_some_and(|entry| {
                entry.present
                    && !entry.view.fast_io_failed
                    && matches!(
                        entry.view.state,
                        ControllerState::Live
                            | ControllerState::Resetting
                            | ControllerState::Connecting
                    )
            })
        });
        some_path || self.view.queue_if_no_path
    }

    /// The index of the usable path through `controller`.
    pub(super) fn usable_through(&self, controller: ControllerId) -> Option<usize> {
        self.paths.iter().position(|path| path.view.controller == controller && path.usable)
    }
}

pub(super) fn entry(
    controllers: &[Option<ControllerEntry>],
    id: ControllerId,
) -> Option<&ControllerEntry> {
    controllers.get(id.0 as usize)?.as_ref()
}
