use super::*;
use crate::machine::Buffers;
use crate::nvme::{Sgl, io};
use crate::pdu::{C2hData, CapsuleCmd, H2cData, IcReq, Pdu};
use crate::testing::{MemoryBuffers, VecGather};
use alloc::vec::Vec;

const DEPTH: u16 = 16;

fn queue() -> (TargetQueue, MemoryBuffers) {
    let mut queue = TargetQueue::new(TargetQueueConfig {
        depth: DEPTH,
        in_capsule_bytes: 8192,
        max_h2c_data: 4096,
        allow_hdr_digest: true,
        allow_data_digest: true,
        max_transfer_bytes: 1 << 20,
    });
    let mut bufs = MemoryBuffers::new();
    let request = IcReq { hpda: 0, header_digest: false, data_digest: false, maxr2t: 0 };
    queue.received(request.emit().as_bytes(), &mut bufs);
    send(&mut queue, &mut bufs);
    (queue, bufs)
}

fn feed(queue: &mut TargetQueue, bufs: &mut MemoryBuffers, pdu: &Pdu) {
    let mut bytes = pdu.emit(Format::default()).as_bytes().to_vec();
    bytes.resize(bytes.len() + pdu.data_bytes() as usize, 0x77);
    queue.received(&bytes, bufs);
}

fn command(queue: &mut TargetQueue, bufs: &mut MemoryBuffers, sqe: Sqe) {
    let carried = match sqe.sgl().identifier() {
        0x01 => sqe.sgl().length(),
        _ => 0,
    };
    feed(queue, bufs, &Pdu::CapsuleCmd(CapsuleCmd { sqe, in_capsule_bytes: carried }));
}

fn send(queue: &mut TargetQueue, bufs: &mut MemoryBuffers) -> Vec<u8> {
    let mut batch = VecGather::new();
    queue.poll_transmit(&mut batch, bufs);
    queue.transmitted();
    while let Some(buf) = queue.poll_released() {
        bufs.free(buf);
    }
    batch.take()
}

/// What would have to grow for an allocation to happen.
fn capacities(queue: &TargetQueue) -> [usize; 5] {
    [
        queue.events.capacity(),
        queue.sends.capacity(),
        queue.in_batch.capacity(),
        queue.released.capacity(),
        queue.slots.capacity(),
    ]
}

#[test]
fn no_table_grows_after_set_up() {
    let (mut queue, mut bufs) = queue();
    let before = capacities(&queue);
    for round in 0..100_u16 {
        for cid in 0..DEPTH {
            let sgl = if cid % 2 == 0 { Sgl::transport(8192) } else { Sgl::in_capsule(512) };
            let sqe = match cid % 4 {
                0 => io::write(1, 0, 16, false).with_sgl(sgl),
                2 => io::read(1, 0, 16).with_sgl(sgl),
                _ => io::write(1, 0, 1, false).with_sgl(sgl),
            };
            command(&mut queue, &mut bufs, sqe.with_cid(cid));
        }
        // As many refusals as the queue takes.
        for _ in 0..DEPTH {
            command(&mut queue, &mut bufs, io::flush(1).with_cid(round % DEPTH));
        }
        let mut transfers = Vec::new();
        while let Some(TargetEvent::Command { slot }) = queue.poll_event() {
            let cid = queue.sqe(slot).cid();
            match (cid % 4, queue.take_data(slot)) {
                (0, _) => {
                    queue.request_data(slot, bufs.alloc(8192).expect("memory"));
                    transfers.push((slot, cid));
                }
                (2, _) => {
                    queue.send_data(slot, bufs.alloc(8192).expect("memory"));
                    queue.complete(slot, Status::SUCCESS, 0);
                }
                (_, data) => {
                    bufs.free(data.expect("in-capsule data"));
                    queue.complete(slot, Status::SUCCESS, 0);
                }
            }
        }
        send(&mut queue, &mut bufs);
        for &(slot, cid) in &transfers {
            let ttag = queue.slots.ttag(slot);
            for offset in [0, 4096] {
                let pdu = H2cData { cid, ttag, offset, length: 4096, last: offset > 0 };
                feed(&mut queue, &mut bufs, &Pdu::H2cData(pdu));
            }
        }
        // Answered without having looked: the buffers come back all the same.
        for (slot, _) in transfers {
            queue.complete(slot, Status::SUCCESS, 0);
        }
        assert_eq!(queue.poll_event(), None);
        assert!(send(&mut queue, &mut bufs).iter().all(|&byte| byte != 0x77), "no data went back");
        assert_eq!(queue.fault(), None);
        assert_eq!((queue.in_flight(), bufs.in_use_bytes()), (0, 0));
    }
    assert_eq!(capacities(&queue), before);
}

