//! Events in an order that is seldom: what is asked for takes its time, and something else comes
//! first.

use crate::common::*;
use anabranch_proto::machine::{Buffers, CloseHow, Input, Machine, SystemError};
use anabranch_proto::nvme::Status;
use anabranch_proto::nvme::property::Cc;
use anabranch_proto::pdu::{CapsuleCmd, Format};
use anabranch_proto::testing::MemoryBuffers;
use anabranch_target::{PortFault, TargetEvent, TargetVerb};

/// A target whose namespace is a file.
fn with_file() -> Rig {
    let mut config = config();
    config.subsystems[0].namespaces = vec![file_namespace(1, 2 * MIB)];
    Rig::new(config)
}

#[test]
fn a_write_that_waited_is_not_begun_after_a_reset() {
    let mut rig = with_file();
    let (admin, queue) = rig.controller(0);
    for _ in 0..2 {
        rig.start_out(queue, write(0, 1), &[1; 4096]);
    }
    rig.slow_closing = true;
    rig.set_cc(admin, Cc(0));
    rig.set_cc(admin, Cc::ENABLE);
    rig.finish_disk(Ok(4096));
    assert!(rig.disk.is_empty(), "its host may have written something else there by now");
    rig.end_closing();
    rig.assert_no_leak();
}

#[test]
fn a_connection_that_ends_takes_along_what_is_in_its_link() {
    let mut rig = with_file();
    let (_, queue) = rig.controller(0);
    rig.start(queue, read(0, 16), 64 << 10);
    rig.ok(TargetVerb::Shape { port: 0, shape: "rate_out=1mbit,delay=5ms".parse().unwrap() });
    rig.finish_disk(Ok(64 << 10));
    rig.start_out(queue, write(0, 1), &[1; 4096]);
    rig.advance(ms(1));
    rig.hang_up(queue);
    rig.assert_no_leak();
    rig.advance(ms(10_000));
    assert!(rig.disk.is_empty());
}

#[test]
fn an_answer_that_a_stall_has_caught_at_the_socket_is_sent_when_it_ends() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    let sqe = anabranch_proto::nvme::io::flush(1).with_cid(99);
    let capsule = CapsuleCmd { sqe, in_capsule_bytes: 0 }.emit(Format::default());
    // The driver has been told that there is something to send, and has not asked for it.
    let input = Input::Received { conn: queue, bytes: capsule.as_bytes() };
    rig.target.handle(rig.now, input, &mut rig.bufs);
    rig.ok(TargetVerb::Stall { port: 0 });
    assert!(rig.poll(queue, 99).is_none());
    rig.ok(TargetVerb::Restore { port: 0 });
    assert_eq!(rig.poll(queue, 99).unwrap().status, Status::SUCCESS);
}

#[test]
fn who_waits_for_memory_when_the_port_stalls_goes_on_when_the_stall_ends() {
    let mut rig = Rig::with_buffers(config(), MemoryBuffers::with_limit(MIB));
    let (_, queue) = rig.controller(0);
    // Once without a stall: who has waited may wait again.
    let hostage: Vec<_> = std::iter::from_fn(|| rig.bufs.alloc(64 << 10)).collect();
    let waits = rig.start(queue, read(0, 16), 64 << 10);
    hostage.into_iter().for_each(|buf| rig.bufs.free(buf));
    rig.advance(ms(10));
    assert_eq!(rig.poll(queue, waits).unwrap().status, Status::SUCCESS);

    let hostage: Vec<_> = std::iter::from_fn(|| rig.bufs.alloc(64 << 10)).collect();
    let waits = [(); 2].map(|()| rig.start(queue, read(0, 16), 64 << 10));
    rig.advance(ms(10));
    assert_eq!(rig.status().waiting_for_buffer, 2);
    rig.ok(TargetVerb::Stall { port: 0 });
    rig.advance(ms(10));
    hostage.into_iter().for_each(|buf| rig.bufs.free(buf));
    rig.advance(ms(10));
    assert!(waits.iter().all(|&cid| rig.poll(queue, cid).is_none()));
    rig.ok(TargetVerb::Restore { port: 0 });
    for cid in waits {
        assert_eq!(rig.poll(queue, cid).unwrap().status, Status::SUCCESS);
    }
    rig.assert_no_leak();
}

#[test]
fn a_peer_that_broke_the_protocol_and_stays_is_reset_and_its_controller_is_gone_before() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    rig.slow_closing = true;
    rig.send(admin, &[0x55; 64]);
    assert!(rig.wires[&queue].closed && rig.status().controllers.is_empty());
    assert_eq!(rig.closes[0], (admin, CloseHow::Graceful));
    rig.advance(ms(4_990));
    assert!(!rig.closes.contains(&(admin, CloseHow::Abort)), "time to read why");
    rig.advance(ms(20));
    assert_eq!(rig.closes.last(), Some(&(admin, CloseHow::Abort)));
    rig.end_closing();
    rig.assert_no_leak();
}

#[test]
fn a_listener_that_comes_up_after_a_cut_is_ended_and_one_that_ends_after_restore_begins_again() {
    let mut rig = Rig::new(config());
    let at = rig.status().ports[0].at.clone();
    rig.ok(TargetVerb::Cut { port: 0 });
    rig.slow_listeners = true;
    rig.listeners.clear();
    rig.ok(TargetVerb::Restore { port: 0 });
    let (listener, _) = rig.listeners.pop_first().expect("it begins to listen");
    rig.ok(TargetVerb::Cut { port: 0 });
    rig.events.clear();
    rig.input(Input::Listening { listener, at: at.clone() });
    assert_eq!(rig.ending, [listener]);
    let port = &rig.status().ports[0];
    assert_eq!((port.fault, port.listening), (PortFault::Cut, false));
    let up = |event: &TargetEvent| matches!(event, TargetEvent::PortUp { .. });
    assert!(!rig.events.iter().any(up));
    rig.ok(TargetVerb::Restore { port: 0 });
    assert!(rig.listeners.is_empty(), "the former has not ended yet");
    rig.input(Input::Unlistened { listener, error: None });
    let (listener, _) = rig.listeners.pop_first().expect("it begins to listen");
    // The address is taken meanwhile.
    let error = SystemError(98);
    rig.input(Input::Unlistened { listener, error: Some(error) });
    let port = &rig.status().ports[0];
    assert_eq!((port.listening, port.error), (false, Some(error)));
    let failed = TargetEvent::PortFailed { port: 0, at, error };
    assert_eq!(rig.events, [failed]);
    rig.ok(TargetVerb::Restore { port: 0 });
    assert_eq!(rig.listeners.len(), 1, "tried again");
}

#[test]
fn controllers_are_listed_by_their_identifier_whoever_has_left() {
    let mut rig = Rig::new(config());
    let (first, _) = rig.controller(0);
    rig.controller(0);
    rig.hang_up(first);
    rig.controller(0);
    let listed: Vec<u16> = rig.status().controllers.iter().map(|c| c.cntlid).collect();
    assert_eq!(listed, [2, 3]);
}
