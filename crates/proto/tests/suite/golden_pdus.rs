//! Every PDU against bytes written down by hand from the transport specification's figures.

use anabranch_proto::digest::crc32c;
use anabranch_proto::error::{Fes, ProtocolError, Rule};
use anabranch_proto::nvme::{Cqe, Sgl, Sqe, Status};
use anabranch_proto::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, Format, H2cData, IcReq, IcResp, Pdu, R2t, Role, TermReq, View,
};

const PLAIN: Format = Format { header_digest: false, data_digest: false, alignment: 0 };
const DIGESTS: Format = Format { header_digest: true, data_digest: true, alignment: 0 };

/// `start`, then zeroes up to `len`.
fn padded(start: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = start.to_vec();
    bytes.resize(len, 0);
    bytes
}

/// `pdu` emits exactly `head`, and `head` with its data parses back to `pdu`.
fn check(pdu: Pdu, format: Format, head: &[u8]) {
    assert_eq!(pdu.emit(format).as_bytes(), head, "{pdu}");
    if format.is_plain() {
        match &pdu {
            Pdu::CapsuleCmd(CapsuleCmd { sqe, in_capsule_bytes }) => {
                assert_eq!(&CapsuleCmd::emit_plain(sqe, *in_capsule_bytes)[..], head, "{pdu}");
            }
            Pdu::CapsuleResp(response) => assert_eq!(&response.emit_plain()[..], head, "{pdu}"),
            Pdu::C2hData(data) => assert_eq!(&data.emit_plain()[..], head, "{pdu}"),
            _ => {}
        }
    }
    let receiver = match head[0] {
        0 | 2 | 4 | 6 => Role::Controller,
        _ => Role::Host,
    };
    let view = View::of(head, receiver, format).expect("valid").expect("whole");
    assert_eq!(Pdu::parse(&view).expect("valid"), pdu);
    let data_digest = format.data_digest_bytes(pdu.data_bytes());
    assert_eq!(
        view.common().plen() as usize,
        head.len() + (pdu.data_bytes() + data_digest) as usize
    );
}

#[test]
fn ic_req() {
    let pdu = IcReq { hpda: 3, header_digest: true, data_digest: false, maxr2t: 0x0102 };
    let start = [0x00, 0, 128, 0, 128, 0, 0, 0, 0, 0, 3, 0b01, 0x02, 0x01, 0, 0];
    check(Pdu::IcReq(pdu), PLAIN, &padded(&start, 128));
    let pdu = IcReq { hpda: 0, header_digest: true, data_digest: true, maxr2t: 0 };
    check(Pdu::IcReq(pdu), PLAIN, &padded(&[0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, 0b11], 128));
}

#[test]
fn ic_resp() {
    let pdu =
        IcResp { cpda: 31, header_digest: false, data_digest: true, max_h2c_data: 0x0002_0000 };
    let start = [0x01, 0, 128, 0, 128, 0, 0, 0, 0, 0, 31, 0b10, 0, 0, 2, 0];
    check(Pdu::IcResp(pdu), PLAIN, &padded(&start, 128));
}

fn sqe() -> Sqe {
    Sqe::new(0x01).with_cid(0x1234).with_nsid(7).with_sgl(Sgl::in_capsule(512)).with_cdw(10, 99)
}

#[test]
fn capsule_cmd() {
    let mut head = vec![0x04, 0, 72, 0, 72, 0, 0, 0];
    head.extend([0x01, 0x40, 0x34, 0x12, 7, 0, 0, 0]);
    head.extend([0; 16]);
    head.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0x01]);
    head.extend([99, 0, 0, 0]);
    let head = padded(&head, 72);
    check(Pdu::CapsuleCmd(CapsuleCmd { sqe: sqe(), in_capsule_bytes: 0 }), PLAIN, &head);

    let mut inline = head.clone();
    inline[3] = 72;
    inline[4..8].copy_from_slice(&584u32.to_le_bytes());
    check(Pdu::CapsuleCmd(CapsuleCmd { sqe: sqe(), in_capsule_bytes: 512 }), PLAIN, &inline);

    // With digests: 76 bytes before the data, four behind it.
    inline[1] = 0b11;
    inline[3] = 76;
    inline[4..8].copy_from_slice(&592u32.to_le_bytes());
    let digest = crc32c(&inline);
    inline.extend(digest.to_le_bytes());
    check(Pdu::CapsuleCmd(CapsuleCmd { sqe: sqe(), in_capsule_bytes: 512 }), DIGESTS, &inline);
}

