//! `explain`: what is printed from fixed figures, and that an interval is the exact difference of
//! two looks.

use anabranch::cli::args::Cli;
use anabranch::cli::print::explain;
use anabranch::daemon::control::{ControlServer, Handler, Limits};
use anabranch::daemon::explain::{
    BaseLatency, Candidate, Choices, Estimates, ExplainView, PathExplain, SCHEMA, Sample, Seen,
};
use anabranch::daemon::rpc::{Answer, Params, RpcError};
use clap::Parser;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::{Arc, Mutex};

const MS: u64 = 1_000_000;

fn choices(all: &[(&str, &str, u64)]) -> Vec<Choices> {
    let one = |&(size, reason, commands): &(&str, &str, u64)| Choices {
        size: size.into(),
        reason: reason.into(),
        commands,
    };
    all.iter().map(one).collect()
}

fn path(name: &str, ana_state: &str, all: &[(&str, &str, u64)]) -> PathExplain {
    PathExplain {
        path: name.into(),
        usable: true,
        ana_state: ana_state.into(),
        commands: all.iter().map(|(_, _, commands)| commands).sum(),
        choices: choices(all),
        ..PathExplain::default()
    }
}

fn candidate(path: &str, usable: bool, inputs: &Value) -> Candidate {
    Candidate {
        path: path.into(),
        usable,
        ana_state: "optimized".into(),
        inputs: inputs.as_object().expect("an object").clone(),
    }
}

fn device(paths: Vec<PathExplain>) -> ExplainView {
    ExplainView {
        schema: SCHEMA,
        device: "nvme0n1".into(),
        subsystem: "nvme-subsys0".into(),
        iopolicy: "service-time".into(),
        iopolicy_default: "queue-depth".into(),
        iopolicy_set_by: "attribute".into(),
        kernel_exact: false,
        explain_sample: 64,
        at_ns: 10_000 * MS,
        commands: paths.iter().map(|path| path.commands).sum(),
        paths,
        ..ExplainView::default()
    }
}

/// Decisions; of them those that counted commands, and what they counted; the same for bytes.
fn seen(decisions: u64, commands: (u64, u64), bytes: (u64, u64)) -> Seen {
    let (counted_commands, commands) = commands;
    let (counted_bytes, bytes) = bytes;
    Seen { decisions, commands, bytes, counted_commands, counted_bytes }
}

/// Two paths of weights 4 and 1. The policy was another one before.
fn busy() -> ExplainView {
    let service = "least-service-time";
    let mut fast = path(
        "nvme0c0n1",
        "optimized",
        &[("<=4k", service, 610), ("<=4k", "fewest-commands", 390), ("128k", service, 80)],
    );
    (fast.read_bytes, fast.written_bytes) = (12 << 20, 2 << 20);
    fast.seen = seen(21, (4, 34), (17, 17 * (640 << 10)));
    let mut slow = path(
        "nvme0c1n1",
        "non-optimized",
        &[("<=4k", service, 249), ("<=4k", "retry", 1), ("128k", service, 20)],
    );
    slow.read_bytes = 3_500_000;
    slow.seen = seen(21, (4, 6), (17, 17 * (160 << 10)));
    let mut view = device(vec![fast, slow]);
    view.noted = 21;
    view.samples = vec![
        Sample {
            before_ns: 2_500 * MS,
            worker: 2,
            op: "read".into(),
            bytes: 4096,
            iopolicy: "queue-depth".into(),
            reason: "fewest-commands".into(),
            path: "nvme0c0n1".into(),
            paths: 3,
            candidates: vec![
                candidate("nvme0c0n1", true, &json!({ "in_flight_commands": 1 })),
                candidate("nvme0c1n1", true, &json!({ "in_flight_commands": 12 })),
                candidate("#7", false, &json!({ "in_flight_commands": 0 })),
            ],
        },
        Sample {
            before_ns: 12 * MS,
            worker: 1,
            op: "write".into(),
            bytes: 131_072,
            iopolicy: "service-time".into(),
            reason: "least-service-time".into(),
            path: "nvme0c1n1".into(),
            paths: 2,
            candidates: vec![
                candidate(
                    "nvme0c0n1",
                    true,
                    &json!({ "load_bytes": 917_504, "relative_throughput": 4 }),
                ),
                candidate(
                    "nvme0c1n1",
                    true,
                    &json!({ "load_bytes": 135_168, "relative_throughput": 1 }),
                ),
            ],
        },
    ];
    view
}

