//! Fabrics commands, features, Identify structures, log pages: golden bytes, round trips, and what
//! a hostile controller or host may put into them (bad-input catalogue C34 to C42, C60 to C66).

use anabranch_proto::error::Blame;
use anabranch_proto::nvme::aer::{AsyncEvent, EventKind};
use anabranch_proto::nvme::discovery::{
    DiscoveryEntry, DiscoveryHeader, SubsystemKind, TransportAddress,
};
use anabranch_proto::nvme::fabrics::{
    self, ConnectCommand, ConnectData, ConnectResponse, Disconnect, PropertyGet, PropertySet,
};
use anabranch_proto::nvme::feature::{self, NumberOfQueues, Select};
use anabranch_proto::nvme::identify::{
    ActiveNamespaceList, Controller, ControllerKind, Identify, IoCommandLimits, Namespace,
    NamespaceIdDescriptors,
};
use anabranch_proto::nvme::log::{
    Ana, AnaGroup, AnaLimits, ChangedNamespaces, ErrorEntry, GetLogPage, Smart,
};
use anabranch_proto::nvme::property::{Cap, Cc, Csts, Vs};
use anabranch_proto::nvme::{
    AnaState, Cqe, Eui64, Nguid, Nqn, Sgl, Sqe, Status, Uuid, aer, io, pretty,
};

fn connect() -> ConnectCommand {
    ConnectCommand { qid: 3, sqsize: 127, disable_sq_flow: true, kato_ms: 5000 }
}

fn connect_data() -> ConnectData {
    ConnectData {
        hostid: Uuid([0x11; 16]),
        cntlid: 0x0201,
        subnqn: "nqn.2024-01.io.example:disk".parse().expect("an NQN"),
        hostnqn: "nqn.2024-01.io.example:host".parse().expect("an NQN"),
    }
}

fn with_data(sqe: Sqe) -> Sqe {
    sqe.with_sgl(Sgl::in_capsule(1024))
}

#[test]
fn connect_golden() {
    let sqe = with_data(connect().sqe());
    let bytes = sqe.as_bytes();
    assert_eq!(bytes[..5], [0x7f, 0x40, 0, 0, 1]);
    assert_eq!(bytes[40..52], [0, 0, 3, 0, 127, 0, 4, 0, 0x88, 0x13, 0, 0]);
    assert_eq!(ConnectCommand::parse(&sqe), Ok(connect()));

    let data = connect_data().to_bytes();
    assert_eq!(data[..18], [[0x11; 16].as_slice(), &[1, 2]].concat());
    assert!(data[18..256].iter().all(|&byte| byte == 0));
    assert_eq!(&data[256..260], b"nqn.");
    assert_eq!(&data[512..539], b"nqn.2024-01.io.example:host");
    assert_eq!(ConnectData::parse(&data), Ok(connect_data()));
}

#[test]
fn c34_c35_bad_connects_are_refused_by_parameter() {
    let sqe = || with_data(connect().sqe());
    let invalid = Status::CONNECT_INVALID_PARAMETERS.with_dnr();
    let format = Status::CONNECT_INCOMPATIBLE_FORMAT.with_dnr();
    let commands = [
        ("RECFMT", sqe().with_cdw(10, 1), format, 40),
        ("SQSIZE", sqe().with_cdw(11, 0), invalid, 44),
        ("length", sqe().with_sgl(Sgl::in_capsule(1023)), invalid, 24),
    ];
    for (name, sqe, status, offset) in commands {
        let refusal = ConnectCommand::parse(&sqe).expect_err(name);
        assert_eq!((refusal.status, refusal.result()), (status, offset), "{name}");
        assert_eq!(fabrics::invalid_parameter(status, offset), Some((offset as u16, false)));
    }
    let data = |at: usize, bytes: &[u8]| {
        let mut data = connect_data().to_bytes();
        data[at..at + bytes.len()].copy_from_slice(bytes);
        ConnectData::parse(&data)
    };
    let table = [
        ("subsystem, no prefix", 256, &b"x"[..], 256),
        ("subsystem, control character", 262, b"\n", 256),
        ("subsystem, byte behind the end", 500, b"x", 256),
        ("subsystem, unterminated", 256, &[b'n'; 256], 256),
        ("host, empty", 512, &[0; 256], 512),
        ("host, embedded zero", 516, &[0], 512),
    ];
    for (name, at, bytes, offset) in table {
        let refusal = data(at, bytes).expect_err(name);
        assert_eq!(refusal.status, invalid, "{name}");
        assert_eq!(refusal.result(), offset | 1 << 16, "{name}");
    }
    assert!(ConnectData::parse(&connect_data().to_bytes()[..1023]).is_err());
    assert_eq!(fabrics::invalid_parameter(invalid, 0x0001_0100), Some((256, true)));
    assert_eq!(fabrics::invalid_parameter(Status::CONNECT_INVALID_HOST, 0x0001_0100), None);
}

#[test]
fn c64_the_answer_to_connect() {
    let answer = ConnectResponse::from_result(0x0004_0007);
    assert!(answer.authentication_required());
    assert_eq!(answer.cntlid(), 7);
    let plain = ConnectResponse::new(7);
    assert_eq!((plain.result(), plain.authentication_required()), (7, false));
}

