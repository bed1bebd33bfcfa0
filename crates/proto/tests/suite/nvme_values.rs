//! The 64-byte command, the 16-byte completion, SGLs, status values and identifiers.

use anabranch_proto::nvme::nqn::NqnError;
use anabranch_proto::nvme::{
    AnaState, Cqe, Eui64, IoStatus, Nguid, Nqn, Sgl, SglKind, Sqe, Status, Uuid, opcode,
};

#[test]
fn sqe_fields_stand_where_the_specification_puts_them() {
    let sqe = Sqe::new(opcode::io::WRITE)
        .with_cid(0x3412)
        .with_nsid(0x0807_0605)
        .with_sgl(Sgl::in_capsule(0x1000))
        .with_cdw_pair(10, 0x1122_3344_5566_7788)
        .with_cdw(12, 0x4000_0007)
        .with_cdw(15, 0xffff_fffe);
    let mut golden = [0_u8; 64];
    golden[..8].copy_from_slice(&[0x01, 0x40, 0x12, 0x34, 5, 6, 7, 8]);
    golden[32..36].copy_from_slice(&[0, 0x10, 0, 0]);
    golden[39] = 0x01;
    golden[40..48].copy_from_slice(&[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
    golden[48..52].copy_from_slice(&[7, 0, 0, 0x40]);
    golden[60..64].copy_from_slice(&[0xfe, 0xff, 0xff, 0xff]);
    assert_eq!(sqe.as_bytes(), &golden);

    let read = Sqe::from_bytes(&golden);
    assert_eq!((read.opcode(), read.cid(), read.nsid()), (1, 0x3412, 0x0807_0605));
    assert_eq!((read.fuse(), read.psdt()), (0, 1));
    assert_eq!((read.cdw(12), read.cdw(15)), (0x4000_0007, 0xffff_fffe));
    assert_eq!(read.cdw_pair(10), 0x1122_3344_5566_7788);
    assert_eq!(read.with_fuse(2).fuse(), 2);
    assert_eq!(read.with_fuse(2).psdt(), 1);
}

#[test]
fn fabrics_commands_carry_their_type_and_direction() {
    let sqe = Sqe::fabrics(opcode::fabrics::CONNECT);
    assert_eq!(&sqe.as_bytes()[..5], &[0x7f, 0x40, 0, 0, 1]);
    assert_eq!(sqe.direction(), opcode::Direction::HostToController);
    assert_eq!(Sqe::new(opcode::io::READ).direction(), opcode::Direction::ControllerToHost);
    assert_eq!(Sqe::new(opcode::io::FLUSH).direction(), opcode::Direction::None);
    assert!(sqe.is_fabrics() && !Sqe::new(opcode::io::READ).is_fabrics());
}

#[test]
fn sgl_kinds_follow_the_identifier_byte() {
    let kinds = [
        (0x00, SglKind::Address),
        (0x01, SglKind::InCapsule),
        (0x02, SglKind::Unknown),
        (0x10, SglKind::BitBucket),
        (0x20, SglKind::Segment),
        (0x30, SglKind::LastSegment),
        (0x40, SglKind::Keyed),
        (0x4f, SglKind::Keyed),
        (0x50, SglKind::Unknown),
        (0x5a, SglKind::Transport),
        (0xf0, SglKind::Unknown),
    ];
    for (identifier, kind) in kinds {
        let sgl = Sgl::from_raw(0x0102_0304_0506_0708, 0x0a0b_0c0d, identifier);
        assert_eq!(sgl.kind(), kind, "{identifier:#x}");
        assert_eq!(Sgl::from_bytes(&sgl.to_bytes()), sgl);
    }
    let golden = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0x5a];
    assert_eq!(Sgl::transport(0x2_0000).to_bytes(), golden);
}

#[test]
fn cqe_fields_stand_where_the_specification_puts_them() {
    let cqe = Cqe {
        result: 0x8877_6655_4433_2211,
        sqhd: 0x0201,
        sqid: 3,
        cid: 0x7ffe,
        status: Status::INVALID_FIELD.with_dnr(),
    };
    let golden = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 1, 2, 3, 0, 0xfe, 0x7f, 4, 0x80];
    assert_eq!(cqe.to_bytes(), golden);
    assert_eq!(Cqe::from_bytes(&golden), cqe);
    let mut phase = golden;
    phase[14] |= 1;
    assert_eq!(Cqe::from_bytes(&phase), cqe, "the phase bit means nothing on Fabrics");
}

