//! Between the load and the host: stamps what is written and checks what is read.

use super::stamp::{Ledger, Write};
use anabranch_host::topology::HeadView;
use anabranch_host::user::{Done, Refused, Request, RequestOp, Submit, User};
use anabranch_proto::machine::{BufRef, Buffers, ConnId, Gather, Input, Output, Time, WorkerId};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// An open request of the load, by its tag.
#[derive(Clone, Copy, Debug, Default)]
enum Open {
    #[default]
    Nothing,
    Read {
        lba: u64,
        buf: BufRef,
    },
    Write {
        write: Write,
        lba: u64,
        blocks: u64,
    },
}

#[derive(Default)]
struct Slot {
    open: Open,
    /// Of a read.
    floors: Vec<u64>,
}

/// A load whose payload is checked. Its tags must be small numbers: they index a table.
pub(super) struct Checked<U> {
    user: U,
    ledger: Rc<RefCell<Ledger>>,
    slots: Vec<Slot>,
    /// Writes that were submitted and have no stamps yet.
    unstamped: Vec<(u64, u64, BufRef)>,
}

impl<U> Checked<U> {
    pub(super) fn new(user: U, ledger: Rc<RefCell<Ledger>>) -> Checked<U> {
        Checked { user, ledger, slots: Vec::new(), unstamped: Vec::new() }
    }

    /// Lets the load act; what it has submitted is stamped before the host looks at it.
    #[inline]
    fn act(
        &mut self,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
        act: impl FnOnce(&mut U, &mut dyn Submit, &mut dyn Buffers),
    ) {
        let Checked { user, ledger, slots, unstamped } = self;
        act(user, &mut Seat { host, ledger, slots, unstamped }, bufs);
        if unstamped.is_empty() {
            return;
        }
        let ledger = ledger.borrow();
        for (number, lba, buf) in unstamped.drain(..) {
            ledger.fill(number, lba, bufs.bytes_mut(buf));
        }
    }
}

/// What the load submits to.
struct Seat<'a> {
    host: &'a mut dyn Submit,
    ledger: &'a RefCell<Ledger>,
    slots: &'a mut Vec<Slot>,
    unstamped: &'a mut Vec<(u64, u64, BufRef)>,
}

impl Submit for Seat<'_> {
    #[inline]
    fn submit(&mut self, now: Time, request: Request) -> Result<(), Refused> {
        self.host.submit(now, request)?;
        let index = request.tag as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let slot = &mut self.slots[index];
        let mut ledger = self.ledger.borrow_mut();
        slot.open = match request.op {
            RequestOp::Read { lba, blocks, buf } => {
                ledger.floors(lba, blocks.into(), &mut slot.floors);
                Open::Read { lba, buf }
            }
            RequestOp::Write { lba, blocks, buf, .. } => {
                let write = ledger.begin_write();
                self.unstamped.push((write.number, lba, buf));
                Open::Write { write, lba, blocks: blocks.into() }
            }
            RequestOp::Discard { .. } | RequestOp::WriteZeroes { .. } => {
                ledger.discard();
                Open::Nothing
            }
            RequestOp::Compare { .. } | RequestOp::Flush => Open::Nothing,
        };
        Ok(())
    }

    fn heads(&self) -> &[Arc<HeadView>] {
        self.host.heads()
    }

    fn worker(&self) -> WorkerId {
        self.host.worker()
    }

    fn workers(&self) -> u16 {
        self.host.workers()
    }
}

impl<U: User> User for Checked<U> {
    type Mail = U::Mail;
    type Verb = U::Verb;
    type Reply = U::Reply;
    type Event = U::Event;

    fn handle(
        &mut self,
        now: Time,
        input: Input<'_, U::Verb, U::Mail>,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    ) {
        self.act(host, bufs, |user, host, bufs| user.handle(now, input, host, bufs));
    }

    #[inline]
    fn completed(&mut self, now: Time, done: Done, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        if let Some(slot) = self.slots.get_mut(done.tag as usize) {
            let mut ledger = self.ledger.borrow_mut();
            match std::mem::take(&mut slot.open) {
                Open::Read { lba, buf } if done.result.is_ok() => {
                    ledger.check(lba, bufs.bytes(buf), &slot.floors);
                }
                Open::Write { write, lba, blocks } => {
                    ledger.end_write(write, lba, blocks, done.result.is_ok());
                }
                _ => {}
            }
        }
        self.act(host, bufs, |user, host, bufs| user.completed(now, done, host, bufs));
    }

    fn heads_changed(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        self.act(host, bufs, |user, host, bufs| user.heads_changed(now, host, bufs));
    }

    fn poll_output(&mut self) -> Option<Output<U::Mail, U::Reply, U::Event>> {
        self.user.poll_output()
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        conn: ConnId,
        batch: &mut dyn Gather,
        bufs: &mut dyn Buffers,
    ) {
        self.user.poll_transmit(now, conn, batch, bufs);
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        self.user.poll_timeout()
    }
}
