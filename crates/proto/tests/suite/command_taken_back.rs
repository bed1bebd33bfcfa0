//! A command that is taken back before anything of it was sent: the controller never hears of it,
//! its tag is free, and those beside it go on.

use anabranch_proto::host_queue::{Attempt, Cid, HostData, HostQueue, HostQueueConfig};
use anabranch_proto::nvme::io;
use anabranch_proto::pdu::IcResp;
use anabranch_proto::testing::{MemoryBuffers, VecGather};

/// Bytes of a command capsule before its data: header and SQE.
const CAPSULE_BYTES: usize = 72;

fn ready(bufs: &mut MemoryBuffers) -> HostQueue {
    let mut queue = HostQueue::new(HostQueueConfig {
        qid: 1,
        depth: 4,
        hdr_digest: false,
        data_digest: false,
        in_capsule_bytes: 8192,
    });
    queue.connected();
    queue.poll_transmit(&mut VecGather::new(), bufs);
    queue.transmitted();
    let resp = IcResp { cpda: 0, header_digest: false, data_digest: false, max_h2c_data: 8192 };
    queue.received(resp.emit().as_bytes(), bufs);
    queue
}

fn write(queue: &mut HostQueue, bufs: &mut MemoryBuffers, user: u64) -> Cid {
    let buf = bufs.filled(&[user as u8; 512]);
    queue.submit(io::write(1, user, 1, false), HostData::Out(buf), user).expect("a free tag")
}

#[test]
fn what_was_not_put_into_a_batch_is_never_sent() {
    let mut bufs = MemoryBuffers::new();
    let mut queue = ready(&mut bufs);
    let cids: Vec<Cid> = (0..4).map(|user| write(&mut queue, &mut bufs, user)).collect();
    assert!(cids.iter().all(|&cid| queue.is_unsent(cid)));
    assert!(queue.recall(cids[1]) && !queue.recall(cids[1]), "once");
    assert_eq!((queue.free_tags(), queue.in_flight()), (1, 3));
    // Its tag is another one's, which is sent.
    let next = write(&mut queue, &mut bufs, 9);
    assert_eq!(next.0 & 0xfff, cids[1].0 & 0xfff);
    let mut batch = VecGather::new();
    queue.poll_transmit(&mut batch, &mut bufs);
    let pdus = batch.bytes().chunks(CAPSULE_BYTES + 512);
    let sent: Vec<u16> = pdus.map(|pdu| u16::from_le_bytes([pdu[10], pdu[11]])).collect();
    assert_eq!(sent, [cids[0].0, cids[2].0, cids[3].0, next.0]);
    queue.transmitted();
    assert!(!queue.has_transmit());
}

#[test]
fn what_was_put_into_a_batch_stays() {
    let mut bufs = MemoryBuffers::new();
    let mut queue = ready(&mut bufs);
    let first = write(&mut queue, &mut bufs, 1);
    queue.poll_transmit(&mut VecGather::new(), &mut bufs);
    assert!(!queue.is_unsent(first) && !queue.recall(first), "the batch is on its way");
    queue.transmitted();
    assert!(!queue.recall(first), "it may be carried out");
    assert_eq!(queue.drain().map(|left| left.attempt), Some(Attempt::Uncertain));
}

#[test]
fn nothing_is_left_to_send_when_all_was_taken_back() {
    let mut bufs = MemoryBuffers::new();
    let mut queue = ready(&mut bufs);
    let cid = write(&mut queue, &mut bufs, 1);
    assert!(queue.has_transmit() && queue.recall(cid) && !queue.has_transmit());
    assert_eq!((queue.drain(), queue.free_tags()), (None, 4));
}
