//! A host queue against controllers that break the rules: the entries of the bad-input catalogue
//! that a connection can judge, by their numbers.

use anabranch_proto::digest::crc32c;
use anabranch_proto::host_queue::{
    Attempt, Cid, Completion, Flaw, HostData, HostQueue, HostQueueConfig,
};
use anabranch_proto::machine::{BufRef, Buffers};
use anabranch_proto::nvme::fabrics::ConnectCommand;
use anabranch_proto::nvme::{Cqe, Status, io};
use anabranch_proto::pdu::{C2hData, CapsuleResp, Format, IcResp, Pdu, R2t, Role, TermReq, View};
use anabranch_proto::testing::{MemoryBuffers, VecGather};

const DEPTH: u16 = 4;
const KIB: u32 = 1024;

struct Rig {
    queue: HostQueue,
    bufs: MemoryBuffers,
    format: Format,
}

impl Rig {
    fn bare(digests: bool) -> Rig {
        let queue = HostQueue::new(HostQueueConfig {
            qid: 1,
            depth: DEPTH,
            hdr_digest: digests,
            data_digest: digests,
            in_capsule_bytes: 8192,
        });
        Rig { queue, bufs: MemoryBuffers::new(), format: Format::default() }
    }

    /// After ICReq was sent.
    fn initializing(digests: bool) -> Rig {
        let mut rig = Rig::bare(digests);
        rig.queue.connected();
        assert!(matches!(rig.sent()[..], [(Pdu::IcReq(_), _)]));
        rig
    }

    /// After a good ICResp.
    fn ready(digests: bool) -> Rig {
        let mut rig = Rig::initializing(digests);
        rig.feed(&ic_resp(digests));
        assert!(rig.queue.is_ready());
        rig.format = Format { header_digest: digests, data_digest: digests, alignment: 0 };
        rig
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.queue.received(bytes, &mut self.bufs);
    }

    fn whole(&self, pdu: &Pdu, data: &[u8]) -> Vec<u8> {
        let mut bytes = pdu.emit(self.format).as_bytes().to_vec();
        bytes.extend_from_slice(data);
        if self.format.data_digest && !data.is_empty() {
            bytes.extend_from_slice(&crc32c(data).to_le_bytes());
        }
        bytes
    }

    fn give(&mut self, pdu: impl Into<Given>) {
        let bytes = match pdu.into() {
            Given::Response(cqe) => self.whole(&Pdu::CapsuleResp(CapsuleResp { cqe }), &[]),
            Given::Data(data) => self.whole(&Pdu::C2hData(data), &vec![7; data.length as usize]),
            Given::Ask(r2t) => self.whole(&Pdu::R2t(r2t), &[]),
        };
        self.feed(&bytes);
    }

    /// Sends what there is and reads it as the controller would.
    fn sent(&mut self) -> Vec<(Pdu, Vec<u8>)> {
        let mut bytes = Vec::new();
        while self.queue.has_transmit() {
            let mut batch = VecGather::with_room(2);
            self.queue.poll_transmit(&mut batch, &mut self.bufs);
            bytes.extend(batch.take());
            self.queue.transmitted();
        }
        let mut rest = &bytes[..];
        let mut sent = Vec::new();
        while !rest.is_empty() {
            let view = View::of(rest, Role::Controller, self.format).expect("good").expect("whole");
            let pdu = Pdu::parse(&view).expect("good");
            let head = view.common().head_bytes() as usize;
            let data = rest[head..head + pdu.data_bytes() as usize].to_vec();
            sent.push((pdu, data));
            rest = &rest[view.common().plen() as usize..];
        }
        sent
    }

    fn read(&mut self, bytes: u32) -> (Cid, BufRef) {
        let buf = self.bufs.filled(&vec![0xee; bytes as usize]);
        let sqe = io::read(1, 0, bytes / 512);
        let cid = self.queue.submit(sqe, HostData::In(buf), 1).expect("a free tag");
        assert_eq!(self.sent().len(), 1);
        (cid, buf)
    }

