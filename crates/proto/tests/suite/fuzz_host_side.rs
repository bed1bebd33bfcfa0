//! The fuzz bodies of PDUs, of streams and of the host's side, over valid input and seeded
//! mutations of it.

use crate::mutation::run;
use anabranch_proto::digest::crc32c;
use anabranch_proto::fuzz;
use anabranch_proto::nvme::{Cqe, Sqe, Status, io};
use anabranch_proto::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, Format, H2cData, IcReq, IcResp, Pdu, R2t,
};

fn whole(pdu: Pdu, data: &[u8], format: Format) -> Vec<u8> {
    let mut bytes = pdu.emit(format).as_bytes().to_vec();
    bytes.extend_from_slice(data);
    if format.data_digest && !data.is_empty() {
        bytes.extend_from_slice(&crc32c(data).to_le_bytes());
    }
    bytes
}

/// The CIDs of a fresh queue's first commands: the tag, and a generation of one.
fn cid(tag: u16) -> u16 {
    1 << 12 | tag
}

fn response(tag: u16) -> Pdu {
    let cqe = Cqe { result: 0, sqhd: 1, sqid: 1, cid: cid(tag), status: Status::SUCCESS };
    Pdu::CapsuleResp(CapsuleResp { cqe })
}

/// A controller's side of a good conversation with the commands of the fuzz body.
fn answers(digests: bool, cut: u8, whims: u8) -> Vec<u8> {
    let format = Format { header_digest: digests, data_digest: digests, alignment: 0 };
    let mut bytes = vec![cut, whims | if digests { 6 } else { 0 }];
    let (header_digest, data_digest) = (digests, digests);
    let resp = IcResp { cpda: 0, header_digest, data_digest, max_h2c_data: 8192 };
    bytes.extend_from_slice(resp.emit().as_bytes());
    let data = |offset, length, last| {
        Pdu::C2hData(C2hData { cid: cid(0), offset, length, last, success: false })
    };
    bytes.extend(whole(data(0, 4096, false), &[1; 4096], format));
    bytes.extend(whole(data(4096, 20480, true), &[2; 20480], format));
    bytes.extend(whole(response(1), &[], format));
    for (ttag, offset, length) in [(7, 0, 16384), (8, 16384, 8192)] {
        let r2t = Pdu::R2t(R2t { cid: cid(2), ttag, offset, length });
        bytes.extend(whole(r2t, &[], format));
    }
    for tag in [3, 0, 2] {
        bytes.extend(whole(response(tag), &[], format));
    }
    bytes
}

#[test]
fn any_bytes_against_the_host_queue() {
    let mut corpus = Vec::new();
    for digests in [false, true] {
        for (cut, whims) in [(0, 0), (1, 0), (24, 1), (73, 8), (129, 1), (200, 9), (255, 0)] {
            // With the read's buffer left to it, and taken back after so many pieces.
            for patience in [0, 2, 5, 15] {
                corpus.push(answers(digests, cut, whims | patience << 4));
            }
        }
    }
    run("host queue", &corpus, fuzz::host_queue);
}

fn heads(format: Format) -> Vec<Pdu> {
    let cqe = Cqe { result: 3, sqhd: 1, sqid: 1, cid: 9, status: Status::SUCCESS };
    let sqe: Sqe = io::read(1, 2, 3);
    let (header_digest, data_digest) = (format.header_digest, format.data_digest);
    vec![
        Pdu::IcReq(IcReq { hpda: 0, header_digest, data_digest, maxr2t: 0 }),
        Pdu::IcResp(IcResp { cpda: 0, header_digest, data_digest, max_h2c_data: 4096 }),
        Pdu::CapsuleCmd(CapsuleCmd { sqe, in_capsule_bytes: 64 }),
        Pdu::CapsuleResp(CapsuleResp { cqe }),
        Pdu::H2cData(H2cData { cid: 1, ttag: 2, offset: 3, length: 64, last: true }),
        Pdu::C2hData(C2hData { cid: 1, offset: 3, length: 64, last: true, success: true }),
        Pdu::R2t(R2t { cid: 1, ttag: 2, offset: 3, length: 64 }),
    ]
}

/// All choices of reader and digests, with and without alignment.
fn choices() -> impl Iterator<Item = (u8, Format)> {
    (0..16).map(|choice: u8| {
        let (header_digest, data_digest) = (choice & 2 != 0, choice & 4 != 0);
        (choice, Format { header_digest, data_digest, alignment: choice >> 3 })
    })
}

#[test]
fn any_bytes_as_a_pdu() {
    let mut corpus = Vec::new();
    for (choice, format) in choices() {
        for pdu in heads(format) {
            let mut bytes = vec![choice];
            bytes.extend_from_slice(pdu.emit(format).as_bytes());
            corpus.push(bytes);
        }
    }
    run("PDU", &corpus, fuzz::pdu);
}

#[test]
fn any_bytes_as_a_stream() {
    let mut corpus = Vec::new();
    for (choice, format) in choices() {
        for piece in [1, 7, 24, 100] {
            let mut bytes = vec![choice, piece];
            for pdu in heads(format) {
                let host_reads = choice & 1 != 0;
                let from_controller = matches!(
                    pdu,
                    Pdu::IcResp(_) | Pdu::CapsuleResp(_) | Pdu::C2hData(_) | Pdu::R2t(_)
                );
                if host_reads == from_controller {
                    let data = vec![piece; pdu.data_bytes() as usize];
                    bytes.extend(whole(pdu, &data, format));
                }
            }
            corpus.push(bytes);
        }
    }
    run("stream", &corpus, fuzz::stream);
}
