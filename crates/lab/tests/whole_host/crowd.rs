//! Devices that share a queue pair: one whose commands take long does not have all of its tags.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::Op;
use crate::setup;
use anabranch_host::verb::Verb;
use anabranch_policy::Policy;
use anabranch_proto::machine::WorkerId;

/// Tags of a queue pair.
const TAGS: usize = 31;

/// What one device has of them at the most where there are others: eight for each that is left.
const OF_ONE: usize = 28;

/// So many devices over one port.
fn devices(count: u32, data_workers: u16) -> Setup {
    let mut setup = Setup::new(1, data_workers);
    *setup.namespaces() = (1..=count).map(|nsid| setup::namespace(nsid, 512)).collect();
    setup.host.max_requests = 1024;
    setup.options.queue_size = TAGS as u16 + 1;
    setup
}

/// No command for the first device arrives.
fn hang_the_first(rig: &Rig) {
    rig.wire().rule(|pdu| {
        if pdu.is_io() && pdu.sqe.is_some_and(|sqe| sqe.nsid() == 1) {
            pdu.bytes.clear();
        }
    });
}

#[test]
fn a_device_that_hangs_leaves_tags_to_the_others() {
    for shared_queue in [false, true] {
        let mut setup = devices(3, 2);
        setup.host.shared_queue = shared_queue;
        let mut rig = setup.connect();
        hang_the_first(&rig);
        let stuck = rig.submit_to(2, "nvme0n1", writes(200, 1));
        rig.run(10 * MS);
        assert_eq!(rig.sent(0), OF_ONE);
        let start = rig.now();
        for device in ["nvme0n2", "nvme0n3"] {
            let names = rig.submit_to(2, device, writes(100, 2).chain(reads(100)));
            rig.succeed(&names);
        }
        assert!(rig.now().since(start) < SECOND, "they did not wait for the first");
        assert_eq!(rig.answered(&stuck), 0);
        rig.wire().clear_rules();
        rig.run(60 * SECOND);
        rig.succeed(&stuck);
        rig.finish();
    }
}

/// With nobody else there is nobody to leave a tag to.
#[test]
fn one_device_alone_has_all_tags() {
    for (count, had) in [(1, TAGS), (2, OF_ONE)] {
        let mut rig = devices(count, 1).connect();
        hang_the_first(&rig);
        let stuck = rig.submit(reads(100));
        rig.run(SECOND);
        assert_eq!(rig.sent(0), had);
        rig.wire().clear_rules();
        rig.run(60 * SECOND);
        rig.succeed(&stuck);
        rig.finish();
    }
}

/// Whoever comes later does not wait until all is done that came before.
#[test]
fn a_tag_that_comes_free_goes_to_the_device_with_the_fewest() {
    let mut rig = devices(2, 1).connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.slow_stream(stream, 5 * MS);
    let first = rig.submit(reads(600));
    rig.run(25 * MS);
    let second = rig.submit_to(1, "nvme0n2", reads(100));
    rig.succeed(&second);
    let done = rig.answered(&first);
    assert!((80..250).contains(&done), "{done}: half of the tags each, from then on");
    rig.succeed(&first);
    rig.finish();
}

/// A policy chooses paths before there are tags, or (kernel-exact) as they come.
#[test]
fn all_of_a_crowd_is_answered_whatever_becomes_of_it() {
    for (kernel_exact, what) in
        [(false, 0), (true, 0), (false, 1), (true, 1), (false, 2), (false, 3)]
    {
        let mut setup = devices(5, 1);
        setup.host.kernel_exact = kernel_exact;
        setup.host.default_policy = Policy::QueueDepth;
        let mut rig = setup.connect();
        let device = |nsid: u64| format!("nvme0n{nsid}");
        let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
        rig.world.slow_stream(stream, 5 * MS);
        let all: Vec<Vec<u64>> = (1..=5)
            .map(|nsid| rig.submit_to(1, &device(nsid), writes(40 * nsid, nsid as u8)))
            .collect();
        rig.run(12 * MS);
        match what {
            0 => rig.world.break_stream(stream),
            1 => {
                rig.done(Verb::Quiesce { device: device(3) });
                rig.run(100 * MS);
                rig.done(Verb::Unquiesce { device: device(3) });
            }
            2 => {
                rig.submit_to(1, &device(4), [Op::Withdraw]);
                rig.answers(&all[3]);
            }
            _ => {
                let subsystem = setup::subsystem();
                rig.target(anabranch_target::TargetVerb::NamespaceRemove { subsystem, nsid: 5 });
                rig.answers(&all[4]);
            }
        }
        for (names, nsid) in all.iter().zip(1..) {
            if (what, nsid) != (2, 4) && (what, nsid) != (3, 5) {
                rig.succeed(names);
            }
        }
        rig.finish();
    }
}
