//! A user that submits what a test tells it to, and keeps what came of it.

use anabranch_host::user::{Done, IoError, Refused, Request, RequestOp, Submit, User};
use anabranch_host::{FailedFlushes, Leftovers};
use anabranch_proto::machine::{
    BufRef, Buffers, ConnId, Gather, Input, Output, Time, VerbId, WorkerId,
};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

/// A request without memory: the script brings that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read {
        lba: u64,
        blocks: u32,
    },
    /// Every byte of the blocks becomes `fill`.
    Write {
        lba: u64,
        blocks: u32,
        fill: u8,
    },
    /// The same, durable.
    WriteFua {
        lba: u64,
        blocks: u32,
        fill: u8,
    },
    /// Every byte of a block becomes the lowest one of the block's address.
    WriteEach {
        lba: u64,
        blocks: u32,
    },
    /// Every byte of the blocks must be `fill`.
    Compare {
        lba: u64,
        blocks: u32,
        fill: u8,
    },
    Flush,
    Discard {
        lba: u64,
        blocks: u64,
    },
    Zero {
        lba: u64,
        blocks: u64,
    },
    /// The same, and the space may be given back.
    ZeroAndFree {
        lba: u64,
        blocks: u64,
    },
    /// Withdraws everything that was submitted to the device on this worker.
    Withdraw,
    /// Only what has an odd name.
    WithdrawOdd,
}

/// Why a request did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Io(IoError),
    Refused(Refused),
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) at: Time,
    pub(crate) result: Result<(), Failure>,
    /// What a read has read.
    pub(crate) data: Vec<u8>,
}

/// Requests for a worker, each with its name.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) worker: WorkerId,
    pub(crate) device: String,
    pub(crate) ops: Vec<(u64, Op)>,
}

struct InFlight {
    op: Op,
    buf: Option<BufRef>,
}

/// The user on one worker.
#[derive(Default)]
pub(crate) struct Script {
    outputs: VecDeque<Output<Batch, (), Infallible>>,
    /// By device.
    backlog: BTreeMap<String, VecDeque<(u64, Op)>>,
    in_flight: BTreeMap<u64, InFlight>,
    /// By the request's name.
    pub(crate) outcomes: BTreeMap<u64, Outcome>,
    /// How often the shard's table was full.
    pub(crate) pushed_back: u64,
    /// Of the device that something was withdrawn of last.
    pub(crate) leftovers: Option<Arc<Leftovers>>,
    /// Of the device that something was asked of last.
    pub(crate) failed_flushes: Option<Arc<FailedFlushes>>,
}

impl Script {
    /// Submits what it can, of each device; what the table has no room for stays for the next
    /// completion.
    fn advance(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        let mut backlog = std::mem::take(&mut self.backlog);
        for (device, waiting) in &mut backlog {
            while let Some(&(name, op)) = waiting.front() {
                match self.submit(device, (name, op), now, host, bufs) {
                    Ok(()) => {}
                    Err(Refused::Full) => {
                        self.pushed_back += 1;
                        break;
                    }
                    Err(refused) => self.end(name, now, Err(Failure::Refused(refused)), Vec::new()),
                }
                waiting.pop_front();
            }
        }
        self.backlog = backlog;
    }