#[test]
fn status_bits_agree_with_the_kernels_values() {
    assert_eq!(Status::HOST_ABORTED.bits(), 0x371);
    assert_eq!(Status::ANA_INACCESSIBLE.bits(), 0x302);
    assert_eq!(Status::INVALID_FIELD.with_dnr().bits(), 0x4002);
    let full = Status::COMMAND_INTERRUPTED.with_crd(3).with_more().with_dnr();
    assert_eq!(full.bits(), 0x7821);
    assert_eq!((full.sct(), full.sc(), full.crd()), (0, 0x21, 3));
    assert!(full.more() && full.dnr() && full.is(Status::COMMAND_INTERRUPTED));
    assert!(!full.is_success() && !full.is_path_error());
    assert!(Status::SUCCESS.with_dnr().is_success());
    assert!(Status::INTERNAL_PATH_ERROR.is_path_error());
    assert_eq!(full.to_string(), "Command Interrupted (sct 0h, sc 21h) CRD 3 MORE DNR");
    assert_eq!(Status::new(3, 0x55).to_string(), "Unknown Path Error (sct 3h, sc 55h)");
    for bits in 0..=u16::MAX {
        let status = Status::from_bits(bits);
        assert_eq!(Cqe::from_bytes(&Cqe { status, ..Cqe::default() }.to_bytes()).status, status);
        assert!(!status.to_string().is_empty());
    }
}

/// From 180h on a code means one thing in the answer to Connect, another for an I/O command.
#[test]
fn io_commands_have_words_of_their_own() {
    let status = Status::new(1, 0x83).with_dnr();
    assert_eq!(status.to_string(), "Connect Restart Discovery (sct 1h, sc 83h) DNR");
    assert_eq!(IoStatus(status).to_string(), "Command Size Limit Exceeded (sct 1h, sc 83h) DNR");
    assert_eq!(Status::new(1, 0x80).io_name(), Some("Conflicting Attributes"));
    assert_eq!(Status::new(1, 0x84).io_name(), None, "not Connect Invalid Host");
    assert_eq!(Status::OVERLAPPING_RANGE.io_name(), Some("Overlapping Range"));
    assert_eq!(Status::LBA_OUT_OF_RANGE.io_name(), Some("LBA Out of Range"));
    let unknown = IoStatus(Status::new(1, 0xff)).to_string();
    assert_eq!(unknown, "Unknown Command Specific Status (sct 1h, sc ffh)");
}

#[test]
fn ana_states_have_the_kernels_words_and_unknown_codes_give_no_access() {
    for state in AnaState::ALL {
        assert_eq!(state.to_string().parse(), Ok(state));
        assert_eq!(AnaState::from_code(state.code()), Some(state));
    }
    for code in [0, 5, 14, 16, 255] {
        assert_eq!(AnaState::from_code(code), None);
        assert_eq!(AnaState::from_code_or_inaccessible(code), AnaState::Inaccessible);
    }
    let error = "best".parse::<AnaState>().expect_err("no such state");
    assert_eq!(
        error.to_string(),
        "unknown ANA state; one of optimized, non-optimized, inaccessible, persistent-loss, change"
    );
}