#[test]
fn shares_reasons_and_samples_stand_in_tables() {
    let text = "\
nvme0n1 of nvme-subsys0: iopolicy service-time (set by attribute, default queue-depth), 2 paths, \
2 usable
1350 commands placed since the paths joined

Path       State          Commands  Share   Moved    Share   Mean in flight (samples)
---------  -------------  --------  ------  -------  ------  ------------------------
nvme0c0n1  optimized      1080      80.0 %   14 MiB  80.7 %  8.5 commands, 640 KiB
nvme0c1n1  non-optimized   270      20.0 %  3.3 MiB  19.3 %  1.5 commands, 160 KiB

Size  Path       Commands  Of size  Why                                          Count  Of path
----  ---------  --------  -------  -------------------------------------------  -----  -------
<=4k  nvme0c0n1  1000      80.0 %   service-time: fewest bytes for its weight    610     61.0 %
                                    fewest commands in flight                    390     39.0 %
      nvme0c1n1   250      20.0 %   service-time: fewest bytes for its weight    249     99.6 %
                                    tried again on the path where it had failed    1      0.4 %
128k  nvme0c0n1    80      80.0 %   service-time: fewest bytes for its weight     80    100.0 %
      nvme0c1n1    20      20.0 %   service-time: fewest bytes for its weight     20    100.0 %

The last 2 decisions (1 in 64 is noted per worker)

2.50 s ago, worker 2: read of 4 KiB -> nvme0c0n1
  queue-depth: fewest commands in flight
  > nvme0c0n1  optimized, 1 command in flight
    nvme0c1n1  optimized, 12 commands in flight
    #7         not usable

12.00 ms ago, worker 1: write of 128 KiB -> nvme0c1n1
  service-time: fewest bytes for its weight
    nvme0c0n1  optimized, 896 KiB to carry, relative throughput 4
  > nvme0c1n1  optimized, 132 KiB to carry, relative throughput 1
";
    let printed = explain::text(&busy(), 10);
    assert_eq!(printed, text, "\n{printed}");
}

#[test]
fn a_prediction_is_told_in_words() {
    let mut view = device(vec![path("nvme0c0n1", "optimized", &[("<=4k", "spill", 3)])]);
    view.iopolicy = "finish-time".into();
    view.samples = vec![Sample {
        before_ns: 2_500 * MS,
        worker: 1,
        op: "read".into(),
        bytes: 4096,
        iopolicy: "finish-time".into(),
        reason: "earliest-finish".into(),
        path: "nvme0c0n1".into(),
        paths: 2,
        candidates: vec![
            candidate(
                "nvme0c0n1",
                true,
                &json!({
                    "load_bytes": 40_960,
                    "base_ns": 95_000,
                    "finish_ns": 640_000,
                    "rate_bytes_per_s": 242_640_000,
                }),
            ),
            candidate(
                "nvme0c1n1",
                true,
                &json!({ "load_bytes": 0, "base_ns": 0, "finish_ns": 0, "rate_bytes_per_s": 0 }),
            ),
            candidate("nvme0c2n1", true, &json!({ "unheard_ns": 2_300_000_000_u64 })),
        ],
    }];
    let printed = explain::text(&view, 10);
    for words in [
        "finish-time: the first choice was busy, this one had room",
        "finish-time: expected to be done there first\n",
        "> nvme0c0n1  optimized, 40 KiB to carry, 95.0 us without a queue, done in 640.0 us, \
         rate 231.3 MiB/s\n",
        "  nvme0c1n1  optimized, 0 B to carry, base latency not known, not measured, rate not \
         known\n",
        "  nvme0c2n1  optimized, nothing heard of it for 2.30 s\n",
    ] {
        assert!(printed.contains(words), "{words}\n{printed}");
    }
}

