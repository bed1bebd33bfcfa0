//! Bad moments: things that go wrong together, or much later than one thinks.

use crate::rig::{MS, SECOND, Setup, reads, writes};
use crate::script::Op;
use crate::setup;
use crate::wire::{Pdu, kind};
use anabranch_host::verb::{Reply, Selection, Verb};
use anabranch_proto::machine::Time;
use anabranch_proto::nvme::Uuid;
use anabranch_target::TargetVerb;
use anabranch_target::config::NamespaceConfig;

#[test]
fn a_queue_that_breaks_right_behind_its_connect_answer_costs_one_attempt_not_a_time_limit() {
    let mut setup = Setup::new(1, 1);
    setup.options.admin_timeout = SECOND * 30;
    let mut rig = setup.connect();
    let mut once = true;
    rig.wire().rule(move |pdu| {
        let connect = pdu.sqe.is_some_and(|sqe| sqe.is_fabrics());
        if pdu.kind == kind::CAPSULE_RESP && pdu.worker > 0 && connect && once {
            once = false;
            pdu.bytes.extend([0xff; 24]);
        }
    });
    let start = rig.now();
    // The caller hears of the failed attempt.
    let reply = rig.ask(Verb::Reset { controller: "nvme0".into() });
    assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
    rig.wait(SECOND * 60, "live controller", |rig| rig.is_live(0));
    let failed = rig.event(start, "failed:").expect("the first attempt fails");
    assert!(failed.since(start) < MS * 200, "{:?}", failed.since(start));
    rig.run(MS);
    rig.io(reads(10));
    rig.finish();
}

#[test]
fn a_command_that_waits_long_for_a_tag_is_not_late() {
    let mut setup = Setup::new(1, 1);
    setup.options.queue_size = 16;
    setup.options.io_timeout = MS * 100;
    setup.target.ports[0].shape.delay = MS * 20;
    setup.host.max_requests = 256;
    let mut rig = setup.connect();
    let start = rig.now();
    let names = rig.submit(writes(200, 7));
    rig.succeed(&names);
    let took = rig.now().since(start);
    assert!(took > MS * 200, "the last ones waited longer than a command may take: {took:?}");
    assert_eq!(rig.controller(0).expect("it is there").resets, 0);
    rig.finish();
}

#[test]
fn nothing_that_waits_for_a_tag_goes_to_the_next_namespace_with_the_same_number() {
    for shared_queue in [false, true] {
        let mut setup = Setup::new(2, 2);
        setup.options.queue_size = 16;
        setup.host.max_requests = 512;
        setup.host.shared_queue = shared_queue;
        setup.target.ports.iter_mut().for_each(|port| port.shape.delay = MS * 5);
        let mut rig = setup.connect();
        let mut names = rig.submit_to(1, "nvme0n1", writes(300, 1));
        names.extend(rig.submit_to(2, "nvme0n1", writes(300, 2)));
        rig.run(MS * 2);
        let subsystem = setup::subsystem();
        rig.target(TargetVerb::NamespaceRemove { subsystem: subsystem.clone(), nsid: 1 });
        let config = NamespaceConfig { uuid: Some(Uuid([9; 16])), ..setup::namespace(1, 512) };
        rig.target(TargetVerb::NamespaceAdd { subsystem, config });
        let outcomes = rig.answers(&names);
        assert!(outcomes.iter().any(|outcome| outcome.result.is_err()), "the device went away");
        let removed = rig.event(Time::ZERO, "nvme0n1: removed").expect("the device goes");
        // What shards hear takes a moment; then not one command of the old device leaves.
        let later = rig.seen(|pdu: &Pdu| pdu.is_io() && pdu.at > removed.after(MS));
        assert!(later.is_empty(), "{} commands to somebody else's blocks", later.len());
        rig.finish();
    }
}

/// The namespace is taken away, I/O is told so, and another one is put in its place before the host
/// has looked.
#[test]
fn nothing_goes_to_the_next_namespace_with_the_same_number_once_there_was_none() {
    let mut setup = Setup::new(1, 1);
    setup.target.ports[0].shape.delay = MS * 20;
    let mut rig = setup.connect();
    rig.run(2 * SECOND);
    // What the controller tells of it by itself does not arrive.
    rig.wire().rule(|pdu| {
        if pdu.kind == kind::CAPSULE_RESP && pdu.sqe.is_some_and(|sqe| sqe.opcode() == 0x0c) {
            pdu.bytes.clear();
        }
    });
    let subsystem = setup::subsystem();
    rig.target(TargetVerb::NamespaceRemove { subsystem: subsystem.clone(), nsid: 1 });
    let told = rig.submit(writes(1, 1));
    assert!(rig.answers(&told)[0].result.is_err());
    let config = NamespaceConfig { uuid: Some(Uuid([9; 16])), ..setup::namespace(1, 512) };
    rig.target(TargetVerb::NamespaceAdd { subsystem, config });
    let sent = rig.sent(0);
    let names = rig.submit(writes(20, 2));
    let outcomes = rig.answers(&names);
    assert!(outcomes.iter().all(|outcome| outcome.result.is_err()), "the device has gone");
    assert_eq!(rig.sent(0), sent, "no command to somebody else's blocks");
    rig.finish();
}

#[test]
fn p6_a_flush_without_any_path_waits_for_one() {
    let mut rig = Setup::new(1, 1).connect();
    rig.set("nvme0n1", "delayed_removal_secs", "60");
    rig.io(writes(4, 3));
    let reply = rig.ask(Verb::Disconnect(Selection::All));
    assert!(matches!(reply, Reply::Disconnected(1)), "{reply:?}");
    rig.run(MS);
    let flush = rig.submit([Op::Flush]);
    rig.run(SECOND);
    assert_eq!(rig.answered(&flush), 0, "what was acknowledged before may still be volatile");
    rig.connect(0);
    rig.succeed(&flush);
    let flushes = rig.seen(|pdu| pdu.is_io() && pdu.sqe.is_some_and(|sqe| sqe.opcode() == 0));
    assert_eq!(flushes.len(), 1, "it went to the controller");
    rig.finish();
}

#[test]
fn requests_that_come_while_no_path_is_there_are_cut_for_the_paths_that_were() {
    let mut setup = Setup::new(1, 1);
    setup.target.limits.max_transfer_bytes = 16 << 10;
    let mut rig = setup.connect();
    rig.set("nvme0n1", "delayed_removal_secs", "60");
    let reply = rig.ask(Verb::Disconnect(Selection::All));
    assert!(matches!(reply, Reply::Disconnected(1)), "{reply:?}");
    rig.run(MS);
    let write = rig.submit([Op::Write { lba: 0, blocks: 256, fill: 5 }]);
    rig.run(MS * 10);
    rig.connect(0);
    rig.succeed(&write);
    assert_eq!(rig.sent(0), 8, "128 KiB in commands of 16 KiB");
    rig.finish();
}
