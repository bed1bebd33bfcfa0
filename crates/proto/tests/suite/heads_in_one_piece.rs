//! A head that lies in the input in one piece and begins like one before is read another way than
//! one that comes in pieces. What it says, and what is wrong about it, must be the same: here with
//! each of its bits turned over.

use anabranch_proto::digest::crc32c;
use anabranch_proto::host_queue::{HostData, HostQueue, HostQueueConfig};
use anabranch_proto::machine::Buffers;
use anabranch_proto::nvme::{Cqe, Sgl, Status, io};
use anabranch_proto::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, Format, H2cData, IcReq, IcResp, Pdu, R2t,
};
use anabranch_proto::target_queue::{TargetEvent, TargetQueue, TargetQueueConfig};
use anabranch_proto::testing::{MemoryBuffers, VecGather};

const FORMATS: [Format; 2] = [
    Format { header_digest: false, data_digest: false, alignment: 0 },
    Format { header_digest: true, data_digest: true, alignment: 0 },
];
const BLOCK: u32 = 512;

fn whole(pdu: &Pdu, format: Format, fill: u8) -> Vec<u8> {
    let mut bytes = pdu.emit(format).as_bytes().to_vec();
    if pdu.data_bytes() > 0 {
        let data = vec![fill; pdu.data_bytes() as usize];
        bytes.extend_from_slice(&data);
        if format.data_digest {
            bytes.extend_from_slice(&crc32c(&data).to_le_bytes());
        }
    }
    bytes
}

/// Gives every bit of a PDU's head another value, one at a time, and compares what comes of the
/// stream in one piece and byte by byte. Says how many ended the connection. With header digests,
/// which cover all of it, each must have; without, some bits may have any value.
fn turn_bits(
    before: &[u8],
    pdu: &Pdu,
    format: Format,
    play: impl Fn(&[u8], usize) -> String,
) -> usize {
    let good = whole(pdu, format, 7);
    let bits = 8 * pdu.emit(format).as_bytes().len();
    let mut ended = 0;
    for bit in 0..bits {
        let mut bytes = before.to_vec();
        let at = bytes.len() + bit / 8;
        bytes.extend_from_slice(&good);
        bytes[at] ^= 1 << (bit % 8);
        let in_one = play(&bytes, bytes.len());
        assert_eq!(in_one, play(&bytes, 1), "bit {bit} of {pdu:?}, {format:?}");
        ended += usize::from(!in_one.contains("fault: None"));
    }
    assert_eq!(ended == bits, format.header_digest, "{ended} of {bits}");
    ended
}

/// A host with two reads and two writes under way, all that it tells and sends, and its buffers.
fn host(format: Format, stream: &[u8], piece: usize) -> String {
    let mut queue = HostQueue::new(HostQueueConfig {
        qid: 1,
        depth: 4,
        hdr_digest: format.header_digest,
        data_digest: format.data_digest,
        in_capsule_bytes: 0,
    });
    let mut bufs = MemoryBuffers::new();
    let send = |queue: &mut HostQueue, bufs: &mut MemoryBuffers| {
        let mut sent = Vec::new();
        while queue.has_transmit() {
            let mut batch = VecGather::new();
            queue.poll_transmit(&mut batch, bufs);
            sent.extend(batch.take());
            queue.transmitted();
        }
        sent
    };
    queue.connected();
    send(&mut queue, &mut bufs);
    let response = IcResp {
        cpda: 0,
        header_digest: format.header_digest,
        data_digest: format.data_digest,
        max_h2c_data: 4096,
    };
    queue.received(response.emit().as_bytes(), &mut bufs);
    let buffers: Vec<_> = (0..4).map(|_| bufs.filled(&[0; 2 * BLOCK as usize])).collect();
    for (user, &buf) in buffers.iter().enumerate() {
        let read = user < 2;
        let sqe = if read { io::read(1, 0, 2) } else { io::write(1, 0, 2, false) };
        let data = if read { HostData::In(buf) } else { HostData::Out(buf) };
        queue.submit(sqe, data, user as u64).expect("a free tag");
    }
    send(&mut queue, &mut bufs);
    for piece in stream.chunks(piece) {
        queue.received(piece, &mut bufs);
    }
    let mut told = format!("fault: {:?}\n", queue.fault());
    told += &format!("sent: {:x?}\n", send(&mut queue, &mut bufs));
    while let Some(completion) = queue.poll_completion() {
        told += &format!("{completion:?}\n");
    }
    for buf in buffers {
        told += &format!("{:x?}\n", bufs.bytes(buf));
    }
    told
}

/// CIDs of the commands of [`host`], in order: the first use of each tag.
const CIDS: [u16; 4] = [0x1000, 0x1001, 0x1002, 0x1003];

#[test]
fn a_host_reads_data_in_one_piece_as_in_pieces() {
    let data = |cid, offset| {
        Pdu::C2hData(C2hData { cid, offset, length: BLOCK, last: false, success: false })
    };
    for format in FORMATS {
        let before = whole(&data(CIDS[0], 0), format, 7);
        let play = |stream: &[u8], piece| host(format, stream, piece);
        let ended = turn_bits(&before, &data(CIDS[0], BLOCK), format, play);
        assert!(ended > 100, "{ended}");
    }
}