#[test]
fn what_finish_time_believes_stands_in_tables() {
    let mut near = path("nvme0c0n1", "optimized", &[("<=4k", "earliest-finish", 3)]);
    let base =
        |op: &str, size: &str, base_ns| BaseLatency { op: op.into(), size: size.into(), base_ns };
    near.estimates = Some(Estimates {
        rate_bytes_per_s: 242_640_000,
        rate_is_least: false,
        apart_bytes_per_s: None,
        in_flight_bytes: 24 << 10,
        finish_ns: 640_120,
        outliers_ns: 7_300,
        standing_ns: 97_000,
        toll_ns: 8_000,
        elasticity_percent: Some(83),
        silent_ns: 0,
        probes: 0,
        probe_bytes: 0,
        bases: vec![
            base("read", "<=4k", 95_260),
            base("read", "64k", 310_000),
            base("write", "<=4k", 120_000),
        ],
    });
    let mut far = path("nvme0c1n1", "optimized", &[]);
    far.estimates = Some(Estimates { probes: 2, probe_bytes: 8 << 10, ..Estimates::default() });
    let mut view = device(vec![near, far]);
    view.iopolicy = "finish-time".into();
    let tables = "
Path       Rate          In flight  4 KiB read  Outliers  Standing queue  Toll    Elasticity  \
Silent  Probes
---------  ------------  ---------  ----------  --------  --------------  ------  ----------  \
------  --------
nvme0c0n1   231.3 MiB/s  24 KiB     640.1 us    7.3 us    97.0 us         8.0 us  83 %        \
-       0, 0 B
nvme0c1n1  not measured     0 B            -         -          -              -     -        \
-       2, 8 KiB

Path       Op     Latency without a queue, by size
---------  -----  --------------------------------
nvme0c0n1  read   <=4k 95.3 us, 64k 310.0 us
           write  <=4k 120.0 us
nvme0c1n1  read   -
           write  -
";
    let printed = explain::text(&view, 0);
    assert!(printed.ends_with(tables), "\n{printed}");
}

#[test]
fn a_rate_at_which_there_was_no_queue_yet_is_the_least() {
    let mut idle = path("nvme0c0n1", "optimized", &[]);
    idle.estimates = Some(Estimates {
        rate_bytes_per_s: 512 << 10,
        rate_is_least: true,
        apart_bytes_per_s: None,
        finish_ns: 20_000_000,
        ..Estimates::default()
    });
    let mut view = device(vec![idle]);
    view.iopolicy = "finish-time".into();
    let printed = explain::text(&view, 0);
    assert!(printed.contains("nvme0c0n1  at least 0.5 MiB/s "), "{printed}");
}

#[test]
fn rates_of_reads_and_writes_stand_beside_that_of_both() {
    let mut one = path("nvme0c0n1", "optimized", &[]);
    one.estimates = Some(Estimates {
        rate_bytes_per_s: 300 << 20,
        apart_bytes_per_s: Some([1 << 30, 100 << 20]),
        ..Estimates::default()
    });
    let mut view = device(vec![one]);
    view.iopolicy = "finish-time".into();
    let printed = explain::text(&view, 0);
    let words = "nvme0c0n1  300.0 MiB/s (reads 1024.0 MiB/s, writes 100.0 MiB/s) ";
    assert!(printed.contains(words), "{printed}");
}

#[test]
fn without_samples_only_the_tables_are_printed() {
    let printed = explain::text(&busy(), 0);
    assert!(printed.ends_with("100.0 %\n"), "{printed}");
    assert!(!printed.contains("decision"), "{printed}");
}

