//! C21: however a stream is cut, the same PDUs and the same data come out; many PDUs in one piece
//! do, too; data that was received elsewhere counts like data that passed through.

use anabranch_proto::digest::crc32c;
use anabranch_proto::nvme::{Cqe, Sqe};
use anabranch_proto::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, Format, H2cData, IcReq, IcResp, Pdu, R2t, Role,
};
use anabranch_proto::stream::{Step, Stream};

/// What came out: PDUs, with their data and whether its digest was right.
type Seen = Vec<(Pdu, Vec<u8>, Option<bool>)>;

fn format(receiver: Role, header_digest: bool, data_digest: bool, alignment: u8) -> (Pdu, Format) {
    let pdu = match receiver {
        Role::Host => {
            Pdu::IcResp(IcResp { cpda: alignment, header_digest, data_digest, max_h2c_data: 4096 })
        }
        Role::Controller => {
            Pdu::IcReq(IcReq { hpda: alignment, header_digest, data_digest, maxr2t: 0 })
        }
    };
    (pdu, Format { header_digest, data_digest, alignment })
}

fn append(wire: &mut Vec<u8>, pdu: &Pdu, format: Format, spoil_digest: bool) -> Vec<u8> {
    wire.extend(pdu.emit(format).as_bytes());
    let len = pdu.data_bytes();
    let data: Vec<u8> = (0..len).map(|i| (i * 31 + wire.len() as u32) as u8).collect();
    wire.extend(&data);
    if format.data_digest_bytes(len) > 0 {
        wire.extend((crc32c(&data) ^ u32::from(spoil_digest)).to_le_bytes());
    }
    data
}

/// A stream with each PDU that `receiver` can get, and what must come out.
fn stream_of(receiver: Role, set_up: Pdu, format: Format) -> (Vec<u8>, Seen) {
    let pdus = match receiver {
        Role::Host => vec![
            Pdu::R2t(R2t { cid: 1, ttag: 2, offset: 0, length: 8 }),
            Pdu::C2hData(C2hData { cid: 3, offset: 0, length: 37, last: false, success: false }),
            Pdu::C2hData(C2hData { cid: 3, offset: 37, length: 1, last: true, success: true }),
            Pdu::CapsuleResp(CapsuleResp { cqe: Cqe { cid: 9, ..Cqe::default() } }),
        ],
        Role::Controller => vec![
            Pdu::CapsuleCmd(CapsuleCmd { sqe: Sqe::new(2), in_capsule_bytes: 0 }),
            Pdu::CapsuleCmd(CapsuleCmd { sqe: Sqe::new(1), in_capsule_bytes: 41 }),
            Pdu::H2cData(H2cData { cid: 3, ttag: 1, offset: 0, length: 29, last: false }),
            Pdu::H2cData(H2cData { cid: 3, ttag: 1, offset: 29, length: 2, last: true }),
        ],
    };
    let mut wire = set_up.emit(Format::default()).as_bytes().to_vec();
    let mut seen = vec![(set_up, Vec::new(), None)];
    for (i, pdu) in pdus.into_iter().enumerate() {
        let spoil = i == 2 && format.data_digest;
        let data = append(&mut wire, &pdu, format, spoil);
        let intact = (!data.is_empty()).then_some(!spoil);
        seen.push((pdu, data, intact));
    }
    (wire, seen)
}

fn pull(stream: &mut Stream, format: Format, mut input: &[u8], seen: &mut Seen) {
    while let Some(step) = stream.next(&mut input).expect("valid") {
        match step {
            Step::Pdu(pdu) => {
                if matches!(pdu, Pdu::IcReq(_) | Pdu::IcResp(_)) {
                    stream.set_format(format);
                }
                seen.push((pdu, Vec::new(), None));
            }
            Step::Data { position, bytes } => {
                // Every other PDU is asked at once whether it has ended.
                let asks = seen.len().is_multiple_of(2);
                let (_, data, end) = seen.last_mut().expect("a PDU came before its data");
                assert_eq!(position as usize, data.len());
                assert!(!bytes.is_empty());
                data.extend(bytes);
                if asks && stream.data_has_ended() {
                    assert!(!format.data_digest, "its digest has not been compared");
                    assert_eq!(end.replace(true), None, "data ends once");
                }
            }
            Step::DataEnd { intact } => {
                let last = seen.last_mut().expect("a PDU came before its data");
                assert_eq!(last.2.replace(intact), None, "data ends once");
            }
        }
    }
    assert!(input.is_empty());
}

fn cases() -> impl Iterator<Item = (Role, Pdu, Format)> {
    [Role::Host, Role::Controller].into_iter().flat_map(|receiver| {
        [(false, false, 0), (true, false, 0), (false, true, 31), (true, true, 5)].map(
            |(header, data, alignment)| {
                let (pdu, format) = format(receiver, header, data, alignment);
                (receiver, pdu, format)
            },
        )
    })
}

#[test]
fn cut_in_two_at_every_byte_and_in_pieces_of_every_size() {
    for (receiver, set_up, format) in cases() {
        let (wire, expected) = stream_of(receiver, set_up, format);
        for cut in 0..=wire.len() {
            let (mut stream, mut seen) = (Stream::new(receiver), Seen::new());
            pull(&mut stream, format, &wire[..cut], &mut seen);
            pull(&mut stream, format, &wire[cut..], &mut seen);
            assert_eq!(seen, expected, "cut at {cut}");
        }
        for piece in 1..wire.len() {
            let (mut stream, mut seen) = (Stream::new(receiver), Seen::new());
            for chunk in wire.chunks(piece) {
                pull(&mut stream, format, chunk, &mut seen);
            }
            assert_eq!(seen, expected, "pieces of {piece}");
        }
    }
}

#[test]
fn a_thousand_pdus_in_one_piece() {
    let (set_up, format) = format(Role::Host, true, true, 0);
    let mut wire = set_up.emit(Format::default()).as_bytes().to_vec();
    for i in 0..1000 {
        let cqe = Cqe { cid: i, ..Cqe::default() };
        append(&mut wire, &Pdu::CapsuleResp(CapsuleResp { cqe }), format, false);
    }
    let (mut stream, mut seen) = (Stream::new(Role::Host), Seen::new());
    pull(&mut stream, format, &wire, &mut seen);
    assert_eq!(seen.len(), 1001);
}

#[test]
fn data_received_elsewhere_counts_like_data_that_passed_through() {
    for spoil in [false, true] {
        let (set_up, format) = format(Role::Host, false, true, 0);
        let pdu =
            Pdu::C2hData(C2hData { cid: 3, offset: 0, length: 100, last: true, success: true });
        let mut wire = set_up.emit(Format::default()).as_bytes().to_vec();
        let data = append(&mut wire, &pdu, format, spoil);
        let start = wire.len() - 104;
        for taken in [0, 1, 50, 99] {
            for placed in [1, 100 - taken] {
                let (mut stream, mut seen) = (Stream::new(Role::Host), Seen::new());
                pull(&mut stream, format, &wire[..start + taken], &mut seen);
                assert_eq!(stream.data_remaining() as usize, 100 - taken);
                stream.placed(&data[taken..taken + placed]);
                assert_eq!(stream.data_remaining() as usize, 100 - taken - placed);
                let mut rest = &wire[start + taken + placed..];
                let mut intact = None;
                while let Some(step) = stream.next(&mut rest).expect("valid") {
                    if let Step::DataEnd { intact: value } = step {
                        intact = Some(value);
                    }
                }
                assert_eq!(intact, Some(!spoil));
            }
        }
    }
}
