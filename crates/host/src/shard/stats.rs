//! This shard's figures, one entry per path and head that it has ever seen.

use super::Shard;
use crate::mail::{HeadStats, PathStats, ShardStats};
use crate::topology::{ControllerId, HeadId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use anabranch_policy::{Histogram, Policy};

#[derive(Default)]
pub(super) struct StatsTable {
    pub(super) paths: Vec<PathStats>,
    pub(super) heads: Vec<HeadStats>,
}

impl StatsTable {
    /// The entry of a path, made when it is new.
    pub(super) fn path(&mut self, head: HeadId, controller: ControllerId) -> u32 {
        let known = self.paths.iter().position(|p| p.head == head && p.controller == controller);
        let index = known.unwrap_or_else(|| {
            self.paths.push(PathStats {
                head,
                controller,
                commands: [0; 3],
                bytes: [0; 2],
                errors: 0,
                retries: 0,
                failovers: 0,
                uncertain_writes_resent: 0,
                in_flight: 0,
                numa_cached: false,
                latency_ns: Box::new(Histogram::new()),
            });
            self.paths.len() - 1
        });
        index as u32
    }

    /// The entry of a head, made when it is new.
    pub(super) fn head(&mut self, head: HeadId) -> u32 {
        let known = self.heads.iter().position(|h| h.head == head);
        let index = known.unwrap_or_else(|| {
            self.heads.push(HeadStats {
                head,
                requests: [0; 3],
                bytes: [0; 2],
                errors: 0,
                in_flight: 0,
                requeued_no_usable_path: 0,
                failed_no_available_path: 0,
                latency_ns: Box::new(Histogram::new()),
            });
            self.heads.len() - 1
        });
        index as u32
    }
}

impl Shard {
    /// The figures since the start, with what only this moment knows filled in.
    pub(super) fn stats_report(&mut self) -> ShardStats {
        for index in 0..self.heads.len() {
            let Some(head) = self.heads[index].as_ref() else { continue };
            let cached = head.selector.numa_path().filter(|_| head.view.policy == Policy::Numa);
            for (at, path) in head.paths.iter().enumerate() {
                self.stats.paths[path.stats as usize].numa_cached = cached == Some(at);
            }
            let waiting = head.active + head.held.len();
            self.stats.heads[head.stats as usize].in_flight = waiting;
        }
        ShardStats { paths: self.stats.paths.clone(), heads: self.stats.heads.clone() }
    }
}
