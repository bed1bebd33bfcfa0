//! A target queue against hosts that break the rules: the entries of the bad-input catalogue that a
//! connection can judge without knowing what commands mean, by their numbers.

use anabranch_proto::error::Blame;
use anabranch_proto::machine::{BufRef, Buffers};
use anabranch_proto::nvme::opcode::{self, admin};
use anabranch_proto::nvme::{Cqe, Sgl, Sqe, Status, io};
use anabranch_proto::pdu::{CapsuleCmd, Format, H2cData, IcReq, Pdu, R2t, Role, TermReq, View};
use anabranch_proto::target_queue::{Slot, TargetEvent, TargetQueue, TargetQueueConfig};
use anabranch_proto::testing::{MemoryBuffers, VecGather};

const MAX_H2C: u32 = 8192;
const DEPTH: u16 = 4;

/// Every PDU that the queue sent, each with its data.
type Sent = Vec<(Pdu, Vec<u8>)>;

struct Rig {
    queue: TargetQueue,
    bufs: MemoryBuffers,
    format: Format,
}

impl Rig {
    fn bare() -> Rig {
        Rig::bare_with(MAX_H2C)
    }

    fn bare_with(max_h2c_data: u32) -> Rig {
        let queue = TargetQueue::new(TargetQueueConfig {
            depth: DEPTH,
            in_capsule_bytes: 8192,
            max_h2c_data,
            allow_hdr_digest: true,
            allow_data_digest: true,
            max_transfer_bytes: 1 << 20,
        });
        Rig { queue, bufs: MemoryBuffers::new(), format: Format::default() }
    }

    /// After a good ICReq.
    fn new(digests: bool) -> Rig {
        Rig::with(digests, MAX_H2C)
    }

    fn with(digests: bool, max_h2c_data: u32) -> Rig {
        let mut rig = Rig::bare_with(max_h2c_data);
        let request = IcReq { hpda: 0, header_digest: digests, data_digest: digests, maxr2t: 0 };
        rig.feed(request.emit().as_bytes());
        let sent = rig.sent();
        assert!(matches!(sent[..], [(Pdu::IcResp(_), _)]), "{sent:?}");
        rig.format = Format { header_digest: digests, data_digest: digests, alignment: 0 };
        rig
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.queue.received(bytes, &mut self.bufs);
    }

    fn command(&mut self, sqe: Sqe, data: &[u8]) {
        let bytes = self.capsule(sqe, data);
        self.feed(&bytes);
    }

    fn capsule(&self, sqe: Sqe, data: &[u8]) -> Vec<u8> {
        let pdu = CapsuleCmd { sqe, in_capsule_bytes: data.len() as u32 };
        self.whole(&Pdu::CapsuleCmd(pdu), data)
    }

    fn whole(&self, pdu: &Pdu, data: &[u8]) -> Vec<u8> {
        let mut bytes = pdu.emit(self.format).as_bytes().to_vec();
        bytes.extend_from_slice(data);
        if self.format.data_digest && !data.is_empty() {
            bytes.extend_from_slice(&anabranch_proto::digest::crc32c(data).to_le_bytes());
        }
        bytes
    }

    fn h2c(&mut self, pdu: H2cData) {
        let data = vec![0x5a; pdu.length as usize];
        let bytes = self.whole(&Pdu::H2cData(pdu), &data);
        self.feed(&bytes);
    }

    fn event(&mut self) -> TargetEvent {
        self.queue.poll_event().expect("an event")
    }

    /// Sends what there is, as one or several batches.
    fn sent(&mut self) -> Sent {
        let mut bytes = Vec::new();
        while self.queue.has_transmit() {
            let mut batch = VecGather::with_room(2);
            self.queue.poll_transmit(&mut batch, &mut self.bufs);
            bytes.extend(batch.take());
            self.queue.transmitted();
        }
        while let Some(buf) = self.queue.poll_released() {
            self.bufs.free(buf);
        }
        let mut rest = &bytes[..];
        let mut sent = Vec::new();
        while !rest.is_empty() {
            let view = View::of(rest, Role::Host, self.format).expect("good").expect("whole");
            let pdu = Pdu::parse(&view).expect("good");
            let head = view.common().head_bytes() as usize;
            let data = rest[head..head + pdu.data_bytes() as usize].to_vec();
            sent.push((pdu, data));
            rest = &rest[view.common().plen() as usize..];
        }
        sent
    }

    /// The one response that was sent.
    fn response(&mut self) -> Cqe {
        match &self.sent()[..] {
            [(Pdu::CapsuleResp(response), _)] => response.cqe,
            other => panic!("one response: {other:?}"),
        }
    }

