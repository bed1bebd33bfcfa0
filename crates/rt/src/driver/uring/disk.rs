//! Work on files: whole transfers out of short ones, zeroes where the file system has none.

mod flushes;
mod lane;
#[cfg(test)]
mod tests;

use super::{FILE_THREADS, Kind, Uring};
use crate::driver::Event;
use anabranch_proto::machine::{BufRef, DiskId, DiskOp, FileId, SystemError, Time};
use flushes::Flushes;
use io_uring::{opcode, squeue, types};
use lane::{Common, Lanes, OWN_THREADS, Waiting};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What a file system is given that cannot zero a range by itself.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// Zeroes that are written before the engine is asked whether it wants the rest: whatever touches
/// the same blocks waits meanwhile, and a controller that has ended must not go on for hours.
const PIECE: u64 = 1 << 20;

/// How long operations rest for which the system had no thread, and after how long without one
/// they fail.
const THREAD_PAUSE: Duration = Duration::from_millis(20);
const THREAD_LIMIT: Duration = Duration::from_secs(10);

/// One operation that the engine waits for.
#[derive(Debug)]
struct Task {
    id: DiskId,
    /// Its file, which stays open until it has ended.
    open: Arc<File>,
    file: FileId,
    op: DiskOp,
    /// Bytes that are through.
    done: u64,
    /// The file system cannot zero a range: write zeroes.
    by_hand: bool,
    /// Since when the system has had no thread for it.
    resting_since: Option<Time>,
    /// Its number among the flushes of the file, if it is one.
    flush: Option<u64>,
}

/// Disk operations in flight, and the files they may name.
#[derive(Debug, Default)]
pub(super) struct Disk {
    tasks: Vec<Option<Task>>,
    free: Vec<u32>,
    files: BTreeMap<FileId, Known>,
    common: Common,
    /// Those that wait until the system has a thread for them, and when to try again.
    resting: Vec<u32>,
    retry_at: Option<Time>,
}

#[derive(Debug)]
struct Known {
    file: Weak<File>,
    /// The file system cannot zero a range of it: keeping its space, and giving it back.
    refused: [bool; 2],
    flushes: Flushes,
    lanes: Lanes,
}

impl Disk {
    /// A registered file that was not let go.
    fn open(&mut self, table: &crate::Files, id: FileId) -> Option<Arc<File>> {
        if let Some(known) = self.files.get(&id) {
            return known.file.upgrade();
        }
        let file = table.get(id)?;
        // Those that were let go, and to which nothing is done any more.
        self.files.retain(|_, known| known.file.strong_count() > 0);
        let known = Known {
            file: Arc::downgrade(&file),
            refused: [false; 2],
            flushes: Flushes::default(),
            lanes: Lanes::new(&file),
        };
        self.files.insert(id, known);
        Some(file)
    }

    /// Whether nothing is being done to a file.
    pub(super) fn is_idle(&self) -> bool {
        self.tasks.len() == self.free.len()
    }

    /// When a pause ends.
    pub(super) fn retry_at(&self) -> Option<Time> {
        self.retry_at
    }

    /// Whether the file system is known not to have what an operation on a file needs.
    fn refused(&mut self, file: FileId, op: DiskOp) -> Option<&mut bool> {
        let DiskOp::Zero { deallocate, .. } = op else { return None };
        Some(&mut self.known(file)?.refused[usize::from(deallocate)])
    }

    fn known(&mut self, file: FileId) -> Option<&mut Known> {
        self.files.get_mut(&file)
    }

    /// Whether an operation may have a thread now, if it takes one; otherwise it waits in line.
    fn admit(&mut self, id: DiskId, open: &Arc<File>, file: FileId, op: DiskOp) -> bool {
        let known = self.files.get_mut(&file);
        known.is_none_or(|it| it.lanes.admit(&mut self.common, id, open, op))
    }

    /// The thread of an operation that has ended is free again.
    fn leave(&mut self, file: FileId, op: DiskOp) {
        if let Some(known) = self.files.get_mut(&file) {
            known.lanes.end(&mut self.common, op);
        }
    }

    /// Which of those that wait for a thread of a file's has one now.
    fn next(&mut self, file: FileId) -> Option<Waiting> {
        self.files.get_mut(&file)?.lanes.next(&mut self.common)
    }

    /// Threads that can be needed at once, in which nothing waits for a file that hangs.
    fn threads(&self) -> u32 {
        let files = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        FILE_THREADS.saturating_add(files.saturating_mul(OWN_THREADS))
    }
}

/// The part of `buf` behind `done` bytes.
fn rest(buf: BufRef, done: u64) -> BufRef {
    let done = u32::try_from(done).unwrap_or(buf.len()).min(buf.len());
    buf.slice(done, buf.len() - done)
}