#[test]
fn alignment_pads_before_the_data_only() {
    let format = Format { alignment: 31, ..PLAIN };
    let with_data = CapsuleCmd { sqe: sqe(), in_capsule_bytes: 512 }.emit(format);
    assert_eq!(with_data.as_bytes().len(), 128);
    assert_eq!(with_data.as_bytes()[3], 128);
    assert_eq!(with_data.as_bytes()[4..8], 640u32.to_le_bytes());
    let without = CapsuleCmd { sqe: sqe(), in_capsule_bytes: 0 }.emit(format);
    assert_eq!(without.as_bytes().len(), 72);
    let data = H2cData { cid: 1, ttag: 2, offset: 0, length: 4, last: true };
    let odd = Format { alignment: 4, ..DIGESTS };
    let head = data.emit(odd);
    assert_eq!(head.as_bytes()[3], 40, "28 rounded up to a multiple of 20");
    assert_eq!(head.as_bytes()[4..8], 48u32.to_le_bytes());
}

#[test]
fn capsule_resp() {
    let cqe = Cqe {
        result: 0x1122_3344_5566_7788,
        sqhd: 0x0a0b,
        sqid: 3,
        cid: 0x1234,
        status: Status::new(3, 2),
    };
    let mut head = vec![0x05, 0, 24, 0, 24, 0, 0, 0];
    head.extend([0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
    head.extend([0x0b, 0x0a, 3, 0, 0x34, 0x12, 0x04, 0x06]);
    check(Pdu::CapsuleResp(CapsuleResp { cqe }), PLAIN, &head);
    head[1] = 0b01;
    head[4] = 28;
    let digest = crc32c(&head);
    head.extend(digest.to_le_bytes());
    check(Pdu::CapsuleResp(CapsuleResp { cqe }), DIGESTS, &head);
}

#[test]
fn data() {
    let head = [
        0x06, 0b100, 24, 24, 0x18, 0x10, 0, 0, 0x34, 0x12, 0x78, 0x56, 0, 0, 1, 0, 0, 0x10, 0, 0,
        0, 0, 0, 0,
    ];
    let pdu = H2cData { cid: 0x1234, ttag: 0x5678, offset: 0x10000, length: 0x1000, last: true };
    check(Pdu::H2cData(pdu), PLAIN, &head);

    let mut head = head;
    head[0] = 0x07;
    head[1] = 0b1100;
    head[10..12].fill(0);
    let pdu = C2hData { cid: 0x1234, offset: 0x10000, length: 0x1000, last: true, success: true };
    check(Pdu::C2hData(pdu), PLAIN, &head);
    head[1] = 0b11;
    head[3] = 28;
    head[4] = 0x20;
    let mut head = head.to_vec();
    let digest = crc32c(&head);
    head.extend(digest.to_le_bytes());
    check(Pdu::C2hData(C2hData { last: false, success: false, ..pdu }), DIGESTS, &head);
}

#[test]
fn r2t() {
    let head = [
        0x09, 0, 24, 0, 24, 0, 0, 0, 0x34, 0x12, 0x78, 0x56, 0, 0, 1, 0, 0, 0x10, 0, 0, 0, 0, 0, 0,
    ];
    let pdu = R2t { cid: 0x1234, ttag: 0x5678, offset: 0x10000, length: 0x1000 };
    check(Pdu::R2t(pdu), PLAIN, &head);
}

#[test]
fn term_req() {
    let error = ProtocolError::new("R2T", "HLEN", 25, Rule::MustBe, 24).at(2);
    let offending = [0x09, 0, 25, 0, 24, 0, 0, 0];
    let mut head = vec![0x02, 0, 24, 0, 32, 0, 0, 0, 1, 0, 2, 0, 0, 0];
    head.resize(24, 0);
    head.extend(offending);
    let short = TermReq::new(Role::Host, &error, &offending);
    check(Pdu::TermReq(Box::new(short)), PLAIN, &head);

    // 152 bytes in all, however long the offending header is.
    let error = error.with_fes(Fes::HEADER_DIGEST, 0xdead_beef);
    let long = TermReq::new(Role::Controller, &error, &[7; 300]).emit();
    assert_eq!(long.as_bytes().len(), 152);
    assert_eq!(long.as_bytes()[..14], [3, 0, 24, 0, 152, 0, 0, 0, 3, 0, 0xef, 0xbe, 0xad, 0xde]);
}

#[test]
fn a_line_for_humans() {
    let pdu = C2hData { cid: 0x1234, offset: 8, length: 4, last: true, success: true };
    let line = "C2HData cid=0x1234 offset=8 length=4 last success";
    assert_eq!(Pdu::C2hData(pdu).to_string(), line);
    let error = ProtocolError::new("C2HData", "DATAO", 8, Rule::MustBe, 0);
    let sentence = "C2HData DATAO is 8: must be 0 (the peer breaks the protocol)";
    assert_eq!(error.to_string(), sentence);
}