    /// A read that nobody wants the data of.
    fn sink(&mut self, bytes: u32) -> Cid {
        let sqe = io::read(1, 0, bytes / 512);
        let cid = self.queue.submit(sqe, HostData::Sink(bytes), 1).expect("a free tag");
        assert_eq!(self.sent().len(), 1);
        cid
    }

    fn write(&mut self, bytes: u32) -> (Cid, BufRef) {
        let data: Vec<u8> = (0..bytes).map(|i| (i / 4) as u8).collect();
        let buf = self.bufs.filled(&data);
        let sqe = io::write(1, 0, bytes / 512, false);
        let cid = self.queue.submit(sqe, HostData::Out(buf), 2).expect("a free tag");
        assert_eq!(self.sent().len(), 1);
        (cid, buf)
    }

    fn flush(&mut self) -> Cid {
        let cid = self.queue.submit(io::flush(1), HostData::None, 3).expect("a free tag");
        assert_eq!(self.sent().len(), 1);
        cid
    }

    fn done(&mut self) -> Completion {
        assert_eq!(self.queue.fault(), None);
        self.queue.poll_completion().expect("a completion")
    }

    /// The connection ends with one Terminate Connection Request; every command that is open is
    /// given back once, its outcome uncertain; nothing more is completed, sent or heard.
    fn expect_end(mut self, name: &str, fes: u16) {
        let error = self.queue.fault().unwrap_or_else(|| panic!("{name}: no fault")).clone();
        assert!(!error.to_string().is_empty());
        let sent = self.sent();
        let [(Pdu::TermReq(request), _)] = &sent[..] else { panic!("{name}: {sent:?}") };
        assert_eq!(request.fes().0, fes, "{name}: {error}");
        self.feed(&[5; 100]);
        assert!(!self.queue.has_transmit(), "{name}: silence");
        assert_eq!(self.queue.poll_completion(), None, "{name}");
        for _ in 0..self.queue.in_flight() {
            let abandoned = self.queue.drain().expect("an open command");
            assert_eq!(abandoned.attempt, Attempt::Uncertain, "{name}");
        }
        assert!(self.queue.drain().is_none(), "{name}");
        assert_eq!(self.queue.free_tags(), DEPTH, "{name}");
    }
}

/// Makes another command identifier of one.
type Change = fn(Cid) -> Cid;

/// What a controller says about a command.
type Says<P> = fn(Cid) -> Vec<P>;

/// Anything that a controller says.
enum Given {
    Response(Cqe),
    Data(C2hData),
    Ask(R2t),
}

impl From<Cqe> for Given {
    fn from(cqe: Cqe) -> Given {
        Given::Response(cqe)
    }
}

impl From<C2hData> for Given {
    fn from(data: C2hData) -> Given {
        Given::Data(data)
    }
}

impl From<R2t> for Given {
    fn from(r2t: R2t) -> Given {
        Given::Ask(r2t)
    }
}

fn ic_resp(digests: bool) -> Vec<u8> {
    let response =
        IcResp { cpda: 0, header_digest: digests, data_digest: digests, max_h2c_data: 4096 };
    response.emit().as_bytes().to_vec()
}

fn response(cid: Cid) -> Cqe {
    Cqe { result: 0, sqhd: 0, sqid: 1, cid: cid.0, status: Status::SUCCESS }
}

fn data(cid: Cid, offset: u32, length: u32) -> C2hData {
    C2hData { cid: cid.0, offset, length, last: false, success: false }
}

fn ask(cid: Cid, offset: u32, length: u32) -> R2t {
    R2t { cid: cid.0, ttag: 9, offset, length }
}