#[test]
fn a_device_that_has_done_nothing_says_so() {
    let mut view = device(vec![path("nvme0c0n1", "optimized", &[])]);
    view.iopolicy = "queue-depth".into();
    view.iopolicy_set_by = "default".into();
    view.explain_sample = 0;
    let text = "\
nvme0n1 of nvme-subsys0: iopolicy queue-depth (the default), 1 path, 1 usable
no command has been placed on these paths yet

Path       State      Commands  Share  Moved  Share  Mean in flight (samples)
---------  ---------  --------  -----  -----  -----  ------------------------
nvme0c0n1  optimized  0         -      0 B    -      -

No decision to show (none is noted: 'anabranch set nvme0n1 explain_sample 64')
";
    let printed = explain::text(&view, 10);
    assert_eq!(printed, text, "\n{printed}");
}

#[test]
fn what_the_policy_does_not_count_is_not_called_0() {
    let one = path("nvme0c0n1", "optimized", &[("<=4k", "turn", 1)]);
    let mut view = device(vec![one]);
    for (found, mean) in [
        (seen(4, (0, 0), (0, 0)), "not counted"),
        (seen(4, (4, 0), (0, 0)), "0.0 commands"),
        (seen(4, (0, 0), (4, 0)), "0 B"),
    ] {
        view.paths[0].seen = found;
        let printed = explain::text(&view, 0);
        let row = printed.lines().find(|line| line.starts_with("nvme0c0n1")).expect("a row");
        assert!(row.ends_with(&format!("  {mean}")), "{mean}: {row}");
    }
}

#[test]
fn a_path_that_cannot_be_used_says_why() {
    for (controller, ana, hindrance, state) in [
        ("connecting", "optimized", "controller", "connecting"),
        ("resetting", "inaccessible", "controller", "resetting"),
        ("live", "inaccessible", "ana-state", "inaccessible"),
        ("live", "optimized", "size-differs", "size differs"),
        ("live", "non-optimized", "scanning", "scanning"),
        ("live", "optimized", "", "not usable"),
    ] {
        let mut one = path("nvme0c0n1", ana, &[]);
        (one.usable, one.controller_state) = (false, controller.into());
        one.hindrance = Some(hindrance.to_owned()).filter(|word| !word.is_empty());
        let printed = explain::text(&device(vec![one]), 0);
        let row = format!("\nnvme0c0n1  {state}  ");
        assert!(printed.contains(&row), "{controller}, {ana}: {printed}");
    }
}

#[test]
fn a_device_that_rests_says_so() {
    let mut view = device(vec![path("nvme0c0n1", "optimized", &[])]);
    for (quiesced, frozen, said) in
        [(0, 0, "1 usable\n"), (2, 0, "1 usable, quiesced\n"), (1, 1, "1 usable, frozen\n")]
    {
        (view.quiesced, view.frozen) = (quiesced, frozen);
        let printed = explain::text(&view, 0);
        assert!(printed.contains(said), "{said} in {printed}");
    }
}

#[test]
fn every_reason_and_input_is_a_sentence() {
    use anabranch_policy::Reason;
    for reason in Reason::ALL {
        let view = device(vec![path("nvme0c0n1", "optimized", &[("<=4k", reason.name(), 3)])]);
        let printed = explain::text(&view, 0);
        let why = printed.lines().last().expect("a row");
        assert!(!why.contains(&format!("  {reason}  ")), "{reason}: {why}");
    }
    let mut view = busy();
    view.samples.truncate(1);
    view.samples[0].candidates.truncate(1);
    let inputs = json!({
        "weight": 96, "credit": 3, "latency_ns": 1_250_000, "stale_ns": 0, "numa_distance": 10,
        "affinity": "this worker",
    });
    view.samples[0].candidates[0] = candidate("nvme0c0n1", true, &inputs);
    let printed = explain::text(&view, 1);
    let line = "optimized, weight 96, credit 3, latency 1.25 ms, not stale, numa distance 10, \
                assigned to this worker\n    and 2 more\n";
    assert!(printed.ends_with(line), "{printed}");
}