#[test]
fn c38_properties() {
    let get = PropertyGet { offset: 0x1c, wide: false };
    assert_eq!(get.sqe().as_bytes()[40..48], [0, 0, 0, 0, 0x1c, 0, 0, 0]);
    assert_eq!(PropertyGet::parse(&get.sqe()), Ok(get));
    let set = PropertySet { offset: 0x14, wide: false, value: Cc::ENABLE.0.into() };
    assert_eq!(set.sqe().as_bytes()[44..52], [0x14, 0, 0, 0, 1, 0, 0x46, 0]);
    assert_eq!(PropertySet::parse(&set.sqe()), Ok(set));
    let narrow = PropertySet::parse(&set.sqe().with_cdw(13, 9)).expect("a good size");
    assert_eq!(narrow.value, set.value, "four bytes only");
    let wide = PropertySet { offset: 0x30, wide: true, value: 0x0102_0304_0506_0708 };
    assert_eq!(PropertySet::parse(&wide.sqe()), Ok(wide));
    for size in 2..8 {
        let refused = Err(Status::INVALID_FIELD.with_dnr());
        assert_eq!(PropertyGet::parse(&get.sqe().with_cdw(10, size)), refused);
    }
    assert!(Disconnect::parse(&Disconnect::sqe()).is_ok());
    assert!(Disconnect::parse(&Disconnect::sqe().with_cdw(10, 1)).is_err());

    let cap = Cap::new(128, 7600);
    assert_eq!((cap.queue_entries(), cap.ready_ms(), cap.page_shift()), (128, 8000, 12));
    assert!(cap.has_nvm_command_set());
    let cc = Cc::ENABLE;
    assert_eq!((cc.enable(), cc.iosqes(), cc.iocqes(), cc.page_shift()), (true, 6, 4, 12));
    assert_eq!((cc.with_shutdown().shutdown(), cc.disabled().enable()), (1, false));
    let csts = Csts::new(true, false, 2);
    assert!(csts.ready() && !csts.fatal() && csts.shutdown_complete());
    assert_eq!((Vs::V2_0.to_string(), Vs(0x1_0301).to_string()), ("2.0".into(), "1.3.1".into()));
}

#[test]
fn features() {
    let sqe = NumberOfQueues::pairs(8).sqe();
    assert_eq!((feature::fid_of(&sqe), sqe.cdw(11)), (7, 0x0007_0007));
    assert_eq!(NumberOfQueues::from_dword(0x0003_0007).expect("a count").usable(), 4);
    assert_eq!(NumberOfQueues::from_dword(0x0000_ffff), None);
    assert_eq!(NumberOfQueues::from_dword(0xffff_0000), None);
    assert_eq!(NumberOfQueues::pairs(0).dword(), 0);
    assert_eq!(feature::select_of(&feature::get(1).with_cdw(10, 0x0301)), Select::Capabilities);
    assert!(feature::save_of(&feature::set(1, 0).with_cdw(10, 1 << 31)));
    assert!(!feature::save_of(&feature::set(1, 0)));
    assert!(feature::HostIdentifier::is_extended(&feature::HostIdentifier::get()));
    assert!(!feature::HostIdentifier::is_extended(&feature::get(0x81)));
    assert_eq!(feature::KeepAliveTimer { kato_ms: 5000 }.sqe().cdw(11), 5000);
}

#[test]
fn c66_asynchronous_events() {
    assert_eq!(AsyncEvent::ANA.result(), 0x000c_0302);
    assert_eq!(AsyncEvent::NAMESPACES.result(), 0x0004_0002);
    assert_eq!(AsyncEvent::DISCOVERY.result(), 0x0070_f002);
    for result in [0, 0x000c_0302, 3, 0xff_ff05, 0x0001_0001] {
        assert_eq!(AsyncEvent::from_result(result).result(), result);
    }
    assert_eq!(AsyncEvent::from_result(4).kind, EventKind::Unknown(4));
    assert_eq!(aer::abort_target(&aer::abort(3, 0x1234)), (3, 0x1234));
}

fn controller() -> Controller {
    Controller {
        sn: "AB12".into(),
        mn: "Anabranch".into(),
        fr: "0.1".into(),
        cmic: 0x0b,
        mdts: 8,
        cntlid: 17,
        oaes: 1 << 11,
        ctratt: 1,
        anatt_s: 10,
        anacap: Controller::ANACAP_ALL,
        anagrpmax: 16,
        nanagrpid: 4,
        maxcmd: 128,
        nn: 1024,
        oncs: Controller::ONCS_DSM | Controller::ONCS_WRITE_ZEROES,
        vwc: Controller::VWC_PRESENT,
        mnan: 256,
        subnqn: Some("nqn.2024-01.io.example:disk".parse().expect("an NQN")),
        ioccsz: 516,
        crdt: [1, 2, 30],
        ..Controller::new(ControllerKind::Io)
    }
}

fn controller_bytes() -> [u8; 4096] {
    let mut bytes = [0xee; 4096];
    controller().emit(&mut bytes);
    bytes
}