#[test]
fn c3_to_c8_setting_up() {
    let changed = |at: usize, value: &[u8]| {
        let mut bytes = ic_resp(false);
        bytes[at..at + value.len()].copy_from_slice(value);
        bytes
    };
    let limit = |value: u32| changed(12, &value.to_le_bytes());
    let early =
        Rig::bare(false).whole(&Pdu::CapsuleResp(CapsuleResp { cqe: response(Cid(0)) }), &[]);
    let table = [
        ("C3 HLEN 127", changed(2, &[127]), 1),
        ("C3 PLEN 129", changed(4, &[129]), 1),
        ("C4 PFV 1", changed(8, &[1]), 1),
        ("C5 CPDA 32", changed(10, &[32]), 1),
        ("C6 an answer before ICResp", early, 2),
        ("C6 ICResp twice", [ic_resp(false), ic_resp(false)].concat(), 2),
        ("C7 MAXH2CDATA 0", limit(0), 1),
        ("C7 MAXH2CDATA 4092", limit(4092), 1),
        ("C7 MAXH2CDATA 4097", limit(4097), 1),
        ("C8 digests that were not asked for", ic_resp(true), 1),
    ];
    for (name, bytes, fes) in table {
        let mut rig = Rig::initializing(false);
        rig.feed(&bytes);
        rig.expect_end(name, fes);
    }
    let mut rig = Rig::initializing(true);
    rig.feed(&ic_resp(false));
    rig.expect_end("digests that were asked for and not granted", 6);
    let mut rig = Rig::bare(false);
    rig.feed(&ic_resp(false));
    assert!(rig.queue.fault().is_some(), "C6 ICResp before ICReq");
    let mut rig = Rig::bare(false);
    rig.queue.connected();
    rig.feed(&ic_resp(false));
    rig.expect_end("C6 ICResp before ICReq has left", 2);
}

#[test]
fn connect_data_travels_in_the_capsule_whatever_the_limit_of_io_commands() {
    let mut rig = Rig::ready(false);
    rig.queue.set_in_capsule_bytes(0);
    let connect = ConnectCommand { qid: 1, sqsize: 7, disable_sq_flow: false, kato_ms: 0 };
    let data = rig.bufs.filled(&[1; 1024]);
    rig.queue.submit(connect.sqe(), HostData::Out(data), 0).expect("a tag");
    rig.queue.submit(io::write(1, 0, 1, false), HostData::Out(data), 1).expect("a tag");
    let sent = rig.sent();
    let in_capsule = sent.iter().map(|(_, data)| data.len());
    assert_eq!(in_capsule.collect::<Vec<_>>(), [1024, 0], "Connect, then a write");
}

#[test]
fn c14_to_c19_headers() {
    let plain = Rig::ready(false);
    let good = plain.whole(&Pdu::CapsuleResp(CapsuleResp { cqe: response(Cid(0)) }), &[]);
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let table = [
        ("C14 a command capsule from a controller", changed(0, 4)),
        ("C14 H2CData from a controller", changed(0, 6)),
        ("C14 no such type", changed(0, 0x0b)),
        ("C15 HLEN 0", changed(2, 0)),
        ("C15 HLEN 25", changed(2, 25)),
        ("C16 PLEN 23", changed(4, 23)),
        ("C16 PLEN 2^24", changed(7, 1)),
        ("C18 a header digest that was not agreed on", changed(1, 1)),
    ];
    for (name, bytes) in table {
        let mut rig = Rig::ready(false);
        rig.flush();
        rig.feed(&bytes);
        rig.expect_end(name, 1);
    }
    let mut rig = Rig::ready(true);
    let cid = rig.flush();
    let mut bytes = rig.whole(&Pdu::CapsuleResp(CapsuleResp { cqe: response(cid) }), &[]);
    bytes[24] ^= 1;
    rig.feed(&bytes);
    rig.expect_end("C19 B6 a wrong header digest", 3);
}

