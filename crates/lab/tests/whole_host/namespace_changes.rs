//! Namespaces come, go and change their size while I/O runs.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::{Failure, Op};
use crate::setup;
use crate::wire::kind;
use anabranch_host::user::Refused;
use anabranch_host::verb::Verb;
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::Uuid;
use anabranch_proto::nvme::opcode::admin;
use anabranch_target::TargetVerb;
use anabranch_target::config::NamespaceConfig;

fn resize(rig: &mut Rig, bytes: u64) {
    rig.target(TargetVerb::NamespaceResize { subsystem: setup::subsystem(), nsid: 1, bytes });
}

#[test]
fn a_namespace_that_comes_is_a_device_with_all_its_paths() {
    let mut rig = Setup::new(2, 2).connect();
    let subsystem = setup::subsystem();
    rig.target(TargetVerb::NamespaceAdd { subsystem, config: setup::namespace(2, 4096) });
    rig.run(SECOND);
    let names = rig.submit_to(2, "nvme0n2", writes(20, 4));
    rig.succeed(&names);
    assert_eq!((rig.sent(0), rig.sent(1)), (10, 10));
    rig.finish();
}

#[test]
fn a_namespace_that_goes_under_load_answers_every_request_and_spares_the_others() {
    let mut setup = Setup::new(2, 2);
    setup.namespaces().push(setup::namespace(2, 512));
    let mut rig = setup.connect();
    let mut going = rig.submit_to(1, "nvme0n2", writes(60, 1));
    let mut staying = rig.submit_to(2, "nvme0n1", writes(60, 1));
    rig.run(MS / 20);
    rig.target(TargetVerb::NamespaceRemove { subsystem: setup::subsystem(), nsid: 2 });
    going.extend(rig.submit_to(1, "nvme0n2", writes(60, 1)));
    staying.extend(rig.submit_to(2, "nvme0n1", writes(60, 1)));
    rig.succeed(&staying);
    let outcomes = rig.answers(&going);
    assert!(outcomes[60..].iter().all(|outcome| outcome.result.is_err()));
    rig.run(3 * SECOND);
    let late = rig.submit_to(1, "nvme0n2", writes(1, 1));
    let unknown = Err(Failure::Refused(Refused::UnknownHead));
    assert_eq!(rig.answers(&late)[0].result, unknown);
    assert_eq!(rig.snapshot().subsystems[0].heads.len(), 1);
    rig.finish();
}

#[test]
fn a_namespace_that_goes_leaves_the_shared_queue_to_the_others() {
    let mut setup = Setup::new(1, 2);
    setup.host.shared_queue = true;
    setup.options.queue_size = 16;
    setup.namespaces().push(setup::namespace(2, 512));
    let mut rig = setup.connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.slow_stream(stream, 20 * MS);
    // Most of these wait for a tag with the worker that carries them.
    let going = rig.submit_to(2, "nvme0n2", writes(60, 1));
    rig.run(MS);
    rig.target(TargetVerb::NamespaceRemove { subsystem: setup::subsystem(), nsid: 2 });
    let begin = rig.now();
    rig.answers(&going);
    rig.run(3 * SECOND);
    let staying = rig.submit_to(2, "nvme0n1", writes(20, 1));
    rig.succeed(&staying);
    assert_eq!(rig.event(begin, "nvme0: live"), None, "the controller stayed live all the time");
    rig.finish();
}

#[test]
fn a_namespace_that_grows_or_shrinks_is_followed() {
    let mut rig = Setup::new(2, 1).connect();
    let last = (1 << 20) / 512 - 1;
    let write = |lba| Op::Write { lba, blocks: 1, fill: 1 };
    rig.io([write(last)]);
    for (bytes, last) in [(2 << 20, 4095), (1 << 19, 1023)] {
        resize(&mut rig, bytes);
        rig.run(SECOND);
        rig.io((0..4).map(|_| write(last)));
        let names = rig.submit([write(last + 1), write(u64::MAX)]);
        for outcome in rig.answers(&names) {
            assert_eq!(outcome.result, Err(Failure::Refused(Refused::OutOfRange)));
        }
        assert!(rig.path(0).usable && rig.path(1).usable, "both agree with {bytes} bytes");
    }
    rig.finish();
}

