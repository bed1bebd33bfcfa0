//! A user that keeps a number of requests of one block in flight.

use anabranch_host::user::{Done, Request, RequestOp, Submit, User};
use anabranch_proto::machine::{
    BufRef, Buffers, ConnId, Gather, Input, Output, Time, VerbId, WorkerId,
};
use std::convert::Infallible;

/// Requests at once.
const DEPTH: u64 = 32;
/// Bytes of a block, and of a request.
pub(crate) const BLOCK_BYTES: u32 = 4096;
/// Blocks of the device.
pub(crate) const BLOCKS: u64 = 1024;

/// What is to be done, or (on its way back) that it has been.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Go {
    pub(crate) writes: bool,
    pub(crate) requests: u64,
}

/// The user on one worker: the control worker's passes the order on, the data worker's obeys.
#[derive(Default)]
pub(crate) struct Keeper {
    go: Option<Go>,
    submitted: u64,
    ended: u64,
    bufs: Vec<BufRef>,
    asked: Option<VerbId>,
    outputs: Vec<Output<Go, (), Infallible>>,
}

impl Keeper {
    fn submit(&mut self, now: Time, tag: u64, host: &mut dyn Submit) {
        let Some(go) = self.go.filter(|go| self.submitted < go.requests) else { return };
        self.submitted += 1;
        // Anywhere, in an order that is always the same.
        let lba = self.submitted.wrapping_mul(0x9e37_79b9_7f4a_7c15) % BLOCKS;
        let buf = self.bufs[tag as usize];
        let op = if go.writes {
            RequestOp::Write { lba, blocks: 1, buf, fua: false }
        } else {
            RequestOp::Read { lba, blocks: 1, buf }
        };
        let head = host.heads()[0].id;
        host.submit(now, Request { head, op, tag }).expect("the request is taken");
    }
}

impl User for Keeper {
    type Mail = Go;
    type Verb = Go;
    type Reply = ();
    type Event = Infallible;

    fn handle(
        &mut self,
        now: Time,
        input: Input<'_, Go, Go>,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    ) {
        match input {
            Input::Verb { id, verb } => {
                self.asked = Some(id);
                self.outputs.push(Output::Mail { to: WorkerId(1), mail: verb });
            }
            Input::Mail { mail, .. } if host.worker() == WorkerId(1) => {
                (self.go, self.submitted, self.ended) = (Some(mail), 0, 0);
                while (self.bufs.len() as u64) < DEPTH {
                    self.bufs.push(bufs.alloc(BLOCK_BYTES).expect("there is memory"));
                }
                (0..DEPTH).for_each(|tag| self.submit(now, tag, host));
            }
            Input::Mail { .. } => {
                let id = self.asked.take().expect("somebody has asked");
                self.outputs.push(Output::Reply { id, reply: () });
            }
            _ => {}
        }
    }

    fn completed(&mut self, now: Time, done: Done, host: &mut dyn Submit, _: &mut dyn Buffers) {
        assert_eq!(done.result, Ok(()));
        self.ended += 1;
        match self.go {
            Some(go) if self.ended == go.requests => {
                self.outputs.push(Output::Mail { to: WorkerId(0), mail: go });
            }
            _ => self.submit(now, done.tag, host),
        }
    }

    fn heads_changed(&mut self, _: Time, _: &mut dyn Submit, _: &mut dyn Buffers) {}

    fn poll_output(&mut self) -> Option<Output<Go, (), Infallible>> {
        self.outputs.pop()
    }

    fn poll_transmit(&mut self, _: Time, _: ConnId, _: &mut dyn Gather, _: &mut dyn Buffers) {}

    fn poll_timeout(&mut self) -> Option<Time> {
        None
    }
}
