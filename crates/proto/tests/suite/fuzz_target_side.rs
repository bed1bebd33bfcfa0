//! The fuzz bodies of the controller's side and of the structures, over valid input and seeded
//! mutations of it.

use crate::mutation::run;
use anabranch_proto::digest::crc32c;
use anabranch_proto::fuzz;
use anabranch_proto::machine::Buffers;
use anabranch_proto::nvme::discovery::{DiscoveryEntry, SubsystemKind};
use anabranch_proto::nvme::fabrics::{ConnectCommand, ConnectData};
use anabranch_proto::nvme::identify::{
    ActiveNamespaceList, Controller, ControllerKind, Namespace, NamespaceIdDescriptors,
};
use anabranch_proto::nvme::log::{Ana, AnaGroup, GetLogPage};
use anabranch_proto::nvme::{AnaState, Eui64, Nguid, Nqn, Sgl, Sqe, Status, Uuid, io, opcode};
use anabranch_proto::pdu::{CapsuleCmd, Format, H2cData, IcReq, Pdu};
use anabranch_proto::target_queue::{TargetEvent, TargetQueue, TargetQueueConfig};
use anabranch_proto::testing::{MemoryBuffers, VecGather};

/// Sizes of pieces and whims of the engine. In pieces of less than a data PDU's header the engine's
/// R2T comes before the data, as with a real host.
const WAYS: [(u8, u8); 12] = [
    (0, 0),
    (1, 1),
    (20, 0),
    (16, 1),
    (20, 4),
    (20, 8),
    (20, 16),
    (23, 17),
    (20, 32),
    (73, 3),
    (200, 24),
    (255, 63),
];

fn whole(pdu: Pdu, data: &[u8], format: Format) -> Vec<u8> {
    let mut bytes = pdu.emit(format).as_bytes().to_vec();
    bytes.extend_from_slice(data);
    if format.data_digest && !data.is_empty() {
        bytes.extend_from_slice(&crc32c(data).to_le_bytes());
    }
    bytes
}

/// A host's side of a good conversation.
fn conversation(digests: bool, cut: u8, whims: u8) -> Vec<u8> {
    let format = Format { header_digest: digests, data_digest: digests, alignment: 0 };
    let request = IcReq { hpda: 3, header_digest: digests, data_digest: digests, maxr2t: 0 };
    let mut bytes = vec![cut, whims];
    bytes.extend_from_slice(request.emit().as_bytes());
    let mut capsule = |sqe: Sqe, data: &[u8]| {
        let pdu = CapsuleCmd { sqe, in_capsule_bytes: data.len() as u32 };
        bytes.extend(whole(Pdu::CapsuleCmd(pdu), data, format));
    };
    let data = ConnectData {
        hostid: Uuid([1; 16]),
        cntlid: 0xffff,
        subnqn: Nqn::discovery(),
        hostnqn: Nqn::from_uuid(Uuid([1; 16])),
    };
    let connect = ConnectCommand { qid: 0, sqsize: 7, disable_sq_flow: true, kato_ms: 0 };
    capsule(connect.sqe().with_cid(0).with_sgl(Sgl::in_capsule(1024)), &data.to_bytes());
    // The engine's whims depend on the lowest bits of the CID.
    let low = u16::from(whims >> 1 & 7);
    let write = |cid: u16, sgl| io::write(1, 0, 16, true).with_cid(cid | low).with_sgl(sgl);
    capsule(write(8, Sgl::in_capsule(512)), &[7; 512]);
    capsule(io::read(1, 0, 8).with_cid(16 | low).with_sgl(Sgl::transport(4096)), &[]);
    capsule(io::flush(1).with_cid(24 | low), &[]);
    capsule(write(32, Sgl::transport(24 << 10)), &[]);
    // When each command is answered at once, the only slot is used again and again.
    for offset in [0, 8192, 16384] {
        let (length, last) = (8192, offset == 16384);
        let pdu = H2cData { cid: 32 | low, ttag: 1 << 12, offset, length, last };
        bytes.extend(whole(Pdu::H2cData(pdu), &[9; 8192], format));
    }
    bytes
}