#[test]
fn identify_controller_golden() {
    let bytes = controller_bytes();
    assert_eq!(&bytes[4..10], b"AB12  ");
    assert_eq!(&bytes[24..34], b"Anabranch ");
    assert_eq!((bytes[76], bytes[77], bytes[78], bytes[111]), (0x0b, 8, 17, 1));
    assert_eq!(bytes[342..352], [10, 0x5f, 16, 0, 0, 0, 4, 0, 0, 0]);
    assert_eq!(bytes[512..520], [0x66, 0x44, 128, 0, 0, 4, 0, 0]);
    assert_eq!(bytes[540..544], [0, 1, 0, 0]);
    assert_eq!(bytes[1792..1800], [4, 2, 0, 0, 1, 0, 0, 0]);
    assert_eq!(bytes[4095], 0, "reserved bytes are zero");
    assert_eq!(Controller::parse(&bytes), Ok(controller()));
    let mut short = [9; 100];
    controller().emit(&mut short);
    assert_eq!(short, bytes[..100]);
    let it = controller();
    assert_eq!(it.max_transfer_bytes(12), Some(1 << 20));
    assert_eq!((it.in_capsule_bytes(), it.ana_log_bytes()), (8192, 16 + 4 * 32 + 256 * 4));
    assert_eq!([0, 1, 3, 4].map(|crd| it.retry_delay_ms(crd)), [0, 100, 3000, 0]);
}

/// Whoever reads it may show any of them: `id-ctrl` prints what a target says.
#[test]
fn identify_controller_has_every_field_where_it_belongs() {
    let it = Controller {
        vid: 0x1b36,
        ssvid: 0x1af4,
        sn: "A\u{1}B".into(),
        rab: 3,
        ieee: [1, 2, 3],
        ver: Vs(0x0001_0400),
        rtd3r_us: 0x0a0b_0c0d,
        rtd3e_us: 0x0102_0304,
        oacs: 0x0506,
        acl: 7,
        aerl: 8,
        lpa: 9,
        elpe: 63,
        kas: 0x0b0c,
        anatt_s: 25,
        sqes: 0x76,
        cqes: 0x54,
        fuses: 0x0d0e,
        awun: 0x1112,
        awupf: 0x1314,
        sgls: 0x0010_0002,
        iorcsz: 2,
        fcatt: 1,
        msdbd: 16,
        ofcs: Controller::OFCS_DISCONNECT,
        ..controller()
    };
    let mut bytes = [0xee; 4096];
    it.emit(&mut bytes);
    let places: [(usize, &[u8]); 13] = [
        (0, &[0x36, 0x1b, 0xf4, 0x1a]),
        (4, b"A?B "),
        (72, &[3, 1, 2, 3]),
        (80, &[0, 4, 1, 0, 0x0d, 0x0c, 0x0b, 0x0a, 4, 3, 2, 1]),
        (256, &[6, 5, 7, 8]),
        (261, &[9, 63]),
        (320, &[0x0c, 0x0b]),
        (342, &[25]),
        (512, &[0x76, 0x54]),
        (522, &[0x0e, 0x0d, 0, 1, 0x12, 0x11, 0x14, 0x13]),
        (536, &[2, 0, 0x10, 0]),
        (1796, &[2, 0, 0, 0, 0, 0]),
        (1802, &[1, 16, 1, 0]),
    ];
    for (at, expected) in places {
        assert_eq!(&bytes[at..at + expected.len()], expected, "from byte {at}");
    }
    assert_eq!(Controller::parse(&bytes), Ok(Controller { sn: "A?B".into(), ..it }));
}

