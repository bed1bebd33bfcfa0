//! Namespaces that come, go, grow and move while hosts are connected.

use crate::common::*;
use anabranch_proto::machine::ConnId;
use anabranch_proto::nvme::feature::AsyncEventConfig;
use anabranch_proto::nvme::identify::{self, ActiveNamespaceList, Identify};
use anabranch_proto::nvme::log::{ChangedNamespaces, GetLogPage, lid};
use anabranch_proto::nvme::property::Cc;
use anabranch_proto::nvme::{AnaState, Sgl, Status, Uuid, aer, io};
use anabranch_proto::pdu::{CapsuleCmd, Format};
use anabranch_target::config::{NamespaceConfig, SubsystemConfig};
use anabranch_target::{Service, TargetError, TargetVerb};

const OTHER: &str = "nqn.2026-11.org.example:beside";

fn active(rig: &mut Rig, admin: ConnId) -> Vec<u32> {
    let done = rig.run(admin, Identify::active_namespaces(0).sqe(), 4096);
    ActiveNamespaceList::parse(&done.data, 0).unwrap().nsids().to_vec()
}

fn changed(rig: &mut Rig, admin: ConnId) -> ChangedNamespaces {
    let page = GetLogPage::new(lid::CHANGED_NAMESPACES, 0, 4096).sqe();
    ChangedNamespaces::parse(&rig.run(admin, page, 4096).data).unwrap()
}

fn add(rig: &mut Rig, config: NamespaceConfig) -> Result<(), TargetError> {
    rig.verb(TargetVerb::NamespaceAdd { subsystem: nqn(SUBSYSTEM), config }).map(|_| ())
}

#[test]
fn hosts_hear_of_each_change_once() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    let wanted = AsyncEventConfig(AsyncEventConfig::NAMESPACE_ATTRIBUTE);
    assert_eq!(rig.run(admin, wanted.sqe(), 0).status, Status::SUCCESS);
    let steps: [(TargetVerb, &[u32]); 3] = [
        (
            TargetVerb::NamespaceAdd {
                subsystem: nqn(SUBSYSTEM),
                config: memory_namespace(7, MIB),
            },
            &[1, 7],
        ),
        (
            TargetVerb::NamespaceResize { subsystem: nqn(SUBSYSTEM), nsid: 7, bytes: 2 * MIB },
            &[1, 7],
        ),
        (TargetVerb::NamespaceRemove { subsystem: nqn(SUBSYSTEM), nsid: 7 }, &[1]),
    ];
    for (verb, list) in steps {
        let request = rig.start(admin, aer::request(), 0);
        rig.ok(verb);
        let event = rig.poll(admin, request).expect("an event");
        assert_eq!(aer::AsyncEvent::from_result(event.result), aer::AsyncEvent::NAMESPACES);
        rig.run(admin, GetLogPage::new(lid::ANA, 0, 4096).sqe(), 4096);
        assert_eq!(changed(&mut rig, admin), ChangedNamespaces::new(&[7]));
        assert_eq!(changed(&mut rig, admin), ChangedNamespaces::new(&[]), "reading clears it");
        assert_eq!(active(&mut rig, admin), list);
    }
    let gone = rig.run(queue, read(0, 1).with_nsid(7), 4096);
    assert!(gone.status.is(Status::INVALID_NAMESPACE) && gone.status.dnr());
}

