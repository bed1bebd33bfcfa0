//! Far more requests than tags.

use crate::rig::{MS, Rig, Setup, writes};
use crate::script::Op;
use crate::setup;
use crate::wire::Pdu;
use anabranch_proto::machine::WorkerId;

/// The most commands that were with the target at once, per connection.
fn most_at_once(rig: &Rig) -> usize {
    let mut most = 0;
    let mut serials: Vec<u32> = rig.seen(Pdu::is_io).iter().map(|pdu| pdu.serial).collect();
    serials.sort_unstable();
    serials.dedup();
    for serial in serials {
        let mut now = 0usize;
        let passing = rig
            .seen(|pdu| pdu.serial == serial && (pdu.is_io() || pdu.answers(1) || pdu.answers(2)));
        for pdu in passing {
            if pdu.to_target {
                now += 1;
                most = most.max(now);
            } else {
                now -= 1;
            }
        }
    }
    most
}

#[test]
fn b9_waiting_commands_get_their_tags_in_order_and_none_is_lost() {
    let mut setup = Setup::new(1, 1);
    setup.options.queue_size = 16;
    setup.host.max_requests = 2048;
    let mut rig = setup.connect();
    let names = rig.submit((0..2000).map(|lba| Op::Write { lba, blocks: 1, fill: 1 }));
    rig.succeed(&names);
    assert_eq!(most_at_once(&rig), 15, "a queue of 16 entries was full, and never more than that");
    let sent = rig.seen(Pdu::is_io);
    let order: Vec<u64> =
        sent.iter().filter_map(|pdu| pdu.sqe).map(|sqe| sqe.cdw_pair(10)).collect();
    assert!(order.iter().copied().eq(0..2000), "first come, first served");
    rig.finish();
}

#[test]
fn b9_a_second_device_on_the_same_queue_is_not_starved() {
    let mut setup = Setup::new(1, 1);
    setup.options.queue_size = 16;
    setup.host.max_requests = 256;
    setup.namespaces().push(setup::namespace(2, 512));
    let mut rig = setup.connect();
    // The first device is kept busy; whenever half is answered, more comes.
    let mut busy = rig.submit(writes(100, 1));
    rig.run(MS / 10);
    let other = rig.submit_to(1, "nvme0n2", writes(20, 2));
    let mut ahead = 0;
    while rig.answered(&other) < other.len() {
        if rig.answered(&busy) + 50 > busy.len() {
            busy.extend(rig.submit(writes(50, 3)));
        }
        rig.run(MS / 50);
        ahead = rig.answered(&busy);
    }
    assert!(ahead < 200, "only what came before and what flew beside: {ahead}");
    rig.succeed(&busy);
    rig.finish();
}

#[test]
fn b9_workers_that_share_a_queue_are_served_in_the_order_they_came() {
    let mut setup = Setup::new(1, 3);
    setup.options.queue_size = 16;
    setup.host.shared_queue = true;
    let mut rig = setup.connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.slow_stream(stream, MS);
    let names: Vec<Vec<u64>> =
        (1..=3).map(|worker| rig.submit_to(worker, "nvme0n1", writes(60, 1))).collect();
    let all: Vec<u64> = names.concat();
    let outcomes = rig.succeed(&all);
    let first = outcomes.iter().map(|outcome| outcome.at).min().expect("some");
    let last = outcomes.iter().map(|outcome| outcome.at).max().expect("some");
    assert_eq!(most_at_once(&rig), 15);
    // 180 commands by 15 take twelve rounds of a few milliseconds.
    let took = last.since(first);
    assert!(took < 40 * MS, "no wake-up was lost: {took:?}");
    rig.finish();
}