#[test]
fn c60_identify_controller_is_clamped_or_refused() {
    type Change = fn(&mut Controller);
    let refused: [(&str, Change); 9] = [
        ("CNTLID", |c| c.cntlid = 0xfff0),
        ("MNAN", |c| c.mnan = 0),
        ("MNAN", |c| c.mnan = 1025),
        ("NANAGRPID", |c| c.nanagrpid = 0),
        ("NANAGRPID", |c| c.nanagrpid = 17),
        ("KAS", |c| c.kas = 0),
        ("IOCCSZ", |c| c.ioccsz = 3),
        ("IORCSZ", |c| c.iorcsz = 0),
        ("ICDOFF", |c| c.icdoff = 1),
    ];
    for (field, change) in refused {
        let mut it = controller();
        change(&mut it);
        let mut bytes = [0; 4096];
        it.emit(&mut bytes);
        let error = Controller::parse(&bytes).expect_err(field);
        assert_eq!(error.field, field);
        assert!(error.to_string().contains("Identify Controller"), "{error}");
    }
    let clamped = |change: Change| {
        let mut it = controller();
        change(&mut it);
        let mut bytes = [0; 4096];
        it.emit(&mut bytes);
        Controller::parse(&bytes).expect("accepted")
    };
    assert_eq!(clamped(|c| c.anatt_s = 0).anatt_s, Controller::ANATT_DEFAULT_S);
    assert_eq!(clamped(|c| (c.cmic, c.anatt_s) = (0, 0)).anatt_s, 0, "it reports no ANA");
    // As many as there may be.
    assert_eq!(clamped(|c| c.mnan = 1024).mnan, 1024);
    assert_eq!(clamped(|c| c.nanagrpid = 16).nanagrpid, 16);
    assert_eq!(clamped(|c| c.ioccsz = 4).in_capsule_bytes(), 0);
    assert_eq!(clamped(|c| c.nn = u32::MAX).nn, u32::MAX - 1);
    assert_eq!(clamped(|c| c.cntlid = 0).cntlid, 0);
    assert_eq!(clamped(|c| c.maxcmd = 0).maxcmd, 0);
    assert_eq!(clamped(|c| c.ioccsz = u32::MAX).in_capsule_bytes(), u32::MAX - 64);
    for mdts in 0..=255 {
        let mut it = controller();
        it.mdts = mdts;
        let expected = (1..=19).contains(&mdts).then(|| 4096 << mdts);
        assert_eq!(it.max_transfer_bytes(12), expected, "MDTS {mdts}");
        assert_eq!(it.max_transfer_bytes(27), (1..=4).contains(&mdts).then(|| 1 << (27 + mdts)));
    }
    let discovery = |c: &mut Controller| {
        *c =
            Controller { kas: 0, ioccsz: 0, cmic: 0, ..Controller::new(ControllerKind::Discovery) };
    };
    assert!(clamped(discovery).is_discovery());
    // One of before there were kinds is told by its name.
    assert!(
        clamped(|c| {
            (c.kind, c.subnqn) = (ControllerKind::Unreported, Some(Nqn::discovery()));
        })
        .is_discovery()
    );
    assert!(!controller().is_discovery());
    let mut bytes = controller_bytes();
    bytes[24..28].copy_from_slice(&[0x1b, 0xff, b'A', 0]);
    bytes[768] = b'x';
    let it = Controller::parse(&bytes).expect("accepted");
    assert_eq!((it.mn.as_str(), it.subnqn), ("??A", None));
    let error = Controller::parse(&bytes[..4095]).expect_err("short");
    assert_eq!((error.blame, error.field), (Blame::Bytes, "length"));
}

fn namespace() -> Namespace {
    Namespace {
        anagrpid: 2,
        dlfeat: Namespace::DLFEAT_ZEROES,
        nguid: Nguid([5; 16]),
        eui64: Eui64([6; 8]),
        ..Namespace::new(2048, 12)
    }
}

#[test]
fn identify_namespace_golden() {
    let mut bytes = [0xee; 4096];
    assert!(!Namespace::is_inactive(&bytes));
    namespace().emit(&mut bytes);
    assert_eq!(bytes[..16], [0, 8, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0]);
    assert_eq!((bytes[30], bytes[33], bytes[92], bytes[130]), (1, 9, 2, 12));
    assert_eq!((bytes[104], bytes[119], bytes[120], bytes[127]), (5, 5, 6, 6));
    assert_eq!(Namespace::parse(&bytes), Ok(namespace()));
    assert_eq!((namespace().block_bytes(), namespace().bytes()), (4096, 8 << 20));
    assert!(namespace().is_shared() && Namespace::is_inactive(&[0; 4096]));
    assert!(!Namespace::is_inactive(&bytes));
    // What Write Zeroes may do, by DLFEAT bits 0 to 3: it takes the bit, zeroes are read.
    for (dlfeat, may) in [(9, true), (0x19, true), (1, false), (8, false), (0, false), (0xa, false)]
    {
        let it = Namespace { dlfeat, ..namespace() };
        assert_eq!(it.zeroes_may_deallocate(), may, "{dlfeat:#x}");
    }
    let it = Namespace {
        nsfeat: Namespace::NSFEAT_OPTPERF,
        noiob: 0x0102,
        npwg: 0x0304,
        npwa: 0x0506,
        npdg: 0x0708,
        npda: 0x090a,
        nows: 0x0b0c,
        nsattr: Namespace::NSATTR_WRITE_PROTECTED,
        ..namespace()
    };
    it.emit(&mut bytes);
    assert_eq!((bytes[24], bytes[99]), (0x10, 1));
    assert_eq!(bytes[46..48], [2, 1]);
    assert_eq!(bytes[64..74], [4, 3, 6, 5, 8, 7, 0xa, 9, 0xc, 0xb]);
    assert_eq!(Namespace::parse(&bytes), Ok(it));
    assert!(it.is_write_protected() && !namespace().is_write_protected());
}