/// Whatever a command that has come waits for, its data, a link, a server: what takes its
/// namespace's number meanwhile is not what its host meant.
#[test]
fn what_was_begun_for_a_namespace_is_not_done_in_its_successor() {
    let replace = |rig: &mut Rig| {
        rig.ok(TargetVerb::NamespaceRemove { subsystem: nqn(SUBSYSTEM), nsid: 7 });
        add(rig, memory_namespace(7, MIB)).unwrap();
    };
    let refused = |rig: &mut Rig, queue, cid| {
        let done = rig.poll(queue, cid).expect("answered");
        assert!(done.status.is(Status::INVALID_NAMESPACE) && done.status.dnr(), "{done:?}");
        assert_eq!(done.data, []);
    };
    let untouched = |rig: &mut Rig, queue| {
        let found = rig.run(queue, read(0, 16).with_nsid(7), 16 * 4096);
        assert_eq!(found.status, Status::SUCCESS);
        assert!(found.data.iter().all(|byte| *byte == 0), "the new one holds what was not its own");
    };
    let mut config = config();
    config.subsystems[0].namespaces.push(memory_namespace(7, MIB));
    let data = vec![0x5a; 16 * 4096];

    // It waits for its data.
    let mut rig = Rig::new(config.clone());
    let (_, queue) = rig.controller(0);
    rig.answer_r2t = false;
    let late = rig.start_out(queue, write(0, 16).with_nsid(7), &data);
    replace(&mut rig);
    rig.answer_r2t = true;
    rig.send_asked(queue);
    rig.status();
    refused(&mut rig, queue, late);
    untouched(&mut rig, queue);

    // It is at a server.
    let mut rig = Rig::new(config.clone());
    let (_, queue) = rig.controller(0);
    rig.ok(TargetVerb::Service(Some(Service {
        servers: None,
        read: ms(1),
        write: ms(500),
        other: ms(1),
        exponential: false,
        per_port: false,
    })));
    let served = rig.start_out(queue, write(0, 1).with_nsid(7), &data[..4096]);
    replace(&mut rig);
    rig.advance(ms(1_000));
    refused(&mut rig, queue, served);
    rig.ok(TargetVerb::Service(None));
    untouched(&mut rig, queue);

    // It is on its way through the port's link, or caught by its stall.
    for shaped in [true, false] {
        let mut rig = Rig::new(config.clone());
        let (_, queue) = rig.controller(0);
        if shaped {
            let shape = "delay=500ms".parse().unwrap();
            rig.ok(TargetVerb::Shape { port: 0, shape });
        } else {
            rig.ok(TargetVerb::Stall { port: 0 });
        }
        let small = rig.start_out(queue, write(0, 1).with_nsid(7), &data[..4096]);
        let reads = rig.start(queue, read(0, 1).with_nsid(7), 4096);
        let other = rig.start_out(queue, write(0, 1), &data[..4096]);
        replace(&mut rig);
        if !shaped {
            rig.ok(TargetVerb::Restore { port: 0 });
        }
        rig.advance(ms(2_000));
        refused(&mut rig, queue, small);
        refused(&mut rig, queue, reads);
        let done = rig.poll(queue, other).expect("answered");
        assert_eq!(done.status, Status::SUCCESS, "another namespace's");
        rig.ok(TargetVerb::Shape { port: 0, shape: Default::default() });
        untouched(&mut rig, queue);
    }
}

/// What has come is for the namespace that was there then, also when a command before it must leave
/// first or the rest of its data is still to come.
#[test]
fn what_had_only_come_is_not_done_in_the_successor_of_its_namespace() {
    let replace = |rig: &mut Rig| {
        rig.ok(TargetVerb::NamespaceRemove { subsystem: nqn(SUBSYSTEM), nsid: 7 });
        add(rig, memory_namespace(7, MIB)).unwrap();
    };
    let mut config = config();
    config.subsystems[0].namespaces.push(memory_namespace(7, MIB));
    let data = [0x5a; 4096];
    let outcome = |rig: &mut Rig, queue, cid: u16| {
        let done = rig.poll(queue, cid).expect("answered");
        let found = rig.run(queue, read(0, 1).with_nsid(7), 4096);
        assert_eq!(found.status, Status::SUCCESS);
        assert!(found.data == [0; 4096], "the new one holds what was not its own");
        done.status
    };

    // The host does not read: what it has asked for is in the way.
    let mut rig = Rig::new(config.clone());
    let (_, queue) = rig.controller(0);
    rig.reads(queue, false);
    let asked: Vec<u16> = (0..8).map(|_| rig.start(queue, read(0, 16), 16 * 4096)).collect();
    let late = rig.start_out(queue, write(0, 1).with_nsid(7), &data);
    let other = rig.start_out(queue, write(1, 1), &data);
    replace(&mut rig);
    rig.reads(queue, true);
    for cid in asked.into_iter().chain([other]) {
        assert_eq!(rig.poll(queue, cid).expect("answered").status, Status::SUCCESS);
    }
    assert_eq!(outcome(&mut rig, queue, late), Status::INVALID_NAMESPACE.with_dnr());

    // Half of its capsule has come.
    let mut rig = Rig::new(config);
    let (_, queue) = rig.controller(0);
    let cid = rig.cid();
    let sqe = write(0, 1).with_nsid(7).with_cid(cid).with_sgl(Sgl::in_capsule(4096));
    let capsule = CapsuleCmd { sqe, in_capsule_bytes: 4096 };
    rig.send(queue, &[capsule.emit(Format::default()).as_bytes(), &data[..1000]].concat());
    replace(&mut rig);
    rig.send(queue, &data[1000..]);
    assert_eq!(outcome(&mut rig, queue, cid), Status::INVALID_NAMESPACE.with_dnr());
}