#[test]
fn sixty_four_paths_are_sixty_four_rows_and_shares_of_a_tenth_of_a_percent() {
    let name = |at: u64| format!("nvme0c{at}n1");
    let paths = (0..64).map(|at| path(&name(at), "optimized", &[("<=4k", "turn", 1 + at % 2)]));
    let view = device(paths.collect());
    let printed = explain::text(&view, 0);
    // Head, blank, names and rule; blank, names and rule.
    assert_eq!(printed.lines().count(), 5 + 64 + 3 + 64, "{printed}");
    assert!(printed.contains("nvme0c63n1  optimized  2         2.1 %"), "{printed}");
}

/// Figures of a later look at the same device.
fn later(before: &ExplainView) -> ExplainView {
    let mut after = before.clone();
    after.at_ns += 5_000 * MS;
    after.noted += 3;
    let fast = &mut after.paths[0];
    fast.commands += 40;
    fast.read_bytes += 40 * 4096;
    fast.choices[0].commands += 30;
    fast.choices.extend(choices(&[("8k", "no-optimized", 10)]));
    fast.seen = seen(24, (6, 40), (18, 17 * (640 << 10) + 3000));
    for (sample, before_ns) in after.samples.iter_mut().zip([7_500 * MS, 10 * MS]) {
        sample.before_ns = before_ns;
    }
    after
}

#[test]
fn an_interval_is_the_exact_difference_of_two_looks() {
    let before = busy();
    let view = later(&before).since(&before).expect("the same run");
    assert_eq!((view.commands, view.interval_ns, view.noted), (40, Some(5_000 * MS), 3));
    let fast = &view.paths[0];
    assert_eq!(
        fast.choices,
        choices(&[("<=4k", "least-service-time", 30), ("8k", "no-optimized", 10)])
    );
    assert_eq!((fast.commands, fast.read_bytes, fast.written_bytes), (40, 40 * 4096, 0));
    assert_eq!(fast.seen, seen(3, (2, 6), (1, 3000)));
    let slow = &view.paths[1];
    assert_eq!((slow.commands, slow.choices.len(), slow.read_bytes), (0, 0, 0));
    assert_eq!(view.samples.len(), 1, "the other one was noted before");
    let printed = explain::text(&view, 10);
    assert!(printed.contains("\n40 commands placed in 5.00 s: 8 a second\n"), "{printed}");
    assert!(printed.contains("\nThe last decision (1 in 64 is noted per worker)\n"), "{printed}");
}

#[test]
fn an_interval_has_its_own_probes_and_what_is_known_at_its_end() {
    let known = |rate_bytes_per_s, probes, probe_bytes| {
        let estimates = Estimates { rate_bytes_per_s, probes, probe_bytes, ..Estimates::default() };
        device(vec![PathExplain {
            estimates: Some(estimates),
            ..path("nvme0c0n1", "optimized", &[])
        }])
    };
    let before = known(100 << 20, 40, 216 << 10);
    let view = known(200 << 20, 43, 228 << 10).since(&before).expect("the same run");
    let found = view.paths[0].estimates.as_ref().expect("it is in force");
    assert_eq!((found.probes, found.probe_bytes), (3, 12 << 10));
    assert_eq!(found.rate_bytes_per_s, 200 << 20);
}

