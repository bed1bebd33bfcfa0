//! Connect and what may come before it: bad-input catalogue C23, C24, C34, C35, C36.

use crate::common;

use crate::common::*;
use anabranch_proto::machine::ConnId;
use anabranch_proto::nvme::fabrics::{
    ConnectCommand, ConnectData, Disconnect, PropertyGet, PropertySet,
};
use anabranch_proto::nvme::feature::NumberOfQueues;
use anabranch_proto::nvme::property::Cc;
use anabranch_proto::nvme::{Nqn, Sqe, Status, Uuid, aer, io};
use anabranch_target::config::{MAX_CNTLID, TargetConfig};
use anabranch_target::{TargetError, TargetEvent, TargetVerb};

const ADMIN: ConnectCommand =
    ConnectCommand { qid: 0, sqsize: 31, disable_sq_flow: true, kato_ms: 0 };

fn io_queue(qid: u16, sqsize: u16) -> ConnectCommand {
    ConnectCommand { qid, sqsize, ..ADMIN }
}

/// Connects on a fresh connection and expects a refusal: status, parameter offset, in the data?
#[track_caller]
fn refused(
    rig: &mut Rig,
    command: ConnectCommand,
    data: &[u8],
    status: Status,
    parameter: Option<(u16, bool)>,
) -> ConnId {
    let conn = rig.open(0);
    let done = rig.connect_with(conn, command, data);
    assert!(done.status.is(status), "{}", done.status);
    assert!(done.status.dnr(), "a refused Connect is not to be repeated");
    let result = parameter.map_or(0, |(at, data)| u64::from(at) | u64::from(data) << 16);
    assert_eq!(done.result, result, "IPO and IATTR");
    conn
}

const INVALID: Status = Status::CONNECT_INVALID_PARAMETERS;

#[test]
fn c23_nothing_comes_before_connect() {
    let mut rig = Rig::new(config());
    let conn = rig.open(0);
    let version = PropertyGet { offset: 8, wide: false }.sqe();
    for sqe in [aer::keep_alive(), aer::request(), io::flush(1), version] {
        let done = rig.run(conn, sqe, 0);
        assert!(done.status.is(Status::COMMAND_SEQUENCE_ERROR), "{}", done.status);
    }
    // The connection is still good for a Connect.
    let data = connect_data(0xffff, SUBSYSTEM).to_bytes();
    assert_eq!(rig.connect_with(conn, ADMIN, &data).status, Status::SUCCESS);
}

#[test]
fn c23_connect_on_a_live_queue_harms_nothing() {
    let mut rig = Rig::new(config());
    let (admin, io) = rig.controller(0);
    let data = connect_data(0xffff, SUBSYSTEM).to_bytes();
    for conn in [admin, io] {
        let done = rig.connect_with(conn, ADMIN, &data);
        assert!(done.status.is(Status::COMMAND_SEQUENCE_ERROR), "{}", done.status);
    }
    assert_eq!(rig.run(io, read(0, 1), 4096).status, Status::SUCCESS);
    assert_eq!(rig.status().controllers.len(), 1);
}

#[test]
fn c24_no_io_queue_and_no_io_before_enable() {
    let mut rig = Rig::new(config());
    let (admin, cntlid) = rig.admin_of(0, SUBSYSTEM, 0);
    let done = rig.run(admin, aer::keep_alive(), 0);
    assert!(done.status.is(Status::COMMAND_SEQUENCE_ERROR), "{}", done.status);
    let data = connect_data(cntlid, SUBSYSTEM).to_bytes();
    refused(&mut rig, io_queue(1, 127), &data, INVALID, Some((42, false)));
    rig.set_cc(admin, Cc::ENABLE);
    let io = rig.io_queue(0, cntlid, 1);
    assert_eq!(rig.run(io, read(0, 1), 4096).status, Status::SUCCESS);
    // Disabled again: the I/O queue is gone.
    rig.set_cc(admin, Cc::ENABLE.disabled());
    assert_eq!(rig.csts(admin) & 1, 0);
    assert!(rig.wires[&io].closed);
}