fn fallocate(fd: types::Fd, offset: u64, len: u64, how: i32) -> squeue::Entry {
    let mode = how | libc::FALLOC_FL_KEEP_SIZE;
    opcode::Fallocate::new(fd, len).offset(offset).mode(mode).build()
}

/// Whether an error says that the file system does not have what it was asked for.
fn is_missing(error: i32) -> bool {
    matches!(error, libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV)
}

impl Uring {
    pub(super) fn start_disk(&mut self, id: DiskId, file: FileId, op: DiskOp) {
        let Some(open) = self.disk.open(&self.files, file) else {
            let result = Err(SystemError(libc::EBADF));
            self.events.push_back(Event::DiskDone { id, result });
            return;
        };
        self.have_file_threads(self.disk.threads());
        let empty = match op {
            DiskOp::Read { buf, .. } | DiskOp::Write { buf, .. } => buf.is_empty(),
            DiskOp::Zero { len, .. } | DiskOp::Deallocate { len, .. } => len == 0,
            DiskOp::Flush | DiskOp::Sync { .. } => false,
        };
        if empty {
            self.events.push_back(Event::DiskDone { id, result: Ok(0) });
            return;
        }
        if let DiskOp::Read { buf, .. } | DiskOp::Write { buf, .. } = op {
            self.regions.lend(buf);
        }
        if op == DiskOp::Flush && self.disk.known(file).is_some_and(|it| it.flushes.waits(id)) {
            return;
        }
        if !self.disk.admit(id, &open, file, op) {
            return;
        }
        self.begin_disk(id, open, file, op);
    }

    fn begin_disk(&mut self, id: DiskId, open: Arc<File>, file: FileId, op: DiskOp) {
        let by_hand = self.disk.refused(file, op).is_some_and(|refused| *refused);
        let flush = match op {
            DiskOp::Flush | DiskOp::Sync { .. } => self.disk.known(file).map(|k| k.flushes.begin()),
            DiskOp::Read { .. }
            | DiskOp::Write { .. }
            | DiskOp::Zero { .. }
            | DiskOp::Deallocate { .. } => None,
        };
        let task = Task { id, open, file, op, done: 0, by_hand, resting_since: None, flush };
        let slot = self.disk.free.pop().unwrap_or_else(|| {
            self.disk.tasks.push(None);
            u32::try_from(self.disk.tasks.len() - 1).expect("fewer than 2^32 disk operations")
        });
        self.disk.tasks[slot as usize] = Some(task);
        self.step_disk(slot);
    }