#[test]
fn an_interval_copes_with_paths_that_leave_join_and_come_back() {
    let before = busy();
    let mut after = later(&before);
    let new = path("nvme0c2n1", "optimized", &[("<=4k", "turn", 7)]);
    // More than it had done before it left.
    let mut back = path("nvme0c0n1", "optimized", &[("<=4k", "turn", 5000)]);
    back.id = 7;
    after.paths = vec![back, new];
    let view = after.since(&before).expect("the same run");
    let counts: Vec<_> = view.paths.iter().map(|p| (p.path.as_str(), p.commands, p.left)).collect();
    let left = [("nvme0c0n1", 0, true), ("nvme0c1n1", 0, true)];
    assert_eq!(
        counts,
        [&[("nvme0c0n1", 5000, false), ("nvme0c2n1", 7, false)], &left[..]].concat()
    );
    assert_eq!(view.commands, 5007);
    let printed = explain::text(&view, 0);
    assert!(printed.contains(", 2 paths, 2 usable\n"), "{printed}");
    let left = "\n\
nvme0c0n1 left in that time, and its counts with it; shown is what it did since it came back
nvme0c1n1 left in that time, and its counts with it\n";
    assert!(printed.contains(left), "{printed}");
    let quiet = before.clone().since(&before).expect("the same run");
    let printed = explain::text(&quiet, 0);
    assert!(printed.contains("\n0 commands placed in 0 ns: 0 a second\n"), "{printed}");
}

/// A host that is asked twice, and each time shows another of these.
struct Looks(Mutex<Vec<ExplainView>>);

impl Handler for Looks {
    fn call(&self, _: &str, _: Params<'_>) -> Result<Answer, RpcError> {
        Answer::of(&self.0.lock().expect("one client").pop())
    }
}

/// Its paths have the same names and identifiers as before, and may have higher counts.
#[test]
fn an_interval_over_a_restart_of_the_host_is_none() {
    let place = std::env::temp_dir().join(format!("anabranch-explain-{}", std::process::id()));
    let at = place.join("host.sock");
    for (again, status, says) in [("a", 0, ""), ("b", 1, "the host was restarted in that time")] {
        let mut before = busy();
        before.instance = "a".into();
        let after = ExplainView { instance: again.into(), ..later(&before) };
        let handler = Arc::new(Looks(Mutex::new(vec![after, before])));
        let server = ControlServer::start(&at, handler, Limits::default()).expect("a server");
        let output = Command::new(env!("CARGO_BIN_EXE_anabranch"))
            .args(["explain", "nvme0n1", "--interval", "1ms", "--socket"])
            .arg(&at)
            .output()
            .expect("the binary runs");
        drop(server);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{told}");
        assert!(told.contains(says) && output.stdout.is_empty() == (status == 1), "{output:?}");
    }
    let _ = std::fs::remove_dir_all(&place);
}

#[test]
fn the_json_is_read_back_as_it_was_written_and_its_integers_are_exact() {
    let mut view = busy();
    view.paths[0].read_bytes = u64::MAX;
    let text = json!(view).to_string();
    assert!(text.contains("\"read_bytes\":18446744073709551615"), "{text}");
    assert_eq!(serde_json::from_str::<ExplainView>(&text).expect("the same shape"), view);
    let names: Vec<String> = json!(view).as_object().expect("an object").keys().cloned().collect();
    let wanted = "schema device subsystem iopolicy iopolicy_default iopolicy_set_by kernel_exact \
                  quiesced frozen explain_sample instance at_ns interval_ns commands paths noted \
                  samples";
    assert_eq!(names.join(" "), wanted, "docs/EXPLAIN.md describes these");
}

#[test]
fn wrong_options_are_usage_errors() {
    let parse = |words: &[&str]| Cli::try_parse_from([&["anabranch", "explain"], words].concat());
    assert!(parse(&["nvme0n1", "--interval", "250ms", "--samples", "0"]).is_ok());
    for wrong in [
        &[][..],
        &["nvme0n1", "nvme1n1"],
        &["nvme0n1", "--interval", "0"],
        &["nvme0n1", "--interval", "2h"],
        &["nvme0n1", "--interval", "soon"],
        &["nvme0n1", "--samples", "4097"],
        &["nvme0n1", "--samples", "-1"],
    ] {
        let error = parse(wrong).expect_err("refused");
        assert_eq!(error.exit_code(), 2, "{wrong:?}");
    }
}
