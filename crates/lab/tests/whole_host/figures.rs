//! A device's figures against those of its paths: most commands are counted once for both, and each
//! figure is exact all the same.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::Op;
use anabranch_host::verb::{HeadSnapshot, Selection, Verb};
use anabranch_policy::Histogram;

fn exact(latency: &Histogram) -> (u64, u128, u64, u64, u64) {
    (latency.count(), latency.sum(), latency.min(), latency.max(), latency.stdev())
}

/// What all paths of a device have recorded.
fn of_paths(head: &HeadSnapshot) -> ([u64; 3], [u64; 2], Histogram) {
    let (mut commands, mut bytes, mut latency) = ([0; 3], [0; 2], Histogram::new());
    for path in &head.paths {
        commands.iter_mut().zip(path.commands).for_each(|(sum, more)| *sum += more);
        bytes.iter_mut().zip(path.bytes).for_each(|(sum, more)| *sum += more);
        latency.merge(&path.latency_ns);
    }
    (commands, bytes, latency)
}

/// The fields of `stat`, without the one that tells what is in flight.
fn stat(rig: &mut Rig, object: &str) -> Vec<u64> {
    let line = rig.get(object, "stat");
    let mut fields: Vec<u64> =
        line.split_whitespace().map(|field| field.parse().expect("a number")).collect();
    assert_eq!(fields.remove(8), 0, "nothing is in flight");
    fields
}

#[test]
fn whole_requests_weigh_the_same_on_the_device_as_on_its_paths() {
    let mut rig = Setup::new(2, 2).connect();
    rig.io(writes(30, 1).chain(reads(20)));
    let names = rig.submit_to(2, "nvme0n1", reads(10));
    rig.succeed(&names);
    let head = rig.head();
    let (commands, bytes, latency) = of_paths(&head);
    assert_eq!((head.requests, commands), ([30, 30, 0], [30, 30, 0]));
    assert_eq!((head.bytes, bytes), ([30 * 512; 2], [30 * 512; 2]));
    assert_eq!(exact(&head.latency_ns), exact(&latency));
    let stat = stat(&mut rig, "nvme0n1");
    assert_eq!((stat[0], stat[2], stat[4], stat[6]), (30, 30, 30, 30));
    rig.finish();
}

#[test]
fn other_operations_count_once_on_the_device_and_once_per_command() {
    let mut setup = Setup::new(2, 1);
    setup.target.limits.max_transfer_bytes = 16 << 10;
    let mut rig = setup.connect();
    // Thirteen commands; one each; one per path that has writes to make durable, or one.
    rig.io([Op::Write { lba: 0, blocks: 400, fill: 1 }]);
    rig.io([Op::Zero { lba: 0, blocks: 8 }, Op::Discard { lba: 8, blocks: 8 }]);
    rig.io([Op::Flush]);
    let head = rig.head();
    let (commands, bytes, latency) = of_paths(&head);
    assert_eq!((head.requests, head.bytes), ([0, 1, 3], [0, 400 * 512]));
    assert_eq!((commands[..2].to_vec(), bytes), (vec![0, 13], [0, 400 * 512]));
    assert_eq!(head.latency_ns.count(), 4);
    assert_eq!(latency.count(), commands.iter().sum::<u64>());
    let stat = stat(&mut rig, "nvme0n1");
    assert_eq!((stat[4], stat[6]), (2, 408), "zeroes are written");
    assert_eq!((stat[10], stat[12], stat[14]), (1, 8, 1), "discards and flushes");
    rig.finish();
}

#[test]
fn time_that_a_request_was_held_is_the_devices_alone() {
    let mut rig = Setup::new(1, 1).connect();
    rig.io(reads(5));
    rig.done(Verb::Freeze { device: "nvme0n1".into() });
    let held = rig.submit(reads(3));
    rig.run(SECOND);
    rig.done(Verb::Unfreeze { device: "nvme0n1".into() });
    rig.succeed(&held);
    let head = rig.head();
    let (commands, _, latency) = of_paths(&head);
    assert_eq!((head.requests, commands), ([8, 0, 0], [8, 0, 0]));
    assert_eq!(head.latency_ns.count(), 8);
    assert!(u128::from(head.latency_ns.max()) > (SECOND - MS).as_nanos());
    assert!(u128::from(latency.max()) < SECOND.as_nanos() / 2);
    assert!(stat(&mut rig, "nvme0n1")[3] >= 2990, "three seconds of reads");
    assert!(stat(&mut rig, "nvme0c0n1")[3] < 1000);
    rig.finish();
}

#[test]
fn a_device_keeps_what_a_path_has_done_that_has_left() {
    let mut rig = Setup::new(2, 1).connect();
    rig.io(writes(10, 1).chain(reads(20)));
    let (before, line) = (rig.head(), stat(&mut rig, "nvme0n1"));
    rig.ask(Verb::Disconnect(Selection::Controller("nvme0".into())));
    rig.run(SECOND);
    let after = rig.head();
    assert_eq!(after.paths.len(), 1, "the path has left");
    assert_eq!((after.requests, after.bytes), (before.requests, before.bytes));
    assert_eq!(exact(&after.latency_ns), exact(&before.latency_ns));
    assert_eq!(after.latency_ns.percentile(50), before.latency_ns.percentile(50));
    assert_eq!(stat(&mut rig, "nvme0n1"), line);
    rig.io(reads(4));
    assert_eq!(rig.head().requests, [24, 10, 0]);
    rig.finish();
}
