//! A read whose buffer is taken back before it has ended: at whatever point that is, the buffer is
//! not written any more, what comes is checked as before, and the command ends as it would have.

use anabranch_proto::digest::crc32c;
use anabranch_proto::host_queue::{Attempt, Cid, HostData, HostQueue, HostQueueConfig};
use anabranch_proto::machine::{BufRef, Buffers};
use anabranch_proto::nvme::{Cqe, Status, io};
use anabranch_proto::pdu::{C2hData, CapsuleResp, Format, IcResp, Pdu};
use anabranch_proto::testing::{MemoryBuffers, VecGather};

const READ_BYTES: u32 = 64 << 10;
const POISON: u8 = 0xa7;
const USER: u64 = 42;

pub(crate) struct Rig {
    pub(crate) queue: HostQueue,
    bufs: MemoryBuffers,
    format: Format,
    pub(crate) cid: Cid,
    buf: BufRef,
}

impl Rig {
    /// With a read that is not in a batch yet.
    fn new(digests: bool) -> Rig {
        let mut queue = HostQueue::new(HostQueueConfig {
            qid: 1,
            depth: 4,
            hdr_digest: digests,
            data_digest: digests,
            in_capsule_bytes: 8192,
        });
        let mut bufs = MemoryBuffers::new();
        queue.connected();
        send(&mut queue, &mut bufs);
        let (header_digest, data_digest) = (digests, digests);
        let resp = IcResp { cpda: 0, header_digest, data_digest, max_h2c_data: 8192 };
        queue.received(resp.emit().as_bytes(), &mut bufs);
        let buf = bufs.filled(&vec![0; READ_BYTES as usize]);
        let sqe = io::read(1, 0, READ_BYTES / 512);
        let cid = queue.submit(sqe, HostData::In(buf), USER).expect("a free tag");
        let format = Format { header_digest, data_digest, alignment: 0 };
        Rig { queue, bufs, format, cid, buf }
    }

    pub(crate) fn sent(digests: bool) -> Rig {
        let mut rig = Rig::new(digests);
        send(&mut rig.queue, &mut rig.bufs);
        rig
    }

    /// Everything that a controller sends for the read: two data PDUs and the answer.
    pub(crate) fn answer(&self) -> Vec<u8> {
        let (first, second) = (READ_BYTES / 4, READ_BYTES - READ_BYTES / 4);
        let mut bytes = self.data(0, first, false);
        bytes.extend(self.data(first, second, true));
        let cqe = Cqe { result: 0, sqhd: 1, sqid: 1, cid: self.cid.0, status: Status::SUCCESS };
        let response = Pdu::CapsuleResp(CapsuleResp { cqe });
        bytes.extend_from_slice(response.emit(self.format).as_bytes());
        bytes
    }

    fn data(&self, offset: u32, length: u32, last: bool) -> Vec<u8> {
        let data = C2hData { cid: self.cid.0, offset, length, last, success: false };
        let payload = vec![0x11; length as usize];
        let mut bytes = Pdu::C2hData(data).emit(self.format).as_bytes().to_vec();
        bytes.extend_from_slice(&payload);
        if self.format.data_digest {
            bytes.extend_from_slice(&crc32c(&payload).to_le_bytes());
        }
        bytes
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.queue.received(bytes, &mut self.bufs);
    }

    fn take_back(&mut self) {
        assert!(self.queue.release_buffer(self.cid));
        self.bufs.bytes_mut(self.buf).fill(POISON);
    }

    fn assert_untouched(&self) {
        assert!(self.bufs.bytes(self.buf).iter().all(|&byte| byte == POISON));
    }

    /// The command has ended well, with all of its bytes, once.
    fn assert_ended(&mut self) {
        let done = self.queue.poll_completion().expect("it has ended");
        assert_eq!((done.user, done.cid, done.bytes), (USER, self.cid, READ_BYTES));
        assert_eq!(done.status, Status::SUCCESS);
        assert_eq!((self.queue.poll_completion(), self.queue.in_flight()), (None, 0));
        assert!(!self.queue.release_buffer(self.cid), "it is over");
    }
}

fn send(queue: &mut HostQueue, bufs: &mut MemoryBuffers) {
    let mut batch = VecGather::new();
    queue.poll_transmit(&mut batch, bufs);
    queue.transmitted();
}

#[test]
fn at_any_byte_of_the_answer() {
    for digests in [false, true] {
        let all = Rig::sent(digests).answer();
        let steps = (0..200).chain((200..all.len() - 200).step_by(997)).chain(all.len() - 200..);
        for before in steps.take_while(|&before| before < all.len()) {
            let mut rig = Rig::sent(digests);
            rig.feed(&all[..before]);
            rig.take_back();
            assert!(!rig.queue.release_buffer(rig.cid), "once");
            assert_eq!(rig.queue.receive_hint(), None, "nobody wants it");
            rig.feed(&all[before..]);
            rig.assert_ended();
            rig.assert_untouched();
        }
    }
}