#[test]
fn buffers_that_are_being_sent_are_counted_until_they_have_left() {
    let (mut queue, mut bufs) = queue();
    let read = io::read(1, 0, 16).with_sgl(Sgl::transport(8192));
    command(&mut queue, &mut bufs, read.with_cid(1));
    let Some(TargetEvent::Command { slot }) = queue.poll_event() else { panic!("one") };
    queue.send_data(slot, bufs.alloc(8192).expect("memory"));
    assert_eq!(queue.data_unsent(), 8192);
    queue.complete(slot, Status::SUCCESS, 0);
    let mut batch = VecGather::new();
    queue.poll_transmit(&mut batch, &mut bufs);
    assert_eq!((queue.in_flight(), queue.buffers_in_batch()), (0, 1), "answered, not sent yet");
    assert_eq!(queue.data_unsent(), 8192);
    queue.transmitted();
    assert_eq!((queue.buffers_in_batch(), queue.data_unsent()), (0, 0));
    while let Some(buf) = queue.poll_released() {
        bufs.free(buf);
    }
    // The data of a command that fails all the same is not sent.
    command(&mut queue, &mut bufs, read.with_cid(2));
    let Some(TargetEvent::Command { slot }) = queue.poll_event() else { panic!("one") };
    queue.send_data(slot, bufs.alloc(8192).expect("memory"));
    queue.complete(slot, Status::INTERNAL_ERROR, 0);
    send(&mut queue, &mut bufs);
    assert_eq!(queue.data_unsent(), 0);
    while let Some(buf) = queue.poll_released() {
        bufs.free(buf);
    }
}

/// SPDK's initiator ends the connection at a second C2HData PDU of a read with scattered memory.
#[test]
fn the_data_of_a_read_goes_in_one_pdu_however_much_it_is() {
    const LENGTH: u32 = 1 << 20;
    let (mut queue, mut bufs) = queue();
    for flow_control in [true, false] {
        queue.set_sq_flow_control(flow_control);
        let read = io::read(1, 0, 2048).with_sgl(Sgl::transport(LENGTH));
        command(&mut queue, &mut bufs, read.with_cid(1));
        let Some(TargetEvent::Command { slot }) = queue.poll_event() else { panic!("one") };
        queue.send_data(slot, bufs.alloc(LENGTH).expect("memory"));
        queue.complete(slot, Status::SUCCESS, 0);
        let sent = send(&mut queue, &mut bufs);
        let data =
            C2hData { cid: 1, offset: 0, length: LENGTH, last: true, success: !flow_control };
        assert_eq!(sent[..24], data.emit_plain());
        let response = if flow_control { 24 } else { 0 };
        assert_eq!(sent.len(), 24 + LENGTH as usize + response);
        assert_eq!((queue.in_flight(), bufs.in_use_bytes()), (0, 0));
    }
}

#[test]
fn sqhd_counts_in_the_queue_and_is_all_ones_without_flow_control() {
    let (mut queue, mut bufs) = queue();
    for round in 1..=40_u16 {
        queue.set_sq_flow_control(round <= 20);
        command(&mut queue, &mut bufs, io::flush(1).with_cid(round));
        let Some(TargetEvent::Command { slot }) = queue.poll_event() else { panic!("one") };
        queue.complete(slot, Status::SUCCESS, 0);
        let sent = send(&mut queue, &mut bufs);
        let expected = if round <= 20 { round % DEPTH } else { 0xffff };
        assert_eq!(sent[16..18], expected.to_le_bytes());
    }
}
