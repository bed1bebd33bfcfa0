//! Who listens on the line: no command identifier is used twice, no queue holds more than was
//! agreed, and no write is sent again before its first connection is given up. Where no path has
//! trouble, a flush reaches each controller that has acknowledged writes. And a controller that has
//! tiny queues, which ours never has.

use anabranch_lab::sim::{Passing, Tap};
use anabranch_proto::machine::{Endpoint, Time};
use anabranch_proto::nvme::Sqe;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// PDU types (NVMe/TCP transport, PDU-Type).
const CAPSULE_CMD: u8 = 4;
const CAPSULE_RESP: u8 = 5;
const C2H_DATA: u8 = 7;

/// C2HData: the command has ended well, no response capsule follows.
const SUCCESS: u8 = 1 << 3;

/// Fabrics commands; those about properties among them; the property that says how long queues are,
/// and the one by which a controller is told to shut down, with the bits that do (SHN).
const FABRICS: u8 = 0x7f;
const PROPERTY_SET: u8 = 0;
const PROPERTY_GET: u8 = 4;
const CAP: u32 = 0;
const CC: u32 = 0x14;
const SHN: u32 = 0b11 << 14;

/// I/O commands that change blocks and name them: Write, Write Zeroes.
const WRITES: [u8; 2] = [1, 8];

/// I/O command that is about no blocks; the bit of the others that makes them durable (FUA).
const FLUSH: u8 = 0;
const DURABLE: u32 = 1 << 30;

/// Namespace, first block, and how many follow it.
type Blocks = (u32, u64, u16);

/// A flush that somebody was told has ended: what was acknowledged of this block before it was
/// asked for is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub(crate) asked: Time,
    pub(crate) ended: Time,
    pub(crate) nsid: u32,
    pub(crate) lba: u64,
}

/// The controller behind this port could not be asked, or not every worker knew that it can be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Away {
    pub(crate) port: u16,
    pub(crate) from: Time,
    pub(crate) until: Time,
}

/// A write, or the flush of a namespace.
#[derive(Clone, Copy, Debug)]
enum What {
    Write(Blocks),
    Flush(u32),
}

/// Who has done it, and when. A write that is not durable may be in a cache.
#[derive(Clone, Copy, Debug)]
struct Deed {
    port: u16,
    sent: Time,
    answered: Time,
    durable: bool,
}

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Command identifiers that are taken, by stream, and what is written under them.
    taken: BTreeMap<u32, BTreeMap<u16, Option<Blocks>>>,
    /// Where a write was sent last that is not answered.
    written: BTreeMap<Blocks, u32>,
    /// Streams whose writes were sent again on another one.
    given_up: BTreeSet<u32>,
    /// Those of them that ask for the capabilities.
    asks: BTreeSet<(u32, u16)>,
    /// Entries of an I/O queue, if the controllers are to take fewer than ours does.
    entries: Rc<Cell<Option<u16>>>,
    /// How many the host asks for at most.
    asked_for: u16,
    /// What the controller behind each port has said last, and what holds for each I/O queue.
    said: BTreeMap<u16, u16>,
    granted: BTreeMap<u32, u16>,
    /// Writes and flushes that are not answered.
    under_way: BTreeMap<(u32, u16), (What, Deed)>,
    /// Writes by block, flushes by namespace.
    writes: BTreeMap<(u32, u64), Vec<Deed>>,
    flushes: BTreeMap<u32, Vec<Deed>>,
    /// When the controllers behind ports were told to shut down: this empties their caches.
    pub(crate) told: Vec<(u16, Time)>,
    pub(crate) wrong: Vec<String>,
}

impl Line {
    pub(crate) fn new(entries: Rc<Cell<Option<u16>>>, asked_for: u16) -> Line {
        Line { entries, asked_for, ..Line::default() }
    }

    /// Listens before `then` does whatever it does.
    pub(crate) fn listen(line: &Rc<RefCell<Line>>, mut then: Option<Tap>) -> Tap {
        let line = Rc::clone(line);
        Box::new(move |passing| {
            line.borrow_mut().batch(passing);
            if let Some(then) = &mut then {
                then(passing);
            }
        })
    }

    fn batch(&mut self, passing: &mut Passing<'_>) {
        let mut at = 0;
        while at < passing.bytes.len() {
            let len = passing.bytes[at + 4..at + 8].try_into().expect("four bytes");
            let len = u32::from_le_bytes(len) as usize;
            let pdu = &mut passing.bytes[at..at + len];
            at += len;
            let number = |at: usize| u16::from_le_bytes([pdu[at], pdu[at + 1]]);
            if passing.to_target && self.given_up.contains(&passing.serial) {
                let text = "is still in use though its writes were sent elsewhere";
                self.wrong.push(format!("stream {} {text}", passing.serial));
            }
            match pdu[0] {
                CAPSULE_CMD => {
                    let cid = number(10);
                    let io = passing.worker.0 > 0;
                    let writes = (io && WRITES.contains(&pdu[8])).then(|| blocks(pdu));
                    self.sent(passing.serial, cid, writes);
                    if let (true, Endpoint::Tcp(to)) = (io, passing.to) {
                        self.counted(passing.serial, to.port());
                        self.asked((passing.serial, cid), to.port(), passing.now, pdu);
                    }
                    if let (FABRICS, Endpoint::Tcp(to)) = (pdu[8], passing.to) {
                        let sqe = sqe(pdu);
                        match (pdu[12], sqe.cdw(11)) {
                            (PROPERTY_GET, CAP) => _ = self.asks.insert((passing.serial, cid)),
                            (PROPERTY_SET, CC) if sqe.cdw(12) & SHN != 0 => {
                                self.told.push((to.port(), passing.now));
                            }
                            _ => {}
                        }
                    }
                }
                CAPSULE_RESP => {
                    let cid = number(20);
                    self.ended(passing.serial, cid);
                    if let Some((what, deed)) = self.under_way.remove(&(passing.serial, cid))
                        && number(22) >> 1 == 0
                    {
                        self.done(what, Deed { answered: passing.now, ..deed });
                    }
                    if let (true, Endpoint::Tcp(to)) =
                        (self.asks.remove(&(passing.serial, cid)), passing.to)
                    {
                        self.says(to.port(), pdu);
                    }
                }
                C2H_DATA if pdu[1] & SUCCESS != 0 => self.ended(passing.serial, number(8)),
                _ => {}
            }
        }
    }

