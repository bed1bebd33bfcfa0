//! ANA: states per port and group, the log and its change counts, events, refusals.

use crate::common::*;
use anabranch_proto::machine::ConnId;
use anabranch_proto::nvme::feature::AsyncEventConfig;
use anabranch_proto::nvme::identify::{self, Identify};
use anabranch_proto::nvme::io;
use anabranch_proto::nvme::log::{Ana, AnaLimits, GetLogPage, lid};
use anabranch_proto::nvme::{AnaState, Status, aer};
use anabranch_target::config::NamespaceConfig;
use anabranch_target::{TargetError, TargetVerb};

fn log(rig: &mut Rig, admin: ConnId) -> Ana {
    let limits = AnaLimits { group_id: 128, groups: 128 };
    let done = rig.run(admin, GetLogPage::new(lid::ANA, 0, 4096).sqe(), 4096);
    assert_eq!(done.status, Status::SUCCESS);
    Ana::parse(&done.data, limits).unwrap()
}

fn set(rig: &mut Rig, port: u16, group: u32, state: AnaState) {
    rig.ok(TargetVerb::Ana { port, group, state });
}

#[test]
fn states_differ_by_port() {
    let mut config = config();
    config.ports[1].ana.insert(1, AnaState::NonOptimized);
    let mut rig = Rig::new(config);
    let (one, _) = rig.controller(0);
    let (two, _) = rig.controller(1);
    assert_eq!(log(&mut rig, one).groups[0].state, AnaState::Optimized);
    let log = log(&mut rig, two);
    assert_eq!(log.groups.len(), 1);
    let group = &log.groups[0];
    assert_eq!((group.id, group.state, &group.nsids[..]), (1, AnaState::NonOptimized, &[1][..]));
}

#[test]
fn io_follows_the_state_and_admin_does_not() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    let (_, other) = rig.controller(1);
    for (state, status) in [
        (AnaState::Inaccessible, Status::ANA_INACCESSIBLE),
        (AnaState::PersistentLoss, Status::ANA_PERSISTENT_LOSS),
        (AnaState::Change, Status::ANA_TRANSITION),
    ] {
        set(&mut rig, 0, 1, state);
        for done in [
            rig.run(queue, read(0, 1), 4096),
            rig.run_out(queue, write(0, 1), &[1; 4096]),
            rig.run_out(queue, write(0, 16), &vec![1; 64 << 10]),
            rig.run(queue, io::flush(1), 0),
        ] {
            assert_eq!(done.status, status, "without DNR");
        }
        assert_eq!(rig.run(admin, Identify::namespace(1).sqe(), 4096).status, Status::SUCCESS);
        assert_eq!(rig.run(other, read(0, 1), 4096).data, vec![0; 4096], "the other port works");
    }
    for state in [AnaState::NonOptimized, AnaState::Optimized] {
        set(&mut rig, 0, 1, state);
        assert_eq!(rig.run(queue, read(0, 1), 4096).status, Status::SUCCESS);
    }
    rig.assert_no_leak();
}

/// A state that changes while the host sends data: the write is refused, not half done.
#[test]
fn a_change_between_request_and_data() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    rig.answer_r2t = false;
    let cid = rig.start_out(queue, write(0, 8), &vec![1; 32 << 10]);
    set(&mut rig, 0, 1, AnaState::Inaccessible);
    rig.send_asked(queue);
    rig.advance(ms(0));
    rig.ok(TargetVerb::Restore { port: 0 });
    assert_eq!(rig.poll(queue, cid).unwrap().status, Status::ANA_INACCESSIBLE);
    rig.assert_no_leak();
}