#[test]
fn c60_identify_namespace_is_clamped_or_refused() {
    let changed = |at: usize, value: &[u8]| {
        let mut bytes = [0; 4096];
        namespace().emit(&mut bytes);
        bytes[at..at + value.len()].copy_from_slice(value);
        Namespace::parse(&bytes)
    };
    let refused = [
        ("NSZE", 0, &[0; 8][..]),
        ("NSZE", 0, &[0xff; 8]),
        ("NSZE", 0, &(1_u64 << 51).to_le_bytes()),
        ("NCAP", 8, &[0; 8]),
        ("FLBAS", 26, &[1]),
        ("FLBAS", 25, &[16, 0x60]),
        ("LBAF LBADS", 130, &[0]),
        ("LBAF LBADS", 130, &[8]),
        ("LBAF LBADS", 130, &[17]),
        ("LBAF LBADS", 130, &[31]),
        ("LBAF LBADS", 130, &[255]),
        ("LBAF MS", 128, &[8]),
    ];
    for (field, at, value) in refused {
        assert_eq!(changed(at, value).expect_err(field).field, field);
    }
    assert!(changed(26, &[0x60]).is_ok(), "the upper bits do not count among 16 formats");
    let mut further = [0; 58];
    (further[1], further[57]) = (1, 1);
    let further = changed(25, &further).map(|_| ()).expect_err("format 1 is none");
    assert_eq!(further.field, "LBAF LBADS", "one of NULBAF");
    assert_eq!(changed(8, &[0xff; 16]).map(|it| (it.ncap, it.nuse)), Ok((2048, 2048)));
    assert!(changed(0, &((1_u64 << 51) - 1).to_le_bytes()).is_ok());
    assert!(Namespace::parse(&[0; 100]).is_err());
}

#[test]
fn c62_namespace_lists() {
    let page = ActiveNamespaceList::page(1..=3000, 1000);
    assert_eq!((page.nsids().len(), page.next_after()), (1024, Some(2024)));
    let mut bytes = [0; 4096];
    page.emit(&mut bytes);
    assert_eq!(ActiveNamespaceList::parse(&bytes, 1000), Ok(page));
    assert!(ActiveNamespaceList::parse(&bytes, 1001).is_err(), "must go on behind the last page");
    let few = ActiveNamespaceList::page(1..=3, 0);
    few.emit(&mut bytes);
    assert_eq!(ActiveNamespaceList::parse(&bytes, 0), Ok(few.clone()));
    assert_eq!(few.next_after(), None);
    let last = ActiveNamespaceList::page(u32::MAX - 1024..u32::MAX, 0);
    assert_eq!((last.nsids().len(), last.next_after()), (1024, None), "there is none above");
    for list in [[2, 1, 0], [1, 1, 0], [1, u32::MAX, 0]] {
        let mut bytes = [0; 4096];
        for (index, nsid) in list.iter().enumerate() {
            bytes[4 * index..4 * index + 4].copy_from_slice(&nsid.to_le_bytes());
        }
        assert_eq!(ActiveNamespaceList::parse(&bytes, 0).expect_err("refused").field, "NSID");
    }
}

#[test]
fn c63_namespace_descriptors() {
    let it = NamespaceIdDescriptors {
        eui64: Some(Eui64([1; 8])),
        nguid: Some(Nguid([2; 16])),
        uuid: Some(Uuid([3; 16])),
        csi: Some(0),
    };
    let mut bytes = [0; 4096];
    it.emit(&mut bytes);
    assert_eq!(bytes[..5], [1, 8, 0, 0, 1]);
    assert_eq!(bytes[12..17], [2, 16, 0, 0, 2]);
    assert_eq!(bytes[52..58], [4, 1, 0, 0, 0, 0]);
    assert_eq!(NamespaceIdDescriptors::parse(&bytes), Ok(it));
    let parse = |start: &[u8]| {
        let mut bytes = [0; 4096];
        bytes[..start.len()].copy_from_slice(start);
        NamespaceIdDescriptors::parse(&bytes)
    };
    assert_eq!(parse(&[]), Ok(NamespaceIdDescriptors::default()));
    assert_eq!(parse(&[3, 16]), Ok(NamespaceIdDescriptors::default()), "zeroes are no identifier");
    assert!(parse(&[9, 3, 0, 0, 1, 2, 3]).is_ok(), "unknown types are skipped");
    for bad in [&[3, 0][..], &[3, 15], &[1, 16], &[9, 0]] {
        assert_eq!(parse(bad).expect_err("refused").field, "NIDL");
    }
    let twice = [&[1, 8, 0, 0][..], &[1; 8], &[1, 8, 0, 0], &[2; 8]].concat();
    assert_eq!(parse(&twice).expect_err("refused").field, "NIDT");
    let same = [&[1, 8, 0, 0][..], &[1; 8], &[1, 8, 0, 0], &[1; 8]].concat();
    assert_eq!(parse(&same).map(|it| it.eui64), Ok(Some(Eui64([1; 8]))), "said twice");
    let full = [[9, 252, 0, 0].as_slice(), &[5; 252]].concat().repeat(16);
    assert!(parse(&full).is_ok(), "the last one ends with the structure");
    assert_eq!(NamespaceIdDescriptors::parse(&[200; 4096]).expect_err("refused").field, "NIDL");
}

#[test]
fn identify_commands_and_limits() {
    let it = Identify { cns: 6, nsid: 5, cntid: 0x0102, csi: 3 };
    assert_eq!(Identify::parse(&it.sqe()), it);
    assert_eq!(it.sqe().as_bytes()[40..48], [6, 0, 2, 1, 0, 0, 0, 3]);
    let limits = IoCommandLimits { wzsl: 3, dmrl: 255, dmrsl_blocks: 7, dmsl_blocks: 9 };
    let mut bytes = [0; 4096];
    limits.emit(&mut bytes);
    assert_eq!(IoCommandLimits::parse(&bytes), Ok(limits));
    assert_eq!(limits.write_zeroes_bytes(12), Some(32768));
    let none = IoCommandLimits { wzsl: 0, ..limits };
    assert_eq!(none.write_zeroes_bytes(12), None, "no limit is reported");
}

