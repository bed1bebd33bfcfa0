//! Which failed flushes a host has heard of that comes, and that goes.

use super::Target;
use crate::backend::Backend;
use crate::controller::{Controller, Of, Reported};
use alloc::vec::Vec;
use anabranch_proto::nvme::Uuid;

impl Target {
    /// What the host of a new controller has heard of: what was lost while it was away may be its
    /// own, and nothing of that which was lost before it first came.
    pub(super) fn has_heard(&self, of: Of, host: Uuid) -> Vec<Reported> {
        let Of::Subsystem(subsystem) = of else { return Vec::new() };
        let living = self.controllers.iter().flatten();
        let here: Vec<&Controller> =
            living.filter(|other| other.of == of && other.host_id == host).collect();
        let heard_of = |generation| here.iter().map(|other| other.heard(generation)).max();
        let namespaces = self.subsystems[subsystem].namespaces.iter();
        let heard = namespaces.filter_map(|namespace| {
            let Backend::File(store) = &namespace.backend else { return None };
            let generation = namespace.generation;
            let heard = store.absent.heard(host).max(heard_of(generation));
            let heard = heard.unwrap_or(store.lost_writes);
            (heard > 0).then(|| Reported::before(generation, heard))
        });
        heard.collect()
    }

    /// A controller has ended: its host may come back, and has to hear of what it did not hear.
    pub(super) fn remember(&mut self, controller: &Controller) {
        let Of::Subsystem(subsystem) = controller.of else { return };
        for namespace in &mut self.subsystems[subsystem].namespaces {
            let heard = controller.heard(namespace.generation);
            if let Backend::File(store) = &mut namespace.backend {
                store.absent.leaves(controller.host_id, heard, store.lost_writes);
            }
        }
    }
}