    /// Submits what is left of an operation.
    fn step_disk(&mut self, slot: u32) {
        let Some(task) = self.disk.tasks[slot as usize].as_ref() else { return };
        let fd = types::Fd(task.open.as_raw_fd());
        let done = task.done;
        let entry = match task.op {
            DiskOp::Read { offset, buf } => {
                let rest = rest(buf, done);
                opcode::Read::new(fd, self.regions.resolve(rest), rest.len())
                    .offset(offset.saturating_add(done))
                    .build()
            }
            DiskOp::Write { offset, buf } => {
                let rest = rest(buf, done);
                opcode::Write::new(fd, self.regions.resolve(rest), rest.len())
                    .offset(offset.saturating_add(done))
                    .build()
            }
            DiskOp::Sync { offset, len } => {
                let entry = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC);
                // What is too long for the system to be told is made durable with all the rest.
                match u32::try_from(len) {
                    Ok(len) => entry.offset(offset).len(len).build(),
                    Err(_) => entry.build(),
                }
            }
            DiskOp::Flush => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            DiskOp::Zero { offset, len, .. } if task.by_hand => {
                let chunk = (len - done).min(ZEROES.len() as u64) as u32;
                opcode::Write::new(fd, ZEROES.as_ptr(), chunk)
                    .offset(offset.saturating_add(done))
                    .build()
            }
            DiskOp::Zero { offset, len, deallocate: false } => {
                fallocate(fd, offset, len, libc::FALLOC_FL_ZERO_RANGE)
            }
            DiskOp::Zero { offset, len, .. } | DiskOp::Deallocate { offset, len } => {
                fallocate(fd, offset, len, libc::FALLOC_FL_PUNCH_HOLE)
            }
        };
        self.push(entry, Kind::Disk, slot);
    }

    pub(super) fn disk_step_done(&mut self, slot: u32, result: i32) {
        let Some(task) = self.disk.tasks[slot as usize].as_mut() else { return };
        // Nobody cancels work on files: the system could start no thread for it (a limit of the
        // user or the container; before Linux 6.14 a signal at the wrong moment is enough). Nor
        // does a file say that it would have to wait, unless for want of something that passes.
        if matches!(-result, libc::ECANCELED | libc::EAGAIN) {
            return self.put_off(slot, crate::now());
        }
        task.resting_since = None;
        let outcome = match (task.op, result) {
            (_, e) if e == -libc::EINTR => None,
            (DiskOp::Zero { .. }, e) if !task.by_hand && is_missing(-e) => {
                task.by_hand = true;
                let (file, op) = (task.file, task.op);
                if let Some(refused) = self.disk.refused(file, op) {
                    *refused = true;
                }
                None
            }
            // It was advice, for which nothing is written.
            (DiskOp::Deallocate { .. }, e) if is_missing(-e) => Some(Ok(0)),
            (_, e) if e < 0 => Some(Err(SystemError(-e))),
            // The file ends here.
            (DiskOp::Read { .. }, 0) => Some(Ok(task.done as u32)),
            // A file that takes nothing and reports nothing would be asked for ever.
            (DiskOp::Write { .. }, 0) => Some(Err(SystemError::IO)),
            (DiskOp::Read { buf, .. } | DiskOp::Write { buf, .. }, n) => {
                task.done += u64::from(n.unsigned_abs());
                (task.done >= u64::from(buf.len())).then_some(Ok(buf.len()))
            }
            (DiskOp::Zero { .. }, 0) if task.by_hand => Some(Err(SystemError::IO)),
            (DiskOp::Zero { len, .. }, n) if task.by_hand => {
                task.done += u64::from(n.unsigned_abs());
                if task.done >= len {
                    Some(Ok(0))
                } else {
                    (task.done >= PIECE).then_some(Ok(task.done as u32))
                }
            }
            (
                DiskOp::Zero { .. }
                | DiskOp::Deallocate { .. }
                | DiskOp::Flush
                | DiskOp::Sync { .. },
                _,
            ) => Some(Ok(0)),
        };
        match outcome {
            None => self.step_disk(slot),
            Some(result) => self.finish_disk(slot, result),
        }
    }

    /// Lets an operation rest for which the system had no thread, or nothing else that it takes.
    fn put_off(&mut self, slot: u32, now: Time) {
        let Some(task) = self.disk.tasks[slot as usize].as_mut() else { return };
        let since = *task.resting_since.get_or_insert(now);
        if now.since(since) >= THREAD_LIMIT {
            return self.finish_disk(slot, Err(SystemError::AGAIN));
        }
        self.counters.disk_put_off.add(1);
        self.disk.resting.push(slot);
        self.disk.retry_at.get_or_insert(now.after(THREAD_PAUSE));
    }

    /// Tries again what has rested.
    pub(super) fn retry_disk(&mut self, now: Time) {
        if self.disk.retry_at.is_some_and(|at| at <= now) {
            self.disk.retry_at = None;
            while let Some(slot) = self.disk.resting.pop() {
                self.step_disk(slot);
            }
        }
    }

    fn finish_disk(&mut self, slot: u32, result: Result<u32, SystemError>) {
        let Some(task) = self.disk.tasks[slot as usize].take() else { return };
        self.disk.free.push(slot);
        if let DiskOp::Read { buf, .. } | DiskOp::Write { buf, .. } = task.op {
            self.regions.reaped(buf);
        }
        match task.flush {
            Some(number) => self.finish_flush(&task, number, result),
            None => {
                self.counters.disk_ops.add(1);
                self.events.push_back(Event::DiskDone { id: task.id, result });
            }
        }
        // Last: a flush that has ended waits for those that ran beside it, not for the next.
        self.disk.leave(task.file, task.op);
        while !self.ending
            && let Some((id, open, op)) = self.disk.next(task.file)
        {
            self.begin_disk(id, open, task.file, op);
        }
    }

    fn finish_flush(&mut self, task: &Task, number: u64, result: Result<u32, SystemError>) {
        let Some(known) = self.disk.known(task.file) else {
            unreachable!("a flush began with its file, and files stay known");
        };
        let flushes = &mut known.flushes;
        flushes.end(number);
        let whole = task.op == DiskOp::Flush;
        let shared = if whole { flushes.shared() } else { &[] };
        self.counters.disk_ops.add(1 + shared.len() as u64);
        if let Err(error) = result {
            for &id in shared.iter().chain([&task.id]) {
                self.events.push_back(Event::DiskDone { id, result: Err(error) });
            }
        } else {
            flushes.hold(task.id, whole);
        }
        while let Some(id) = flushes.release() {
            self.events.push_back(Event::DiskDone { id, result: Ok(0) });
        }
        if whole && let Some(id) = flushes.next() {
            self.begin_disk(id, Arc::clone(&task.open), task.file, task.op);
        }
    }
}
