//! Common headers and heads that no peer may send, by number of the bad-input catalogue: what the
//! stream answers, whole and in single bytes.

use anabranch_proto::digest::crc32c;
use anabranch_proto::error::{Blame, Fes, ProtocolError};
use anabranch_proto::nvme::{Cqe, Sqe};
use anabranch_proto::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, Format, H2cData, IcReq, IcResp, Pdu, R2t, Role, TermReq,
};
use anabranch_proto::stream::{Step, Stream};

const PLAIN: Format = Format { header_digest: false, data_digest: false, alignment: 0 };
const HEADER: Format = Format { header_digest: true, ..PLAIN };
const BOTH: Format = Format { header_digest: true, data_digest: true, alignment: 0 };

fn set_up(receiver: Role) -> Vec<u8> {
    let pdu = match receiver {
        Role::Controller => {
            Pdu::IcReq(IcReq { hpda: 0, header_digest: false, data_digest: false, maxr2t: 0 })
        }
        Role::Host => {
            let digests = (false, false);
            let (header_digest, data_digest) = digests;
            Pdu::IcResp(IcResp { cpda: 0, header_digest, data_digest, max_h2c_data: 4096 })
        }
    };
    pdu.emit(PLAIN).as_bytes().to_vec()
}

/// Feeds `bytes` in pieces of `piece`; the first error, or how many PDUs came.
fn feed(stream: &mut Stream, bytes: &[u8], piece: usize) -> Result<usize, ProtocolError> {
    let mut pdus = 0;
    for chunk in bytes.chunks(piece) {
        let mut input = chunk;
        while let Some(step) = stream.next(&mut input)? {
            pdus += usize::from(matches!(step, Step::Pdu(_)));
        }
        assert!(input.is_empty());
    }
    Ok(pdus)
}

/// An initialized stream of `receiver`, which has already read one right PDU of each type.
fn at_work(receiver: Role, format: Format) -> Stream {
    let mut stream = Stream::new(receiver);
    feed(&mut stream, &set_up(receiver), usize::MAX).expect("set-up is fine");
    stream.set_format(format);
    for (_, pdu) in all().iter().filter(|(gets, _)| *gets == receiver) {
        assert_eq!(feed(&mut stream, &with(pdu, format, |_| {}), usize::MAX), Ok(1), "{pdu}");
    }
    stream
}

/// An initialized stream of `receiver` with `format` refuses `bytes` with this status, at once and
/// after PDUs that were right.
#[track_caller]
fn refused(receiver: Role, format: Format, bytes: &[u8], fes: Fes, fei: u32) -> ProtocolError {
    let fresh = || {
        let mut stream = Stream::new(receiver);
        feed(&mut stream, &set_up(receiver), usize::MAX).expect("set-up is fine");
        stream.set_format(format);
        stream
    };
    let run = |mut stream: Stream, piece| {
        let error = feed(&mut stream, bytes, piece).expect_err("must be refused");
        assert!(stream.header().len() >= 8 && stream.header().len() <= 128);
        assert!(bytes.starts_with(stream.header()), "the offending header is kept");
        assert_eq!(feed(&mut stream, &[0; 300], 300), Ok(0), "nothing counts after an error");
        error
    };
    let error = run(fresh(), usize::MAX);
    for piece in [1, 2, 7, 8, 9, 23, usize::MAX] {
        assert_eq!(run(fresh(), piece), error, "in pieces of {piece}");
        assert_eq!(run(at_work(receiver, format), piece), error, "later, in pieces of {piece}");
    }
    assert_eq!((error.fes, error.fei), (fes, fei), "{error}");
    error
}

#[track_caller]
fn field(receiver: Role, format: Format, bytes: &[u8], offset: u32) {
    refused(receiver, format, bytes, Fes::INVALID_HEADER_FIELD, offset);
}