/// Byte 1 of Fabrics commands that move no data is zero (Base 4.1.2, 6.4 to 6.6); Linux says "SGL"
/// in all of them.
#[test]
fn fabrics_commands_may_leave_psdt_out() {
    let mut rig = Rig::new(config());
    let plain = |sqe: Sqe| {
        let mut bytes = *sqe.as_bytes();
        bytes[1] = 0;
        Sqe::from_bytes(&bytes)
    };
    let admin = rig.open(0);
    let data = connect_data(0xffff, SUBSYSTEM).to_bytes();
    let done = rig.run_out(admin, plain(ADMIN.sqe()), &data);
    assert_eq!(done.status, Status::SUCCESS);
    let enable = PropertySet { offset: 0x14, wide: false, value: Cc::ENABLE.0.into() };
    assert_eq!(rig.run(admin, plain(enable.sqe()), 0).status, Status::SUCCESS);
    let version = PropertyGet { offset: 8, wide: false };
    assert_eq!(rig.run(admin, plain(version.sqe()), 0).result, 0x1_0400);
    let io = rig.io_queue(0, (done.result & 0xffff) as u16, 1);
    assert_eq!(rig.run(io, plain(Disconnect::sqe()), 0).status, Status::SUCCESS);
}

#[test]
fn fabrics_types_that_are_not_for_a_queue_are_an_invalid_field() {
    let mut rig = Rig::new(config());
    let (admin, io) = rig.controller(0);
    let version = PropertyGet { offset: 8, wide: false }.sqe();
    for (conn, sqe) in [(io, version), (io, Sqe::fabrics(0x0c)), (admin, Sqe::fabrics(0x0c))] {
        let done = rig.run(conn, sqe, 0);
        assert_eq!(done.status, Status::INVALID_FIELD.with_dnr());
    }
}

#[test]
fn c34_bad_parameters_are_named() {
    let mut rig = Rig::new(config());
    let (_, cntlid) = {
        let (admin, cntlid) = rig.admin_of(0, SUBSYSTEM, 0);
        rig.set_cc(admin, Cc::ENABLE);
        (admin, cntlid)
    };
    let admin_data = connect_data(0xffff, SUBSYSTEM).to_bytes();
    let io_data = connect_data(cntlid, SUBSYSTEM).to_bytes();
    let unknown = connect_data(cntlid + 1, SUBSYSTEM).to_bytes();
    let fixed = connect_data(1, SUBSYSTEM).to_bytes();
    let discovery = connect_data(cntlid, Nqn::DISCOVERY).to_bytes();
    rig.io_queue(0, cntlid, 2);
    let cases: [(ConnectCommand, &[u8], (u16, bool)); 9] = [
        (ADMIN, &admin_data[..1020], (24, false)),
        (io_queue(0, 0), &admin_data, (44, false)),
        (io_queue(0, 2000), &admin_data, (44, false)),
        (ADMIN, &fixed, (16, true)),
        (io_queue(65, 127), &io_data, (42, false)),
        (io_queue(1, 0), &io_data, (44, false)),
        (io_queue(1, 1024), &io_data, (44, false)),
        (io_queue(1, 127), &unknown, (16, true)),
        (io_queue(1, 127), &discovery, (16, true)),
    ];
    for (command, data, parameter) in cases {
        refused(&mut rig, command, data, INVALID, Some(parameter));
    }
    // A queue that is there already is no bad parameter (Base, Connect): the sequence is wrong.
    refused(&mut rig, io_queue(2, 127), &io_data, Status::COMMAND_SEQUENCE_ERROR, None);
    let conn = rig.open(0);
    let bad_format = ADMIN.sqe().with_cdw(10, 1);
    let done = rig.run_out(conn, bad_format, &admin_data);
    assert!(done.status.is(Status::CONNECT_INCOMPATIBLE_FORMAT), "{}", done.status);
    assert_eq!(done.result, 40);
    // As many entries as CAP.MQES says are taken, and an admin queue may always have 128.
    for (most, sqsize) in [(1024, 1023), (16, 127)] {
        let mut config = common::config();
        config.limits.queue_depth = most;
        let mut rig = Rig::new(config);
        let conn = rig.open(0);
        refused(&mut rig, io_queue(0, sqsize + 1), &admin_data, INVALID, Some((44, false)));
        let done = rig.connect_with(conn, io_queue(0, sqsize), &admin_data);
        assert_eq!(done.status, Status::SUCCESS, "{sqsize}");
        rig.set_cc(conn, Cc::ENABLE);
        assert_eq!(rig.run(conn, NumberOfQueues::pairs(1).sqe(), 0).status, Status::SUCCESS);
        let data = connect_data((done.result & 0xffff) as u16, SUBSYSTEM).to_bytes();
        refused(&mut rig, io_queue(2, 15), &data, INVALID, Some((42, false)));
        let conn = rig.open(0);
        let done = rig.connect_with(conn, io_queue(1, most - 1), &data);
        assert_eq!(done.status, Status::SUCCESS, "the only queue that is granted");
    }
    // Another port is another association.
    let conn = rig.open(1);
    let done = rig.connect_with(conn, io_queue(1, 127), &io_data);
    assert!(done.status.is(INVALID));
}

