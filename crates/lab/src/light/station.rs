//! The target's servers: first come, first served.

use crate::scenario::Target;
use std::collections::VecDeque;

/// Some servers and the commands that wait for one.
#[derive(Debug)]
pub(super) struct Station {
    /// Free ones; unlimited when `None`.
    free: Option<u32>,
    /// Slot and generation: a command that was lost meanwhile is passed over.
    queue: VecDeque<(u32, u32)>,
}

impl Station {
    pub(super) fn new(target: &Target, commands: usize) -> Station {
        let waiting = if target.servers.is_some() { commands } else { 0 };
        Station { free: target.servers, queue: VecDeque::with_capacity(waiting) }
    }

    /// Whether a server takes the command now; else it waits.
    #[inline]
    pub(super) fn enter(&mut self, slot: u32, generation: u32) -> bool {
        match &mut self.free {
            None => true,
            Some(0) => {
                self.queue.push_back((slot, generation));
                false
            }
            Some(free) => {
                *free -= 1;
                true
            }
        }
    }

    /// A server has finished: what does it take next? To be asked again if that has been lost.
    #[inline]
    pub(super) fn next(&mut self) -> Option<(u32, u32)> {
        let free = self.free.as_mut()?;
        let next = self.queue.pop_front();
        if next.is_none() {
            *free += 1;
        }
        next
    }
}
