//! A host that keeps its devices in memory and completes requests when told.

use anabranch_host::topology::{HeadId, HeadView, Limits};
use anabranch_host::user::{Done, IoError, Refused, Request, RequestOp, Submit};
use anabranch_proto::machine::{Buffers, Time, WorkerId};
use std::collections::VecDeque;
use std::sync::Arc;

/// The shard's side of [`Submit`].
#[derive(Default)]
pub struct MemoryHost {
    heads: Vec<Arc<HeadView>>,
    disks: Vec<Vec<u8>>,
    pending: VecDeque<Request>,
    /// Requests that may be pending at once.
    pub room: usize,
    /// Of these, requests to one device.
    pub share: usize,
    /// A request that touches this block fails like this.
    pub fault: Option<(u64, IoError)>,
    /// A flush fails like this.
    pub flush_fault: Option<IoError>,
    /// It takes no more requests.
    pub ending: bool,
    /// Each Write Zeroes and each discard fails like this, although they are offered.
    pub unable: Option<IoError>,
    /// Everything that was submitted, in order.
    pub log: Vec<RequestOp>,
    /// Tags of pending requests that were withdrawn; they stay pending.
    pub withdrawn: Vec<u64>,
    /// Of these, those that are pending and change blocks.
    left: Vec<u64>,
    /// Which worker this is.
    pub worker: u16,
    /// How many workers there are.
    pub workers: u16,
}

impl MemoryHost {
    /// Without devices.
    #[must_use]
    pub fn new(worker: u16) -> MemoryHost {
        MemoryHost { room: 1024, share: 1024, worker, workers: 3, ..MemoryHost::default() }
    }

    /// Adds a device filled with a pattern.
    pub fn add_disk(&mut self, name: &str, bytes: usize, block_bytes: u32) {
        let id = HeadId(u32::try_from(self.heads.len()).expect("few heads"));
        let limits = Limits {
            max_transfer_bytes: 128 << 10,
            max_write_zeroes_blocks: 1 << 16,
            max_discard_blocks: 1 << 16,
            volatile_write_cache: true,
            compare: true,
            read_only: false,
        };
        self.heads.push(Arc::new(HeadView {
            id,
            name: name.into(),
            wwid: format!("uuid.of-{name}"),
            blocks: bytes as u64 / u64::from(block_bytes),
            block_bytes,
            limits,
            parameters: Default::default(),
            policy_epoch: 0,
            paths: Vec::new(),
            queue_if_no_path: false,
            gone: false,
            quiesced: 0,
            frozen: 0,
            explain_sample: 0,
            zeroes_refused: false,
            written: Arc::default(),
            leftovers: Arc::default(),
            failed_flushes: Arc::default(),
            max_retries: 5,
        }));
        // A period that no block size divides.
        let pattern: Vec<u8> = (0..64_007_u32).map(|i| (i / 512 + i % 251) as u8).collect();
        let mut disk = pattern.repeat(bytes.div_ceil(pattern.len()));
        disk.truncate(bytes);
        self.disks.push(disk);
    }

    /// Changes a head, as control would publish it.
    pub fn change_head(&mut self, index: usize, change: impl FnOnce(&mut HeadView)) {
        let mut head = (*self.heads[index]).clone();
        change(&mut head);
        self.heads[index] = Arc::new(head);
    }

    /// The contents of a device.
    #[must_use]
    pub fn disk(&self, index: usize) -> &[u8] {
        &self.disks[index]
    }

    /// Requests that have not been completed.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The same of one device.
    #[must_use]
    pub fn pending_of(&self, head: HeadId) -> usize {
        self.pending.iter().filter(|request| request.head == head).count()
    }