#[test]
fn a_host_reads_answers_in_one_piece_as_in_pieces() {
    let answer = |cid| {
        let cqe = Cqe { result: 0, sqhd: 0, sqid: 1, cid, status: Status::INTERNAL_ERROR };
        Pdu::CapsuleResp(CapsuleResp { cqe })
    };
    for format in FORMATS {
        let before = whole(&answer(CIDS[2]), format, 0);
        let play = |stream: &[u8], piece| host(format, stream, piece);
        let ended = turn_bits(&before, &answer(CIDS[3]), format, play);
        assert!(ended > 50, "{ended}");
    }
}

#[test]
fn a_host_reads_requests_for_data_in_one_piece_as_in_pieces() {
    let ask = |cid| Pdu::R2t(R2t { cid, ttag: 5, offset: 0, length: BLOCK });
    for format in FORMATS {
        let before = whole(&ask(CIDS[2]), format, 0);
        let play = |stream: &[u8], piece| host(format, stream, piece);
        let ended = turn_bits(&before, &ask(CIDS[3]), format, play);
        assert!(ended > 100, "{ended}");
    }
}

/// What a write of [`target`] describes whose data does not come in the capsule.
const ASKED_FOR: Sgl = Sgl::transport(3 * BLOCK);

/// A controller that asks for data, is given `first` and then the stream in pieces; all that it
/// tells and sends, and the data that it has asked for.
fn target(format: Format, first: &[u8], stream: &[u8], piece: usize) -> String {
    let mut queue = TargetQueue::new(TargetQueueConfig {
        depth: 4,
        in_capsule_bytes: 8192,
        max_h2c_data: 4096,
        allow_hdr_digest: true,
        allow_data_digest: true,
        max_transfer_bytes: 1 << 20,
    });
    let mut bufs = MemoryBuffers::new();
    let (header_digest, data_digest) = (format.header_digest, format.data_digest);
    let request = IcReq { hpda: 0, header_digest, data_digest, maxr2t: 0 };
    queue.received(request.emit().as_bytes(), &mut bufs);
    let mut sent = VecGather::new();
    queue.poll_transmit(&mut sent, &mut bufs);
    queue.transmitted();
    let mut told = String::new();
    let mut asked = Vec::new();
    for (at, piece) in [first].into_iter().chain(stream.chunks(piece)).enumerate() {
        queue.received(piece, &mut bufs);
        while let Some(event) = queue.poll_event() {
            told += &format!("{event:?}\n");
            match event {
                TargetEvent::Command { slot } => {
                    told += &format!("{:?}\n", queue.sqe(slot));
                    if let Some(buf) = queue.take_data(slot) {
                        told += &format!("{:x?}\n", bufs.bytes(buf));
                    } else if queue.sqe(slot).sgl() == ASKED_FOR {
                        let buf = bufs.alloc(ASKED_FOR.length()).expect("memory");
                        queue.request_data(slot, buf);
                        asked.push(buf);
                    }
                }
                TargetEvent::DataReady { .. } | TargetEvent::DataDigestError { .. } => {}
            }
        }
        // Data is asked for before it comes; nothing is sent while the stream does.
        if at == 0 && queue.has_transmit() {
            queue.poll_transmit(&mut sent, &mut bufs);
            queue.transmitted();
        }
    }
    told += &format!("fault: {:?}\n", queue.fault());
    while queue.has_transmit() {
        queue.poll_transmit(&mut sent, &mut bufs);
        queue.transmitted();
    }
    told += &format!("sent: {:x?}\n", sent.take());
    for buf in asked {
        told += &format!("{:x?}\n", bufs.bytes(buf));
    }
    told
}

#[test]
fn a_controller_reads_commands_in_one_piece_as_in_pieces() {
    let write = |cid| {
        let sqe = io::write(1, 0, 1, false).with_cid(cid).with_sgl(Sgl::in_capsule(BLOCK));
        Pdu::CapsuleCmd(CapsuleCmd { sqe, in_capsule_bytes: BLOCK })
    };
    for format in FORMATS {
        let before = whole(&write(1), format, 7);
        let play = |stream: &[u8], piece| target(format, &[], stream, piece);
        let ended = turn_bits(&before, &write(2), format, play);
        assert!(ended > 20, "{ended}");
    }
}

#[test]
fn a_controller_reads_host_data_in_one_piece_as_in_pieces() {
    // The first transfer tag of the first slot.
    let data =
        |offset| Pdu::H2cData(H2cData { cid: 1, ttag: 0x1000, offset, length: BLOCK, last: false });
    for format in FORMATS {
        let sqe = io::write(1, 0, 3, false).with_cid(1).with_sgl(ASKED_FOR);
        let command = whole(&Pdu::CapsuleCmd(CapsuleCmd { sqe, in_capsule_bytes: 0 }), format, 0);
        let before = whole(&data(0), format, 7);
        let play = |stream: &[u8], piece| target(format, &command, stream, piece);
        let ended = turn_bits(&before, &data(BLOCK), format, play);
        assert!(ended > 100, "{ended}");
    }
}