#[test]
fn identifiers_are_stable_and_distinct() {
    let mut config = config();
    config.subsystems[0].namespaces.push(memory_namespace(2, MIB));
    let ids = |rig: &mut Rig| {
        let namespaces = &rig.status().subsystems[0].namespaces;
        namespaces.iter().map(|n| (n.uuid, n.nguid)).collect::<Vec<_>>()
    };
    let mut one = Rig::new(config.clone());
    let mut two = Rig::new(config.clone());
    let first = ids(&mut one);
    assert_eq!(first, ids(&mut two));
    assert_ne!(first[0].0, first[1].0);
    assert_ne!(first[0].1, first[1].1);
    assert_ne!(first[0].0.0, first[0].1.0);
    config.subsystems[0].nqn = nqn(OTHER_HOST);
    assert_ne!(first, ids(&mut Rig::new(config.clone())));
    config.subsystems[0].namespaces[0].uuid = Some(Uuid([3; 16]));
    let chosen = ids(&mut Rig::new(config.clone()))[0];
    assert_eq!(chosen.0, Uuid([3; 16]));
    assert_ne!(chosen.1, first[0].1, "another UUID, another NGUID");
    config.subsystems[0].nqn = nqn(SUBSYSTEM);
    config.subsystems[0].namespaces[0].nsid = 9;
    let moved = ids(&mut Rig::new(config));
    assert!(moved.contains(&chosen), "{moved:?}: the same UUID, the same namespace");
    // The same through both ports, on the wire.
    for port in 0..2 {
        let (admin, _) = one.controller(port);
        let data = one.run(admin, Identify::descriptors(1).sqe(), 4096).data;
        let seen = identify::NamespaceIdDescriptors::parse(&data).unwrap();
        assert_eq!((seen.uuid, seen.nguid), (Some(first[0].0), Some(first[0].1)));
    }
}

#[test]
fn a_smaller_namespace_refuses_and_forgets_its_end() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    let last = 16 * MIB / 4096 - 1;
    assert_eq!(rig.run_out(queue, write(last, 1), &[1; 4096]).status, Status::SUCCESS);
    let resize = |bytes| TargetVerb::NamespaceResize { subsystem: nqn(SUBSYSTEM), nsid: 1, bytes };
    rig.ok(resize(MIB));
    assert!(rig.run(queue, read(last, 1), 4096).status.is(Status::LBA_OUT_OF_RANGE));
    rig.ok(resize(16 * MIB));
    assert_eq!(rig.run(queue, read(last, 1), 4096).data, vec![0; 4096]);
    let data = rig.run(admin, Identify::namespace(1).sqe(), 4096).data;
    assert_eq!(identify::Namespace::parse(&data).unwrap().bytes(), 16 * MIB);
}

#[test]
fn the_same_nsid_again_is_another_namespace() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    rig.run_out(queue, write(0, 1), &[1; 4096]);
    rig.ok(TargetVerb::NamespaceRemove { subsystem: nqn(SUBSYSTEM), nsid: 1 });
    add(&mut rig, NamespaceConfig { uuid: Some(Uuid([4; 16])), ..memory_namespace(1, MIB) })
        .unwrap();
    assert_eq!(rig.run(queue, read(0, 1), 4096).data, vec![0; 4096]);
}

/// A shaped port reads when the answer leaves: by then the NSID may be another namespace's.
#[test]
fn an_answer_on_its_way_has_no_data_of_another_namespace() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    rig.run_out(queue, write(0, 1), &[7; 4096]);
    rig.ok(TargetVerb::Shape { port: 0, shape: "rate_out=1mbit".parse().unwrap() });
    let cid = rig.start(queue, read(0, 1), 4096);
    rig.advance(ms(10));
    assert!(rig.poll(queue, cid).is_none(), "it has been carried out, and is on its way back");
    rig.ok(TargetVerb::NamespaceRemove { subsystem: nqn(SUBSYSTEM), nsid: 1 });
    add(&mut rig, memory_namespace(1, MIB)).unwrap();
    rig.advance(ms(100));
    let done = rig.poll(queue, cid).expect("an answer");
    assert!(done.status.is(Status::INVALID_NAMESPACE), "{}", done.status);
    rig.assert_no_leak();
}