#[test]
fn events_are_told_once_until_the_log_is_read() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    let (silent, _) = rig.controller(0);
    let (elsewhere, _) = rig.controller(1);
    for conn in [admin, elsewhere] {
        let wanted = AsyncEventConfig(AsyncEventConfig::ANA_CHANGE);
        assert_eq!(rig.run(conn, wanted.sqe(), 0).status, Status::SUCCESS);
    }
    let first = rig.start(admin, aer::request(), 0);
    let second = rig.start(admin, aer::request(), 0);
    let masked = rig.start(silent, aer::request(), 0);
    let other = rig.start(elsewhere, aer::request(), 0);
    let before = log(&mut rig, admin).change_count;
    set(&mut rig, 0, 1, AnaState::Inaccessible);
    let event = aer::AsyncEvent::from_result(rig.poll(admin, first).unwrap().result);
    assert_eq!(event, aer::AsyncEvent::ANA);
    set(&mut rig, 0, 1, AnaState::NonOptimized);
    set(&mut rig, 0, 1, AnaState::NonOptimized);
    assert!(rig.poll(admin, second).is_none(), "told already, the log was not read");
    // With RAE the event stays masked.
    let retain = GetLogPage { retain_event: true, ..GetLogPage::new(lid::ANA, 0, 64) };
    rig.run(admin, retain.sqe(), 64);
    assert!(rig.poll(admin, second).is_none());
    rig.run(admin, GetLogPage::new(lid::CHANGED_NAMESPACES, 0, 4096).sqe(), 4096);
    assert!(rig.poll(admin, second).is_none(), "another log");
    let after = log(&mut rig, admin);
    assert_eq!(after.change_count, before + 2, "a state that is set again is no change");
    assert_eq!(after.groups[0].change_count, 2);
    // What happened meanwhile comes out now.
    assert!(rig.poll(admin, second).is_some());
    assert!(rig.poll(silent, masked).is_none(), "not wanted");
    assert!(rig.poll(elsewhere, other).is_none(), "another port");
    assert_eq!(log(&mut rig, elsewhere).change_count, 0);
    let third = rig.start(admin, aer::request(), 0);
    log(&mut rig, admin);
    assert!(rig.poll(admin, third).is_none(), "nothing new");
}

#[test]
fn an_aborted_request_takes_no_event_along() {
    for aborted in 0..3 {
        let mut rig = Rig::new(config());
        let (admin, _) = rig.controller(0);
        rig.run(admin, AsyncEventConfig(AsyncEventConfig::ANA_CHANGE).sqe(), 0);
        let mut requests: Vec<u16> = (0..3).map(|_| rig.start(admin, aer::request(), 0)).collect();
        let gone = requests.remove(aborted);
        assert_eq!(rig.run(admin, aer::abort(0, gone), 0).result, 0);
        assert_eq!(rig.poll(admin, gone).unwrap().status, Status::ABORT_REQUESTED);
        for (request, state) in
            requests.into_iter().zip([AnaState::Inaccessible, AnaState::Optimized])
        {
            set(&mut rig, 0, 1, state);
            let told = rig.poll(admin, request).expect("an event").result;
            assert_eq!(aer::AsyncEvent::from_result(told), aer::AsyncEvent::ANA);
            log(&mut rig, admin);
        }
    }
}

#[test]
fn an_event_waits_for_a_request() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    rig.run(admin, AsyncEventConfig(AsyncEventConfig::ANA_CHANGE).sqe(), 0);
    set(&mut rig, 0, 1, AnaState::Change);
    let late = rig.start(admin, aer::request(), 0);
    assert!(rig.poll(admin, late).is_some());
}

/// Base, "ANA Inaccessible" and "ANA Persistent Loss": how full it is cannot be told from there.
#[test]
fn a_path_without_access_does_not_tell_how_full_the_namespace_is() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    for (state, used) in [
        (AnaState::Optimized, 4096),
        (AnaState::NonOptimized, 4096),
        (AnaState::Change, 4096),
        (AnaState::Inaccessible, 0),
        (AnaState::PersistentLoss, 0),
    ] {
        set(&mut rig, 0, 1, state);
        let data = rig.run(admin, Identify::namespace(1).sqe(), 4096).data;
        let said = identify::Namespace::parse(&data).unwrap();
        assert_eq!((said.nsze, said.ncap, said.nuse), (4096, 4096, used), "{state}");
    }
}

#[test]
fn groups_only() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    set(&mut rig, 0, 7, AnaState::Inaccessible);
    let only = GetLogPage { lsp: 1, ..GetLogPage::new(lid::ANA, 0, 4096) };
    let done = rig.run(admin, only.sqe(), 4096);
    let limits = AnaLimits { group_id: 128, groups: 128 };
    let log = Ana::parse(&done.data, limits).unwrap();
    let seen: Vec<_> = log.groups.iter().map(|g| (g.id, g.state, g.nsids.len())).collect();
    assert_eq!(seen, [(1, AnaState::Optimized, 0), (7, AnaState::Inaccessible, 0)]);
}