    /// The controller behind a port says how long queues may be.
    fn says(&mut self, port: u16, pdu: &mut [u8]) {
        let entries = self.entries.get();
        if let Some(entries) = entries {
            answer(pdu, entries - 1);
        }
        self.said.insert(port, entries.unwrap_or(self.asked_for));
    }

    /// A command was sent on an I/O queue, which has one entry that is never used.
    fn counted(&mut self, serial: u32, port: u16) {
        let said = self.said.get(&port).copied().unwrap_or(self.asked_for);
        let entries = *self.granted.entry(serial).or_insert(said);
        let commands = self.taken[&serial].len();
        if commands >= usize::from(entries) {
            self.wrong.push(format!("stream {serial}: {commands} on a queue of {entries}"));
        }
    }

    fn asked(&mut self, key: (u32, u16), port: u16, now: Time, pdu: &[u8]) {
        let sqe = sqe(pdu);
        let what = match sqe.opcode() {
            FLUSH => What::Flush(sqe.nsid()),
            code if WRITES.contains(&code) => What::Write(blocks(pdu)),
            _ => return,
        };
        let durable = sqe.cdw(12) & DURABLE != 0;
        self.under_way.insert(key, (what, Deed { port, sent: now, answered: now, durable }));
    }

    fn done(&mut self, what: What, deed: Deed) {
        match what {
            What::Flush(nsid) => self.flushes.entry(nsid).or_default().push(deed),
            What::Write((nsid, first, more)) => {
                for lba in first..=first + u64::from(more) {
                    self.writes.entry((nsid, lba)).or_default().push(deed);
                }
            }
        }
    }

    /// Whether the controller that has acknowledged what was there has also flushed it, unless it
    /// need not have been asked.
    pub(crate) fn is_durable(&self, settled: &Settled, away: &[Away]) -> bool {
        let writes = self.writes.get(&(settled.nsid, settled.lba));
        let mut writes =
            writes.into_iter().flatten().filter(|write| write.answered <= settled.ended);
        let Some(last) = writes.next_back() else { return true };
        let mut flushes = self.flushes.get(&settled.nsid).into_iter().flatten();
        let mut flushed = || {
            flushes.any(|flush| {
                let within = flush.sent >= last.answered && flush.answered <= settled.ended;
                within && flush.port == last.port
            })
        };
        let was_away = || {
            let meanwhile = |it: &Away| it.from <= settled.ended && it.until >= settled.asked;
            away.iter().any(|it| it.port == last.port && meanwhile(it))
        };
        // What was written since it was asked for is another matter.
        last.durable || last.answered > settled.asked || flushed() || was_away()
    }

    fn sent(&mut self, serial: u32, cid: u16, writes: Option<Blocks>) {
        if self.taken.entry(serial).or_default().insert(cid, writes).is_some() {
            self.wrong.push(format!("stream {serial}: identifier {cid:#x} is used twice"));
        }
        let Some(blocks) = writes else { return };
        // Nobody writes the same blocks twice at once: it is the same request.
        if let Some(first) = self.written.insert(blocks, serial).filter(|it| *it != serial) {
            self.given_up.insert(first);
        }
    }

    fn ended(&mut self, serial: u32, cid: u16) {
        let Some(writes) = self.taken.get_mut(&serial).and_then(|taken| taken.remove(&cid)) else {
            self.wrong.push(format!("stream {serial}: {cid:#x} is answered, which was not sent"));
            return;
        };
        if let Some(blocks) = writes
            && self.written.get(&blocks) == Some(&serial)
        {
            self.written.remove(&blocks);
        }
    }
}

/// The command in a capsule.
fn sqe(pdu: &[u8]) -> Sqe {
    Sqe::from_bytes(pdu[8..72].try_into().expect("an SQE has 64 bytes"))
}

/// What it names.
fn blocks(pdu: &[u8]) -> Blocks {
    let sqe = sqe(pdu);
    let first = u64::from(sqe.cdw(11)) << 32 | u64::from(sqe.cdw(10));
    (sqe.nsid(), first, sqe.cdw(12) as u16)
}

/// Changes MQES in the answer, and its digest where it has one.
fn answer(pdu: &mut [u8], mqes: u16) {
    pdu[8..10].copy_from_slice(&mqes.to_le_bytes());
    if pdu.len() == 28 {
        let digest = anabranch_proto::digest::crc32c(&pdu[..24]);
        pdu[24..28].copy_from_slice(&digest.to_le_bytes());
    }
}
