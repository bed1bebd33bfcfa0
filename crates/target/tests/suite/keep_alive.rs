//! Keep-alive: C37, and fault F40: nothing of an association that expired takes effect.

use crate::common::*;
use anabranch_proto::machine::Buffers;
use anabranch_proto::nvme::{Status, aer, feature};
use anabranch_target::{TargetEvent, TargetVerb};

#[test]
fn a_silent_host_loses_its_association() {
    let mut rig = Rig::new(config());
    let (admin, io) = rig.controller_with(0, 1_000);
    let (other_admin, other_io) = rig.controller(1);
    for _ in 0..5 {
        rig.advance(ms(900));
        assert_eq!(rig.run(admin, aer::keep_alive(), 0).status, Status::SUCCESS);
    }
    rig.advance(ms(990));
    assert!(!rig.wires[&admin].closed);
    rig.advance(ms(20));
    assert!(rig.wires[&admin].closed && rig.wires[&io].closed);
    assert!(!rig.wires[&other_admin].closed && !rig.wires[&other_io].closed);
    assert_eq!(rig.status().controllers.len(), 1);
    let gone = |event: &TargetEvent| match event {
        TargetEvent::ControllerDown { cntlid: 1, reason } => reason.contains("keep-alive"),
        _ => false,
    };
    assert!(rig.events.iter().any(gone));
}

#[test]
fn io_alone_keeps_the_association() {
    let mut rig = Rig::new(config());
    let (admin, io) = rig.controller_with(0, 500);
    for _ in 0..10 {
        rig.advance(ms(400));
        assert_eq!(rig.run(io, read(0, 1), 4096).status, Status::SUCCESS);
    }
    assert!(!rig.wires[&admin].closed);
}

/// Traffic is looked at when the timer runs out, as the specification says (Base 3.9, "Traffic
/// Based Keep Alive"). A host that looks every half time-out, and leaves the command out when it
/// has seen an answer since, may be silent for all of one: its next command is on its way then.
#[test]
fn who_sent_something_before_the_timer_runs_out_has_all_of_the_time_again() {
    let mut rig = Rig::new(config());
    let (admin, io) = rig.controller_with(0, 1_000);
    rig.advance(ms(10));
    rig.run(io, read(0, 1), 4096);
    rig.advance(ms(1_020));
    assert!(!rig.wires[&admin].closed, "silent for longer than the time-out");
    assert_eq!(rig.run(admin, aer::keep_alive(), 0).status, Status::SUCCESS);
    // That command starts the timer anew, wherever it stands.
    rig.advance(ms(990));
    assert!(!rig.wires[&admin].closed);
    rig.advance(ms(20));
    assert!(rig.wires[&admin].closed);
}

#[test]
fn nobody_is_silent_for_two_time_outs() {
    let mut rig = Rig::new(config());
    let (admin, io) = rig.controller_with(0, 1_000);
    for _ in 0..3 {
        rig.advance(ms(400));
        rig.run(io, read(0, 1), 4096);
    }
    rig.advance(ms(1_990));
    assert!(rig.wires[&admin].closed && rig.wires[&io].closed);
}

#[test]
fn keep_alive_is_for_admin_queues() {
    let mut rig = Rig::new(config());
    let (_, io) = rig.controller(0);
    let done = rig.run(io, aer::keep_alive(), 0);
    assert!(done.status.is(Status::INVALID_OPCODE), "{}", done.status);
}

#[test]
fn the_time_out_can_be_changed() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    rig.advance(ms(3_600_000));
    assert!(!rig.wires[&admin].closed, "0 is off");
    let done = rig.run(admin, feature::KeepAliveTimer { kato_ms: 250 }.sqe(), 0);
    assert_eq!(done.status, Status::SUCCESS);
    assert_eq!(rig.run(admin, feature::get(feature::fid::KEEP_ALIVE_TIMER), 0).result, 300);
    rig.advance(ms(310));
    assert!(rig.wires[&admin].closed);
}

/// Writes that wait in the link, for their data, for a buffer, or behind a stall when the timer
/// runs out: none is executed.
#[test]
fn no_write_takes_effect_after_expiry() {
    let mut rig = Rig::new(config());
    let (_, slow) = rig.controller_with(0, 1_000);
    let (_, check) = rig.controller(1);
    rig.ok(TargetVerb::Shape { port: 0, shape: "delay=3s".parse().unwrap() });
    rig.start_out(slow, write(0, 1), &[1; 4096]);
    rig.advance(ms(5_000));
    assert!(rig.wires[&slow].closed);

    rig.ok(TargetVerb::Shape { port: 0, shape: Default::default() });
    let (_, half) = rig.controller_with(0, 1_000);
    rig.answer_r2t = false;
    rig.start_out(half, write(1, 8), &vec![1; 32 << 10]);
    assert_eq!(rig.wires[&half].r2t.len(), 1);
    rig.advance(ms(2_000));
    assert!(rig.wires[&half].closed);
    rig.send_asked(half);
    rig.answer_r2t = true;

    let (_, stalled) = rig.controller_with(0, 1_000);
    rig.ok(TargetVerb::Stall { port: 0 });
    rig.start_out(stalled, write(2, 1), &[1; 4096]);
    rig.advance(ms(5_000));
    assert!(!rig.wires[&stalled].closed, "silence, not a reset");
    rig.ok(TargetVerb::Restore { port: 0 });
    assert!(rig.wires[&stalled].closed);

    let (_, poor) = rig.controller_with(0, 1_000);
    let mut hostages = vec![];
    let mut small = anabranch_proto::testing::MemoryBuffers::with_limit(0);
    std::mem::swap(&mut small, &mut rig.bufs);
    rig.start_out(poor, write(3, 8), &vec![1; 32 << 10]);
    rig.advance(ms(5_000));
    std::mem::swap(&mut small, &mut rig.bufs);
    hostages.extend(rig.bufs.alloc(16));
    rig.advance(ms(5_000));
    assert!(rig.wires[&poor].closed);

    assert_eq!(rig.run(check, read(0, 16), 64 << 10).data, vec![0; 64 << 10]);
    for hostage in hostages {
        rig.bufs.free(hostage);
    }
    rig.assert_no_leak();
}
