//! The driver over io_uring: one ring per worker, used by that worker's thread alone.
//!
//! Every operation carries what it is ([`Kind`]) and a slot. A slot (connection, listener, disk
//! operation) is used again only after all its operations were reaped, so a completion never meets
//! a stranger.

mod buffers;
mod conn;
mod disk;
mod listener;
mod stream;
mod wait;
mod watch;

use super::{Batch, Driver, Early, Event, Handed, Received, Sleeper, WaitError};
use crate::memory::Regions;
use crate::stats::Counters;
use crate::{Config, Error, Files};
use anabranch_proto::machine::{
    BufRef, CloseHow, ConnId, DiskId, DiskOp, Endpoint, FileId, ListenerId, SocketOptions,
    SystemError, Time,
};
use buffers::ReceiveBuffers;
use conn::Conns;
use disk::Disk;
use io_uring::types::CancelBuilder;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use listener::Listeners;
use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use watch::Watches;

/// Entries of the submission queue. When it is full it is submitted, so this bounds a batch of
/// submissions, not the operations in flight.
const SUBMISSIONS: u32 = 256;
/// Entries of the completion queue; the kernel keeps what does not fit.
const COMPLETIONS: u32 = 4096;
/// Threads in which the system does work on files that may take long, beyond those that each file
/// has for itself; it starts them as it needs them. By itself it has four for each CPU, which are
/// soon all with one file that hangs.
const FILE_THREADS: u32 = 128;
/// Batches kept for later sends.
const KEPT_BATCHES: usize = 256;
/// System calls of closing a descriptor.
const CLOSE: u64 = 1;

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Wake,
    Connect,
    Receive,
    Send,
    Cancel,
    Accept,
    CancelAccept,
    CancelWake,
    Disk,
    Watch,
}

impl Kind {
    const ALL: [Kind; 10] = [
        Kind::Wake,
        Kind::Connect,
        Kind::Receive,
        Kind::Send,
        Kind::Cancel,
        Kind::Accept,
        Kind::CancelAccept,
        Kind::CancelWake,
        Kind::Disk,
        Kind::Watch,
    ];

    fn user_data(self, slot: u32) -> u64 {
        (self as u64) << 32 | u64::from(slot)
    }

    fn of(user_data: u64) -> (Kind, u32) {
        // Only our own values come back.
        (Kind::ALL[(user_data >> 32) as usize], user_data as u32)
    }
}

/// One worker's ring and everything that runs on it.
pub(crate) struct Uring {
    ring: IoUring,
    /// What the kernel may still write to is kept when it could not be reaped ([`Uring::drop`]).
    buffers: ManuallyDrop<ReceiveBuffers>,
    woken: ManuallyDrop<Box<u64>>,
    conns: Conns,
    watches: Watches,
    listeners: Listeners,
    disk: Disk,
    /// Threads that the system may start for work on files, or was asked for.
    file_threads: u32,
    tell_starved: Option<fn(SystemError)>,
    regions: Arc<Regions>,
    files: Files,
    counters: Arc<Counters>,
    events: VecDeque<Event>,
    /// Connections that may have something to send.
    senders: VecDeque<u32>,
    #[allow(clippy::vec_box, reason = "a batch keeps its address when it is in flight")]
    batches: Vec<Box<Batch>>,
    wake: RawFd,
    wake_armed: bool,
    ending: bool,
    /// Operations that the kernel has.
    in_flight: usize,
    /// Completions of this wake-up that were not looked at yet.
    unseen: usize,
    failed: Option<io::Error>,
}

fn ring() -> Result<IoUring, Error> {
    let best = IoUring::builder()
        .setup_clamp()
        .setup_submit_all()
        .setup_cqsize(COMPLETIONS)
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(SUBMISSIONS);
    let made = match best {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::builder()
            .setup_clamp()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(SUBMISSIONS),
        made => made,
    };
    let made = made.map_err(|error| refused(error, "the ring's modes"))?;
    // There is nothing to submit yet. A filter that lets rings be made and not used would end a
    // worker later, when the process has said that it is ready.
    match made.submit() {
        Err(error) if !wait::passing(&error) => return Err(refused(error, "io_uring_enter")),
        _ => {}
    }
    Ok(made)
}