    /// The data of the command that has come, if some was in its capsule.
    fn data_in_capsule(&mut self) -> Option<BufRef> {
        let TargetEvent::Command { slot } = self.event() else { panic!("a command") };
        self.queue.take_data(slot)
    }

    /// A write of 16 KiB for which an R2T was sent.
    fn write_asked_for(&mut self, cid: u16) -> (Slot, R2t) {
        let (slot, r2t, _) = self.write_into(cid);
        (slot, r2t)
    }

    fn write_into(&mut self, cid: u16) -> (Slot, R2t, BufRef) {
        self.command(write(cid, 16 << 10).with_sgl(Sgl::transport(16 << 10)), &[]);
        let TargetEvent::Command { slot } = self.event() else { panic!("a command") };
        assert_eq!(self.queue.take_data(slot), None, "without data");
        let buf = self.bufs.alloc(16 << 10).expect("memory");
        self.queue.request_data(slot, buf);
        match self.sent()[..] {
            [(Pdu::R2t(r2t), _)] => (slot, r2t, buf),
            ref other => panic!("one R2T: {other:?}"),
        }
    }

    /// The connection ends with one Terminate Connection Request of this status, and neither says
    /// nor hears anything after it. Everything comes back once.
    fn expect_end(mut self, name: &str, fes: u16, fei: Option<u32>) {
        let error = self.queue.fault().unwrap_or_else(|| panic!("{name}: no fault")).clone();
        assert!(!error.to_string().is_empty());
        let sent = self.sent();
        let [(Pdu::TermReq(request), _)] = &sent[..] else { panic!("{name}: {sent:?}") };
        assert_eq!(request.fes().0, fes, "{name}: {error}");
        assert_eq!(self.queue.receive_hint(), None, "{name}: nothing more is received");
        if let Some(fei) = fei {
            assert_eq!(request.fei(), fei, "{name}: {error}");
        }
        self.feed(&[4; 100]);
        assert!(!self.queue.has_transmit(), "{name}: silence");
        self.expect_nothing_left(name);
    }

    fn expect_nothing_left(mut self, name: &str) {
        let mut slots = Vec::new();
        while let Some(drained) = self.queue.drain() {
            slots.extend(drained.slot);
            if let Some(buf) = drained.buf {
                self.bufs.free(buf);
            }
        }
        assert_eq!(self.bufs.in_use_bytes(), 0, "{name}: every buffer came back");
        assert_eq!(self.queue.in_flight(), 0, "{name}");
        let all = slots.len();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), all, "{name}: each command came back once");
    }
}

fn write(cid: u16, bytes: u32) -> Sqe {
    io::write(1, 0, bytes / 512, false).with_cid(cid)
}

fn ic_req() -> Vec<u8> {
    IcReq { hpda: 0, header_digest: false, data_digest: false, maxr2t: 0 }
        .emit()
        .as_bytes()
        .to_vec()
}

