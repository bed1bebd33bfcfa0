//! Files of targets behind a volatile write cache, and the loss of power.

use super::net::{BROKEN, EndState, NodeId};
use super::world::World;
use crate::rng::Rng;
use anabranch_proto::machine::{Buffers, CloseCause, DiskOp, FileId, Input, Machine, SystemError};
use std::collections::BTreeSet;

/// A file: what reads find, and what of that is on the medium.
pub(super) struct Disk {
    held: Vec<u8>,
    medium: Vec<u8>,
    /// What becomes durable, or is lost, together.
    block_bytes: usize,
    /// Blocks in which the two may differ.
    cached: BTreeSet<usize>,
}

impl Disk {
    fn new(blocks: usize, block_bytes: usize) -> Disk {
        let zeroes = vec![0; blocks * block_bytes];
        Disk { held: zeroes.clone(), medium: zeroes, block_bytes, cached: BTreeSet::new() }
    }

    /// The operation begins. What is to be durable is what was finished before that.
    pub(super) fn begin(&mut self, op: DiskOp) {
        match op {
            DiskOp::Flush => self.write_back(0, self.held.len()),
            DiskOp::Sync { offset, len } => self.write_back(offset as usize, len as usize),
            DiskOp::Read { .. }
            | DiskOp::Write { .. }
            | DiskOp::Zero { .. }
            | DiskOp::Deallocate { .. } => {}
        }
    }

    /// The operation ends, and all others take effect.
    pub(super) fn end(&mut self, op: DiskOp, bufs: &mut dyn Buffers) -> Result<u32, SystemError> {
        match op {
            DiskOp::Read { offset, buf } => {
                let rest = self.held.get(offset as usize..).unwrap_or_default();
                let found = rest.len().min(buf.len() as usize);
                bufs.bytes_mut(buf)[..found].copy_from_slice(&rest[..found]);
                Ok(found as u32)
            }
            DiskOp::Write { offset, buf } => {
                let bytes = bufs.bytes(buf);
                self.change(offset as usize, bytes.len())?.copy_from_slice(bytes);
                Ok(buf.len())
            }
            DiskOp::Zero { offset, len, .. } | DiskOp::Deallocate { offset, len } => {
                self.change(offset as usize, len as usize)?.fill(0);
                Ok(0)
            }
            DiskOp::Flush | DiskOp::Sync { .. } => Ok(0),
        }
    }

    fn change(&mut self, offset: usize, len: usize) -> Result<&mut [u8], SystemError> {
        let range = offset..offset + len;
        self.cached.extend(offset / self.block_bytes..range.end.div_ceil(self.block_bytes));
        self.held.get_mut(range).ok_or(SystemError::NO_SPACE)
    }

    fn write_back(&mut self, offset: usize, len: usize) {
        let blocks = offset / self.block_bytes..(offset + len).div_ceil(self.block_bytes);
        let blocks: Vec<usize> = self.cached.range(blocks).copied().collect();
        for block in blocks {
            self.keep(block);
            self.cached.remove(&block);
        }
    }

    fn keep(&mut self, block: usize) {
        let bytes = block * self.block_bytes..(block + 1) * self.block_bytes;
        if let Some(held) = self.held.get(bytes.clone()) {
            self.medium[bytes].copy_from_slice(held);
        }
    }

    /// Of what was in the cache, so many blocks in a hundred had been written back.
    fn lose_power(&mut self, kept: u32, rng: &mut Rng) {
        for block in std::mem::take(&mut self.cached) {
            if rng.percent(kept) {
                self.keep(block);
            }
        }
        self.held.clone_from(&self.medium);
    }
}

impl<H: Machine, T: Machine> World<H, T> {
    /// Gives a target a file, full of zeroes.
    pub fn give_file(&mut self, target: usize, file: FileId, blocks: usize, block_bytes: usize) {
        self.disks.insert((target, file), Disk::new(blocks, block_bytes));
    }

    /// A target loses its power. Whatever it had begun is never finished, its hosts hear that their
    /// connections are gone, or nothing; and what its files have not on the medium is lost, but for
    /// a drawn part. `fresh` comes up in its place.
    pub fn cut_power(&mut self, target: usize, fresh: T) {
        let node = NodeId(self.hosts.len() + target);
        for index in 0..self.core.streams.len() {
            let Some(stream) = self.core.streams[index].as_mut() else { continue };
            let [_, end] = &mut stream.ends;
            if end.node != node || end.state == EndState::Connecting {
                continue;
            }
            (end.state, end.in_flight, end.hint) = (EndState::Over, None, None);
            if self.core.rng.percent(50) {
                stream.silent = true;
            } else {
                self.core.end_over(index, 0, CloseCause::Failed(BROKEN));
            }
        }
        self.core.forget(node);
        let kept = [0_u32, 50, 90][self.core.rng.below(3) as usize];
        for ((of, _), disk) in &mut self.disks {
            if *of == target {
                disk.lose_power(kept, &mut self.core.rng);
            }
        }
        self.lives[target] += 1;
        self.target_memory[target] = Default::default();
        self.targets[target] = fresh;
        self.give_target(target, Input::Start);
    }
}
