//! The discovery subsystem: its log, generation counter and event, on every port.

use crate::common::*;
use anabranch_proto::machine::ConnId;
use anabranch_proto::nvme::fabrics::ConnectCommand;
use anabranch_proto::nvme::feature::AsyncEventConfig;
use anabranch_proto::nvme::identify::{self, ControllerKind, Identify};
use anabranch_proto::nvme::log::{DiscoveryEntry, DiscoveryHeader, GetLogPage, SubsystemKind, lid};
use anabranch_proto::nvme::property::Cc;
use anabranch_proto::nvme::{Nqn, Status, aer, feature};
use anabranch_target::TargetVerb;

fn discovery(rig: &mut Rig, port: u16) -> ConnId {
    let (admin, _) = rig.admin_of(port, Nqn::DISCOVERY, 0);
    // It has no I/O queues, so their sizes do not matter.
    rig.set_cc(admin, Cc(1));
    assert_eq!(rig.csts(admin), 1);
    admin
}

/// Reads the log as hosts do: the header, then everything, in pieces.
fn log(rig: &mut Rig, admin: ConnId) -> (u64, Vec<DiscoveryEntry>) {
    let head = rig.run(admin, GetLogPage::new(lid::DISCOVERY, 0, 16).sqe(), 16).data;
    let entries = u64::from_le_bytes(head[8..16].try_into().unwrap());
    let mut bytes = vec![];
    while (bytes.len() as u64) < 1024 * (entries + 1) {
        let page = GetLogPage::new(lid::DISCOVERY, bytes.len() as u64, 512);
        bytes.extend(rig.run(admin, page.sqe(), 512).data);
    }
    let header = DiscoveryHeader::parse(&bytes, 1000).unwrap();
    let list = bytes[1024..].chunks(1024).map(|entry| DiscoveryEntry::parse(entry).unwrap());
    (header.generation, list.collect())
}

#[test]
fn every_port_is_listed_with_the_bound_address() {
    let mut config = config();
    config.ports[0].advertise = Some("192.0.2.1:7000".parse().unwrap());
    config.ports[1].advertise = Some("192.0.2.7:0".parse().unwrap());
    let mut rig = Rig::new(config);
    let admin = discovery(&mut rig, 1);
    let (_, entries) = log(&mut rig, admin);
    let seen: Vec<_> = entries
        .iter()
        .map(|e| (e.kind, e.socket_addr().unwrap().to_string(), e.portid, e.subnqn.as_str()))
        .collect();
    let (one, two) = ("192.0.2.1:7000".to_string(), "192.0.2.7:4421".to_string());
    assert_eq!(
        seen,
        [
            (SubsystemKind::CurrentDiscovery, one.clone(), 1, Nqn::DISCOVERY),
            (SubsystemKind::Nvm, one, 1, SUBSYSTEM),
            (SubsystemKind::CurrentDiscovery, two.clone(), 2, Nqn::DISCOVERY),
            (SubsystemKind::Nvm, two, 2, SUBSYSTEM),
        ]
    );
}

/// No more of the log is put together than a command asks for.
#[test]
fn every_part_of_the_log_is_as_in_the_whole() {
    let mut rig = Rig::new(config());
    let admin = discovery(&mut rig, 0);
    let mut part = |offset: u64, len: u32| {
        rig.run(admin, GetLogPage::new(lid::DISCOVERY, offset, len).sqe(), len)
    };
    let whole = part(0, 5120).data;
    assert_eq!(DiscoveryHeader::parse(&whole, 9).unwrap().entries, 4);
    for offset in (0..5120).step_by(508) {
        for len in [4, 512, 1024, 1028, 3000, 5120] {
            let mut wanted = whole[offset..].to_vec();
            wanted.resize(len, 0);
            assert!(part(offset as u64, len as u32).data == wanted, "{len} bytes from {offset}");
        }
    }
    assert_eq!(part(5120, 64).data, [0; 64]);
    for offset in [5124, u64::MAX - 1023] {
        assert!(part(offset, 64).status.is(Status::INVALID_FIELD), "{offset}");
    }
}

/// Hosts that are told so read the log at one port only (nvme-cli reads it at each otherwise, and
/// connects to all subsystems again), and stay there for its events.
#[test]
fn discovery_services_say_that_they_are_one_and_that_hosts_may_stay() {
    let mut rig = Rig::new(config());
    let admin = discovery(&mut rig, 0);
    let (_, entries) = log(&mut rig, admin);
    let seen: Vec<_> = entries.iter().map(|entry| (entry.kind, entry.eflags)).collect();
    let both = DiscoveryEntry::EFLAGS_DUPLICATE | DiscoveryEntry::EFLAGS_PERSISTENT;
    let one = [(SubsystemKind::CurrentDiscovery, both), (SubsystemKind::Nvm, 0)];
    assert_eq!(seen, [one, one].concat());
}