#[test]
fn any_bytes_against_the_target_queue() {
    let mut corpus = Vec::new();
    for digests in [false, true] {
        for (cut, whims) in WAYS {
            corpus.push(conversation(digests, cut, whims));
        }
    }
    run("target queue", &corpus, fuzz::target_queue);
}

#[test]
fn any_bytes_against_the_structures() {
    let mut corpus = Vec::new();
    let page = |emit: &dyn Fn(&mut [u8])| {
        let mut bytes = vec![0; 4096];
        emit(&mut bytes);
        bytes
    };
    let ana = Controller {
        cmic: Controller::CMIC_ANA,
        nn: 64,
        mnan: 64,
        anagrpmax: 8,
        nanagrpid: 8,
        subnqn: Some(Nqn::discovery()),
        ..Controller::new(ControllerKind::Io)
    };
    corpus.push(page(&|out| ana.emit(out)));
    corpus.push(page(&|out| Namespace::new(1 << 20, 9).emit(out)));
    corpus.push(page(&|out| ActiveNamespaceList::page(1..=50, 0).emit(out)));
    let ids = NamespaceIdDescriptors {
        eui64: Some(Eui64([1; 8])),
        nguid: Some(Nguid([2; 16])),
        uuid: Some(Uuid([3; 16])),
        csi: Some(0),
    };
    corpus.push(page(&|out| ids.emit(out)));
    let group = |id: u32| AnaGroup {
        id,
        state: AnaState::Optimized,
        change_count: 1,
        nsids: vec![id * 10, id * 10 + 1],
    };
    corpus.push(Ana { change_count: 1, groups: (1..5).map(group).collect() }.to_bytes(false));
    let at = "192.0.2.1:4420".parse().expect("an address");
    let entry = DiscoveryEntry::tcp(SubsystemKind::Nvm, at, 1, Nqn::discovery());
    corpus.push(DiscoveryEntry::log(1, &[entry.clone(), entry]));
    corpus.push(Nqn::discovery().to_field().to_vec());
    corpus.push(conversation(false, 0, 0)[138..].to_vec());
    corpus.push(GetLogPage::new(2, 0, 512).sqe().as_bytes().to_vec());
    corpus.push(vec![0; 4096]);
    corpus.push(vec![0xff; 4096]);
    run("structures", &corpus, fuzz::structures);
}

/// The conversation of the corpus is a good one: it reaches the end when each command is answered
/// at once.
#[test]
fn the_corpus_reaches_the_end() {
    for digests in [false, true] {
        let stream = conversation(digests, 20, 0);
        let mut queue = TargetQueue::new(TargetQueueConfig {
            depth: 8,
            in_capsule_bytes: 8192,
            max_h2c_data: 8192,
            allow_hdr_digest: true,
            allow_data_digest: true,
            max_transfer_bytes: 1 << 20,
        });
        let mut bufs = MemoryBuffers::new();
        let mut answered = Vec::new();
        for piece in stream[2..].chunks(20) {
            queue.received(piece, &mut bufs);
            assert_eq!(queue.fault(), None);
            while let Some(event) = queue.poll_event() {
                let slot = match event {
                    TargetEvent::Command { slot } => {
                        let (sqe, data) = (*queue.sqe(slot), queue.take_data(slot));
                        if sqe.opcode() == opcode::io::WRITE && data.is_none() {
                            let buf = bufs.alloc(sqe.sgl().length()).expect("memory");
                            queue.request_data(slot, buf);
                            continue;
                        }
                        slot
                    }
                    TargetEvent::DataReady { slot } => slot,
                    TargetEvent::DataDigestError { .. } => panic!("good digests"),
                };
                answered.push(event);
                queue.complete(slot, Status::SUCCESS, 0);
            }
            queue.poll_transmit(&mut VecGather::new(), &mut bufs);
            queue.transmitted();
        }
        assert_eq!((queue.capsules(), queue.transfers()), (0, 0));
        assert_eq!(answered.len(), 5);
        assert!(matches!(answered[4], TargetEvent::DataReady { .. }));
    }
}