#[test]
fn identifiers_read_back_what_they_print() {
    let uuid: Uuid = "0F1E2D3C-4b5a-6978-8796-a5b4c3d2e1f0".parse().expect("a UUID");
    assert_eq!(uuid.to_string(), "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
    assert_eq!(format!("{uuid:x}"), "0f1e2d3c4b5a69788796a5b4c3d2e1f0");
    assert_eq!(uuid.as_bytes()[..2], [0x0f, 0x1e]);
    let nguid: Nguid = "0f1e2d3c4b5a69788796a5b4c3d2e1f0".parse().expect("an NGUID");
    assert_eq!(nguid.as_bytes(), uuid.as_bytes());
    assert_eq!(nguid.to_string().parse(), Ok(nguid));
    let eui: Eui64 = "0011223344556677".parse().expect("an EUI64");
    assert_eq!(eui.to_string(), "00 11 22 33 44 55 66 77");
    for text in ["00 11 22 33 44 55 66 77", "00:11:22:33:44:55:66:77", "00-11-22-33-44-55-66-77"] {
        assert_eq!(text.parse(), Ok(eui));
    }
    for text in ["", "0f1e2d3c", "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f", "+f1e2d3c-4b5a", "é"] {
        assert!(text.parse::<Uuid>().is_err() && text.parse::<Nguid>().is_err());
    }
    assert!("00 11-22 33 44 55 66 77".parse::<Eui64>().is_err());
    assert!("0011223344556677 ".parse::<Eui64>().is_err());
    assert!(Uuid::default().is_zero() && !uuid.is_zero());
}

#[test]
fn nqns_are_checked_c35() {
    let long = format!("nqn.{}", "a".repeat(219));
    let good = [Nqn::DISCOVERY, "nqn.2024-01.io.example:ä", long.as_str()];
    for text in good {
        let nqn: Nqn = text.parse().expect(text);
        assert_eq!(Nqn::from_field(&nqn.to_field()), Ok(nqn));
    }
    assert!(Nqn::discovery().is_discovery());
    assert!(!"nqn.2014-08.org.nvmexpress.discovery2".parse::<Nqn>().expect("good").is_discovery());
    let uuid = "nqn.2014-08.org.nvmexpress:uuid:0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
    assert!(uuid.parse::<Nqn>().is_ok());
    let bad = [
        ("", NqnError::Empty),
        ("nqn.", NqnError::Prefix),
        ("iqn.2024-01.io.example:x", NqnError::Prefix),
        ("nqn.a\nb", NqnError::Control(5)),
        ("nqn.2014-08.org.nvmexpress:uuid:0f1e", NqnError::Uuid),
    ];
    for (text, error) in bad {
        assert_eq!(text.parse::<Nqn>(), Err(error), "{text:?}");
    }
    assert_eq!(format!("{long}a").parse::<Nqn>(), Err(NqnError::TooLong));
}

/// Linux's target takes any text as a subsystem's name.
#[test]
fn names_that_others_give_need_not_be_qualified() {
    let long = "a".repeat(Nqn::MAX_BYTES);
    for text in ["testnqn", "x", "nqn.2014-08.org.nvmexpress:uuid:0f1e", long.as_str()] {
        let nqn = Nqn::as_named(text).expect(text);
        assert_eq!(nqn.as_str(), text);
        assert_eq!(Nqn::from_field(&nqn.to_field()), Ok(nqn.clone()));
        assert!(nqn.qualified().is_err(), "{text}");
    }
    assert_eq!(Nqn::as_named(""), Err(NqnError::Empty));
    assert_eq!(Nqn::as_named("a\u{1b}[2J"), Err(NqnError::Control(1)));
    assert_eq!(Nqn::as_named(&format!("{long}a")), Err(NqnError::TooLong));
    assert_eq!(Nqn::discovery().qualified(), Ok(Nqn::discovery()));
}

#[test]
fn nqn_fields_must_be_terminated_and_padded_c35() {
    let good = Nqn::discovery().to_field();
    let with = |at: usize, value: u8| {
        let mut field = good;
        field[at] = value;
        Nqn::from_field(&field)
    };
    assert_eq!(with(200, b'x'), Err(NqnError::Unterminated));
    assert_eq!(with(255, 1), Err(NqnError::Unterminated));
    assert_eq!(with(9, 0), Err(NqnError::Unterminated));
    assert_eq!(with(9, 0xff), Err(NqnError::Encoding));
    let mut full = [b'a'; 256];
    full[..4].copy_from_slice(b"nqn.");
    assert_eq!(Nqn::from_field(&full), Err(NqnError::Unterminated));
    full[224..].fill(0);
    assert_eq!(Nqn::from_field(&full), Err(NqnError::Unterminated));
    full[223] = 0;
    assert!(Nqn::from_field(&full).is_ok());
    assert_eq!(Nqn::from_field(&[0; 256]), Err(NqnError::Empty));
}