    fn submit(
        &mut self,
        device: &str,
        (name, op): (u64, Op),
        now: Time,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    ) -> Result<(), Refused> {
        let head = host.heads().iter().find(|head| head.name == device);
        let head = head.ok_or(Refused::UnknownHead)?;
        let (id, block_bytes) = (head.id, head.block_bytes);
        self.failed_flushes = Some(head.failed_flushes.clone());
        if matches!(op, Op::Withdraw | Op::WithdrawOdd) {
            self.leftovers = Some(head.leftovers.clone());
            host.withdraw(id, &|tag| op == Op::Withdraw || tag % 2 == 1);
            self.end(name, now, Ok(()), Vec::new());
            return Ok(());
        }
        let mut memory = |blocks: u32, fill: u8| {
            let buf = bufs.alloc(blocks * block_bytes).expect("the simulation has memory");
            bufs.bytes_mut(buf).fill(fill);
            buf
        };
        let (op_with_memory, buf) = match op {
            Op::Read { lba, blocks } => {
                let buf = memory(blocks, 0xee);
                (RequestOp::Read { lba, blocks, buf }, Some(buf))
            }
            Op::Write { lba, blocks, fill } | Op::WriteFua { lba, blocks, fill } => {
                let (buf, fua) = (memory(blocks, fill), matches!(op, Op::WriteFua { .. }));
                (RequestOp::Write { lba, blocks, buf, fua }, Some(buf))
            }
            Op::WriteEach { lba, blocks } => {
                let buf = memory(blocks, 0);
                let each = bufs.bytes_mut(buf).chunks_mut(block_bytes as usize);
                (lba..).zip(each).for_each(|(lba, block)| block.fill(lba as u8));
                (RequestOp::Write { lba, blocks, buf, fua: false }, Some(buf))
            }
            Op::Compare { lba, blocks, fill } => {
                let buf = memory(blocks, fill);
                (RequestOp::Compare { lba, blocks, buf }, Some(buf))
            }
            Op::Discard { lba, blocks } => (RequestOp::Discard { lba, blocks }, None),
            Op::Flush => (RequestOp::Flush, None),
            Op::Withdraw | Op::WithdrawOdd => unreachable!("it is no request"),
            Op::Zero { lba, blocks } | Op::ZeroAndFree { lba, blocks } => {
                let deallocate = matches!(op, Op::ZeroAndFree { .. });
                (RequestOp::WriteZeroes { lba, blocks, deallocate }, None)
            }
        };
        let taken = host.submit(now, Request { head: id, op: op_with_memory, tag: name });
        match taken {
            Ok(()) => {
                self.in_flight.insert(name, InFlight { op, buf });
            }
            Err(_) => buf.into_iter().for_each(|buf| bufs.free(buf)),
        }
        taken
    }

    fn end(&mut self, name: u64, at: Time, result: Result<(), Failure>, data: Vec<u8>) {
        let before = self.outcomes.insert(name, Outcome { at, result, data });
        assert_eq!(before, None, "request {name} is answered once");
    }
}

impl User for Script {
    type Mail = Batch;
    type Verb = Batch;
    type Reply = ();
    type Event = Infallible;

    fn handle(
        &mut self,
        now: Time,
        input: Input<'_, Batch, Batch>,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    ) {
        match input {
            Input::Verb { id: VerbId(_), verb } => {
                self.outputs.push_back(Output::Mail { to: verb.worker, mail: verb });
            }
            Input::Mail { mail, .. } => {
                self.backlog.entry(mail.device).or_default().extend(mail.ops);
                self.advance(now, host, bufs);
            }
            _ => {}
        }
    }

    fn completed(&mut self, now: Time, done: Done, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        let known = self.in_flight.remove(&done.tag);
        let InFlight { op, buf } = known.expect("only what was submitted is answered");
        let is_read = matches!(op, Op::Read { .. });
        let data = buf.filter(|_| is_read).map(|buf| bufs.bytes(buf).to_vec());
        buf.into_iter().for_each(|buf| bufs.free(buf));
        self.end(done.tag, now, done.result.map_err(Failure::Io), data.unwrap_or_default());
        self.advance(now, host, bufs);
    }

    fn heads_changed(&mut self, _: Time, _: &mut dyn Submit, _: &mut dyn Buffers) {}

    fn poll_output(&mut self) -> Option<Output<Batch, (), Infallible>> {
        self.outputs.pop_front()
    }

    fn poll_transmit(&mut self, _: Time, _: ConnId, _: &mut dyn Gather, _: &mut dyn Buffers) {}

    fn poll_timeout(&mut self) -> Option<Time> {
        None
    }
}