/// The bytes of `pdu`, changed by `change`, with the header digest made right again, and with data.
fn with(pdu: &Pdu, format: Format, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = pdu.emit(format).as_bytes().to_vec();
    change(&mut bytes);
    let header = match bytes[0] {
        4 => 72,
        _ => 24,
    };
    if format.header_digest && bytes[0] > 3 {
        let digest = crc32c(&bytes[..header]);
        bytes[header..header + 4].copy_from_slice(&digest.to_le_bytes());
    }
    let tail = pdu.data_bytes() + format.data_digest_bytes(pdu.data_bytes());
    bytes.extend(std::iter::repeat_n(0, tail as usize));
    bytes
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn response() -> Pdu {
    Pdu::CapsuleResp(CapsuleResp { cqe: Cqe::default() })
}

fn command(in_capsule_bytes: u32) -> Pdu {
    Pdu::CapsuleCmd(CapsuleCmd { sqe: Sqe::new(1), in_capsule_bytes })
}

fn read_data(length: u32) -> Pdu {
    Pdu::C2hData(C2hData { cid: 1, offset: 0, length, last: true, success: false })
}

fn write_data(length: u32) -> Pdu {
    Pdu::H2cData(H2cData { cid: 1, ttag: 1, offset: 0, length, last: true })
}

fn ask() -> Pdu {
    Pdu::R2t(R2t { cid: 1, ttag: 1, offset: 0, length: 512 })
}

fn all() -> [(Role, Pdu); 5] {
    [
        (Role::Controller, command(64)),
        (Role::Controller, write_data(64)),
        (Role::Host, response()),
        (Role::Host, read_data(64)),
        (Role::Host, ask()),
    ]
}

#[test]
fn what_is_changed_below_is_valid_unchanged() {
    for format in [PLAIN, HEADER, BOTH] {
        for (receiver, pdu) in all() {
            let mut stream = Stream::new(receiver);
            feed(&mut stream, &set_up(receiver), usize::MAX).expect("set-up is fine");
            stream.set_format(format);
            let bytes = with(&pdu, format, |_| {});
            assert_eq!(feed(&mut stream, &bytes, usize::MAX), Ok(1), "{pdu}");
        }
    }
}

/// A termination request shows it whole to whoever looks for what is wrong.
#[test]
fn the_header_of_each_pdu_is_kept_whole() {
    for format in [PLAIN, BOTH] {
        for (receiver, pdu) in all() {
            let bytes = with(&pdu, format, |_| {});
            for piece in [1, 8, 23, usize::MAX] {
                let mut stream = at_work(receiver, format);
                // Twice: what was right about the first is not looked at again.
                assert_eq!(feed(&mut stream, &bytes.repeat(2), piece), Ok(2), "{pdu}");
                assert_eq!(stream.header().len(), usize::from(bytes[2]), "{pdu}");
                assert!(bytes.starts_with(stream.header()), "{pdu}");
            }
        }
    }
}

#[test]
fn the_same_header_again_is_judged_by_what_holds_now() {
    for (receiver, pdu) in all() {
        let bytes = with(&pdu, PLAIN, |_| {});
        let mut stream = at_work(receiver, PLAIN);
        assert_eq!(feed(&mut stream, &bytes.repeat(3), usize::MAX), Ok(3), "{pdu}");
        stream.set_format(HEADER);
        let error = feed(&mut stream, &bytes, usize::MAX).expect_err("it has no digest");
        assert_eq!((error.field, error.fei), ("HDGSTF", 1), "{pdu}");
        assert_eq!(stream.header(), &bytes[..stream.header().len()]);
    }
    let bytes = with(&command(64), PLAIN, |_| {});
    let mut stream = at_work(Role::Controller, PLAIN);
    stream.set_capsule_data_limit(64);
    assert_eq!(feed(&mut stream, &bytes, usize::MAX), Ok(1));
    stream.set_capsule_data_limit(63);
    let error = feed(&mut stream, &bytes, usize::MAX).expect_err("it carries too much");
    assert_eq!((error.field, error.value, error.limit), ("PLEN", 136, 135));
}

#[test]
fn c1_c6_the_first_pdu_initializes() {
    for (receiver, pdu) in all() {
        let mut stream = Stream::new(receiver);
        let error = feed(&mut stream, &with(&pdu, PLAIN, |_| {}), 1).expect_err("must be refused");
        assert_eq!(error.fes, Fes::SEQUENCE);
    }
}

#[test]
fn c2_c6_initialized_only_once() {
    for receiver in [Role::Host, Role::Controller] {
        refused(receiver, PLAIN, &set_up(receiver), Fes::SEQUENCE, 0);
    }
}

#[test]
fn c3_c4_c5_c7_fields_of_the_initialization() {
    for receiver in [Role::Host, Role::Controller] {
        let max_h2c_data: &[(usize, &[u8], u32)] = &[
            (12, &[0xff, 0x0f, 0, 0], 12),
            (12, &[0, 0, 0, 0], 12),
            (12, &[0x01, 0x10, 0, 0], 12),
            (12, &[0xff, 0xff, 0xff, 0xff], 12),
        ];
        let common: &[(usize, &[u8], u32)] = &[
            (2, &[127], 2),
            (2, &[129], 2),
            (2, &[0], 2),
            (4, &[127, 0, 0, 0], 4),
            (4, &[129, 0, 0, 0], 4),
            (4, &[0xff, 0xff, 0xff, 0xff], 4),
            (8, &[1, 0], 8),
            (8, &[0, 1], 8),
            (10, &[32], 10),
            (10, &[255], 10),
        ];
        let extra = if receiver == Role::Host { max_h2c_data } else { &[] };
        for (at, value, fei) in common.iter().chain(extra) {
            let mut bytes = set_up(receiver);
            bytes[*at..*at + value.len()].copy_from_slice(value);
            let mut stream = Stream::new(receiver);
            let error = feed(&mut stream, &bytes, 5).expect_err("must be refused");
            assert_eq!((error.fes, error.fei), (Fes::INVALID_HEADER_FIELD, *fei), "{error}");
        }
    }
}

#[test]
fn c9_reserved_bits_are_ignored() {
    for receiver in [Role::Host, Role::Controller] {
        let mut bytes = set_up(receiver);
        bytes[1] = 0xff;
        bytes[3] = 0xff;
        bytes[11] = 0xfc;
        bytes[16..].fill(0xff);
        let mut stream = Stream::new(receiver);
        assert_eq!(feed(&mut stream, &bytes, 3), Ok(1));
    }
}

#[test]
fn c14_unknown_types_and_wrong_directions() {
    for (receiver, pdu) in all() {
        for code in 0..=255u8 {
            let other = match receiver {
                Role::Host => matches!(code, 0 | 2 | 4 | 6),
                Role::Controller => matches!(code, 1 | 3 | 5 | 7 | 9),
            };
            if other || code == 8 || code > 9 {
                field(receiver, PLAIN, &with(&pdu, PLAIN, |bytes| bytes[0] = code), 0);
            }
        }
    }
}

#[test]
fn c15_hlen_must_fit_the_type() {
    for (receiver, pdu) in all() {
        for format in [PLAIN, HEADER] {
            let right = pdu.emit(format).as_bytes()[2];
            for hlen in [0, 1, 8, right - 1, right + 1, 128, 255] {
                field(receiver, format, &with(&pdu, format, |bytes| bytes[2] = hlen), 2);
            }
        }
    }
}

#[test]
fn c16_plen_must_hold_the_rest() {
    for (receiver, pdu) in all() {
        for format in [PLAIN, HEADER, BOTH] {
            let head = pdu.emit(format).as_bytes().len() as u32;
            for plen in [0, 1, 8, 23, head - 1] {
                field(receiver, format, &with(&pdu, format, |bytes| put_u32(bytes, 4, plen)), 4);
            }
        }
    }
    for pdu in [response(), ask()] {
        field(Role::Host, PLAIN, &with(&pdu, PLAIN, |bytes| put_u32(bytes, 4, 28)), 4);
        field(Role::Host, PLAIN, &with(&pdu, PLAIN, |bytes| put_u32(bytes, 4, u32::MAX)), 4);
    }
    let huge = |bytes: &mut Vec<u8>| put_u32(bytes, 4, u32::MAX);
    field(Role::Controller, PLAIN, &with(&command(64), PLAIN, huge), 4);
    // DATAL says less than PLEN.
    field(Role::Host, PLAIN, &with(&read_data(64), PLAIN, huge), 16);
    field(Role::Controller, PLAIN, &with(&write_data(64), PLAIN, huge), 16);
    let limit = Stream::CAPSULE_DATA_DEFAULT;
    field(Role::Controller, PLAIN, &with(&command(limit + 1), PLAIN, |_| {}), 4);
    // No data at all, and only a digest where data should be.
    field(Role::Host, PLAIN, &with(&read_data(64), PLAIN, |bytes| put_u32(bytes, 4, 24)), 4);
    field(Role::Host, BOTH, &with(&read_data(64), BOTH, |bytes| put_u32(bytes, 4, 32)), 4);
}

#[test]
fn c17_data_starts_where_it_may() {
    let coarse = Format { alignment: 3, ..PLAIN };
    for (receiver, pdu) in [
        (Role::Controller, command(64)),
        (Role::Controller, write_data(64)),
        (Role::Host, read_data(64)),
    ] {
        for pdo in [0, 1, 20, 23, 70, 71, 73, 74, 255] {
            let head = pdu.emit(PLAIN).as_bytes().len();
            if usize::from(pdo) != head && (usize::from(pdo) < head || pdo % 4 != 0) {
                field(receiver, PLAIN, &with(&pdu, PLAIN, |bytes| bytes[3] = pdo), 3);
            }
        }
        field(receiver, PLAIN, &with(&pdu, PLAIN, |bytes| bytes[3] = 252), 3);
        let aligned = pdu.emit(coarse).as_bytes()[3];
        field(receiver, coarse, &with(&pdu, coarse, |bytes| bytes[3] = aligned - 4), 3);
    }
    for pdu in [response(), ask()] {
        field(Role::Host, PLAIN, &with(&pdu, PLAIN, |bytes| bytes[3] = 24), 3);
    }
    field(Role::Controller, PLAIN, &with(&command(0), PLAIN, |bytes| bytes[3] = 72), 3);
}

#[test]
fn c18_digest_flags_are_as_negotiated() {
    for (receiver, pdu) in all() {
        field(receiver, PLAIN, &with(&pdu, PLAIN, |bytes| bytes[1] |= 1), 1);
        field(receiver, PLAIN, &with(&pdu, PLAIN, |bytes| bytes[1] |= 2), 1);
        field(receiver, HEADER, &with(&pdu, HEADER, |bytes| bytes[1] &= !1), 1);
        if pdu.data_bytes() > 0 {
            field(receiver, BOTH, &with(&pdu, BOTH, |bytes| bytes[1] &= !2), 1);
        }
    }
}

#[test]
fn c19_a_wrong_header_digest_ends_the_stream() {
    for (receiver, pdu) in all() {
        let header = pdu.emit(PLAIN).as_bytes().len();
        for bit in [0, 7, 31] {
            let mut bytes = with(&pdu, HEADER, |_| {});
            bytes[header + bit / 8] ^= 1 << (bit % 8);
            let received = u32::from_le_bytes(bytes[header..header + 4].try_into().expect("four"));
            let error = refused(receiver, HEADER, &bytes, Fes::HEADER_DIGEST, received);
            assert_eq!(error.blame, Blame::Bytes);
            let right = received ^ 1 << bit;
            let told = format!(
                " HDGST is {received:#010x}, and that of the header is {right:#010x}: they do not \
                 match (the bytes were damaged on their way)"
            );
            assert!(error.to_string().ends_with(&told), "{error}");
        }
    }
}

#[test]
fn c22_terminate_requests_are_bounded_and_never_answered() {
    for (receiver, code) in [(Role::Host, 3), (Role::Controller, 2)] {
        for plen in [0, 23, 153, u32::MAX] {
            let mut bytes = vec![0; 24];
            bytes[..8].copy_from_slice(&[code, 0, 24, 0, 0, 0, 0, 0]);
            put_u32(&mut bytes, 4, plen);
            let error = refused(receiver, PLAIN, &bytes, Fes::INVALID_HEADER_FIELD, 4);
            assert_eq!(error.blame, Blame::Peer, "it says nothing about us");
        }
        for (plen, fes, fei) in
            [(24u32, 1u16, 4u32), (152, 6, u32::MAX), (32, 0, 9), (40, 0xffff, 0)]
        {
            let mut bytes = vec![0; plen as usize];
            bytes[..8].copy_from_slice(&[code, 0, 24, 0, plen as u8, 0, 0, 0]);
            bytes[8..10].copy_from_slice(&fes.to_le_bytes());
            put_u32(&mut bytes, 10, fei);
            let mut stream = Stream::new(receiver);
            let mut input = &bytes[..];
            // Allowed before the connection is initialized, too.
            let step = stream.next(&mut input).expect("well formed");
            let Some(Step::Pdu(Pdu::TermReq(term))) = step else { panic!("{step:?}") };
            assert_eq!((term.fes(), term.fei()), (Fes(fes), fei));
            assert_eq!(term.as_error().blame, Blame::Reported);
            assert!(term.as_error().to_string().len() < 200);
            assert_eq!(feed(&mut stream, &set_up(receiver), 9), Ok(0), "nothing counts after it");
        }
    }
}

#[test]
fn c12_whoever_speaks_something_else_is_told_apart_and_quoted() {
    let said = |receiver, bytes: &[u8], at_once: bool| {
        let mut stream = Stream::new(receiver);
        if !at_once {
            feed(&mut stream, &set_up(receiver), 128).expect("it is initialized");
        }
        stream.next(&mut &bytes[..]).expect_err("no PDU").to_string()
    };
    for (receiver, bytes, code, shown) in [
        (Role::Host, &b"HTTP/1.1 400 Bad Request\r\n"[..], 72, "HTTP/1.1"),
        (Role::Host, b"SSH-2.0-OpenSSH_9.2p1\r\n", 83, "SSH-2.0-"),
        (Role::Host, b"\x15\x03\x03\0\x02\x02\"\x1b", 21, r#"\x15\x03\x03\x00\x02\x02\"\x1b"#),
        (Role::Controller, b"GET / HTTP/1.1\r\n", 71, "GET / HT"),
    ] {
        let wanted = format!(
            "the peer does not speak NVMe/TCP: it began with \"{shown}\" (PDU type is {code}: no \
             such type)"
        );
        assert_eq!(said(receiver, bytes, true), wanted);
        let later = format!("PDU type is {code}: no such type (the bytes do not parse)");
        assert_eq!(said(receiver, bytes, false), later, "it did speak it");
    }
    let wrong_way = said(Role::Host, &set_up(Role::Controller), true);
    assert_eq!(
        wrong_way,
        "ICReq type is 0: wrong direction for this type (the peer breaks the \
         protocol)"
    );
}

#[test]
fn c22_what_we_send_is_bounded() {
    let error = ProtocolError::new("R2T", "PLEN", 0, anabranch_proto::error::Rule::MustBe, 24);
    for len in [0, 8, 24, 72, 128, 129, 256] {
        let head = TermReq::new(Role::Host, &error, &[0; 256][..len]).emit();
        assert_eq!(head.as_bytes().len(), 24 + len.min(128));
    }
}

#[test]
fn c47_c55_lengths_and_offsets_of_data() {
    for (receiver, pdu) in [(Role::Host, read_data(64)), (Role::Controller, write_data(64))] {
        for length in [0, 63, 65, u32::MAX] {
            field(receiver, PLAIN, &with(&pdu, PLAIN, |bytes| put_u32(bytes, 16, length)), 16);
        }
        for offset in [u32::MAX, u32::MAX - 63] {
            let bytes = with(&pdu, PLAIN, |bytes| put_u32(bytes, 12, offset));
            refused(receiver, PLAIN, &bytes, Fes::OUT_OF_RANGE, 0);
        }
    }
    let success_alone = |bytes: &mut Vec<u8>| bytes[1] = 0b1000;
    field(Role::Host, PLAIN, &with(&read_data(64), PLAIN, success_alone), 1);
}

#[test]
fn c57_lengths_and_offsets_of_r2t() {
    field(Role::Host, PLAIN, &with(&ask(), PLAIN, |bytes| put_u32(bytes, 16, 0)), 16);
    let wraps = with(&ask(), PLAIN, |bytes| put_u32(bytes, 12, u32::MAX - 511));
    refused(Role::Host, PLAIN, &wraps, Fes::OUT_OF_RANGE, 0);
}
