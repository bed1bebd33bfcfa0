//! Cut, stall and restore.

use crate::common::*;
use anabranch_proto::nvme::{Status, aer};
use anabranch_target::{PortFault, TargetEvent, TargetVerb};

#[test]
fn a_cut_resets_refuses_and_drops() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    let (_, other) = rig.controller(1);
    rig.ok(TargetVerb::Shape { port: 0, shape: "delay=50ms".parse().unwrap() });
    rig.start_out(queue, write(0, 1), &[1; 4096]);
    rig.start_out(queue, write(1, 16), &vec![1; 64 << 10]);
    rig.start(queue, read(0, 1), 4096);
    rig.ok(TargetVerb::Cut { port: 0 });
    assert!(rig.wires[&admin].closed && rig.wires[&queue].closed);
    let told = |event: &TargetEvent| event.to_string().contains("its port was cut");
    assert!(rig.events.iter().any(told), "{:?}", rig.events);
    assert!(rig.dial(0).is_none(), "nobody listens");
    rig.advance(ms(1000));
    assert_eq!(rig.run(other, read(0, 32), 32 * 4096).data, vec![0; 32 * 4096], "dropped");
    let status = rig.status();
    assert_eq!((status.ports[0].fault, status.ports[0].listening), (PortFault::Cut, false));
    assert_eq!((status.ports[0].connections, status.controllers.len()), (0, 1));
    let at = status.ports[0].at.clone();
    rig.ok(TargetVerb::Restore { port: 0 });
    assert_eq!(rig.status().ports[0].at, at, "the same address again");
    let (_, queue) = rig.controller_after_delay(0);
    let cid = rig.start(queue, read(0, 1), 4096);
    rig.advance(ms(51));
    assert_eq!(rig.poll(queue, cid).unwrap().status, Status::SUCCESS);
    rig.assert_no_leak();
}

#[test]
fn cut_and_restore_can_be_said_twice() {
    let mut rig = Rig::new(config());
    for _ in 0..2 {
        rig.ok(TargetVerb::Cut { port: 1 });
    }
    for _ in 0..2 {
        rig.ok(TargetVerb::Restore { port: 1 });
    }
    rig.controller(1);
    let cuts = |e: &&TargetEvent| matches!(e, TargetEvent::PortCut { port: 1 });
    assert_eq!(rig.events.iter().filter(cuts).count(), 1);
}

#[test]
fn a_stall_is_silence_and_nothing_is_lost() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    let (_, other) = rig.controller(1);
    rig.answer_r2t = false;
    let asked = rig.start_out(queue, write(9, 16), &vec![9; 64 << 10]);
    rig.ok(TargetVerb::Stall { port: 0 });
    assert!(rig.wires[&queue].paused && rig.wires[&admin].paused);
    // What was on its way may still arrive.
    rig.send_asked(queue);
    rig.answer_r2t = true;
    let written = rig.start_out(queue, write(0, 1), &[1; 4096]);
    let seen = rig.start(queue, read(0, 1), 4096);
    let alive = rig.start(admin, aer::keep_alive(), 0);
    rig.advance(ms(10_000));
    let wires = [(queue, asked), (queue, written), (queue, seen), (admin, alive)];
    for (conn, cid) in wires {
        assert!(rig.poll(conn, cid).is_none() && !rig.wires[&conn].closed);
    }
    assert_eq!(rig.run(other, read(0, 32), 32 * 4096).data, vec![0; 32 * 4096], "not executed");
    // A new connection gets no answer either.
    let new = rig.dial(0).expect("the listener is there");
    assert!(rig.wires[&new].paused);
    rig.ok(TargetVerb::Restore { port: 0 });
    assert!(!rig.wires[&queue].paused && !rig.wires[&new].paused);
    for (conn, cid) in wires {
        assert_eq!(rig.poll(conn, cid).unwrap().status, Status::SUCCESS);
    }
    assert_eq!(rig.run(other, read(9, 16), 64 << 10).data, vec![9; 64 << 10]);
    rig.assert_no_leak();
}

#[test]
fn a_stall_with_a_shape_holds_what_is_in_the_link() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    rig.ok(TargetVerb::Shape { port: 0, shape: "delay=10ms,rate=800mbit".parse().unwrap() });
    let cids: Vec<u16> = (0..10).map(|_| rig.start(queue, read(0, 1), 4096)).collect();
    rig.ok(TargetVerb::Stall { port: 0 });
    rig.advance(ms(1000));
    assert!(rig.wires[&queue].done.is_empty());
    rig.ok(TargetVerb::Restore { port: 0 });
    rig.advance(ms(20));
    assert!(cids.iter().all(|cid| rig.poll(queue, *cid).is_some()));
    rig.assert_no_leak();
}