#[test]
fn c20_b6_damaged_data_fails_the_command_and_keeps_the_connection() {
    for wanted in [true, false] {
        let mut rig = Rig::ready(true);
        let cid = if wanted { rig.read(4 * KIB).0 } else { rig.sink(4 * KIB) };
        let head = C2hData { last: true, success: true, ..data(cid, 0, 4 * KIB) };
        let mut bytes = rig.whole(&Pdu::C2hData(head), &[7; 4096]);
        bytes[2000] ^= 0x10;
        rig.feed(&bytes);
        let done = rig.done();
        assert_eq!(done.status, Status::TRANSIENT_TRANSPORT_ERROR);
        assert_eq!(done.flaw, Some(Flaw::DataDigest));
        let cid = rig.flush();
        rig.give(response(cid));
        let done = rig.done();
        assert!(done.status.is_success() && done.flaw.is_none());
    }
}

/// What the controller says of a command counts more than what its data was like: of a path error
/// the host knows that the path is to blame.
#[test]
fn c20_the_status_of_a_command_that_failed_stays_whatever_its_data_was_like() {
    let mut rig = Rig::ready(true);
    let cid = rig.read(4 * KIB).0;
    let mut bytes = rig.whole(&Pdu::C2hData(data(cid, 0, 4 * KIB)), &[7; 4096]);
    bytes[2000] ^= 0x10;
    rig.feed(&bytes);
    rig.give(Cqe { status: Status::ANA_INACCESSIBLE, ..response(cid) });
    assert_eq!(rig.done().status, Status::ANA_INACCESSIBLE);
}

#[test]
fn nothing_is_taken_before_icresp_or_after_a_fault() {
    let refuses = |rig: &mut Rig| {
        assert!(!rig.queue.is_ready());
        assert!(rig.queue.submit(io::flush(1), HostData::None, 1).is_err());
        assert!(rig.queue.submit_event_request(1).is_err());
        assert_eq!(rig.queue.in_flight(), 0);
    };
    refuses(&mut Rig::bare(false));
    refuses(&mut Rig::initializing(false));
    let mut rig = Rig::ready(false);
    rig.feed(&[0xff; 8]);
    assert!(rig.queue.fault().is_some());
    refuses(&mut rig);
}

#[test]
fn c52_b7_answers_for_commands_that_are_not_there_touch_nothing() {
    let wrong: [(&str, Change); 4] = [
        ("a free tag", |cid| Cid(cid.0 + 2)),
        ("a tag beyond the depth", |cid| Cid(cid.0 | 0x0fff)),
        ("an earlier generation", |cid| Cid(cid.0.wrapping_sub(1 << 12))),
        ("a later generation", |cid| Cid(cid.0.wrapping_add(1 << 12))),
    ];
    for (name, change) in wrong {
        for kind in 0..3 {
            let mut rig = Rig::ready(false);
            let (read, buf) = rig.read(4 * KIB);
            let (write, _) = rig.write(16 * KIB);
            let cid = change(if kind == 2 { write } else { read });
            match kind {
                0 => rig.give(response(cid)),
                1 => rig.give(data(cid, 0, 4 * KIB)),
                _ => rig.give(ask(cid, 0, 16 * KIB)),
            }
            assert!(rig.bufs.bytes(buf).iter().all(|b| *b == 0xee), "{name}: buffer untouched");
            rig.expect_end(name, 1);
        }
    }
}

#[test]
fn c53_b7_a_second_answer_is_not_delivered() {
    let mut rig = Rig::ready(false);
    let first = rig.flush();
    rig.give(response(first));
    assert_eq!(rig.done().cid, first);
    // The tag is in use again, with another generation.
    let second = rig.flush();
    assert_ne!(first, second);
    rig.give(response(first));
    rig.expect_end("a duplicate answer", 1);
}

#[test]
fn c54_a_write_may_be_answered_before_its_data_was_asked_for() {
    let mut rig = Rig::ready(false);
    let (cid, _) = rig.write(16 * KIB);
    rig.give(Cqe { status: Status::LBA_OUT_OF_RANGE, ..response(cid) });
    let done = rig.done();
    assert_eq!((done.status, done.bytes), (Status::LBA_OUT_OF_RANGE, 0));
    rig.give(ask(cid, 0, 16 * KIB));
    rig.expect_end("R2T after the answer", 1);
}