#[test]
fn c1_to_c5_setting_up() {
    let changed = |at: usize, value: u8| {
        let mut bytes = ic_req();
        bytes[at] = value;
        bytes
    };
    let capsule = Rig::bare().capsule(Sqe::new(admin::KEEP_ALIVE), &[]);
    let twice = [ic_req(), ic_req()].concat();
    let table: [(&str, Vec<u8>, u16, Option<u32>); 8] = [
        ("C1 first PDU is a capsule", capsule, 2, None),
        ("C3 HLEN 127", changed(2, 127), 1, Some(2)),
        ("C3 PLEN 129", changed(4, 129), 1, Some(4)),
        ("C4 PFV 1", changed(8, 1), 1, Some(8)),
        ("C5 HPDA 32", changed(10, 32), 1, Some(10)),
        ("C14 a response", changed(0, 5), 1, Some(0)),
        ("C14 no such type", changed(0, 0xff), 1, Some(0)),
        ("C12 HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), 1, Some(0)),
    ];
    for (name, bytes, fes, fei) in table {
        let mut rig = Rig::bare();
        rig.feed(&bytes);
        rig.expect_end(name, fes, fei);
    }
    let mut rig = Rig::bare();
    rig.feed(&twice);
    rig.expect_end("C2 second ICReq", 2, None);
}

#[test]
fn c9_reserved_bits_of_icreq_are_ignored() {
    let mut bytes = ic_req();
    bytes[11] = 0xfc;
    bytes[16..].fill(0xff);
    let mut rig = Rig::bare();
    rig.feed(&bytes);
    assert!(rig.queue.fault().is_none());
    let sent = rig.sent();
    let [(Pdu::IcResp(response), _)] = &sent[..] else { panic!("{sent:?}") };
    assert!(!response.header_digest && !response.data_digest);
    assert_eq!((response.cpda, response.max_h2c_data), (0, MAX_H2C));
}

#[test]
fn digests_are_granted_only_when_asked_for_and_allowed() {
    for bits in 0..16_u8 {
        let bit = |at: u8| bits >> at & 1 != 0;
        let mut rig = Rig::bare();
        rig.queue = TargetQueue::new(TargetQueueConfig {
            depth: 1,
            in_capsule_bytes: 8192,
            max_h2c_data: MAX_H2C,
            allow_hdr_digest: bit(0),
            allow_data_digest: bit(1),
            max_transfer_bytes: 4096,
        });
        let request = IcReq { hpda: 0, header_digest: bit(2), data_digest: bit(3), maxr2t: 0 };
        rig.feed(request.emit().as_bytes());
        let sent = rig.sent();
        let [(Pdu::IcResp(response), _)] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!(response.header_digest, bit(0) && bit(2));
        assert_eq!(response.data_digest, bit(1) && bit(3));
    }
}

#[test]
fn c14_to_c19_headers() {
    let good = Rig::new(false).capsule(write(1, 512).with_sgl(Sgl::in_capsule(512)), &[1; 512]);
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let plen = |value: u32| {
        let mut bytes = good.clone();
        bytes[4..8].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    let table: [(&str, Vec<u8>, u32); 14] = [
        ("C14 type 0Ah", changed(0, 0x0a), 0),
        ("C14 C2HData from a host", changed(0, 7), 0),
        ("C15 HLEN 0", changed(2, 0), 2),
        ("C15 HLEN 255", changed(2, 255), 2),
        ("C15 HLEN 71", changed(2, 71), 2),
        ("C15 HLEN 73", changed(2, 73), 2),
        ("C16 PLEN 0", plen(0), 4),
        ("C16 PLEN 71", plen(71), 4),
        ("C16 PLEN 2^32 - 1", plen(u32::MAX), 4),
        ("C28 over the in-capsule limit", plen(72 + 8193), 4),
        ("C17 PDO 70", changed(3, 70), 3),
        ("C17 PDO 73", changed(3, 73), 3),
        ("C18 HDGSTF set", changed(1, 1), 1),
        ("C18 DDGSTF set", changed(1, 2), 1),
    ];
    for (name, bytes, fei) in table {
        let mut rig = Rig::new(false);
        rig.feed(&bytes);
        rig.expect_end(name, 1, Some(fei));
    }
    let mut rig = Rig::new(true);
    let mut bytes = rig.capsule(Sqe::new(admin::KEEP_ALIVE), &[]);
    bytes[20] ^= 1;
    rig.feed(&bytes);
    rig.expect_end("C19 header digest", 3, None);
}

#[test]
fn c20_damaged_data_fails_the_command_alone() {
    let mut rig = Rig::new(true);
    let mut bytes = rig.capsule(write(7, 512).with_sgl(Sgl::in_capsule(512)), &[1; 512]);
    let last = bytes.len() - 10;
    bytes[last] ^= 1;
    rig.feed(&bytes);
    assert_eq!(rig.queue.poll_event(), None, "not executed");
    let cqe = rig.response();
    assert_eq!((cqe.cid, cqe.status), (7, Status::TRANSIENT_TRANSPORT_ERROR));
    assert_eq!((rig.queue.in_flight(), rig.bufs.in_use_bytes()), (0, 0), "nothing is left of it");

    assert_eq!((rig.queue.take_damaged(), rig.queue.take_damaged()), (1, 0));

    for damaged in [[true, false], [true, true], [false, false]] {
        let (slot, r2t) = rig.write_asked_for(8);
        for (offset, damaged) in [0, 8192].into_iter().zip(damaged) {
            let data = H2cData { cid: 8, ttag: r2t.ttag, offset, length: 8192, last: offset > 0 };
            let mut bytes = rig.whole(&Pdu::H2cData(data), &[3; 8192]);
            if damaged {
                bytes[1000] ^= 0x80;
            }
            rig.feed(&bytes);
        }
        let any = damaged.contains(&true);
        let wanted = match any {
            true => TargetEvent::DataDigestError { slot },
            false => TargetEvent::DataReady { slot },
        };
        assert_eq!((rig.event(), rig.queue.take_damaged()), (wanted, u32::from(any)));
        rig.queue.complete(slot, Status::TRANSIENT_TRANSPORT_ERROR, 0);
        assert_eq!(rig.response().cid, 8);
    }
    assert!(rig.queue.fault().is_none());
    assert_eq!(rig.queue.in_flight(), 0);
}

#[test]
fn c22_a_terminate_request_is_never_answered() {
    let error = anabranch_proto::error::ProtocolError::new(
        "R2T",
        "R2TL",
        1,
        anabranch_proto::error::Rule::AtMost,
        0,
    );
    let good = TermReq::new(Role::Host, &error, &[9; 24]).emit().as_bytes().to_vec();
    let mut reserved = good.clone();
    reserved[8] = 0xff;
    let mut long = good.clone();
    long[4..8].copy_from_slice(&153_u32.to_le_bytes());
    let mut short = good.clone();
    short[4] = 23;
    let mut header = good.clone();
    header[2] = 32;
    for (bytes, blame) in [
        (good, Blame::Reported),
        (reserved, Blame::Reported),
        (long, Blame::Peer),
        (short, Blame::Peer),
        (header, Blame::Peer),
    ] {
        let mut rig = Rig::new(false);
        rig.command(Sqe::new(admin::KEEP_ALIVE).with_cid(1), &[]);
        rig.feed(&bytes);
        assert_eq!(rig.queue.fault().expect("a fault").blame, blame);
        assert!(!rig.queue.has_transmit());
        rig.expect_nothing_left("C22");
    }
}

#[test]
fn c25_a_cid_in_flight_is_refused_and_the_first_command_unharmed() {
    let mut rig = Rig::new(false);
    rig.command(io::flush(1).with_cid(5), &[]);
    let TargetEvent::Command { slot } = rig.event() else { panic!("a command") };
    rig.command(write(5, 512).with_sgl(Sgl::in_capsule(512)), &[1; 512]);
    assert_eq!(rig.queue.poll_event(), None);
    let cqe = rig.response();
    assert_eq!((cqe.cid, cqe.status), (5, Status::COMMAND_ID_CONFLICT.with_dnr()));
    rig.queue.complete(slot, Status::SUCCESS, 3);
    let cqe = rig.response();
    assert_eq!((cqe.cid, cqe.status, cqe.result, cqe.sqhd), (5, Status::SUCCESS, 3, 2));
    rig.command(io::flush(1).with_cid(5), &[]);
    assert!(matches!(rig.event(), TargetEvent::Command { .. }), "the CID is free again");
}

#[test]
fn c26_more_commands_than_the_queue_has_end_the_connection() {
    let mut rig = Rig::new(false);
    for cid in 0..DEPTH {
        rig.command(io::flush(1).with_cid(cid), &[]);
    }
    assert!(rig.queue.fault().is_none());
    assert_eq!(rig.queue.in_flight(), DEPTH);
    rig.command(io::flush(1).with_cid(DEPTH), &[]);
    rig.expect_end("C26", 2, None);
    let mut rig = Rig::new(false);
    for _ in 0..DEPTH {
        rig.command(write(1, 512).with_sgl(Sgl::from_raw(0, 512, 0x40)), &[]);
    }
    assert!(rig.queue.fault().is_none());
    rig.command(write(1, 512).with_sgl(Sgl::from_raw(0, 512, 0x40)), &[]);
    rig.expect_end("C26 refusals that nobody reads", 2, None);
}

#[test]
fn c28_a_bad_descriptor_costs_only_its_command() {
    let data = [1_u8; 512];
    let none: &[u8] = &[];
    let read = || io::read(1, 0, 1);
    let mut prp = *write(0, 512).as_bytes();
    prp[1] = 0;
    let mut reserved = prp;
    reserved[1] = 0xc0;
    let sgl = |identifier| write(0, 512).with_sgl(Sgl::from_raw(0, 512, identifier));
    let offset = Sgl::from_raw(4, 512, 1);
    let table: [(&str, Sqe, &[u8], Status); 15] = [
        ("keyed", sgl(0x40), none, Status::SGL_TYPE_INVALID),
        ("bit bucket", sgl(0x10), none, Status::SGL_TYPE_INVALID),
        ("segment", sgl(0x20), none, Status::SGL_TYPE_INVALID),
        ("last segment", sgl(0x30), none, Status::SGL_TYPE_INVALID),
        ("address", sgl(0x00), none, Status::SGL_TYPE_INVALID),
        ("wrong subtype", sgl(0x5b), none, Status::SGL_TYPE_INVALID),
        ("keyed, with data", sgl(0x40), &data, Status::SGL_TYPE_INVALID),
        ("PRP", Sqe::from_bytes(&prp), none, Status::INVALID_FIELD),
        ("reserved PSDT", Sqe::from_bytes(&reserved), &data, Status::INVALID_FIELD),
        ("offset", write(0, 512).with_sgl(offset), &data, Status::SGL_OFFSET_INVALID),
        ("short", sgl(0x01), &data[..508], Status::DATA_SGL_LENGTH_INVALID),
        ("no data", sgl(0x01), none, Status::DATA_SGL_LENGTH_INVALID),
        ("data nobody describes", sgl(0x5a), &data, Status::DATA_SGL_LENGTH_INVALID),
        ("a read", read().with_sgl(Sgl::in_capsule(512)), &data, Status::INVALID_FIELD),
        ("a flush", io::flush(1).with_sgl(Sgl::in_capsule(512)), &data, Status::INVALID_FIELD),
    ];
    for digests in [false, true] {
        for (name, sqe, data, status) in &table {
            let mut rig = Rig::new(digests);
            rig.command(sqe.with_cid(3), data);
            assert_eq!(rig.queue.poll_event(), None, "{name}");
            let cqe = rig.response();
            assert_eq!((cqe.cid, cqe.status), (3, status.with_dnr()), "{name}");
            rig.command(write(4, 512).with_sgl(Sgl::in_capsule(512)), &[1; 512]);
            let buf = rig.data_in_capsule().unwrap_or_else(|| panic!("{name}: in step"));
            assert_eq!(rig.bufs.bytes(buf), &[1; 512]);
        }
    }
}

#[test]
fn a_command_that_moves_nothing_may_leave_its_descriptor_empty() {
    let mut rig = Rig::new(false);
    rig.command(io::flush(1).with_cid(1).with_sgl(Sgl::from_raw(0, 0, 0)), &[]);
    assert_eq!(rig.data_in_capsule(), None);
}

#[test]
fn without_memory_a_command_is_interrupted_and_the_stream_stays_in_step() {
    let mut rig = Rig::new(true);
    rig.bufs = MemoryBuffers::with_limit(600);
    rig.command(write(1, 1024).with_sgl(Sgl::in_capsule(1024)), &[1; 1024]);
    let cqe = rig.response();
    assert_eq!((cqe.cid, cqe.status), (1, Status::COMMAND_INTERRUPTED));
    rig.command(write(1, 512).with_sgl(Sgl::in_capsule(512)), &[2; 512]);
    assert!(rig.data_in_capsule().is_some());
}

/// Each counts until it is answered, or its data turns out to be damaged.
#[test]
fn with_as_many_capsules_as_there_may_be_a_command_is_interrupted() {
    let mut rig = Rig::new(true);
    rig.queue.limit_capsules(1);
    let in_capsule = |cid| write(cid, 512).with_sgl(Sgl::in_capsule(512));
    rig.command(in_capsule(1), &[1; 512]);
    let event = rig.queue.poll_event();
    let Some(TargetEvent::Command { slot }) = event else { panic!("{event:?}") };
    let buf = rig.queue.take_data(slot).expect("in the capsule");
    rig.bufs.free(buf);
    rig.command(in_capsule(2), &[2; 512]);
    let cqe = rig.response();
    assert_eq!((cqe.cid, cqe.status), (2, Status::COMMAND_INTERRUPTED));
    rig.command(io::flush(1).with_cid(3), &[]);
    assert!(rig.queue.poll_event().is_some(), "it brings nothing");
    rig.queue.complete(slot, Status::SUCCESS, 0);
    assert_eq!((rig.response().cid, rig.queue.capsules()), (1, 0));
    let mut damaged = rig.capsule(in_capsule(4), &[4; 512]);
    *damaged.last_mut().unwrap() ^= 1;
    rig.feed(&damaged);
    assert_eq!(rig.response().status, Status::TRANSIENT_TRANSPORT_ERROR);
    assert_eq!(rig.queue.capsules(), 0);
    rig.command(in_capsule(5), &[5; 512]);
    assert!(rig.data_in_capsule().is_some());
}

#[test]
fn c44_to_c48_host_data() {
    let length = MAX_H2C;
    let good = H2cData { cid: 9, ttag: 0, offset: 0, length, last: false };
    type Change = fn(&mut H2cData);
    let table: [(&str, Change, u16, Option<u32>); 12] = [
        ("C44 unknown tag", |d| (d.ttag, d.cid) = (0x0fff, 77), 1, Some(10)),
        ("C44 another slot's tag", |d| (d.ttag, d.cid) = (d.ttag + 1, 77), 1, Some(10)),
        ("C44 an old tag", |d| (d.ttag, d.cid) = (d.ttag ^ 0xf000, 77), 1, Some(10)),
        ("C48 no R2T for the tag", |d| d.ttag ^= 0x1000, 2, None),
        ("C45 another CID", |d| d.cid = 8, 1, Some(8)),
        ("C46 ahead", |d| d.offset = 4, 4, None),
        ("C46 far ahead", |d| d.offset = 1 << 20, 4, None),
        ("C47 wrap", |d| d.offset = u32::MAX - 3, 4, None),
        ("C47 over MAXH2CDATA", |d| d.length += 4, 5, None),
        ("C47 no data", |d| d.length = 0, 1, None),
        ("C47 not whole dwords", |d| d.length = 6, 1, Some(16)),
        ("C47 LAST early", |d| d.last = true, 1, Some(1)),
    ];
    for digests in [false, true] {
        for (name, change, fes, fei) in &table {
            let mut rig = Rig::new(digests);
            let (_, r2t) = rig.write_asked_for(9);
            assert_eq!((r2t.cid, r2t.offset, r2t.length), (9, 0, 16 << 10));
            let mut data = H2cData { ttag: r2t.ttag, ..good };
            change(&mut data);
            rig.h2c(data);
            rig.expect_end(name, *fes, *fei);
        }
    }
}

#[test]
fn c46_c47_the_second_pdu_of_a_transfer() {
    type Change = fn(&mut H2cData);
    let table: [(&str, Change, u16); 4] = [
        ("C46 repeated", |d| (d.offset, d.last) = (0, false), 4),
        ("C46 behind", |d| d.offset -= 4, 4),
        ("C47 LAST missing", |d| d.last = false, 1),
        ("C47 beyond the R2T", |d| (d.offset, d.length) = (d.offset + 4, d.length), 4),
    ];
    for (name, change, fes) in table {
        let mut rig = Rig::new(false);
        let (_, r2t) = rig.write_asked_for(9);
        let first = H2cData { cid: 9, ttag: r2t.ttag, offset: 0, length: 8192, last: false };
        rig.h2c(first);
        let mut second = H2cData { offset: 8192, last: true, ..first };
        change(&mut second);
        rig.h2c(second);
        rig.expect_end(name, fes, None);
    }
    // More than is left of it, in a PDU that is not too long.
    let mut rig = Rig::new(false);
    let (_, r2t) = rig.write_asked_for(9);
    let first = H2cData { cid: 9, ttag: r2t.ttag, offset: 0, length: 4096, last: false };
    rig.h2c(first);
    rig.h2c(H2cData { offset: 4096, length: 8192, ..first });
    rig.h2c(H2cData { offset: 12288, length: 8192, ..first });
    rig.expect_end("C47 beyond the R2T", 4, None);
    let mut rig = Rig::new(false);
    let (slot, r2t, buf) = rig.write_into(9);
    let first = H2cData { cid: 9, ttag: r2t.ttag, offset: 0, length: 8192, last: false };
    rig.h2c(first);
    rig.h2c(H2cData { offset: 8192, last: true, ..first });
    assert_eq!(rig.event(), TargetEvent::DataReady { slot });
    rig.bufs.free(buf);
    rig.h2c(H2cData { offset: 8192, last: true, ..first });
    rig.expect_end("C44 a finished transfer", 2, None);
}

#[test]
fn c47_bytes_that_disagree_with_the_length_field() {
    let mut rig = Rig::new(false);
    let (_, r2t) = rig.write_asked_for(9);
    let data = H2cData { cid: 9, ttag: r2t.ttag, offset: 0, length: 512, last: false };
    let mut bytes = rig.whole(&Pdu::H2cData(data), &[0; 512]);
    bytes[16..20].copy_from_slice(&516_u32.to_le_bytes());
    rig.feed(&bytes);
    rig.expect_end("C47 DATAL", 1, Some(16));
}

#[test]
fn c48_data_for_a_command_whose_data_came_in_the_capsule() {
    let mut rig = Rig::new(false);
    rig.command(write(2, 512).with_sgl(Sgl::in_capsule(512)), &[1; 512]);
    let buf = rig.data_in_capsule().expect("data");
    rig.h2c(H2cData { cid: 2, ttag: 0, offset: 0, length: 512, last: true });
    rig.bufs.free(buf);
    rig.expect_end("C48", 2, None);
}

#[test]
fn c50_data_for_a_command_that_was_answered_meanwhile_is_drained() {
    let mut rig = Rig::new(false);
    let (slot, r2t) = rig.write_asked_for(9);
    let first = H2cData { cid: 9, ttag: r2t.ttag, offset: 0, length: 8192, last: false };
    rig.h2c(first);
    rig.queue.complete(slot, Status::ABORT_REQUESTED, 0);
    assert!(!rig.queue.has_transmit(), "the host is still sending");
    rig.h2c(H2cData { offset: 8192, last: true, ..first });
    assert_eq!(rig.queue.poll_event(), None);
    let cqe = rig.response();
    assert_eq!((cqe.cid, cqe.status), (9, Status::ABORT_REQUESTED));
    assert!(rig.queue.fault().is_none());
    rig.expect_nothing_left("C50");
}

/// Hosts grant one R2T per command (MAXR2T 0): no second one leaves before the data of the first
/// has come, and none after.
#[test]
fn c51_one_grant_per_command_is_open_at_a_time() {
    let mut rig = Rig::new(false);
    let (slot, r2t) = rig.write_asked_for(9);
    let (other, next) = rig.write_asked_for(10);
    assert_ne!(r2t.ttag, next.ttag);
    let first = H2cData { cid: 9, ttag: r2t.ttag, offset: 0, length: 8192, last: false };
    rig.h2c(first);
    assert!(!rig.queue.has_transmit(), "half of the data has come: nothing more is asked for");
    rig.h2c(H2cData { offset: 8192, last: true, ..first });
    rig.h2c(H2cData { cid: 10, ttag: next.ttag, ..first });
    rig.h2c(H2cData { cid: 10, ttag: next.ttag, offset: 8192, last: true, ..first });
    assert!(!rig.queue.has_transmit(), "all data has come: nothing more is asked for");
    for slot in [slot, other] {
        assert!(matches!(rig.event(), TargetEvent::DataReady { slot: ready } if ready == slot));
    }
}

/// Its data has come, and nobody was told yet: that of another command is still told of.
#[test]
fn an_answer_to_one_command_hides_nothing_of_another() {
    let mut rig = Rig::new(false);
    let [(answered, first), (other, second)] = [9, 10].map(|cid| rig.write_asked_for(cid));
    for r2t in [second, first] {
        let all = H2cData { cid: r2t.cid, ttag: r2t.ttag, offset: 0, length: 8192, last: false };
        rig.h2c(all);
        rig.h2c(H2cData { offset: 8192, last: true, ..all });
    }
    rig.queue.complete(answered, Status::ABORT_REQUESTED, 0);
    assert_eq!(rig.event(), TargetEvent::DataReady { slot: other });
    assert_eq!(rig.queue.poll_event(), None);
    assert_eq!(rig.response().cid, 9);
}

#[test]
fn what_connect_settles_about_capsules_holds() {
    for (limit, carried, taken) in
        [(4096, 4096, true), (4096, 4100, false), (16384, 16384, true), (16384, 16388, false)]
    {
        let mut rig = Rig::new(false);
        rig.queue.set_limits(DEPTH, limit);
        let sqe = write(9, carried).with_sgl(Sgl::in_capsule(carried));
        rig.command(sqe, &vec![1; carried as usize]);
        assert_eq!(rig.queue.fault().is_none(), taken, "{carried} of {limit}");
    }
}

/// The flag in the data stands for a response of zeroes, and for no other.
#[test]
fn a_read_that_ends_with_more_than_success_is_answered_with_a_response() {
    let more = Status::SUCCESS.with_more();
    let ends = [
        (Status::SUCCESS, 0, [true, false]),
        (Status::SUCCESS, 7, [true, true]),
        (more, 0, [true, true]),
        (Status::UNRECOVERED_READ_ERROR, 0, [false, true]),
    ];
    for (status, result, [has_data, has_response]) in ends {
        let mut rig = Rig::new(false);
        rig.queue.set_sq_flow_control(false);
        rig.command(io::read(1, 0, 1).with_cid(9).with_sgl(Sgl::transport(512)), &[]);
        let TargetEvent::Command { slot } = rig.event() else { panic!("a command") };
        let buf = rig.bufs.filled(&[3; 512]);
        rig.queue.send_data(slot, buf);
        rig.queue.complete(slot, status, result);
        let sent = rig.sent();
        let data = sent.iter().find_map(|(pdu, _)| match pdu {
            Pdu::C2hData(data) => Some(data.success),
            _ => None,
        });
        let cqe = sent.iter().find_map(|(pdu, _)| match pdu {
            Pdu::CapsuleResp(response) => Some(response.cqe),
            _ => None,
        });
        assert_eq!(data, has_data.then_some(!has_response), "{status} {result}");
        let said = cqe.map(|cqe| (cqe.cid, cqe.status, cqe.result));
        assert_eq!(said, has_response.then_some((9, status, result)));
        rig.expect_nothing_left("a read");
    }
}

/// The engine may not know yet, or have begun before.
#[test]
fn nothing_but_the_farewell_is_sent_after_a_fault() {
    let mut rig = Rig::new(false);
    rig.command(io::flush(1).with_cid(1), &[]);
    rig.command(write(2, 4096).with_sgl(Sgl::transport(4096)), &[]);
    let [TargetEvent::Command { slot: first }, TargetEvent::Command { slot: second }] =
        [rig.event(), rig.event()]
    else {
        panic!("two commands")
    };
    rig.feed(&[0xff; 8]);
    assert!(matches!(rig.sent()[..], [(Pdu::TermReq(_), _)]));
    rig.queue.complete(first, Status::SUCCESS, 0);
    let buf = rig.bufs.alloc(4096).expect("memory");
    rig.queue.request_data(second, buf);
    assert!(!rig.queue.has_transmit());
    rig.expect_nothing_left("after a fault");
}

/// Nothing more need come before it is told of.
#[test]
fn data_that_is_received_straight_into_its_buffer_is_complete_with_its_last_byte() {
    let mut rig = Rig::with(false, 64 << 10);
    let (slot, r2t, buf) = rig.write_into(9);
    let all = H2cData { cid: 9, ttag: r2t.ttag, offset: 0, length: 16 << 10, last: true };
    rig.feed(Pdu::H2cData(all).emit(rig.format).as_bytes());
    let hint = rig.queue.receive_hint().expect("much is to come");
    assert_eq!((hint.len(), rig.queue.transfers()), (16 << 10, 1));
    rig.bufs.bytes_mut(hint).fill(5);
    rig.queue.received_into(16_000, &mut rig.bufs);
    assert_eq!((rig.queue.receive_hint(), rig.queue.poll_event()), (None, None));
    rig.queue.received_into(384, &mut rig.bufs);
    assert_eq!((rig.event(), rig.queue.transfers()), (TargetEvent::DataReady { slot }, 0));
    assert!(rig.bufs.bytes(buf).iter().all(|&byte| byte == 5));
    rig.bufs.free(buf);
    rig.expect_nothing_left("a write");
}

#[test]
fn an_answer_before_the_r2t_left_takes_its_place() {
    let mut rig = Rig::new(false);
    rig.command(write(9, 4096).with_sgl(Sgl::transport(4096)), &[]);
    let TargetEvent::Command { slot } = rig.event() else { panic!("a command") };
    let buf = rig.bufs.alloc(4096).expect("memory");
    rig.queue.request_data(slot, buf);
    assert_eq!(rig.queue.transfers(), 1);
    rig.queue.complete(slot, Status::NAMESPACE_NOT_READY, 0);
    assert_eq!(rig.response().status, Status::NAMESPACE_NOT_READY);
    assert_eq!(rig.queue.transfers(), 0);
    rig.expect_nothing_left("no R2T");
}

#[test]
fn c21_every_cut_gives_the_same_and_every_end_is_clean() {
    let mut script = ic_req();
    let rig = Rig::new(false);
    script.extend(rig.capsule(write(1, 512).with_sgl(Sgl::in_capsule(512)), &[7; 512]));
    script.extend(rig.capsule(io::flush(1).with_cid(2), &[]));
    script.extend(rig.capsule(write(3, 4096).with_sgl(Sgl::transport(4096)), &[]));
    let play = |cut: usize, end: usize| {
        let mut rig = Rig::bare();
        let mut events = Vec::new();
        for piece in [&script[..cut.min(end)], &script[cut.min(end)..end]] {
            rig.feed(piece);
            while let Some(event) = rig.queue.poll_event() {
                let TargetEvent::Command { slot } = event else { panic!("{event:?}") };
                let (sqe, data) = (*rig.queue.sqe(slot), rig.queue.take_data(slot));
                let bytes = data.map(|buf| rig.bufs.bytes(buf).to_vec());
                if let Some(buf) = data {
                    rig.bufs.free(buf);
                }
                events.push((slot, sqe, bytes));
            }
        }
        assert!(rig.queue.fault().is_none());
        rig.expect_nothing_left("C11, C21");
        events
    };
    let whole = play(script.len(), script.len());
    assert_eq!(whole.len(), 3);
    assert_eq!(whole[0].2.as_deref(), Some(&[7; 512][..]));
    assert_eq!(whole[2].1.opcode(), opcode::io::WRITE);
    for cut in 0..script.len() {
        assert_eq!(play(cut, script.len()), whole, "cut at {cut}");
        let part = play(cut / 2, cut);
        assert_eq!(part[..], whole[..part.len()], "ended at {cut}");
    }
}

#[test]
fn a_thousand_commands_in_one_segment() {
    let mut rig = Rig::new(false);
    rig.queue.set_limits(1000, 8192);
    let segment: Vec<u8> =
        (0..1000).flat_map(|cid| rig.capsule(io::flush(1).with_cid(cid), &[])).collect();
    rig.feed(&segment);
    let mut slots = Vec::new();
    while let Some(TargetEvent::Command { slot }) = rig.queue.poll_event() {
        assert_eq!(usize::from(rig.queue.sqe(slot).cid()), slots.len());
        slots.push(slot);
    }
    for slot in slots {
        rig.queue.complete(slot, Status::SUCCESS, 0);
    }
    assert_eq!(rig.sent().len(), 1000);
    assert_eq!(rig.queue.in_flight(), 0);
}