#[test]
fn m20_a_path_whose_capacity_differs_is_out_until_it_agrees() {
    let mut rig = Setup::new(2, 1).build();
    rig.connect(0);
    rig.wire().rule(|pdu| {
        let of_namespace = |sqe: anabranch_proto::nvme::Sqe| {
            sqe.opcode() == admin::IDENTIFY && sqe.cdw(10) & 0xff == 0
        };
        let is_data = pdu.kind == kind::C2H_DATA && pdu.port == 1;
        if is_data && pdu.sqe.is_some_and(of_namespace) {
            // NSZE, NCAP and NUSE: half of what it has.
            for at in [0, 8, 16] {
                pdu.bytes[24 + at..32 + at].copy_from_slice(&1024u64.to_le_bytes());
            }
        }
    });
    rig.connect(1);
    assert_eq!(rig.head().blocks, 2048, "the device keeps its size");
    assert!(!rig.path(1).usable);
    rig.io(writes(20, 1));
    assert_eq!((rig.sent(0), rig.sent(1)), (20, 0));
    rig.wire().clear_rules();
    rig.done(Verb::Reset { controller: "nvme1".into() });
    rig.wait_live(1);
    rig.io(reads(20));
    assert_eq!((rig.sent(0), rig.sent(1)), (30, 10), "its own identify agrees again");
    rig.finish();
}

/// Two devices. Their target starts anew with its namespaces in another order, and one of its ports
/// is not up yet.
pub(crate) fn renumbered(before: impl FnOnce(&mut Rig)) -> Rig {
    let namespaces = |uuids: [u8; 2]| {
        let nsids = (1..).zip(uuids);
        nsids.map(|(nsid, uuid)| NamespaceConfig {
            uuid: Some(Uuid([uuid; 16])),
            ..setup::namespace(nsid, 512)
        })
    };
    let mut setup = Setup::new(2, 1);
    *setup.namespaces() = namespaces([1, 2]).collect();
    let mut rig = setup.connect();
    rig.run(2 * SECOND);
    before(&mut rig);
    rig.target(TargetVerb::Cut { port: 0 });
    rig.run(SECOND);
    let subsystem = setup::subsystem;
    for nsid in [1, 2] {
        rig.target(TargetVerb::NamespaceRemove { subsystem: subsystem(), nsid });
    }
    for config in namespaces([2, 1]) {
        rig.target(TargetVerb::NamespaceAdd { subsystem: subsystem(), config });
    }
    rig.run(SECOND);
    rig
}

#[test]
fn devices_follow_their_namespaces_while_a_port_is_down() {
    let mut rig = renumbered(|_| ());
    for up in [false, true] {
        if up {
            rig.target(TargetVerb::Restore { port: 0 });
            rig.wait_live(0);
            rig.run(SECOND);
        }
        let sent = rig.sent(0);
        let fills =
            [("nvme0n1", 1), ("nvme0n2", 2)].map(|(device, fill)| (device, fill + u8::from(up)));
        for (device, fill) in fills {
            let names = rig.submit_to(1, device, writes(20, fill));
            rig.succeed(&names);
        }
        for (device, fill) in fills {
            let names = rig.submit_to(1, device, reads(20));
            let read = rig.succeed(&names);
            assert!(read.iter().all(|outcome| outcome.data == [fill; 512]), "{device}, up: {up}");
        }
        assert_eq!(rig.sent(0) > sent, up);
    }
    let nsids = |device: &anabranch_host::verb::HeadSnapshot| device.nsid;
    assert_eq!(rig.snapshot().subsystems[0].heads.iter().map(nsids).collect::<Vec<_>>(), [2, 1]);
    rig.finish();
}