#[test]
fn moving_to_another_group_changes_access_and_log() {
    let mut config = config();
    config.ports[0].ana.insert(2, AnaState::Inaccessible);
    let beside =
        SubsystemConfig { nqn: nqn(OTHER), namespaces: vec![], ..config.subsystems[0].clone() };
    config.subsystems.push(beside);
    let mut rig = Rig::new(config);
    let (admin, queue) = rig.controller(0);
    let (other, _) = rig.admin_of(0, OTHER, 0);
    assert_eq!(rig.set_cc(other, Cc::ENABLE).status, Status::SUCCESS);
    let wanted =
        AsyncEventConfig(AsyncEventConfig::NAMESPACE_ATTRIBUTE | AsyncEventConfig::ANA_CHANGE);
    let mut requests = [admin, other].map(|conn| {
        assert_eq!(rig.run(conn, wanted.sqe(), 0).status, Status::SUCCESS);
        [(); 2].map(|()| (conn, rig.start(conn, aer::request(), 0)))
    });
    let states = [(1, AnaState::Optimized), (2, AnaState::Inaccessible)];
    assert_eq!(rig.status().ports[0].ana, states, "with namespaces, or with a state");
    let move_to = |group| TargetVerb::NamespaceGroup { subsystem: nqn(SUBSYSTEM), nsid: 1, group };
    rig.ok(move_to(1));
    assert!(requests.as_flattened().iter().all(|(conn, cid)| rig.poll(*conn, *cid).is_none()));
    rig.ok(move_to(2));
    let [(conn, first), second] = requests[0];
    let told = rig.poll(conn, first).expect("an event").result;
    assert_eq!(aer::AsyncEvent::from_result(told), aer::AsyncEvent::ANA);
    requests[0] = [second; 2];
    let more = requests.as_flattened().iter().any(|(conn, cid)| rig.poll(*conn, *cid).is_some());
    assert!(!more, "once, to the hosts of this subsystem");
    assert_eq!(changed(&mut rig, admin), ChangedNamespaces::new(&[]), "not an attribute");
    rig.ok(TargetVerb::NamespaceResize { subsystem: nqn(SUBSYSTEM), nsid: 1, bytes: MIB });
    assert_eq!(changed(&mut rig, admin), ChangedNamespaces::new(&[1]));
    assert_eq!(changed(&mut rig, other), ChangedNamespaces::new(&[]), "not of that subsystem");
    assert_eq!(rig.run(queue, read(0, 1), 4096).status, Status::ANA_INACCESSIBLE);
    let data = rig.run(admin, Identify::namespace(1).sqe(), 4096).data;
    assert_eq!(identify::Namespace::parse(&data).unwrap().anagrpid, 2);
    assert_eq!(rig.status().ports[0].ana, [(2, AnaState::Inaccessible)]);
}

#[test]
fn the_order_of_a_configuration_does_not_matter() {
    let mut config = config();
    config.subsystems[0].namespaces = [3, 1, 2].map(|nsid| memory_namespace(nsid, MIB)).into();
    let mut rig = Rig::new(config);
    let (admin, queue) = rig.controller(0);
    assert_eq!(active(&mut rig, admin), [1, 2, 3]);
    for nsid in 1..=3 {
        let done = rig.run(queue, read(0, 1).with_nsid(nsid), 4096);
        assert_eq!(done.status, Status::SUCCESS, "{nsid}");
    }
}