#[test]
fn c41_get_log_page() {
    let it = GetLogPage {
        lid: 0x0c,
        lsp: 1,
        retain_event: true,
        bytes: 0x0004_0010,
        offset: 0x1_0000_0004,
        nsid: u32::MAX,
    };
    let sqe = it.sqe();
    assert_eq!(sqe.as_bytes()[40..56], [0x0c, 0x81, 3, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(GetLogPage::parse(&sqe), Ok(it));
    let clearing = GetLogPage { retain_event: false, ..it };
    assert_eq!(GetLogPage::parse(&clearing.sqe()), Ok(clearing));
    let refused = Err(Status::INVALID_FIELD.with_dnr());
    assert_eq!(GetLogPage::parse(&sqe.with_cdw_pair(12, 2)), refused);
    assert_eq!(GetLogPage::parse(&sqe.with_cdw_pair(12, u64::MAX - 3)), refused);
    let huge = Sqe::new(2).with_cdw(10, 0xffff_0000).with_cdw(11, 0xffff);
    assert_eq!(GetLogPage::parse(&huge).expect("accepted").bytes, 1 << 34);
}

fn ana() -> Ana {
    let group = |id, state, nsids: &[u32]| AnaGroup {
        id,
        state,
        change_count: u64::from(id) * 3,
        nsids: nsids.to_vec(),
    };
    Ana {
        change_count: 9,
        groups: vec![
            group(1, AnaState::Optimized, &[1, 3]),
            group(2, AnaState::Change, &[]),
            group(4, AnaState::NonOptimized, &[2]),
        ],
    }
}

const LIMITS: AnaLimits = AnaLimits { group_id: 4, groups: 3 };

#[test]
fn ana_log_golden() {
    let bytes = ana().to_bytes(false);
    assert_eq!(bytes.len(), 16 + 3 * 32 + 3 * 4);
    assert_eq!(bytes[..10], [9, 0, 0, 0, 0, 0, 0, 0, 3, 0]);
    assert_eq!(bytes[16..36], [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(bytes[48..56], [1, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(Ana::parse(&bytes, LIMITS), Ok(ana()));
    let mut groups_only = ana();
    for group in &mut groups_only.groups {
        group.nsids.clear();
    }
    assert_eq!(Ana::parse(&ana().to_bytes(true), LIMITS), Ok(groups_only));
    for groups_only in [false, true] {
        assert_eq!(ana().bytes(groups_only), ana().to_bytes(groups_only).len());
    }
    let mut longer = bytes.clone();
    longer.resize(4096, 0xff);
    assert_eq!(Ana::parse(&longer, LIMITS), Ok(ana()), "bytes behind the last group do not count");
}

#[test]
fn the_length_of_an_ana_log_follows_from_its_first_bytes() {
    let whole = ana().to_bytes(false);
    for len in 0..whole.len() {
        let least = Ana::bytes_at_least(&whole[..len]);
        assert!((len as u64 + 1..=whole.len() as u64).contains(&least), "{len} bytes: {least}");
    }
    for behind in [0, 4, 4096] {
        let longer = [whole.clone(), vec![0xff; behind]].concat();
        assert_eq!(Ana::bytes_at_least(&longer), whole.len() as u64);
    }
    let mut endless = whole;
    endless[20..24].fill(0xff);
    assert_eq!(Ana::bytes_at_least(&endless), 16 + 32 + 4 * u64::from(u32::MAX) + 32);
}

#[test]
fn c61_ana_logs_that_lie_are_refused() {
    let good = ana().to_bytes(false);
    for len in 0..good.len() {
        assert!(Ana::parse(&good[..len], LIMITS).is_err(), "{len} bytes");
    }
    let changed = |at: usize, value: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        Ana::parse(&bytes, LIMITS)
    };
    let refused = [
        ("NGRPS", 8, &[4, 0][..]),
        ("NGRPS", 8, &[0xff, 0xff]),
        ("ANA Group ID", 16, &[0; 4]),
        ("ANA Group ID", 16, &[5]),
        ("ANA Group ID", 16, &[2]),
        ("Number of NSIDs", 20, &[0xff; 4]),
        ("Number of NSIDs", 20, &[0, 0, 0, 0x40]),
        ("NSID", 48, &[0]),
        ("NSID", 48, &[3]),
        ("NSID", 52, &[2]),
        ("NSID", 48, &[4]),
        // Not beside each other.
        ("ANA Group ID", 88, &[1]),
        ("NSID", 120, &[1]),
    ];
    for (field, at, value) in refused {
        assert_eq!(changed(at, value).expect_err(field).field, field, "{value:?}");
    }
    // A limit that the peer has set itself is named, and what it is.
    let says = |at, value| changed(at, value).expect_err("beyond its limit").to_string();
    assert!(says(8, &[0xff, 0xff]).contains("65535: must be at most 3 (NANAGRPID)"));
    assert!(says(16, &[5]).contains("5: must be at most 4 (ANAGRPMAX)"));
    for code in [0, 5, 14] {
        let log = changed(32, &[code]).expect("accepted");
        assert_eq!(log.groups[0].state, AnaState::Inaccessible);
    }
}

fn entry() -> DiscoveryEntry {
    let at = "192.0.2.7:4420".parse().expect("an address");
    DiscoveryEntry::tcp(SubsystemKind::Nvm, at, 7, Nqn::discovery())
}

#[test]
fn discovery_log_golden() {
    let bytes = entry().to_bytes();
    assert_eq!(bytes[..12], [3, 1, 2, 4, 7, 0, 0xff, 0xff, 32, 0, 0, 0]);
    assert_eq!(&bytes[32..37], b"4420 ");
    assert_eq!(&bytes[512..522], b"192.0.2.7 ");
    assert_eq!(DiscoveryEntry::parse(&bytes), Ok(entry()));
    let six = "[2001:db8::7]:8009".parse().expect("an address");
    let six = DiscoveryEntry::tcp(SubsystemKind::Referral, six, 1, Nqn::discovery());
    assert_eq!(DiscoveryEntry::parse(&six.to_bytes()), Ok(six.clone()));
    let log = DiscoveryEntry::log(5, &[entry(), six]);
    let header = DiscoveryHeader::parse(&log, 10).expect("a good header");
    assert_eq!((header.generation, header.entries), (5, 2));
    assert_eq!(header.log_bytes(), log.len() as u64);
}

#[test]
fn c65_discovery_logs_that_lie_are_refused_or_skipped() {
    let log = DiscoveryEntry::log(5, &[entry()]);
    let too_many = DiscoveryHeader::parse(&log, 0).expect_err("too many").to_string();
    assert!(too_many.contains("NUMREC is 1: must be at most 0"), "{too_many}");
    let mut format = log.clone();
    format[16] = 1;
    assert_eq!(DiscoveryHeader::parse(&format, 9).expect_err("format").field, "RECFMT");
    assert!(DiscoveryHeader::parse(&log, 1).is_ok(), "as many as are allowed");
    assert!(DiscoveryHeader::parse(&log[..17], 9).is_err());
    let changed = |at: usize, value: &[u8]| {
        let mut bytes = entry().to_bytes();
        bytes[at..at + value.len()].copy_from_slice(value);
        DiscoveryEntry::parse(&bytes)
    };
    let refused = [
        ("SUBTYPE", 2, &[0][..]),
        ("SUBTYPE", 2, &[4]),
        ("TRSVCID", 32, b"0   "),
        ("TRSVCID", 32, b"http"),
        ("TRSVCID", 32, b"65536"),
        ("TRADDR", 512, &[b'1'; 256]),
        ("TRADDR", 512, b"example.org"),
        ("ADRFAM", 1, &[2]),
        ("SUBNQN", 256, &[7]),
    ];
    for (field, at, value) in refused {
        assert_eq!(changed(at, value).expect_err(field).field, field);
    }
    let mut padded = entry().to_bytes();
    padded[36..64].fill(0);
    padded[521..768].fill(0);
    assert_eq!(DiscoveryEntry::parse(&padded), Ok(entry()), "padded with zeroes, as Linux does");
    let other = changed(0, &[1]).expect("shown, not used");
    assert!(matches!(other.address, TransportAddress::Other { trtype: 1, .. }));
    assert_eq!(other.socket_addr(), None);
}

#[test]
fn error_smart_and_changed_namespaces() {
    let error = ErrorEntry {
        error_count: 3,
        sqid: 1,
        cid: 2,
        status: Status::WRITE_FAULT,
        parameter: 0xffff,
        lba: 77,
        nsid: 4,
    };
    assert_eq!(ErrorEntry::from_bytes(&error.to_bytes()), error);
    assert_eq!(error.to_bytes()[8..16], [1, 0, 2, 0, 0, 5, 0xff, 0xff]);
    assert_eq!(error.to_bytes()[29], 3, "the transport is TCP");
    let smart = Smart {
        temperature_k: 300,
        data_units_written: 1 << 70,
        host_reads: 5,
        error_log_entries: 6,
        ..Smart::default()
    };
    assert_eq!(Smart::parse(&smart.to_bytes()), Ok(smart));
    assert_eq!(smart.to_bytes()[1..3], [0x2c, 1]);
    assert!(Smart::parse(&[0; 511]).is_err());
    let mut bytes = [0; 4096];
    let many: Vec<u32> = (1..=1024).collect();
    for list in [&[][..], &[5, 2], &many] {
        let it = ChangedNamespaces::new(list);
        it.emit(&mut bytes);
        assert_eq!(ChangedNamespaces::parse(&bytes), Ok(ChangedNamespaces::Listed(list.to_vec())));
    }
    let it = ChangedNamespaces::new(&[&many[..], &[9999]].concat());
    assert_eq!(it, ChangedNamespaces::TooMany);
    it.emit(&mut bytes);
    assert_eq!(bytes[..8], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    assert_eq!(ChangedNamespaces::parse(&bytes), Ok(it));
}

#[test]
fn io_commands() {
    let sqe = io::write(3, 0x1_0000_0002, 65536, true);
    assert_eq!(sqe.as_bytes()[40..52], [2, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0, 0x40]);
    let fields = io::BlockFields::of(&sqe);
    assert_eq!((fields.lba, fields.blocks, fields.fua), (0x1_0000_0002, 65536, true));
    let zeroes = io::BlockFields::of(&io::write_zeroes(1, 0, 1, true, false));
    assert!(zeroes.deallocate && !zeroes.fua && zeroes.prinfo == 0 && !zeroes.limited_retry);
    assert!(!io::BlockFields::of(&io::write_zeroes(1, 0, 1, false, true)).deallocate);
    let retry = sqe.with_cdw(12, sqe.cdw(12) | 1 << 31);
    assert!(io::BlockFields::of(&retry).limited_retry);
    assert!(!io::BlockFields::of(&io::read(1, 0, 1)).fua);
    assert_eq!(io::BlockFields::of(&io::compare(1, 9, 2)).lba, 9);
}

#[test]
fn c30_c32_ranges() {
    let out = Err(Status::LBA_OUT_OF_RANGE.with_dnr());
    let check = |lba, blocks| io::BlockFields::of(&io::read(1, lba, blocks)).check(100);
    assert_eq!(check(99, 1), Ok(()));
    assert_eq!((check(100, 1), check(99, 2), check(u64::MAX, 2)), (out, out, out));
    let fields = io::DsmFields::of(&io::deallocate(1, 256));
    assert_eq!((fields.ranges, fields.deallocate, fields.data_bytes()), (256, true, 4096));
    assert!(!io::DsmFields::of(&io::deallocate(1, 1).with_cdw(11, 1)).deallocate, "advice");
    let two = io::DsmFields::of(&io::deallocate(1, 2));
    let ranges = [
        io::DsmRange { attributes: 0, blocks: 0, lba: 100 },
        io::DsmRange { attributes: 7, blocks: 1, lba: 100 },
    ];
    let data = ranges.map(io::DsmRange::to_bytes).concat();
    let read: Vec<_> = two.read(&data).expect("enough data").collect();
    assert_eq!(read, ranges);
    assert_eq!((ranges[0].check(100), ranges[1].check(100)), (Ok(()), out));
    assert!(two.read(&data[..31]).is_err());
}

#[test]
fn one_line_each() {
    let show = |sqe: Sqe, admin| pretty::command(&sqe.with_cid(0x12), admin).to_string();
    let table = [
        (
            show(io::write(1, 8, 16, true).with_sgl(Sgl::in_capsule(8192)), false),
            "Write cid 0x0012 nsid 1 lba 8 blocks 16 FUA sgl in-capsule(01h) len 8192",
        ),
        (
            show(with_data(connect().sqe()), false),
            "Connect cid 0x0012 qid 3 sqsize 127 kato 5000 ms sgl in-capsule(01h) len 1024",
        ),
        (
            show(PropertyGet { offset: 0x1c, wide: false }.sqe(), true),
            "Property Get cid 0x0012 offset 0x1c",
        ),
        (
            show(PropertySet { offset: 0x14, wide: false, value: 0x46_0001 }.sqe(), true),
            "Property Set cid 0x0012 offset 0x14 value 0x460001",
        ),
        (show(io::flush(2), false), "Flush cid 0x0012 nsid 2"),
        (
            show(io::read(1, 8, 1).with_cdw(12, 1 << 25).with_sgl(Sgl::transport(512)), false),
            "Read cid 0x0012 nsid 1 lba 8 blocks 1 sgl transport(5ah) len 512",
        ),
        (
            show(io::write_zeroes(1, 8, 16, true, false), false),
            "Write Zeroes cid 0x0012 nsid 1 lba 8 blocks 16 DEAC",
        ),
        (
            show(io::write_zeroes(1, 8, 16, false, true), false),
            "Write Zeroes cid 0x0012 nsid 1 lba 8 blocks 16 FUA",
        ),
        (
            show(io::deallocate(1, 2).with_sgl(Sgl::in_capsule(32)), false),
            "Dataset Management cid 0x0012 nsid 1 ranges 2 deallocate \
             sgl in-capsule(01h) len 32",
        ),
        (
            show(io::deallocate(1, 2).with_cdw(11, 0).with_sgl(Sgl::in_capsule(32)), false),
            "Dataset Management cid 0x0012 nsid 1 ranges 2 sgl in-capsule(01h) len 32",
        ),
        (
            show(GetLogPage::new(0x70, 1024, 4096).sqe().with_sgl(Sgl::transport(4096)), true),
            "Get Log Page cid 0x0012 lid 0x70 offset 1024 bytes 4096 sgl transport(5ah) len 4096",
        ),
        (show(Sqe::new(0x55), true), "opcode 0x55 cid 0x0012 sgl transport(5ah) len 0"),
    ];
    for (shown, expected) in table {
        assert_eq!(shown, expected);
    }
    let cqe = Cqe { cid: 1, sqid: 2, sqhd: 3, result: 4, status: Status::INVALID_FIELD.with_dnr() };
    let line = "cid 0x0001 sqid 2 sqhd 3 result 0x4 Invalid Field in Command (sct 0h, sc 02h) DNR";
    assert_eq!(cqe.to_string(), line);
}