/// A host that keeps to flow control (Base 3.3, "Submission Queue Flow Control") sends no more than
/// the head leaves room for: one that lags makes the queue shorter, and one of two entries useless.
#[test]
fn the_head_of_the_submission_queue_counts_connect_too() {
    let mut rig = Rig::new(config());
    let data = connect_data(0xffff, SUBSYSTEM).to_bytes();
    for sqsize in [1, 2, 31] {
        let conn = rig.open(0);
        // What is refused takes no entry: there is no queue yet.
        assert_eq!(rig.run(conn, aer::keep_alive(), 0).sqhd, 0);
        let command = ConnectCommand { disable_sq_flow: false, ..io_queue(0, sqsize) };
        let done = rig.connect_with(conn, command, &data);
        assert_eq!((done.status, done.sqhd), (Status::SUCCESS, 1), "{sqsize}");
        for taken in 2..100 {
            let done = rig.run(conn, PropertyGet { offset: 8, wide: false }.sqe(), 0);
            assert_eq!(done.sqhd, taken % (sqsize + 1), "{sqsize}");
        }
    }
    let conn = rig.open(0);
    assert_eq!(rig.connect_with(conn, ADMIN, &data).sqhd, 0xffff, "no flow control, no head");
}

#[test]
fn c35_bad_names_are_refused() {
    let mut rig = Rig::new(config());
    let good = connect_data(0xffff, SUBSYSTEM).to_bytes();
    let with = |at: usize, bytes: &[u8]| {
        let mut data = good;
        data[at..at + bytes.len()].copy_from_slice(bytes);
        data
    };
    let cases: Vec<([u8; 1024], (u16, bool))> = vec![
        (connect_data(0xffff, "nqn.2026-11.org.example:nobody").to_bytes(), (256, true)),
        (with(256, &[b'n'; 256]), (256, true)),
        (with(256, &[b'n'; 224]), (256, true)),
        (with(256, b"iqn."), (256, true)),
        (with(260, &[0]), (256, true)),
        (with(260, &[7]), (256, true)),
        (with(260, &[0xff]), (256, true)),
        (with(512, &[b'n'; 256]), (512, true)),
        (with(512, b"x"), (512, true)),
        (with(512, &[0; 256]), (512, true)),
        (with(520, &[0x1b]), (512, true)),
        (with(0, &[0; 16]), (0, true)),
    ];
    for (data, parameter) in cases {
        rig.events.clear();
        refused(&mut rig, ADMIN, &data, INVALID, Some(parameter));
        let what = match parameter.0 {
            0 => "host identifier",
            256 => "subsystem",
            _ => "host NQN",
        };
        let said = rig.events.iter().filter(|event| event.to_string().contains(what)).count();
        assert_eq!(said, 1, "{what}: {:?}", rig.events);
    }
    assert!(rig.status().controllers.is_empty());
    rig.assert_no_leak();
}