#[test]
fn c55_read_data_out_of_place() {
    let table: [(&str, u16, Says<C2hData>); 7] = [
        ("offset ahead", 4, |c| vec![data(c, 512, 512)]),
        ("offset repeated", 4, |c| vec![data(c, 0, 512), data(c, 0, 512)]),
        ("beyond the buffer", 4, |c| vec![data(c, 0, 4 * KIB + 4)]),
        ("far beyond the buffer", 4, |c| vec![data(c, u32::MAX - 511, 512)]),
        ("after LAST", 1, |c| vec![C2hData { last: true, ..data(c, 0, 512) }, data(c, 512, 512)]),
        ("SUCCESS without LAST", 1, |c| vec![C2hData { success: true, ..data(c, 0, 4 * KIB) }]),
        ("after completion", 1, |c| {
            let all = C2hData { last: true, success: true, ..data(c, 0, 4 * KIB) };
            vec![all, data(c, 0, 512)]
        }),
    ];
    for (wanted, (name, fes, pdus)) in [true, false].into_iter().flat_map(|w| table.map(|t| (w, t)))
    {
        let mut rig = Rig::ready(false);
        let cid = if wanted { rig.read(4 * KIB).0 } else { rig.sink(4 * KIB) };
        for pdu in pdus(cid) {
            rig.give(pdu);
            while rig.queue.poll_completion().is_some() {}
        }
        rig.expect_end(name, fes);
    }
    let mut rig = Rig::ready(false);
    let (cid, _) = rig.write(16 * KIB);
    rig.give(data(cid, 0, 512));
    rig.expect_end("data for a write", 1);
    let mut rig = Rig::ready(false);
    let cid = rig.flush();
    rig.give(data(cid, 0, 512));
    rig.expect_end("data for a command without any", 1);
}

#[test]
fn c56_success_with_too_little_data_is_an_error() {
    let mut rig = Rig::ready(false);
    let (cid, _) = rig.read(4 * KIB);
    rig.give(C2hData { last: true, success: true, ..data(cid, 0, 512) });
    let done = rig.done();
    assert_eq!((done.status, done.bytes), (Status::TRANSIENT_TRANSPORT_ERROR, 512));
    assert_eq!(done.flaw, Some(Flaw::Short));
    let (cid, _) = rig.read(4 * KIB);
    rig.give(response(cid));
    assert_eq!(rig.done().status, Status::TRANSIENT_TRANSPORT_ERROR);
    // What the controller says itself is no flaw, whatever has come.
    let (cid, _) = rig.read(4 * KIB);
    let mut said = response(cid);
    said.status = Status::TRANSIENT_TRANSPORT_ERROR;
    rig.give(said);
    let done = rig.done();
    assert_eq!((done.status, done.flaw), (Status::TRANSIENT_TRANSPORT_ERROR, None));
    let (cid, _) = rig.write(16 * KIB);
    rig.give(response(cid));
    assert_eq!(rig.done().status, Status::TRANSIENT_TRANSPORT_ERROR, "a write that took no data");
}

#[test]
fn c57_requests_for_data_out_of_place() {
    let table: [(&str, u16, Says<R2t>); 6] = [
        ("offset ahead", 4, |c| vec![ask(c, 4096, 4096)]),
        ("length 0", 1, |c| vec![ask(c, 0, 0)]),
        ("beyond the command's data", 4, |c| vec![ask(c, 0, 16 * KIB + 4)]),
        ("offset and length wrap", 4, |c| vec![ask(c, u32::MAX - 3, 8)]),
        ("two at once", 5, |c| vec![ask(c, 0, 4096), ask(c, 4096, 4096)]),
        ("the same twice", 5, |c| vec![ask(c, 0, 4096), ask(c, 0, 4096)]),
    ];
    for (name, fes, pdus) in table {
        let mut rig = Rig::ready(false);
        let (cid, _) = rig.write(16 * KIB);
        for pdu in pdus(cid) {
            rig.give(pdu);
        }
        rig.expect_end(name, fes);
    }
    let mut rig = Rig::ready(false);
    let (cid, _) = rig.read(4 * KIB);
    rig.give(ask(cid, 0, 4 * KIB));
    rig.expect_end("R2T for a read", 1);
    let mut rig = Rig::ready(false);
    let (cid, _) = rig.write(4 * KIB);
    rig.give(ask(cid, 0, 4 * KIB));
    rig.expect_end("R2T though all data was in the capsule", 1);
}