/// Why there is no ring, or not all of it: `what` is what an older system lacks.
fn refused(error: io::Error, what: &'static str) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM | libc::EACCES) => Error::RingRefused(error),
        Some(libc::ENOMEM) => Error::RingMemory(error),
        Some(libc::EINVAL) => Error::RingTooOld { what, source: error },
        _ => Error::System { what: "set up io_uring", source: error },
    }
}

impl Uring {
    /// The driver of the calling thread. `wake` becomes readable when the worker must wake up; it
    /// has to stay open as long as the driver.
    pub(crate) fn new(
        config: &Config,
        regions: Arc<Regions>,
        counters: Arc<Counters>,
        wake: BorrowedFd<'_>,
    ) -> Result<Uring, Error> {
        use std::os::fd::AsRawFd;
        let ring = ring()?;
        let bytes = config.receive_buffer_bytes;
        let buffers = ReceiveBuffers::new(&ring, config.receive_buffers, bytes)?;
        let mut driver = Uring {
            ring,
            buffers: ManuallyDrop::new(buffers),
            woken: ManuallyDrop::new(Box::new(0)),
            conns: Conns::default(),
            watches: Watches::default(),
            listeners: Listeners::default(),
            tell_starved: config.starved,
            disk: Disk::default(),
            file_threads: 0,
            regions,
            files: config.files.clone(),
            counters,
            events: VecDeque::with_capacity(64),
            senders: VecDeque::with_capacity(64),
            batches: Vec::with_capacity(16),
            wake: wake.as_raw_fd(),
            wake_armed: false,
            ending: false,
            in_flight: 0,
            unseen: 0,
            failed: None,
        };
        driver.have_file_threads(FILE_THREADS);
        Ok(driver)
    }

    /// Lets the system have so many threads for work on files, if it has not more. Where that is
    /// refused it has as many as before.
    fn have_file_threads(&mut self, wanted: u32) {
        if wanted <= self.file_threads {
            return;
        }
        // Zero asks; the second number is about work that never ends.
        let mut allowed = [0, 0];
        let told = self.ring.submitter().register_iowq_max_workers(&mut allowed);
        if told.is_ok() && allowed[0] < wanted {
            let _ = self.ring.submitter().register_iowq_max_workers(&mut [wanted, 0]);
        }
        self.file_threads = wanted;
    }

    /// Queues an operation. The caller keeps alive and unmoved whatever `entry` points to until
    /// `kind` and `slot` come back.
    fn push(&mut self, entry: squeue::Entry, kind: Kind, slot: u32) {
        let entry = entry.user_data(kind.user_data(slot));
        self.in_flight += 1;
        loop {
            // SAFETY: all buffers that operations of this crate name live until the operation is
            // reaped: pool memory is marked as lent, batches and addresses are kept in the
            // connection, receive buffers and `woken` in this value, which `drop` keeps alive
            // when an operation could not be reaped.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            self.counters.system_calls.add(1);
            self.counters.enters.add(1);
            if let Err(error) = self.ring.submit()
                && !wait::passing(&error)
            {
                self.failed = Some(error);
                return;
            }
        }
    }

    /// Queues the cancellation of everything that names `fd`.
    fn push_cancel(&mut self, fd: RawFd, kind: Kind, slot: u32) {
        let what = CancelBuilder::fd(types::Fd(fd)).all();
        self.push(opcode::AsyncCancel2::new(what).build(), kind, slot);
    }

    /// Waits for a wake-up from outside.
    fn arm_wake(&mut self) {
        if !self.wake_armed && !self.ending {
            self.wake_armed = true;
            let into: *mut u64 = &raw mut **self.woken;
            let entry = opcode::Read::new(types::Fd(self.wake), into.cast(), 8).build();
            self.push(entry, Kind::Wake, 0);
        }
    }