#[test]
fn c35_an_identifier_belongs_to_one_host() {
    let mut rig = Rig::new(config());
    let (admin, cntlid) = rig.admin_of(0, SUBSYSTEM, 0);
    rig.set_cc(admin, Cc::ENABLE);
    let other = ConnectData { hostnqn: nqn(OTHER_HOST), ..connect_data(0xffff, SUBSYSTEM) };
    refused(&mut rig, ADMIN, &other.to_bytes(), Status::CONNECT_INVALID_HOST, None);
    // An I/O queue for another host's controller.
    let other = ConnectData { cntlid, ..other };
    refused(&mut rig, io_queue(1, 15), &other.to_bytes(), INVALID, Some((512, true)));
    let other = ConnectData { hostid: Uuid([9; 16]), ..connect_data(cntlid, SUBSYSTEM) };
    refused(&mut rig, io_queue(1, 15), &other.to_bytes(), INVALID, Some((0, true)));
    // Whoever only looks for subsystems takes no identifier, and is asked for none.
    let id = Uuid([9; 16]);
    for (name, subsystem) in [(HOST, Nqn::DISCOVERY), (OTHER_HOST, SUBSYSTEM)] {
        let data =
            ConnectData { hostid: id, hostnqn: nqn(name), ..connect_data(0xffff, subsystem) };
        let conn = rig.open(0);
        assert_eq!(rig.connect_with(conn, ADMIN, &data.to_bytes()).status, Status::SUCCESS);
    }
    let data = ConnectData { hostid: id, ..connect_data(0xffff, Nqn::DISCOVERY) };
    let conn = rig.open(0);
    assert_eq!(rig.connect_with(conn, ADMIN, &data.to_bytes()).status, Status::SUCCESS);
    let up = |event: &&TargetEvent| matches!(event, TargetEvent::ControllerUp { port: 0, .. });
    assert_eq!(rig.events.iter().filter(up).count(), 4, "each is told");
}

/// It is told with the admin queue; on others zero is no claim (Base 6.3, "Host Identifier").
#[test]
fn an_io_queue_need_not_repeat_the_host_identifier() {
    let mut rig = Rig::new(config());
    let (admin, cntlid) = rig.admin_of(0, SUBSYSTEM, 0);
    rig.set_cc(admin, Cc::ENABLE);
    let untold = ConnectData { hostid: Uuid::default(), ..connect_data(cntlid, SUBSYSTEM) };
    let io = rig.open(0);
    let done = rig.connect_with(io, io_queue(1, 127), &untold.to_bytes());
    assert_eq!(done.status, Status::SUCCESS);
    let other = ConnectData { hostid: Uuid([8; 16]), ..untold };
    refused(&mut rig, io_queue(2, 127), &other.to_bytes(), INVALID, Some((0, true)));
}