#[test]
fn c58_data_asked_for_in_the_smallest_pieces() {
    let mut rig = Rig::ready(false);
    let (cid, buf) = rig.write(16 * KIB);
    let mut taken = Vec::new();
    for offset in 0..16 * KIB {
        rig.give(ask(cid, offset, 1));
        for (pdu, bytes) in rig.sent() {
            assert!(matches!(pdu, Pdu::H2cData(_)), "{pdu:?}");
            taken.extend(bytes);
        }
    }
    assert_eq!(taken, rig.bufs.bytes(buf));
    rig.give(response(cid));
    assert!(rig.done().status.is_success());
}

#[test]
fn b4_data_stays_within_maxh2cdata() {
    let mut rig = Rig::ready(false);
    let (cid, buf) = rig.write(16 * KIB);
    rig.give(ask(cid, 0, 16 * KIB));
    let sent = rig.sent();
    let sizes: Vec<usize> = sent.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(sizes, [4096; 4]);
    assert_eq!(sent.iter().flat_map(|(_, b)| b.clone()).collect::<Vec<_>>(), rig.bufs.bytes(buf));
}

#[test]
fn c59_queue_heads_and_queue_numbers_that_make_no_sense_are_ignored() {
    let mut rig = Rig::ready(false);
    for (sqhd, sqid) in [(u16::MAX, 1), (DEPTH, 1), (0, 0), (7, u16::MAX)] {
        let cid = rig.flush();
        rig.give(Cqe { sqhd, sqid, ..response(cid) });
        assert!(rig.done().status.is_success());
    }
}

#[test]
fn the_event_request_has_a_tag_of_its_own() {
    let mut rig = Rig::ready(false);
    for _ in 0..2 {
        let event = rig.queue.submit_event_request(9).expect("the first");
        assert!(rig.queue.submit_event_request(9).is_err(), "one at a time");
        assert_eq!(rig.sent().len(), 1);
        let reads: Vec<Cid> = (0..DEPTH).map(|_| rig.sink(512)).collect();
        let full =
            |rig: &mut Rig| rig.queue.submit(io::read(1, 0, 1), HostData::Sink(512), 1).is_err();
        assert!(full(&mut rig));
        let answer = |cid: Cid, status| Cqe { result: 0, sqhd: 0, sqid: 0, cid: cid.0, status };
        rig.give(answer(event, Status::SUCCESS));
        assert_eq!(rig.queue.poll_completion().map(|done| done.user), Some(9));
        assert!(full(&mut rig), "its tag is not for others");
        for cid in reads {
            rig.give(answer(cid, Status::INTERNAL_ERROR));
        }
        while rig.queue.poll_completion().is_some() {}
        assert_eq!(rig.queue.in_flight(), 0);
    }
}

#[test]
fn a_termination_request_is_not_answered() {
    let mut rig = Rig::ready(false);
    rig.feed(&[0xff; 64]);
    let error = rig.queue.fault().expect("no such PDU").clone();
    assert_eq!(rig.sent().len(), 1, "the controller is told");
    let mut rig = Rig::ready(false);
    rig.write(512);
    rig.feed(TermReq::new(Role::Controller, &error, &[0xff; 8]).emit().as_bytes());
    assert!(rig.queue.fault().is_some());
    assert_eq!(rig.sent(), [], "it knows");
}
