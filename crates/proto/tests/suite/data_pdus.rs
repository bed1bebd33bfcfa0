//! In how many PDUs the host sends what a controller asks for.

use anabranch_proto::host_queue::{HostData, HostQueue, HostQueueConfig};
use anabranch_proto::nvme::io;
use anabranch_proto::pdu::{Format, IcResp, Pdu, PduType, R2t};
use anabranch_proto::testing::{MemoryBuffers, VecGather};

const KIB: u32 = 1024;

/// The lengths of the H2CData PDUs that carry a write of 1 MiB.
fn pieces(data_digest: bool, max_h2c_data: u32) -> Vec<u32> {
    let header_digest = false;
    let mut bufs = MemoryBuffers::new();
    let mut queue = HostQueue::new(HostQueueConfig {
        qid: 1,
        depth: 4,
        hdr_digest: header_digest,
        data_digest,
        in_capsule_bytes: 4096,
    });
    let send = |queue: &mut HostQueue, bufs: &mut MemoryBuffers| {
        let mut batch = VecGather::with_room(1);
        queue.poll_transmit(&mut batch, bufs);
        queue.transmitted();
        batch.take()
    };
    queue.connected();
    send(&mut queue, &mut bufs);
    let resp = IcResp { cpda: 0, header_digest, data_digest, max_h2c_data };
    queue.received(resp.emit().as_bytes(), &mut bufs);
    let buf = bufs.filled(&vec![7; 1024 * KIB as usize]);
    let cid = queue.submit(io::write(1, 0, 2048, false), HostData::Out(buf), 1).expect("a tag");
    send(&mut queue, &mut bufs);
    let r2t = Pdu::R2t(R2t { cid: cid.0, ttag: 1, offset: 0, length: 1024 * KIB });
    let format = Format { header_digest, data_digest, alignment: 0 };
    queue.received(r2t.emit(format).as_bytes(), &mut bufs);
    let mut pieces = Vec::new();
    loop {
        let bytes = send(&mut queue, &mut bufs);
        if bytes.is_empty() {
            return pieces;
        }
        assert_eq!(bytes[0], PduType::H2cData as u8);
        // DATAL.
        pieces.push(u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]));
    }
}

/// Linux's target takes the digest of a PDU to be that of all data of its command.
#[test]
fn what_was_asked_for_is_one_pdu_with_its_digest() {
    assert_eq!(pieces(true, 4096 * KIB), [1024 * KIB]);
    assert_eq!(pieces(true, 512 * KIB), [512 * KIB; 2], "a controller that takes no more");
}

#[test]
fn without_digests_other_commands_have_their_turn_in_between() {
    assert_eq!(pieces(false, 4096 * KIB), [128 * KIB; 8]);
    assert_eq!(pieces(false, 64 * KIB), [64 * KIB; 16]);
}