#[test]
fn only_allowed_hosts_get_in() {
    let mut config = config();
    config.subsystems[0].allowed_hosts = vec![nqn(OTHER_HOST)];
    let mut rig = Rig::new(config);
    let data = connect_data(0xffff, SUBSYSTEM).to_bytes();
    refused(&mut rig, ADMIN, &data, Status::CONNECT_INVALID_HOST, None);
    rig.ok(TargetVerb::AllowHost { subsystem: nqn(SUBSYSTEM), host: nqn(HOST) });
    let (admin, _) = rig.controller(0);
    rig.ok(TargetVerb::AllowHost { subsystem: nqn(SUBSYSTEM), host: nqn(OTHER_HOST) });
    let other = rig.open(0);
    let hostid = Uuid([9; 16]);
    let theirs = connect_data(0xffff, SUBSYSTEM);
    let theirs = ConnectData { hostid, hostnqn: nqn(OTHER_HOST), ..theirs }.to_bytes();
    assert_eq!(rig.connect_with(other, ADMIN, &theirs).status, Status::SUCCESS);
    // Denied while connected: the association ends.
    rig.ok(TargetVerb::DenyHost { subsystem: nqn(SUBSYSTEM), host: nqn(HOST) });
    assert!(rig.wires[&admin].closed && !rig.wires[&other].closed);
    rig.ok(TargetVerb::DenyHost { subsystem: nqn(SUBSYSTEM), host: nqn(OTHER_HOST) });
    refused(&mut rig, ADMIN, &data, Status::CONNECT_INVALID_HOST, None);
}

#[test]
fn denying_where_all_are_allowed_needs_a_list() {
    let mut rig = Rig::new(config());
    let reply = rig.verb(TargetVerb::DenyHost { subsystem: nqn(SUBSYSTEM), host: nqn(HOST) });
    assert!(matches!(reply, Err(TargetError::OutOfBounds(_))), "{reply:?}");
}

#[test]
fn c36_keep_alive_time_outs_are_rounded() {
    let mut rig = Rig::new(config());
    for (asked, granted) in
        [(0, 0), (1, 100), (100, 100), (101, 200), (5_000, 5_000), (u32::MAX, 4_294_967_200)]
    {
        rig.admin_of(0, SUBSYSTEM, asked);
        let controllers = rig.status().controllers;
        assert_eq!(controllers.last().unwrap().keep_alive_ms, granted, "{asked}");
    }
}

#[test]
fn controller_identifiers_are_not_reused_while_alive() {
    let mut rig = Rig::new(config());
    let (first, one) = rig.admin_of(0, SUBSYSTEM, 0);
    let (_, two) = rig.admin_of(1, SUBSYSTEM, 0);
    rig.hang_up(first);
    let (_, three) = rig.admin_of(0, SUBSYSTEM, 0);
    assert_eq!((one, two, three), (1, 2, 3));
}

#[test]
fn controllers_are_numbered_from_where_the_configuration_says() {
    let numbers_from = |first| {
        let mut rig = Rig::new(TargetConfig { first_cntlid: first, ..config() });
        rig.controller(0);
        rig.controller(1);
        rig.status().controllers.iter().map(|controller| controller.cntlid).collect::<Vec<_>>()
    };
    assert_eq!(numbers_from(None), [1, 2]);
    assert_eq!(numbers_from(Some(700)), [700, 701]);
    assert_eq!(numbers_from(Some(MAX_CNTLID)), [1, MAX_CNTLID]);
    for wrong in [0, MAX_CNTLID + 1, u16::MAX] {
        let error = TargetConfig { first_cntlid: Some(wrong), ..config() }.check().unwrap_err();
        assert_eq!(error.field, "first_cntlid");
    }
}

#[test]
fn a_silent_connection_is_dropped() {
    let mut rig = Rig::new(config());
    let silent = rig.dial(0).unwrap();
    let busy = rig.open(0);
    rig.advance(ms(9_990));
    assert!(!rig.wires[&silent].closed && !rig.wires[&busy].closed);
    rig.advance(ms(20));
    assert!(rig.wires[&silent].closed && rig.wires[&busy].closed);
    assert_eq!(rig.status().ports[0].connections, 0);
    let late = |event: &&TargetEvent| event.to_string().contains("it took too long");
    assert_eq!(rig.events.iter().filter(late).count(), 2);
    // Each has its own ten seconds.
    let first = rig.dial(0).unwrap();
    rig.advance(ms(5_000));
    let second = rig.dial(0).unwrap();
    rig.advance(ms(5_010));
    assert!(rig.wires[&first].closed && !rig.wires[&second].closed);
}

