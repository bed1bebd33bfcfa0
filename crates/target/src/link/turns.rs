//! Which connection's turn it is on a link that several share.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// What a lane may send before the next lane's turn, in bytes: a few frames. Were it more, a
/// connection would get its small replies in bursts as long as what the others have waiting.
const QUANTUM: u64 = 4 << 10;

#[derive(Debug)]
struct Lane<T> {
    queue: VecDeque<(u64, T)>,
    deficit: u64,
    /// Whether the lane stands in `turns`.
    active: bool,
}

/// What waits for a link, each connection in a lane of its own. Lanes are served by deficit round
/// robin, so a connection with a hundred commands waiting gets no more than one with a single
/// command.
#[derive(Debug)]
pub struct Turns<T> {
    lanes: Vec<Lane<T>>,
    turns: VecDeque<u32>,
    waiting: usize,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Turns { lanes: Vec::new(), turns: VecDeque::new(), waiting: 0 }
    }
}

impl<T> Turns<T> {
    /// Makes room for a lane.
    pub fn attach(&mut self, lane: u32) {
        let index = lane as usize;
        if self.lanes.len() <= index {
            self.lanes.resize_with(index + 1, || Lane {
                queue: VecDeque::new(),
                deficit: 0,
                active: false,
            });
        }
        self.turns.reserve(self.lanes.len());
    }

    /// Makes room for so many more in a lane.
    pub fn reserve(&mut self, lane: u32, more: usize) {
        self.lanes[lane as usize].queue.reserve(more);
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Something of so many bytes waits in a lane from now on, behind what waits there.
    pub fn push(&mut self, lane: u32, bytes: u64, item: T) {
        let entry = &mut self.lanes[lane as usize];
        entry.queue.push_back((bytes, item));
        self.waiting += 1;
        if !core::mem::replace(&mut entry.active, true) {
            self.turns.push_back(lane);
        }
    }

    /// What goes next: its lane, its bytes, itself.
    pub fn pop(&mut self) -> Option<(u32, u64, T)> {
        while let Some(&turn) = self.turns.front() {
            let lane = &mut self.lanes[turn as usize];
            let Some(&(bytes, _)) = lane.queue.front() else {
                lane.active = false;
                lane.deficit = 0;
                self.turns.pop_front();
                continue;
            };
            if lane.deficit < bytes && self.turns.len() > 1 {
                lane.deficit += QUANTUM;
                self.turns.rotate_left(1);
                continue;
            }
            lane.deficit = lane.deficit.saturating_sub(bytes);
            self.waiting -= 1;
            return lane.queue.pop_front().map(|(bytes, item)| (turn, bytes, item));
        }
        None
    }

    /// Drops all that waits in a lane, and its room.
    pub fn clear(&mut self, lane: u32) {
        let Some(lane) = self.lanes.get_mut(lane as usize) else { return };
        lane.deficit = 0;
        self.waiting -= core::mem::take(&mut lane.queue).len();
    }

    /// Drops all that waits.
    pub fn clear_all(&mut self) {
        for lane in &mut self.lanes {
            lane.queue.clear();
            lane.deficit = 0;
        }
        self.waiting = 0;
    }
}