    /// The tags of all that are pending.
    pub fn tags(&self) -> impl Iterator<Item = u64> + '_ {
        self.pending.iter().map(|request| request.tag)
    }

    /// Where the first of them is.
    #[must_use]
    pub fn first_of(&self, head: HeadId) -> Option<usize> {
        self.pending.iter().position(|request| request.head == head)
    }

    /// Carries out a pending request, the last one when `index` is beyond.
    pub fn complete(&mut self, index: usize, bufs: &mut dyn Buffers) -> Option<Done> {
        let index = index.min(self.pending.len().checked_sub(1)?);
        let request = self.pending.remove(index)?;
        if let Some(at) = self.left.iter().position(|tag| *tag == request.tag) {
            self.left.swap_remove(at);
            let leftovers = &self.heads[request.head.0 as usize].leftovers;
            request.op.changes().iter().for_each(|blocks| leftovers.end(blocks));
        }
        let result = self.carry_out(&request, bufs);
        Some(Done { head: request.head, tag: request.tag, result })
    }

    fn carry_out(&mut self, request: &Request, bufs: &mut dyn Buffers) -> Result<(), IoError> {
        let index = request.head.0 as usize;
        let block = u64::from(self.heads[index].block_bytes);
        let (lba, blocks) = request.op.extent().unwrap_or((0, 0));
        if let Some((bad, error)) = self.fault
            && (lba..lba + blocks).contains(&bad)
        {
            return Err(self.noted(request, error));
        }
        if let (RequestOp::Flush, Some(error)) = (request.op, self.flush_fault) {
            return Err(self.noted(request, error));
        }
        let is_special =
            matches!(request.op, RequestOp::WriteZeroes { .. } | RequestOp::Discard { .. });
        if let Some(error) = self.unable.filter(|_| is_special) {
            return Err(error);
        }
        let (from, to) = ((lba * block) as usize, ((lba + blocks) * block) as usize);
        let disk = &mut self.disks[index][from..to];
        match request.op {
            RequestOp::Read { buf, .. } => bufs.bytes_mut(buf).copy_from_slice(disk),
            RequestOp::Write { buf, .. } => disk.copy_from_slice(bufs.bytes(buf)),
            RequestOp::WriteZeroes { .. } | RequestOp::Discard { .. } => disk.fill(0),
            RequestOp::Flush | RequestOp::Compare { .. } => {}
        }
        Ok(())
    }

    /// What should have been durable by itself tells of a loss when a controller has failed it.
    fn noted(&self, request: &Request, error: IoError) -> IoError {
        if request.op.makes_durable() && matches!(error, IoError::Status(_)) {
            self.heads[request.head.0 as usize].failed_flushes.note();
        }
        error
    }
}

impl Submit for MemoryHost {
    fn submit(&mut self, _now: Time, request: Request) -> Result<(), Refused> {
        if self.ending {
            return Err(Refused::NotHere);
        }
        if self.pending.len() >= self.room || self.pending_of(request.head) >= self.share {
            return Err(Refused::Full);
        }
        let head = self.heads.iter().find(|head| head.id == request.head && !head.gone);
        let Some(head) = head else { return Err(Refused::UnknownHead) };
        request.op.check(head)?;
        self.log.push(request.op);
        self.pending.push_back(request);
        Ok(())
    }

    fn withdraw(&mut self, head: HeadId, theirs: &dyn Fn(u64) -> bool) {
        let requests = self.pending.iter().filter(|it| it.head == head && theirs(it.tag));
        for request in requests {
            self.withdrawn.push(request.tag);
            if !self.left.contains(&request.tag) {
                self.left.push(request.tag);
                let leftovers = &self.heads[head.0 as usize].leftovers;
                request.op.changes().iter().for_each(|blocks| leftovers.begin(blocks));
            }
        }
    }

    fn may_be_undone(&self, head: HeadId, op: &RequestOp) -> bool {
        let leftovers = &self.heads[head.0 as usize].leftovers;
        op.changes().is_some_and(|blocks| leftovers.touch(&blocks))
    }

    fn heads(&self) -> &[Arc<HeadView>] {
        &self.heads
    }

    fn worker(&self) -> WorkerId {
        WorkerId(self.worker)
    }

    fn workers(&self) -> u16 {
        self.workers
    }
}