#[test]
fn silent_connections_make_room() {
    let mut config = config();
    config.limits.connections = 4;
    let mut rig = Rig::new(config);
    let (admin, io) = rig.controller(0);
    let silent: Vec<_> = (0..4).map(|_| rig.dial(0).unwrap()).collect();
    assert!(rig.wires[&silent[0]].closed, "the oldest one went");
    assert!(!rig.wires[&admin].closed && !rig.wires[&io].closed);
    assert_eq!(rig.run(io, read(0, 1), 4096).status, Status::SUCCESS);
    assert!(rig.status().ports[0].connections <= 4);
}

/// Queues stay: where all connections are queues, one more is the one that goes.
#[test]
fn beyond_the_limit_nobody_is_let_in_and_nobody_who_works_is_sent_away() {
    let mut config = config();
    config.limits.connections = 2;
    let mut rig = Rig::new(config);
    let (admin, io) = rig.controller(0);
    for _ in 0..3 {
        let one_more = rig.dial(0).unwrap();
        assert_eq!([admin, io, one_more].map(|conn| rig.wires[&conn].closed), [false, false, true]);
    }
    assert_eq!(rig.status().ports[0].connections, 2);
    rig.hang_up(io);
    let room = rig.dial(0).unwrap();
    assert!(!rig.wires[&room].closed);
}

/// So many of a hundred new connections are open in the end.
fn flood(rig: &mut Rig) -> usize {
    let new: Vec<_> = (0..100).map(|_| rig.dial(0).unwrap()).collect();
    new.iter().filter(|new| !rig.wires[new].closed).count()
}

/// Queues may stay for ever: an address that takes all it gets leaves some to hosts elsewhere.
#[test]
fn queues_without_number_from_one_address_leave_connections_to_other_addresses() {
    let at = |host: &str| Some(format!("192.0.2.{host}:1000").parse().unwrap());
    let mut config = config();
    config.limits.connections = 64;
    let mut rig = Rig::new(config);
    rig.peer = at("1");
    let first = rig.admin_of(0, SUBSYSTEM, 0).0;
    for _ in 0..59 {
        rig.admin_of(0, SUBSYSTEM, 0);
    }
    let silent = rig.dial(0).unwrap();
    assert!(!rig.wires[&silent].closed, "15 of 16 for anybody");
    assert!(flood(&mut rig) <= 1);
    assert!(rig.wires[&silent].closed, "its own silent ones make room");
    for host in ["2", "3"] {
        rig.peer = at(host);
        let (admin, io) = rig.controller(0);
        rig.peer = at("1");
        assert!(flood(&mut rig) <= 1);
        assert!(!rig.wires[&admin].closed);
        assert_eq!(rig.run(io, read(0, 1), 4096).status, Status::SUCCESS);
        rig.hang_up(io);
        rig.hang_up(admin);
    }
    // Whoever gives some back may have as many again.
    rig.hang_up(first);
    rig.admin_of(0, SUBSYSTEM, 0);
}

#[test]
fn whoever_takes_too_many_connections_loses_silent_ones_of_its_own() {
    let at = |host: &str| Some(format!("192.0.2.{host}:1000").parse().unwrap());
    let mut config = config();
    config.limits.connections = 64;
    let mut rig = Rig::new(config);
    rig.peer = at("2");
    let other = rig.dial(0).unwrap();
    rig.peer = at("1");
    let silent = rig.dial(0).unwrap();
    for _ in 0..59 {
        rig.admin_of(0, SUBSYSTEM, 0);
    }
    let one_more = rig.dial(0).unwrap();
    assert_eq!([silent, one_more, other].map(|conn| rig.wires[&conn].closed), [true, true, false]);
}