#[test]
fn each_change_is_one_generation_and_one_event() {
    let mut rig = Rig::new(config());
    let admin = discovery(&mut rig, 0);
    let wanted = AsyncEventConfig(AsyncEventConfig::DISCOVERY_CHANGE);
    assert_eq!(rig.run(admin, wanted.sqe(), 0).status, Status::SUCCESS);
    let (mut generation, _) = log(&mut rig, admin);
    let allow = |host: &str| TargetVerb::AllowHost { subsystem: nqn(SUBSYSTEM), host: nqn(host) };
    let deny = |host: &str| TargetVerb::DenyHost { subsystem: nqn(SUBSYSTEM), host: nqn(host) };
    for (verb, left) in [
        (TargetVerb::Advertise { port: 1, visible: false }, 2),
        (TargetVerb::Advertise { port: 1, visible: true }, 4),
        (allow(OTHER_HOST), 2),
        (allow(HOST), 4),
        (deny(OTHER_HOST), 4),
        (deny(HOST), 2),
    ] {
        let request = rig.start(admin, aer::request(), 0);
        let again = verb.clone();
        rig.ok(verb);
        let event = rig.poll(admin, request).expect("an event");
        assert_eq!(aer::AsyncEvent::from_result(event.result), aer::AsyncEvent::DISCOVERY);
        rig.ok(again);
        let (now, entries) = log(&mut rig, admin);
        assert_eq!((now, entries.len()), (generation + 1, left));
        generation = now;
    }
}

/// A time-out asks to stay and to hear of changes (Base 3.1.3.3.1): nothing else needs to be set.
#[test]
fn whoever_asks_to_stay_hears_of_changes() {
    let mut rig = Rig::new(config());
    let config = |rig: &mut Rig, admin, select: u32| {
        let id = u32::from(feature::fid::ASYNC_EVENT_CONFIG);
        let done = rig.run(admin, feature::get(id as u8).with_cdw(10, id | select << 8), 0);
        assert_eq!(done.status, Status::SUCCESS);
        done.result
    };
    let passing = discovery(&mut rig, 0);
    assert_eq!([0, 1].map(|select| config(&mut rig, passing, select)), [0, 0]);
    let (admin, _) = rig.admin_of(0, Nqn::DISCOVERY, 5000);
    let on = u64::from(AsyncEventConfig::DISCOVERY_CHANGE);
    for _ in 0..2 {
        rig.set_cc(admin, Cc(1));
        assert_eq!([0, 1].map(|select| config(&mut rig, admin, select)), [on, on]);
        assert_eq!(rig.run(admin, AsyncEventConfig(0).sqe(), 0).status, Status::SUCCESS);
        assert_eq!([0, 1].map(|select| config(&mut rig, admin, select)), [0, on]);
        rig.set_cc(admin, Cc(0));
    }
    rig.set_cc(admin, Cc(1));
    let request = rig.start(admin, aer::request(), 0);
    rig.ok(TargetVerb::Advertise { port: 1, visible: false });
    let event = rig.poll(admin, request).expect("an event");
    assert_eq!(aer::AsyncEvent::from_result(event.result), aer::AsyncEvent::DISCOVERY);
}

#[test]
fn a_discovery_controller_is_nothing_else() {
    let mut rig = Rig::new(config());
    let admin = discovery(&mut rig, 0);
    let data = rig.run(admin, Identify::CONTROLLER.sqe(), 4096).data;
    let controller = identify::Controller::parse(&data).unwrap();
    assert_eq!(controller.kind, ControllerKind::Discovery);
    assert_eq!(controller.subnqn, Some(Nqn::discovery()));
    assert_eq!(controller.oaes, AsyncEventConfig::DISCOVERY_CHANGE);
    for sqe in [Identify::namespace(1).sqe(), Identify::active_namespaces(0).sqe()] {
        assert!(rig.run(admin, sqe, 4096).status.is(Status::INVALID_FIELD));
    }
    assert_eq!(controller.lpa, identify::Controller::LPA_EXTENDED_DATA, "no log of effects");
    for id in [lid::SMART, lid::EFFECTS] {
        let page = GetLogPage::new(id, 0, 512).sqe();
        assert!(rig.run(admin, page, 512).status.is(Status::INVALID_LOG_PAGE));
    }
    let cntlid = controller.cntlid;
    let io = rig.open(0);
    let command = ConnectCommand { qid: 1, sqsize: 15, disable_sq_flow: true, kato_ms: 0 };
    let data = connect_data(cntlid, Nqn::DISCOVERY).to_bytes();
    let refused = rig.connect_with(io, command, &data);
    assert!(refused.status.is(Status::CONNECT_INVALID_PARAMETERS), "{}", refused.status);
    let queues = feature::NumberOfQueues::pairs(1).sqe();
    for sqe in [queues, feature::get(feature::fid::NUMBER_OF_QUEUES)] {
        assert!(rig.run(admin, sqe, 0).status.is(Status::INVALID_FIELD));
    }
}

#[test]
fn a_forgotten_discovery_controller_ends() {
    let mut rig = Rig::new(config());
    let admin = discovery(&mut rig, 0);
    rig.advance(ms(119_000));
    assert!(!rig.wires[&admin].closed);
    rig.advance(ms(2_000));
    assert!(rig.wires[&admin].closed);
    let (kept, _) = rig.admin_of(0, Nqn::DISCOVERY, 200_000);
    rig.advance(ms(190_000));
    assert!(!rig.wires[&kept].closed, "its host asked for another time");
}
