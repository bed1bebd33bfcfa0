//! What completions teach the policies that measure, and the weights that follow from it.

use super::Shard;
use super::command::Command;
use super::head::HeadState;
use anabranch_policy::{Charge, Sampled, compute_weights, sample};
use anabranch_proto::machine::Time;

impl HeadState {
    /// A command ended well: tells the policy how long it took. Gives back this head's number when
    /// weights are due that were not before.
    pub(super) fn measure(&mut self, command: &Command, charge: Charge, now: Time) -> Option<u32> {
        // What was started under other rules says nothing about these.
        let parameters = &self.view.parameters;
        if !parameters.policy.measures() || charge.epoch() != self.view.policy_epoch as u16 {
            return None;
        }
        let load = self.path_of(command)?.load();
        match sample(parameters, charge, load, self.paths.len(), now.ns()) {
            Sampled::BatchClosed(group) => {
                let first = self.weights_due.is_empty();
                self.weights_due.insert(group);
                first.then_some(self.view.id.0)
            }
            Sampled::Nothing | Sampled::Taken | Sampled::TooLong => None,
        }
    }
}

impl Shard {
    /// A head has weights to compute: not here, where I/O passes, but at once.
    #[cold]
    pub(super) fn weights_due(&mut self, head: u32, now: Time) {
        self.weights_due.push(head);
        self.wake_at(now);
    }

    /// Computes the weights that are due. From a time-out.
    pub(super) fn compute_weights(&mut self) {
        while let Some(id) = self.weights_due.pop() {
            let Some(head) = self.heads.get_mut(id) else { continue };
            for group in head.weights_due.take() {
                compute_weights(&head.view.parameters, &head.paths, group);
            }
        }
    }
}
