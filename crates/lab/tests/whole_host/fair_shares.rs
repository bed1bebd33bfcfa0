//! Devices of one worker share its tables: one that waits for a path leaves room for the others.

use crate::rig::{MS, Rig, SECOND, Setup, writes};
use crate::script::Op;
use crate::setup;
use crate::wire::Pdu;
use anabranch_proto::nvme::AnaState;
use anabranch_target::TargetVerb;
use anabranch_target::config::NamespaceConfig;

/// Two paths; the first `stuck` devices lose both, the last one keeps them.
fn with_stuck_devices(stuck: u32, max_requests: u32) -> (Rig, String) {
    let mut setup = Setup::new(2, 1);
    setup.target.limits.max_transfer_bytes = 16 << 10;
    setup.host.max_requests = max_requests;
    setup.namespaces().extend((2..=stuck + 1).map(|nsid| setup::namespace(nsid, 512)));
    setup.namespaces()[stuck as usize].ana_group = 2;
    let mut rig = setup.connect();
    for port in 0..2 {
        rig.ana(port, AnaState::Inaccessible);
    }
    (rig, format!("nvme0n{}", stuck + 1))
}

/// The most commands of the last device that were with the target at once.
fn depth_reached(rig: &Rig, nsid: u32) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for pdu in rig.seen(|pdu: &Pdu| {
        (pdu.is_io() || pdu.answers(1)) && pdu.sqe.is_some_and(|sqe| sqe.nsid() == nsid)
    }) {
        now = if pdu.to_target { now + 1 } else { now - 1 };
        most = most.max(now);
    }
    most
}

fn free_the_stuck(mut rig: Rig, stuck: &[u64]) {
    assert_eq!(rig.answered(stuck), 0, "what waits for a path goes on waiting");
    for port in 0..2 {
        rig.ana(port, AnaState::Optimized);
    }
    rig.succeed(stuck);
    rig.finish();
}

#[test]
fn devices_without_a_path_leave_requests_to_the_others() {
    // Four places are each device's own. Of the 120 that all share, the first keeps half, the next
    // one half of what was left, and so on.
    for (stuck, depth) in [(1, 34), (3, 12), (12, 4)] {
        let (mut rig, other) = with_stuck_devices(stuck, 64);
        let names: Vec<u64> = (1..=stuck)
            .flat_map(|nsid| rig.submit_to(1, &format!("nvme0n{nsid}"), writes(1000, 1)))
            .collect();
        rig.run(10 * MS);
        let begin = rig.now();
        let going = rig.submit_to(1, &other, writes(1000, 2));
        rig.succeed(&going);
        assert!(rig.now().since(begin) < 50 * MS, "nothing waited for another device");
        assert_eq!(depth_reached(&rig, stuck + 1), depth);
        let pushed_back = rig.world.host(anabranch_proto::machine::WorkerId(1)).user().pushed_back;
        assert!(pushed_back > 0, "the stuck devices were pushed back");
        free_the_stuck(rig, &names);
    }
}

#[test]
fn devices_without_a_path_leave_commands_to_the_others() {
    // Requests of 63 commands each: the command table is full long before that of the requests.
    let (mut rig, other) = with_stuck_devices(1, 256);
    let long = |n: u64| Op::Write { lba: n, blocks: 2000, fill: 1 };
    let names = rig.submit((0..40).map(long));
    rig.run(10 * MS);
    let begin = rig.now();
    let going = rig.submit_to(1, &other, (0..40).map(long));
    rig.run(MS / 10);
    rig.succeed(&going);
    assert!(rig.now().since(begin) < 500 * MS, "nothing waited for another device");
    assert!(depth_reached(&rig, 2) >= 100, "at full depth: {}", depth_reached(&rig, 2));
    free_the_stuck(rig, &names);
}

fn add(rig: &mut Rig, nsid: u32) {
    let config = NamespaceConfig { ana_group: nsid, ..setup::namespace(nsid, 512) };
    rig.target(TargetVerb::NamespaceAdd { subsystem: setup::subsystem(), config });
    rig.run(SECOND);
}

fn of_group(rig: &mut Rig, group: u32, state: AnaState) {
    (0..2).for_each(|port| rig.target(TargetVerb::Ana { port, group, state }));
    rig.run(10 * MS);
}

/// More devices than places are set apart for from the start, and all that came before are stuck.
#[test]
fn a_device_that_comes_late_finds_places_beside_many_that_are_stuck() {
    const STUCK: u32 = 24;
    let (mut rig, _) = with_stuck_devices(1, 64);
    let mut stuck = rig.submit_to(1, "nvme0n1", writes(200, 1));
    for nsid in 3..=STUCK {
        add(&mut rig, nsid);
        of_group(&mut rig, nsid, AnaState::Inaccessible);
        stuck.extend(rig.submit_to(1, &format!("nvme0n{nsid}"), writes(200, 1)));
        rig.run(10 * MS);
    }
    add(&mut rig, STUCK + 1);
    for other in [STUCK + 1, 2] {
        let begin = rig.now();
        let going = rig.submit_to(1, &format!("nvme0n{other}"), writes(200, 2).chain([Op::Flush]));
        rig.succeed(&going);
        assert!(rig.now().since(begin) < 500 * MS, "nothing waited for another device");
    }
    assert_eq!(rig.answered(&stuck), 0, "what waits for a path goes on waiting");
    (3..=STUCK).for_each(|nsid| of_group(&mut rig, nsid, AnaState::Optimized));
    free_the_stuck(rig, &stuck[..200]);
}

#[test]
fn a_device_alone_has_as_many_requests_as_it_is_promised() {
    let mut setup = Setup::new(1, 1);
    setup.host.max_requests = 64;
    let mut rig = setup.connect();
    rig.ana(0, AnaState::Inaccessible);
    rig.run(MS);
    let names = rig.submit(writes(64, 1));
    rig.run(MS);
    let pushed_back =
        |rig: &Rig| rig.world.host(anabranch_proto::machine::WorkerId(1)).user().pushed_back;
    assert_eq!(pushed_back(&rig), 0);
    let more = rig.submit(writes(1, 2));
    rig.run(MS);
    assert_eq!(pushed_back(&rig), 1, "the 65th waits");
    rig.ana(0, AnaState::Optimized);
    rig.succeed(&names);
    rig.succeed(&more);
    rig.finish();
}