#[test]
fn a_stalled_port_can_be_cut() {
    // Its host falls silent meanwhile, or not.
    for stretch in [ms(0), ms(2000)] {
        let mut rig = Rig::new(config());
        let (admin, queue) = rig.controller_with(0, 500);
        let (_, other) = rig.controller(1);
        rig.ok(TargetVerb::Stall { port: 0 });
        let new = rig.dial(0).expect("the listener is there");
        rig.start_out(queue, write(0, 1), &[1; 4096]);
        rig.advance(stretch);
        assert!(!rig.wires[&admin].closed, "nothing is sent");
        rig.ok(TargetVerb::Cut { port: 0 });
        assert!([admin, queue, new].iter().all(|conn| rig.wires[conn].closed));
        assert_eq!(rig.status().ports[0].connections, 0);
        rig.ok(TargetVerb::Restore { port: 0 });
        assert_eq!(rig.run(other, read(0, 1), 4096).data, vec![0; 4096]);
        rig.controller(0);
        rig.assert_no_leak();
    }
}

/// Peers come, hear nothing, and come again. What has ended behind a stall is kept from them only
/// while there is room: other ports go on.
#[test]
fn connections_that_a_stall_keeps_leave_room_to_other_ports() {
    let mut config = config();
    config.limits.connections = 8;
    let mut rig = Rig::new(config);
    let (admin, queue) = rig.controller(1);
    rig.ok(TargetVerb::Stall { port: 0 });
    let early: Vec<_> = (0..4).map(|_| rig.dial(0).expect("the listener is there")).collect();
    rig.advance(ms(11_000));
    assert!(early.iter().all(|conn| !rig.wires[conn].closed), "nothing is sent");
    for _ in 0..100 {
        rig.dial(0);
        let open: u32 = rig.status().ports.iter().map(|port| port.connections).sum();
        assert!(open <= 8, "{open}");
    }
    assert!(early.iter().all(|conn| rig.wires[conn].closed), "there was no room");
    assert_eq!([admin, queue].map(|conn| rig.wires[&conn].closed), [false; 2]);
    rig.advance(ms(11_000));
    rig.controller(1);
    rig.ok(TargetVerb::Restore { port: 0 });
    assert_eq!(rig.status().ports[0].connections, 0);
    rig.assert_no_leak();
}

#[test]
fn a_cut_port_cannot_be_stalled_and_the_error_calls_it_by_no_number_of_ours() {
    let mut rig = Rig::new(config());
    rig.ok(TargetVerb::Cut { port: 0 });
    let refused = rig.verb(TargetVerb::Stall { port: 0 }).expect_err("it is cut");
    // Who asks counts ports from 1: a number from 0 would name another port.
    assert_eq!(refused.to_string(), "the port is cut: restore it before a stall");
    rig.ok(TargetVerb::Restore { port: 0 });
    rig.ok(TargetVerb::Stall { port: 0 });
}

#[test]
fn who_comes_as_a_port_is_cut_is_reset_whatever_has_become_of_the_other_ports() {
    let mut rig = Rig::new(config());
    let at = rig.status().ports[1].at.clone();
    let listener = *rig.listeners.iter().find(|(_, l)| **l == at).unwrap().0;
    rig.ok(TargetVerb::Stall { port: 0 });
    // The driver has not ended the listener yet when it accepts one more.
    rig.slow_listeners = true;
    rig.ok(TargetVerb::Cut { port: 1 });
    let conn = rig.accept(listener);
    assert!(rig.wires[&conn].closed);
    assert_eq!(rig.status().ports[0].connections, 0);
}

#[test]
fn a_peer_that_breaks_the_protocol_harms_only_itself() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    let (_, other) = rig.controller(0);
    let junk = rig.dial(0).unwrap();
    rig.send(junk, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(rig.wires[&junk].closed && rig.wires[&junk].term.is_some());
    rig.send(queue, &[0x55; 64]);
    assert!(rig.wires[&queue].closed && rig.wires[&queue].term.is_some());
    assert!(!rig.wires[&admin].closed, "one queue, not the controller");
    assert_eq!(rig.run(other, read(0, 1), 4096).status, Status::SUCCESS);
    let faults = |e: &&TargetEvent| matches!(e, TargetEvent::ProtocolFault { port: 0, .. });
    assert_eq!(rig.events.iter().filter(faults).count(), 2);
    rig.assert_no_leak();
}

#[test]
fn losing_the_admin_queue_ends_the_controller() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    rig.hang_up(admin);
    assert!(rig.wires[&queue].closed);
    assert!(rig.status().controllers.is_empty());
}

#[test]
fn losing_an_io_queue_does_not() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    let cntlid = rig.status().controllers[0].cntlid;
    let second = rig.io_queue(0, cntlid, 2);
    rig.hang_up(queue);
    assert_eq!(rig.run(admin, aer::keep_alive(), 0).status, Status::SUCCESS);
    assert_eq!(rig.status().controllers[0].io_queues, 1);
    let again = rig.io_queue(0, cntlid, 1);
    assert_eq!(rig.run(second, read(0, 1), 4096).status, Status::SUCCESS);
    rig.hang_up(admin);
    assert!(rig.wires[&second].closed && rig.wires[&again].closed);
}
