//! Why commands went where they went: every choice is counted, some are noted in full.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::Op;
use crate::wire::Pdu;
use anabranch_host::explain::ExplainReport;
use anabranch_host::verb::{Reply, Verb, VerbError};
use anabranch_policy::{Policy, Reason, SizeClass};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::{AnaState, Status, opcode};

fn explain(rig: &mut Rig) -> ExplainReport {
    match rig.ask(Verb::Explain { device: "nvme0n1".into() }) {
        Reply::Explain(report) => *report,
        other => panic!("{other:?}"),
    }
}

/// Choices by path for one reason, all sizes.
fn by_reason(report: &ExplainReport, reason: Reason) -> Vec<u64> {
    let of = |choices: &anabranch_host::explain::Choices| {
        SizeClass::all().map(|size| choices.of(size, reason)).sum()
    };
    report.paths.iter().map(|path| of(&path.choices)).collect()
}

#[test]
fn x4_every_choice_of_every_worker_is_counted_by_path_size_and_reason() {
    let mut rig = Setup::new(2, 2).connect();
    let mut names = rig.submit_to(1, "nvme0n1", reads(30));
    names.extend(rig.submit_to(2, "nvme0n1", reads(10)));
    let large = (0..6).map(|_| Op::Write { lba: 0, blocks: 64, fill: 1 });
    names.extend(rig.submit_to(2, "nvme0n1", large));
    rig.succeed(&names);
    let report = explain(&mut rig);
    let paths: Vec<&str> = report.paths.iter().map(|path| &*path.name).collect();
    assert_eq!(paths, ["nvme0c0n1", "nvme0c1n1"]);
    assert_eq!(report.policy, Policy::RoundRobin);
    for path in &report.paths {
        assert!(path.usable);
        let of = |bytes| path.choices.of(SizeClass::of(bytes), Reason::Turn);
        assert_eq!((of(512), of(64 * 512)), (20, 3), "{}", path.name);
        assert_eq!(path.choices.total(), 23, "nothing else");
    }
    assert_eq!(rig.seen(Pdu::is_io).len(), 46);
    rig.finish();
}

#[test]
fn x4_the_first_and_one_of_each_64_choices_of_a_worker_is_noted_with_what_was_seen() {
    let mut setup = Setup::new(3, 2);
    setup.host.default_policy = Policy::QueueDepth;
    let mut rig = setup.connect();
    rig.ana(2, AnaState::Inaccessible);
    rig.run(10 * MS);
    for worker in [2, 1] {
        let names = rig.submit_to(worker, "nvme0n1", writes(60, 1));
        rig.succeed(&names);
        let names = rig.submit_to(worker, "nvme0n1", reads(68));
        rig.succeed(&names);
    }
    let report = explain(&mut rig);
    assert_eq!((report.explain_sample, report.noted), (64, 4));
    let workers: Vec<WorkerId> = report.decisions.iter().map(|d| d.worker).collect();
    assert_eq!(workers, [2, 2, 1, 1].map(WorkerId), "in order of time");
    assert!(report.decisions.is_sorted_by_key(|decision| decision.at));
    for pair in report.decisions.chunks(2) {
        let [first, second] = pair else { unreachable!() };
        assert_eq!((first.reason, first.bytes, first.paths), (Reason::FewestCommands, 512, 3));
        assert_eq!(first.policy, Policy::QueueDepth);
        let seen = |at: usize| {
            let candidates = second.candidates.iter();
            candidates.map(|c| (&*c.path, c.inputs)).nth(at).expect("three candidates")
        };
        assert_eq!(second.candidates.len(), 3);
        assert!(!seen(2).1.usable, "the third path is inaccessible");
        let busiest = [seen(0), seen(1)].into_iter().min_by_key(|(_, i)| i.commands);
        let (least, inputs) = busiest.expect("two");
        let chosen = second.candidates.iter().find(|c| c.path == second.path);
        let chosen = chosen.expect("the chosen path is among them");
        assert_eq!(chosen.inputs.commands, inputs.commands, "{least} is as good");
    }
    let seen: Vec<u64> = report.paths.iter().map(|path| path.seen.decisions).collect();
    assert_eq!(seen, [4, 4, 4]);
    rig.finish();
}

#[test]
fn x4_what_was_in_flight_is_summed_over_the_choices_that_counted_it() {
    let mut setup = Setup::new(2, 1);
    setup.host.default_policy = Policy::QueueDepth;
    let mut rig = setup.connect();
    rig.set("nvme0n1", "explain_sample", "1");
    rig.io(writes(5, 1));
    rig.set("nvme-subsys0", "iopolicy", "round-robin");
    rig.io(writes(7, 1));
    rig.set("nvme-subsys0", "iopolicy", "service-time");
    rig.io(writes(3, 1));
    for path in explain(&mut rig).paths {
        let seen = path.seen;
        let counts = (seen.decisions, seen.counted_commands, seen.counted_bytes);
        assert_eq!(counts, (15, 5, 3), "{}", path.name);
    }
    rig.finish();
}

#[test]
fn x4_retries_and_flushes_are_counted_as_what_they_are() {
    let mut setup = Setup::new(2, 1);
    setup.host.default_policy = Policy::Numa;
    let mut rig = setup.connect();
    let mut left = 3;
    rig.wire().rule(move |pdu| {
        if pdu.answers(opcode::io::WRITE) && left > 0 {
            left -= 1;
            pdu.answer(Status::COMMAND_INTERRUPTED);
        }
    });
    rig.io(writes(3, 1));
    let report = explain(&mut rig);
    assert_eq!(by_reason(&report, Reason::Retry), [3, 0]);
    let first = by_reason(&report, Reason::Nearest)[0] + by_reason(&report, Reason::Remembered)[0];
    assert_eq!(first, 3, "the retries were not chosen anew");
    // The first flush goes everywhere; then the first path alone has acknowledged writes.
    rig.io([Op::Flush]);
    rig.io(writes(3, 1));
    rig.io([Op::Flush]);
    let report = explain(&mut rig);
    assert_eq!(by_reason(&report, Reason::Flush), [2, 1]);
    rig.finish();
}

#[test]
fn x4_a_failover_is_a_second_choice_and_a_removed_path_is_named_by_its_number() {
    let mut rig = Setup::new(2, 1).connect();
    let stream = rig.world.stream(WorkerId(1), &crate::setup::port(1)).expect("open");
    rig.world.slow_stream(stream, 50 * MS);
    let names = rig.submit(writes(10, 1));
    rig.run(MS);
    rig.world.break_stream(stream);
    rig.succeed(&names);
    let report = explain(&mut rig);
    assert_eq!(report.paths.iter().map(|path| path.choices.total()).sum::<u64>(), 15);
    rig.run(SECOND);
    rig.ask(Verb::Disconnect(anabranch_host::verb::Selection::Controller("nvme0".into())));
    let report = explain(&mut rig);
    assert_eq!(report.paths.len(), 1);
    assert_eq!(&*report.decisions[0].path, "#0");
    assert_eq!(&*report.decisions[0].candidates[1].path, "nvme0c1n1");
    rig.finish();
}

#[test]
fn explain_of_a_device_that_is_not_there_is_refused() {
    let mut rig = Setup::new(1, 1).connect();
    let reply = rig.ask(Verb::Explain { device: "nvme7n1".into() });
    assert!(matches!(reply, Reply::Error(VerbError::Invalid(_))), "{reply:?}");
    rig.finish();
}
