//! Quiesced heads: none of their commands is given a tag.
//!
//! New commands of such a head stay on its requeue list. Those that were already waiting for a tag
//! are set aside with their queue pair: they keep their path, their charge and their order.

use super::Shard;
use super::head::HeadState;
use crate::by_id::ById;
use crate::topology::HeadId;

/// Whether dispatch is stopped on a head.
pub(super) fn is_quiesced(heads: &ById<HeadState>, head: HeadId) -> bool {
    let head = heads.get(head.0);
    head.is_some_and(|head| head.view.quiesced > 0 && !head.gone)
}

impl Shard {
    /// The heads have changed: sets waiting commands aside, or lets them wait for a tag again.
    pub(super) fn sort_waiting(&mut self) {
        let heads = &self.heads;
        let some_quiesced = heads.values().any(|head| head.view.quiesced > 0);
        for queue in self.queues.iter_mut().flatten() {
            if !some_quiesced && queue.set_aside.is_empty() {
                continue;
            }
            queue.scatter(&mut self.commands);
            // What was set aside came first.
            let mut all = core::mem::take(&mut queue.set_aside);
            while let Some(key) = queue.waiting.pop_front(&mut self.commands) {
                all.push_back(&mut self.commands, key);
            }
            while let Some(key) = all.pop_front(&mut self.commands) {
                let list = if is_quiesced(heads, self.commands[key].head) {
                    &mut queue.set_aside
                } else {
                    &mut queue.waiting
                };
                list.push_back(&mut self.commands, key);
            }
        }
    }
}