#[test]
fn disconnect_ends_one_queue() {
    let mut rig = Rig::new(config());
    let (admin, io) = rig.controller(0);
    let done = rig.run(admin, anabranch_proto::nvme::fabrics::Disconnect::sqe(), 0);
    assert!(done.status.is(Status::DISCONNECT_INVALID_QUEUE_TYPE), "{}", done.status);
    assert_eq!(rig.run(io, read(0, 1), 4096).status, Status::SUCCESS);
    let done = rig.run(io, anabranch_proto::nvme::fabrics::Disconnect::sqe(), 0);
    assert_eq!(done.status, Status::SUCCESS);
    assert_eq!(rig.status().controllers[0].ios, 1, "what reads or writes is I/O");
    // A host that does not hang up is helped.
    rig.advance(ms(6_000));
    assert!(rig.wires[&io].closed && !rig.wires[&admin].closed);
    assert_eq!(rig.status().controllers[0].io_queues, 0);
    let refused = |event: &TargetEvent| matches!(event, TargetEvent::ConnectRefused { .. });
    assert!(!rig.events.iter().any(refused), "no Connect was refused");
}

/// What a Disconnect has deleted is gone when it is answered, whenever its connection ends.
#[test]
fn a_queue_that_was_disconnected_can_be_connected_again_at_once() {
    let mut rig = Rig::new(config());
    let (admin, former) = rig.controller(0);
    let cntlid = rig.status().controllers[0].cntlid;
    let disconnect = anabranch_proto::nvme::fabrics::Disconnect::sqe;
    assert_eq!(rig.run(former, disconnect(), 0).status, Status::SUCCESS);
    assert_eq!(rig.status().controllers[0].io_queues, 0);
    let again = rig.io_queue(0, cntlid, 1);
    assert_eq!(rig.run(again, read(0, 1), 4096).status, Status::SUCCESS);
    for sqe in [read(0, 1), disconnect()] {
        assert_eq!(rig.run(former, sqe, 4096).status, Status::ABORTED_SQ_DELETION);
    }
    rig.hang_up(former);
    assert_eq!(rig.status().controllers[0].io_queues, 1, "the former one's end is not this one's");
    rig.hang_up(admin);
    assert!(rig.wires[&again].closed);
    rig.assert_no_leak();
}

#[test]
fn the_answer_to_disconnect_is_the_last_and_nothing_is_done_after_it() {
    let disconnect = anabranch_proto::nvme::fabrics::Disconnect::sqe;
    let mut config = config();
    config.subsystems[0].namespaces.push(file_namespace(2, MIB));
    let mut rig = Rig::new(config);
    let (_, io) = rig.controller(0);
    let (_, other) = rig.controller(1);
    rig.answer_r2t = false;
    let to_file = anabranch_proto::nvme::io::write(2, 0, 1, false);
    let begun = rig.start_out(io, to_file, &[1; 4096]);
    let sending = rig.start_out(io, write(0, 16), &vec![1; 64 << 10]);
    let last = rig.start(io, disconnect(), 0);
    // Whatever was on its way with it is not begun any more.
    let late = rig.run_out(io, write(0, 1), &[1; 4096]);
    assert_eq!(late.status, Status::ABORTED_SQ_DELETION);
    assert_eq!(rig.run(io, disconnect(), 0).status, Status::ABORTED_SQ_DELETION);
    rig.send_asked(io);
    rig.status();
    assert_eq!(rig.poll(io, sending).unwrap().status, Status::ABORTED_SQ_DELETION);
    assert!(rig.poll(io, last).is_none(), "a write is still on its way to the file");
    rig.finish_disk(Ok(4096));
    assert_eq!(rig.poll(io, begun).unwrap().status, Status::SUCCESS);
    assert_eq!(rig.poll(io, last).unwrap().status, Status::SUCCESS);
    assert_eq!(rig.run(other, read(0, 16), 64 << 10).data, vec![0; 64 << 10]);
    rig.hang_up(io);
    rig.assert_no_leak();
}