    fn complete(&mut self, entry: &cqueue::Entry) {
        self.in_flight -= 1;
        let (kind, slot) = Kind::of(entry.user_data());
        let result = entry.result();
        match kind {
            Kind::Wake => self.wake_armed = false,
            Kind::CancelWake => {}
            Kind::Connect => self.connect_done(slot, result),
            Kind::Receive => self.receive_done(slot, result, entry.flags()),
            Kind::Send => self.send_done(slot, result),
            Kind::Cancel => self.cancel_done(slot),
            Kind::Accept => self.accepted(slot, result),
            Kind::CancelAccept => self.accept_cancelled(slot),
            Kind::Disk => self.disk_step_done(slot, result),
            Kind::Watch => self.watch_done(slot, result),
        }
    }
}

impl Driver for Uring {
    fn connect(&mut self, conn: ConnId, to: &Endpoint, options: &SocketOptions) {
        self.start_connect(conn, to, options);
    }

    fn listen(&mut self, listener: ListenerId, at: &Endpoint, options: &SocketOptions) {
        self.start_listener(listener, at, options);
    }

    fn unlisten(&mut self, listener: ListenerId) {
        self.stop_listener(listener);
    }

    fn transmit(&mut self, conn: ConnId) {
        self.want_send(conn);
    }

    fn acknowledge(&mut self, conn: ConnId) {
        self.acknowledge_now(conn);
    }

    fn receive_into(&mut self, conn: ConnId, buf: BufRef) {
        self.aim(conn, buf);
    }

    fn pause(&mut self, conn: ConnId, watch: bool) {
        self.stop_reading(conn, watch);
    }

    fn resume(&mut self, conn: ConnId) {
        self.read_on(conn);
    }

    fn look(&mut self, conn: ConnId) {
        self.look_for_peer(conn);
    }

    fn close(&mut self, conn: ConnId, how: CloseHow) {
        self.start_close(conn, how);
    }

    fn hand_over(&mut self, conn: ConnId, listener: ListenerId, to: u16) {
        self.start_leaving(conn, listener, to);
    }

    fn adopt(&mut self, handed: Handed) {
        self.adopt_accepted(handed);
    }

    fn take_early(&mut self, conn: ConnId) -> Early {
        self.early_of(conn)
    }

    fn disk(&mut self, id: DiskId, file: FileId, op: DiskOp) {
        self.start_disk(id, file, op);
    }

    fn next_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                if let Event::Closed { conn, .. } | Event::Leaving { conn, .. } = &event {
                    self.conns.remove(*conn);
                }
                return Some(event);
            }
            if self.unseen == 0 {
                return None;
            }
            self.unseen -= 1;
            let entry = self.ring.completion().next()?;
            self.complete(&entry);
        }
    }

    fn received(&self, bytes: Received) -> &[u8] {
        self.buffers.bytes(bytes)
    }

    fn delivered(&mut self, conn: ConnId, bytes: Option<Received>) {
        if let Some(bytes) = bytes {
            self.buffers.provide(bytes.buffer);
        }
        if let Some(slot) = self.conns.slot(conn)
            && let Some(conn) = self.conns.get_mut(slot)
        {
            conn.delivering = false;
            self.receive(slot);
        }
    }

    fn next_sender(&mut self) -> Option<(ConnId, Box<Batch>)> {
        self.pop_sender()
    }

    fn send(&mut self, conn: ConnId, batch: Box<Batch>) {
        self.start_send(conn, batch);
    }

    fn wait(
        &mut self,
        deadline: Option<Time>,
        spin: Duration,
        sleeper: &dyn Sleeper,
    ) -> Result<(), WaitError> {
        self.wait_for_events(deadline, spin, sleeper)
    }

    fn shutdown(&mut self, deadline: Time, sleeper: &dyn Sleeper) -> usize {
        self.end_everything(deadline, sleeper)
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.in_flight == 0 {
            // SAFETY: dropped here and nowhere else; the value is not used afterwards.
            unsafe {
                ManuallyDrop::drop(&mut self.buffers);
                ManuallyDrop::drop(&mut self.woken);
            }
            return;
        }
        // The kernel may still write into memory that operations name (a worker that ended by a
        // defect, or a disk that hangs): that memory is never used for anything else again.
        std::mem::forget(std::mem::take(&mut self.conns));
        std::mem::forget(self.regions.clone());
    }
}