#[test]
fn misuse_is_named() {
    let mut rig = Rig::new(config());
    let exists = TargetError::NamespaceExists { nsid: 1 };
    assert_eq!(add(&mut rig, memory_namespace(1, MIB)), Err(exists));
    for (config, word) in [
        (memory_namespace(0, MIB), "nsid"),
        (memory_namespace(1025, MIB), "between 1 and 1024"),
        (memory_namespace(2, MIB + 512), "multiple of 4096"),
        (memory_namespace(2, 0), "bytes"),
        (memory_namespace(2, 1 << 50), "bytes"),
        (NamespaceConfig { block_bytes: 520, ..memory_namespace(2, MIB) }, "512 or 4096"),
        (NamespaceConfig { ana_group: 129, ..memory_namespace(2, MIB) }, "ana_group"),
        (NamespaceConfig { uuid: Some(Uuid([0; 16])), ..memory_namespace(2, MIB) }, "uuid"),
    ] {
        let error = add(&mut rig, config).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    let unknown = TargetVerb::NamespaceRemove { subsystem: nqn(SUBSYSTEM), nsid: 9 };
    assert_eq!(rig.verb(unknown), Err(TargetError::NoSuchNamespace { nsid: 9 }));
    let unknown = TargetVerb::NamespaceRemove { subsystem: nqn(OTHER_HOST), nsid: 1 };
    assert_eq!(rig.verb(unknown), Err(TargetError::NoSuchSubsystem(nqn(OTHER_HOST))));
}

/// A line of a configuration that was copied with its UUID: hosts would refuse the second.
/// Linux looks at all subsystems: "ignoring nsid 1 because of duplicate IDs".
#[test]
fn two_namespaces_do_not_have_one_uuid_in_two_subsystems_either() {
    let with = |uuid| NamespaceConfig { uuid: Some(uuid), ..memory_namespace(1, MIB) };
    let mut config = config();
    config.subsystems[0].namespaces = vec![with(Uuid([4; 16]))];
    let elsewhere = SubsystemConfig { nqn: nqn(OTHER), ..config.subsystems[0].clone() };
    config.subsystems.push(elsewhere);
    let error = config.check().unwrap_err().to_string();
    let named = format!("namespace 1: uuid: is that of namespace 1 of {SUBSYSTEM}");
    assert!(error.contains(&named), "{error}");
    config.subsystems[1].namespaces.clear();
    let mut rig = Rig::new(config);
    let mut added = |uuid| {
        let subsystem = nqn(OTHER);
        rig.verb(TargetVerb::NamespaceAdd { subsystem, config: with(uuid) })
    };
    let error = added(Uuid([4; 16])).unwrap_err().to_string();
    assert!(error.contains(&named), "{error}");
    added(Uuid([5; 16])).unwrap();
}

#[test]
fn two_namespaces_do_not_have_one_uuid() {
    let with = |nsid, uuid| NamespaceConfig { uuid: Some(uuid), ..memory_namespace(nsid, MIB) };
    let mut config = config();
    config.subsystems[0].namespaces = vec![with(1, Uuid([3; 16])), with(2, Uuid([4; 16]))];
    config.check().expect("two namespaces");
    let mut rig = Rig::new(config.clone());
    for config in [with(3, Uuid([4; 16])), with(7, Uuid([4; 16]))] {
        let error = add(&mut rig, config).unwrap_err().to_string();
        assert!(error.contains("uuid") && error.contains("namespace 2"), "{error}");
    }
    let remove = TargetVerb::NamespaceRemove { subsystem: nqn(SUBSYSTEM), nsid: 2 };
    rig.ok(remove);
    add(&mut rig, with(3, Uuid([4; 16]))).expect("free again");
    config.subsystems[0].namespaces.push(with(3, Uuid([4; 16])));
    let error = config.check().unwrap_err().to_string();
    assert!(error.contains("namespace 3: uuid") && error.contains("namespace 2"), "{error}");
}

#[test]
fn many_namespaces_fill_several_lists() {
    let mut config = config();
    config.subsystems[0].namespaces = (1..=1024).map(|nsid| memory_namespace(nsid, MIB)).collect();
    let mut rig = Rig::new(config);
    let (admin, _) = rig.controller(0);
    assert_eq!(active(&mut rig, admin).len(), 1024);
    let done = rig.run(admin, Identify::active_namespaces(1000).sqe(), 4096);
    let list = ActiveNamespaceList::parse(&done.data, 1000).unwrap();
    assert_eq!(list.nsids(), (1001..=1024).collect::<Vec<_>>());
}

#[test]
fn a_block_can_be_damaged_on_purpose() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    rig.run_out(queue, write(5, 1), &[0x0f; 4096]);
    let corrupt = |lba| TargetVerb::Corrupt { subsystem: nqn(SUBSYSTEM), nsid: 1, lba };
    rig.ok(corrupt(5));
    assert_eq!(rig.run(queue, read(5, 1), 4096).data, vec![0xf0; 4096]);
    assert!(matches!(rig.verb(corrupt(4096)), Err(TargetError::OutOfBounds(_))));
    assert_eq!(rig.run(queue, io::flush(1), 0).status, Status::SUCCESS);
}