#[test]
fn before_it_was_sent() {
    let mut rig = Rig::new(true);
    rig.take_back();
    send(&mut rig.queue, &mut rig.bufs);
    let all = rig.answer();
    rig.feed(&all);
    rig.assert_ended();
    rig.assert_untouched();
}

#[test]
fn not_while_the_driver_may_be_receiving_into_it() {
    let mut rig = Rig::sent(true);
    let all = rig.answer();
    // The first data PDU and the head of the second.
    let first = rig.data(0, READ_BYTES / 4, false).len();
    let head = Pdu::C2hData(C2hData {
        cid: rig.cid.0,
        offset: READ_BYTES / 4,
        length: READ_BYTES - READ_BYTES / 4,
        last: true,
        success: false,
    })
    .emit(rig.format)
    .as_bytes()
    .len();
    rig.feed(&all[..first + head]);
    let aimed = rig.queue.receive_hint().expect("a good part is to come");
    assert!(!rig.queue.release_buffer(rig.cid), "the driver has it");
    let came = &all[first + head..first + head + 1000];
    rig.bufs.bytes_mut(aimed.slice(0, 1000)).copy_from_slice(came);
    rig.queue.received_into(1000, &mut rig.bufs);
    // Now it has not, until it is told again.
    rig.take_back();
    assert_eq!(rig.queue.receive_hint(), None);
    rig.feed(&all[first + head + 1000..]);
    rig.assert_ended();
    rig.assert_untouched();
}

/// Data that is under way is not another read's.
#[test]
fn the_data_of_another_read_goes_on() {
    let mut rig = Rig::sent(true);
    let other = rig.bufs.filled(&[0; 512]);
    let other = rig.queue.submit(io::read(1, 0, 1), HostData::In(other), 7).expect("a free tag");
    send(&mut rig.queue, &mut rig.bufs);
    let all = rig.answer();
    // Some of the second data PDU, most of which is to come.
    let some = rig.data(0, READ_BYTES / 4, false).len() + 1000;
    rig.feed(&all[..some]);
    assert!(rig.queue.receive_hint().is_some());
    assert!(rig.queue.release_buffer(other), "the driver has that of the first one");
    rig.feed(&all[some..]);
    let done = rig.queue.poll_completion().expect("it has ended");
    assert_eq!((done.cid, done.status, done.bytes), (rig.cid, Status::SUCCESS, READ_BYTES));
    assert!(rig.bufs.bytes(rig.buf).iter().all(|&byte| byte == 0x11), "whole");
}

#[test]
fn what_comes_is_checked_as_before() {
    let mut rig = Rig::sent(true);
    rig.take_back();
    let mut all = rig.answer();
    all[100] ^= 1;
    rig.feed(&all);
    let done = rig.queue.poll_completion().expect("it has ended");
    assert_eq!(done.status, Status::TRANSIENT_TRANSPORT_ERROR, "a digest did not match");

    for (offset, length) in [(512, 512), (0, READ_BYTES + 512)] {
        let mut rig = Rig::sent(false);
        rig.take_back();
        let bytes = rig.data(offset, length, false);
        rig.feed(&bytes);
        assert!(rig.queue.fault().is_some(), "{length} bytes at {offset}");
        rig.assert_untouched();
    }
}

#[test]
fn a_closed_connection_gives_it_back_like_any_command() {
    let mut rig = Rig::sent(false);
    rig.take_back();
    let left = rig.queue.drain().expect("not answered");
    assert_eq!((left.user, left.cid, left.attempt), (USER, rig.cid, Attempt::Uncertain));
    assert_eq!(rig.queue.drain(), None);
}

#[test]
fn only_a_read_with_a_buffer_on_a_sound_connection() {
    let mut rig = Rig::sent(false);
    assert!(!rig.queue.release_buffer(Cid(rig.cid.0.wrapping_add(1 << 12))), "another one");
    let out = rig.bufs.filled(&[1; 512]);
    let others = [
        rig.queue.submit(io::write(1, 0, 1, false), HostData::Out(out), 1),
        rig.queue.submit(io::flush(1), HostData::None, 2),
        rig.queue.submit(io::read(1, 0, 1), HostData::Sink(512), 3),
    ];
    for cid in others {
        assert!(!rig.queue.release_buffer(cid.expect("a free tag")));
    }
    rig.feed(&[0xff; 64]);
    assert!(rig.queue.fault().is_some());
    assert!(!rig.queue.release_buffer(rig.cid), "it waits for the connection to close");
}
