//! A controller that answers before the host has sent everything: the answer counts, what it says
//! is not believed beyond what was sent, and no buffer is given back while a batch names it.

use anabranch_proto::host_queue::{Attempt, Cid, Completion, HostData, HostQueue, HostQueueConfig};
use anabranch_proto::nvme::{Cqe, Status, io};
use anabranch_proto::pdu::{CapsuleResp, Format, IcResp, Pdu, R2t};
use anabranch_proto::testing::{MemoryBuffers, VecGather};

const DATA_PDU_BYTES: u32 = 8192;

struct Rig {
    queue: HostQueue,
    bufs: MemoryBuffers,
}

impl Rig {
    fn new() -> Rig {
        let config = HostQueueConfig {
            qid: 1,
            depth: 4,
            hdr_digest: false,
            data_digest: false,
            in_capsule_bytes: 4096,
        };
        let mut rig = Rig { queue: HostQueue::new(config), bufs: MemoryBuffers::new() };
        rig.queue.connected();
        rig.send();
        let (header_digest, data_digest) = (false, false);
        let resp = IcResp { cpda: 0, header_digest, data_digest, max_h2c_data: DATA_PDU_BYTES };
        rig.queue.received(resp.emit().as_bytes(), &mut rig.bufs);
        rig
    }

    /// One batch with one protocol unit at most, which has not left yet. Gives back its bytes.
    fn batch(&mut self) -> usize {
        let mut batch = VecGather::with_room(1);
        self.queue.poll_transmit(&mut batch, &mut self.bufs);
        batch.take().len()
    }

    fn send(&mut self) -> usize {
        let bytes = self.batch();
        self.queue.transmitted();
        bytes
    }

    /// A write that waits to be sent.
    fn write(&mut self, bytes: u32) -> Cid {
        let buf = self.bufs.filled(&vec![7; bytes as usize]);
        let sqe = io::write(1, 0, bytes / 512, false);
        self.queue.submit(sqe, HostData::Out(buf), u64::from(bytes)).expect("a free tag")
    }

    fn feed(&mut self, pdu: &Pdu) {
        self.queue.received(pdu.emit(Format::default()).as_bytes(), &mut self.bufs);
    }

    fn answer(&mut self, cid: Cid, status: Status) {
        let cqe = Cqe { result: 0, sqhd: 1, sqid: 1, cid: cid.0, status };
        self.feed(&Pdu::CapsuleResp(CapsuleResp { cqe }));
    }

    fn ask(&mut self, cid: Cid, length: u32) {
        self.feed(&Pdu::R2t(R2t { cid: cid.0, ttag: 1, offset: 0, length }));
    }

    fn done(&mut self) -> Option<Completion> {
        self.queue.poll_completion()
    }
}

/// Whoever asks may give the buffer to somebody else then.
#[test]
fn a_payload_has_left_when_its_capsule_has() {
    let mut rig = Rig::new();
    let (inside, by_request) = (rig.write(512), rig.write(8192));
    let reads = HostData::In(rig.bufs.filled(&[0; 512]));
    let read = rig.queue.submit(io::read(1, 0, 1), reads, 1).expect("a free tag");
    let left = |rig: &Rig| [inside, by_request, read].map(|cid| rig.queue.has_left(cid));
    assert_eq!(left(&rig), [false; 3], "they wait");
    rig.batch();
    assert_eq!(left(&rig), [false; 3], "the first is being sent");
    rig.queue.transmitted();
    assert_eq!(left(&rig), [true, false, false]);
    rig.send();
    rig.send();
    assert_eq!(left(&rig), [true, false, false], "what is asked for later has not");
    rig.answer(inside, Status::SUCCESS);
    assert!(!rig.queue.has_left(inside), "it has ended");
}

#[test]
fn a_payload_stays_the_queues_until_its_batch_has_left() {
    // In its capsule, and asked for.
    for bytes in [4096, DATA_PDU_BYTES] {
        let mut rig = Rig::new();
        let cid = rig.write(bytes);
        if bytes > 4096 {
            rig.send();
            rig.ask(cid, bytes);
        }
        assert!(rig.batch() > bytes as usize);
        rig.answer(cid, Status::SUCCESS);
        assert_eq!(rig.done(), None, "a batch still names the buffer");
        rig.queue.transmitted();
        let done = rig.done().expect("it has left");
        assert_eq!((done.status, done.bytes), (Status::SUCCESS, bytes));
        assert!(rig.queue.fault().is_none());
    }
}

#[test]
fn success_before_all_data_was_sent_is_an_error() {
    let mut rig = Rig::new();
    let cid = rig.write(4 * DATA_PDU_BYTES);
    rig.send();
    // All of it was asked for, a quarter has left.
    rig.ask(cid, 4 * DATA_PDU_BYTES);
    assert!(rig.send() > DATA_PDU_BYTES as usize);
    rig.answer(cid, Status::SUCCESS);
    let done = rig.done().expect("it was answered");
    assert_eq!((done.status, done.bytes), (Status::TRANSIENT_TRANSPORT_ERROR, DATA_PDU_BYTES));
    assert_eq!(rig.send(), 0, "and nothing more of it is sent");
    assert!(rig.queue.fault().is_none());
}

#[test]
fn an_answer_to_what_was_not_sent_ends_the_connection() {
    let mut rig = Rig::new();
    let cid = rig.write(4096);
    rig.answer(cid, Status::SUCCESS);
    assert!(rig.queue.fault().is_some(), "nobody can know of it");
    assert_eq!(rig.done(), None);
}

#[test]
fn what_was_answered_has_ended_although_its_batch_never_left() {
    let mut rig = Rig::new();
    let (answered, left) = (rig.write(4096), rig.write(1024));
    assert!(rig.batch() > 4096);
    rig.answer(answered, Status::SUCCESS);
    assert_eq!(rig.done(), None, "a batch names its payload until the connection has closed");
    let abandoned: Vec<_> = std::iter::from_fn(|| rig.queue.drain()).collect();
    assert!(matches!(abandoned[..], [it] if it.cid == left), "{abandoned:?}");
    let done = rig.done().expect("it was answered");
    assert_eq!((done.cid, done.status, done.bytes), (answered, Status::SUCCESS, 4096));
    assert_eq!((rig.done(), rig.queue.in_flight()), (None, 0));
}

#[test]
fn what_is_left_tells_what_was_sent_from_what_was_not() {
    let mut rig = Rig::new();
    let (in_batch, waits) = (rig.write(1024), rig.write(2048));
    rig.batch();
    let mut left = Vec::new();
    while let Some(abandoned) = rig.queue.drain() {
        left.push((abandoned.cid, abandoned.user, abandoned.attempt));
    }
    left.sort_by_key(|(_, bytes, _)| *bytes);
    assert_eq!(left, [(in_batch, 1024, Attempt::Uncertain), (waits, 2048, Attempt::NeverSent)]);
    assert_eq!(rig.queue.in_flight(), 0);
}