/// As nvme-cli reads it: by what the controller may have at most, not by what there is.
#[test]
fn the_log_can_be_read_in_parts_up_to_its_longest() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    let done = rig.run(admin, Identify::CONTROLLER.sqe(), 4096);
    let longest = identify::Controller::parse(&done.data).unwrap().ana_log_bytes();
    for lsp in [0, 1] {
        let part = |offset, bytes| GetLogPage { lsp, ..GetLogPage::new(lid::ANA, offset, bytes) };
        let mut whole = Vec::new();
        while (whole.len() as u64) < longest {
            let offset = whole.len() as u64;
            let len = u32::try_from(longest - offset).unwrap().min(4096);
            let done = rig.run(admin, part(offset, len).sqe(), len);
            assert_eq!(done.status, Status::SUCCESS, "from {offset}");
            whole.extend(done.data);
        }
        let parsed = Ana::parse(&whole, AnaLimits { group_id: 128, groups: 128 }).unwrap();
        let nsids = if lsp == 0 { vec![1] } else { vec![] };
        assert_eq!((parsed.groups.len(), &parsed.groups[0].nsids), (1, &nsids));
        let done = rig.run(admin, part(longest + 4, 4).sqe(), 4);
        assert_eq!(done.status.code(), Status::INVALID_FIELD.code(), "behind it there is nothing");
    }
    rig.assert_no_leak();
}

#[test]
fn identify_is_consistent_with_the_log() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    let data = rig.run(admin, Identify::CONTROLLER.sqe(), 4096).data;
    let controller = identify::Controller::parse(&data).unwrap();
    assert!(controller.has_ana());
    assert_eq!((controller.mnan, controller.nn, controller.nanagrpid), (1024, 1024, 128));
    assert_eq!((controller.anatt_s, controller.kas), (10, 1));
    assert_eq!(controller.max_transfer_bytes(12), Some(1 << 20));
    assert_eq!(controller.in_capsule_bytes(), 8192);
    assert_eq!(controller.subnqn, Some(nqn(SUBSYSTEM)));
    assert_eq!(
        controller.oaes,
        AsyncEventConfig::ANA_CHANGE | AsyncEventConfig::NAMESPACE_ATTRIBUTE
    );
}

#[test]
fn verbs_check_their_values() {
    let mut rig = Rig::new(config());
    let state = AnaState::Optimized;
    assert_eq!(
        rig.verb(TargetVerb::Ana { port: 2, group: 1, state }),
        Err(TargetError::NoSuchPort { port: 2, ports: 2 })
    );
    for group in [0, 129] {
        let reply = rig.verb(TargetVerb::Ana { port: 0, group, state });
        assert!(reply.unwrap_err().to_string().contains("between 1 and 128"));
    }
}

#[test]
fn the_log_is_the_same_in_parts_and_its_count_tells_when_it_is_another() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    set(&mut rig, 0, 1, AnaState::NonOptimized);
    let whole = rig.run(admin, GetLogPage::new(lid::ANA, 0, 4096).sqe(), 4096).data;
    for part in [4, 16, 20, 512] {
        let parts = (0..4096 / part).flat_map(|at| {
            let read = GetLogPage::new(lid::ANA, u64::from(at * part), part);
            rig.run(admin, read.sqe(), part).data
        });
        let parts: Vec<u8> = parts.collect();
        assert_eq!(parts, whole[..parts.len()], "{part} bytes at a time");
    }
    // A group that is optimized already stands in the log from now on.
    let before = log(&mut rig, admin);
    set(&mut rig, 0, 9, AnaState::Optimized);
    let after = log(&mut rig, admin);
    assert_eq!(after.groups.len(), before.groups.len() + 1);
    assert_ne!(after.change_count, before.change_count);
    set(&mut rig, 0, 9, AnaState::Optimized);
    assert_eq!(log(&mut rig, admin), after, "nothing new");
    let wanted = AsyncEventConfig(AsyncEventConfig::ANA_CHANGE);
    assert_eq!(rig.run(admin, wanted.sqe(), 0).status, Status::SUCCESS);
    let request = rig.start(admin, aer::request(), 0);
    set(&mut rig, 0, 1, AnaState::NonOptimized);
    assert!(rig.poll(admin, request).is_none(), "as it was before");
    // Which namespaces are in a group stands there, too.
    let config = NamespaceConfig { ana_group: 9, ..memory_namespace(2, MIB) };
    rig.ok(TargetVerb::NamespaceAdd { subsystem: nqn(SUBSYSTEM), config });
    let added = log(&mut rig, admin);
    assert_ne!(added.change_count, after.change_count);
    let counts = |log: &Ana| [0, 1].map(|at| log.groups[at].change_count);
    let [one, nine] = counts(&after);
    assert_eq!(counts(&added), [one, nine + 1], "of that group");
    rig.ok(TargetVerb::NamespaceGroup { subsystem: nqn(SUBSYSTEM), nsid: 2, group: 1 });
    assert_eq!(counts(&log(&mut rig, admin)), [one + 1, nine + 2], "where it was, where it is");
}
