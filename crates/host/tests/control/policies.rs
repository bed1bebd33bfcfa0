//! What can be set and seen about policies: ranges, errors, what is shown under which policy, and
//! how far a value reaches.

use crate::attributes::stats;
use crate::fake::{Fake, Space};
use crate::rig::{NQN, Rig, config};
use anabranch_host::config::SubsystemSettings;
use anabranch_host::mail::{PathStats, ShardStats};
use anabranch_host::topology::ControllerId;
use anabranch_host::verb::{PolicySource, Reply, Selection, Verb, VerbError};
use anabranch_policy::{
    Affinity, AnaRank, Candidate, Charge, FinishTimeReport, LOCAL_DISTANCE, LatencyReport, Ledgers,
    Load, Local, OpClass, Policy, Sampled, Scope, SizeBucket, SizeClass, compute_weights, finish,
    latency_report, sample, start,
};
use std::collections::BTreeSet;
use std::sync::Arc;

const SUBSYSTEM: &str = "nvme-subsys0";
const HEAD: &str = "nvme0n1";

/// Two namespaces, each through two controllers.
fn two_namespaces() -> Rig {
    let mut rig = Rig::new(2);
    for port in 1..=2 {
        let mut fake = Fake::new(NQN, port);
        fake.spaces.insert(2, Space::new(0x22, 4096));
        rig.put(port, fake);
        rig.connect_ok(port, |_| ());
    }
    rig
}

fn under(rig: &mut Rig, policy: &str) {
    rig.set(SUBSYSTEM, "iopolicy", policy).unwrap();
}

fn texts(rig: &mut Rig, objects: &[&str], attribute: &str) -> Vec<String> {
    objects.iter().map(|object| rig.get(object, attribute).unwrap()).collect()
}

/// Starts a command of 4 KiB as worker `worker` (from 0) would.
fn charge(rig: &Rig, (head, controller): (&str, u32), worker: u16) -> Charge {
    with_load(rig, (head, controller), worker, |load| {
        let parameters = rig.head(head).unwrap().parameters;
        start(&parameters, load, OpClass::Write, 4096, 0)
    })
}

fn give_back(rig: &Rig, path: (&str, u32), worker: u16, charge: Charge) {
    with_load(rig, path, worker, |load| finish(charge, Ledgers::from(load)));
}

fn with_load<R>(
    rig: &Rig,
    (head, controller): (&str, u32),
    worker: u16,
    act: impl FnOnce(Load<'_>) -> R,
) -> R {
    let path = rig.path(head, controller).unwrap();
    let controller = rig.controller(controller).unwrap();
    act(Load {
        controller: &controller.load.ledger,
        workers: &controller.load.workers,
        worker,
        queue: worker,
        tags: 0,
        shared: &path.load.shared,
        lane: &path.load.lanes[usize::from(worker)],
        node: path.nodes.first().map(|node| &**node),
        local: Some(&Local::new()),
    })
}

#[test]
fn paths_have_counters_of_their_own_once_a_policy_counts_by_path() {
    let mut rig = two_namespaces();
    let heads = ["nvme0n1", "nvme0n2"];
    let loads = |rig: &Rig| {
        let paths = heads.iter().flat_map(|head| [0, 1].map(|id| rig.path(head, id).unwrap()));
        paths.map(|path| Arc::as_ptr(&path.load)).collect::<Vec<_>>()
    };
    let distinct = |rig: &Rig| loads(rig).into_iter().collect::<BTreeSet<_>>().len();
    for policy in ["numa", "round-robin", "service-time", "latency", "io-affinity", "queue-depth"] {
        under(&mut rig, policy);
        assert_eq!(distinct(&rig), 1, "{policy}: nothing is counted there");
    }
    rig.set(SUBSYSTEM, "queue_depth_scope", "namespace").unwrap();
    let own = loads(&rig);
    assert_eq!(distinct(&rig), own.len());
    // A charge goes back to where it was made.
    let given = charge(&rig, (HEAD, 1), 0);
    for policy in ["finish-time", "round-robin", "queue-length", "historical-service-time"] {
        under(&mut rig, policy);
        assert_eq!(loads(&rig), own, "{policy}");
    }
    let held = |rig: &Rig| rig.path(HEAD, 1).unwrap().load.shared.nr_active();
    assert_eq!(held(&rig), 1);
    give_back(&rig, (HEAD, 1), 0, given);
    assert_eq!(held(&rig), 0);
}

#[test]
fn t4_relative_throughput_is_1_at_first_and_takes_0_to_100() {
    let mut rig = Rig::connected(1);
    under(&mut rig, "service-time");
    assert_eq!(rig.get("nvme0c0n1", "relative_throughput"), Ok(String::from("1")));
    for (value, text) in
        [("0", "0"), ("100", "100"), ("0x10", "16"), ("010", "8"), ("+7", "7"), ("42\n", "42")]
    {
        rig.set("nvme0c0n1", "relative_throughput", value).unwrap();
        assert_eq!(rig.get("nvme0c0n1", "relative_throughput"), Ok(String::from(text)), "{value}");
    }
    for value in ["101", "256", "4294967295", "-1", "", "x", "1.5", "08", "42\n\n", "1 2", "0x"] {
        let error = rig.set("nvme0c0n1", "relative_throughput", value).unwrap_err();
        assert!(matches!(error, VerbError::Invalid(_)), "{value:?}: {error}");
    }
    let error = rig.set("nvme0c0n1", "relative_throughput", "101").unwrap_err().to_string();
    assert!(error.contains("between 0 and 100"), "{error}");
    for value in ["4294967296", "0x100000000", "18446744073709551616"] {
        let error = rig.set("nvme0c0n1", "relative_throughput", value).unwrap_err();
        assert!(matches!(error, VerbError::OutOfRange(_)), "{value}: {error}");
    }
    assert_eq!(rig.get("nvme0c0n1", "relative_throughput"), Ok(String::from("42")));
}

#[test]
fn t4_relative_throughput_belongs_to_the_controller() {
    let mut rig = two_namespaces();
    under(&mut rig, "service-time");
    rig.set("nvme0c1n2", "relative_throughput", "25").unwrap();
    let paths = ["nvme0c0n1", "nvme0c0n2", "nvme0c1n1", "nvme0c1n2"];
    assert_eq!(texts(&mut rig, &paths, "relative_throughput"), ["1", "1", "25", "25"]);
    let weight = |id| rig.controller(id).unwrap().load.ledger.relative_throughput();
    assert_eq!([weight(0), weight(1)], [1, 25], "what the workers select by");
}

#[test]
fn t4_relative_throughput_can_be_written_under_any_policy() {
    let mut rig = Rig::connected(1);
    under(&mut rig, "round-robin");
    rig.set("nvme0c0n1", "relative_throughput", "9").unwrap();
    assert_eq!(rig.get("nvme0c0n1", "relative_throughput"), Ok(String::new()));
    under(&mut rig, "service-time");
    assert_eq!(rig.get("nvme0c0n1", "relative_throughput"), Ok(String::from("9")));
}

#[test]
fn t5_a_weight_of_0_outlives_a_reset_and_a_loss() {
    let mut rig = Rig::connected_twice(1);
    under(&mut rig, "service-time");
    rig.set("nvme0c0n1", "relative_throughput", "0").unwrap();
    rig.set("nvme0c1n1", "relative_throughput", "4").unwrap();
    rig.cut(1);
    assert_eq!(rig.get("nvme0c0n1", "relative_throughput"), Ok(String::from("0")), "while down");
    rig.set("nvme0c1n1", "relative_throughput", "5").unwrap();
    rig.cut(2);
    rig.advance_s(11);
    for object in ["nvme0", "nvme1"] {
        assert_eq!(rig.get(object, "state"), Ok(String::from("live")));
        assert_eq!(rig.get(object, "reconnect_count"), Ok(String::from("1")));
    }
    let paths = ["nvme0c0n1", "nvme0c1n1"];
    assert_eq!(texts(&mut rig, &paths, "relative_throughput"), ["0", "5"]);
}

#[test]
fn m21_what_belongs_to_a_policy_is_empty_under_others_and_absent_on_the_device() {
    let mut rig = Rig::connected(1);
    for policy in Policy::ALL {
        under(&mut rig, policy.name());
        for (attribute, of, text) in [
            ("queue_depth", "queue-depth", "0"),
            ("in_flight_bytes", "service-time", "0"),
            ("relative_throughput", "service-time", "1"),
        ] {
            let expected = if policy.name() == of { text } else { "" };
            let shown = rig.get("nvme0c0n1", attribute);
            assert_eq!(shown, Ok(String::from(expected)), "{attribute} under {policy}");
            assert!(rig.get("nvme0n1", attribute).is_err(), "{attribute} of the device");
            assert!(rig.set("nvme0n1", attribute, "1").is_err(), "{attribute} of the device");
        }
    }
    for attribute in ["queue_depth", "in_flight_bytes"] {
        assert!(rig.set("nvme0c0n1", attribute, "0").is_err(), "{attribute} is read-only");
    }
}

#[test]
fn t3_in_flight_bytes_is_of_the_controller_and_goes_back_whatever_the_policy_is_by_then() {
    let mut rig = two_namespaces();
    under(&mut rig, "service-time");
    let charges = [charge(&rig, ("nvme0n1", 0), 0), charge(&rig, ("nvme0n2", 0), 1)];
    let paths = ["nvme0c0n1", "nvme0c0n2", "nvme0c1n1"];
    assert_eq!(texts(&mut rig, &paths, "in_flight_bytes"), ["8192", "8192", "0"]);
    under(&mut rig, "queue-depth");
    give_back(&rig, ("nvme0n1", 0), 0, charges[0]);
    assert_eq!(texts(&mut rig, &paths, "queue_depth"), ["0", "0", "0"]);
    under(&mut rig, "service-time");
    assert_eq!(texts(&mut rig, &paths, "in_flight_bytes"), ["4096", "4096", "0"]);
    give_back(&rig, ("nvme0n2", 0), 1, charges[1]);
    assert_eq!(texts(&mut rig, &paths, "in_flight_bytes"), ["0", "0", "0"]);
}

#[test]
fn queue_depth_is_that_of_the_ledger_which_is_compared() {
    // Of three commands on controller 0, one is of the second namespace.
    let commands = [("nvme0n1", 0), ("nvme0n1", 1), ("nvme0n2", 1)];
    let cases = [("controller", ["3", "3", "0"]), ("namespace", ["2", "1", "0"])];
    let per_worker = ["queue-pair", "worker", "sum"].map(|scope| (scope, ["3", "3", "0"]));
    let mut rig = two_namespaces();
    let paths = ["nvme0c0n1", "nvme0c0n2", "nvme0c1n1"];
    for (scope, depths) in cases.into_iter().chain(per_worker) {
        rig.set(SUBSYSTEM, "queue_depth_scope", scope).unwrap();
        assert_eq!(rig.get(SUBSYSTEM, "queue_depth_scope"), Ok(String::from(scope)));
        let charges = commands.map(|(head, worker)| charge(&rig, (head, 0), worker));
        assert_eq!(texts(&mut rig, &paths, "queue_depth"), depths, "{scope}");
        let snapshot = rig.snapshot();
        let shown = &snapshot.subsystems[0].heads[0].paths[0];
        assert_eq!(shown.queue_depth.to_string(), depths[0], "{scope} in the snapshot");
        // Given back under another scope: to where they were taken.
        rig.set(SUBSYSTEM, "queue_depth_scope", "controller").unwrap();
        for ((head, worker), charge) in commands.into_iter().zip(charges) {
            give_back(&rig, (head, 0), worker, charge);
        }
        for other in Scope::ALL {
            rig.set(SUBSYSTEM, "queue_depth_scope", other.name()).unwrap();
            assert_eq!(texts(&mut rig, &paths, "queue_depth"), ["0"; 3], "{scope}, {other}");
        }
    }
}

#[test]
fn the_default_policy_is_copied_to_subsystems_that_come() {
    let mut rig = Rig::connected(1);
    let of = |rig: &mut Rig, subsystem: &str| {
        let names = ["iopolicy_default", "iopolicy", "iopolicy_set_by"];
        names.map(|name| rig.get(subsystem, name).unwrap()).join(" ")
    };
    assert_eq!(rig.get("nvme_core", "iopolicy"), Ok(String::from("queue-depth")));
    rig.set("nvme_core", "iopolicy", "service-time\n").unwrap();
    assert_eq!(rig.get("nvme_core", "iopolicy"), Ok(String::from("service-time")));
    assert_eq!(of(&mut rig, SUBSYSTEM), "service-time queue-depth default", "it has what it had");

    let other = "nqn.2024-01.test:two";
    let mut fake = Fake::new(other, 1);
    fake.spaces = [(1, Space::new(0x33, 100))].into();
    rig.put(2, fake);
    rig.connect_ok(2, |request| request.subsystem_nqn = other.parse().unwrap());
    assert_eq!(of(&mut rig, "nvme-subsys1"), "service-time service-time default");
    assert_eq!(rig.head("nvme1n1").unwrap().parameters.policy, Policy::ServiceTime);

    // Writing what is in force says nothing new about where it comes from.
    rig.set("nvme-subsys1", "iopolicy", "service-time").unwrap();
    assert_eq!(of(&mut rig, "nvme-subsys1"), "service-time service-time default");
    rig.set("nvme-subsys1", "iopolicy", "numa").unwrap();
    assert_eq!(of(&mut rig, "nvme-subsys1"), "service-time numa attribute");
    let snapshot = rig.snapshot();
    let shown = &snapshot.subsystems[1];
    assert_eq!((&*shown.iopolicy_default, &*shown.iopolicy), ("service-time", "numa"));
    assert_eq!(shown.iopolicy_source, PolicySource::Attribute);
}

#[test]
fn the_default_policy_takes_exact_names_only() {
    let mut rig = Rig::connected(1);
    for wrong in ["queue", "round-robin2", "Numa", " numa", "numa\n\n", "", "\n"] {
        let error = rig.set("nvme_core", "iopolicy", wrong).unwrap_err();
        assert!(matches!(error, VerbError::Invalid(_)), "{wrong:?}: {error}");
    }
    assert_eq!(rig.get("nvme_core", "iopolicy"), Ok(String::from("queue-depth")));
}

#[test]
fn a_configured_subsystem_does_not_go_by_the_default() {
    let mut config = crate::rig::config(1);
    let settings = SubsystemSettings::new(Some(Policy::RoundRobin), false);
    config.subsystems = vec![(NQN.parse().unwrap(), settings)];
    let mut rig = Rig::with(config);
    rig.put(1, Fake::new(NQN, 1));
    rig.fake(1).refuse = true;
    let id = rig.connect(1, |request| request.keep_trying = true);
    assert!(rig.reply(id).is_some());
    let shown = |rig: &mut Rig| {
        let subsystem = rig.snapshot().subsystems.remove(0);
        (subsystem.iopolicy, subsystem.iopolicy_default, subsystem.iopolicy_source)
    };
    let configured =
        (String::from("round-robin"), String::from("queue-depth"), PolicySource::Configuration);
    assert_eq!(shown(&mut rig), configured, "before it was ever reached");
    rig.fake(1).refuse = false;
    rig.advance_s(11);
    assert_eq!(rig.head("nvme0n1").unwrap().parameters.policy, Policy::RoundRobin);
    assert_eq!(shown(&mut rig), configured);
    assert_eq!(rig.get(SUBSYSTEM, "iopolicy_set_by"), Ok(String::from("configuration")));
}

/// Writes each value and reads the text that follows it.
fn round_trips(rig: &mut Rig, attribute: &str, cases: &[(&str, &str)]) {
    for (value, text) in cases {
        rig.set(HEAD, attribute, value).unwrap();
        assert_eq!(rig.get(HEAD, attribute), Ok(text.to_string()), "{attribute} {value:?}");
    }
}

fn refuses(rig: &mut Rig, attribute: &str, invalid: &[&str], too_large: &[&str]) {
    let before = (rig.get(HEAD, attribute), rig.topology.epoch);
    for value in invalid {
        let error = rig.set(HEAD, attribute, value).unwrap_err();
        assert!(matches!(error, VerbError::Invalid(_)), "{attribute} {value:?}: {error}");
    }
    for value in too_large {
        let error = rig.set(HEAD, attribute, value).unwrap_err();
        assert!(matches!(error, VerbError::OutOfRange(_)), "{attribute} {value:?}: {error}");
    }
    assert_eq!((rig.get(HEAD, attribute), rig.topology.epoch), before, "{attribute}");
}

#[test]
fn l5_latency_ewma_shift_is_3_at_first_and_takes_0_to_8() {
    let mut rig = Rig::connected(1);
    assert_eq!(rig.get(HEAD, "latency_ewma_shift"), Ok(String::from("3")));
    round_trips(&mut rig, "latency_ewma_shift", &[("0", "0"), ("0x8", "8"), ("07\n", "7")]);
    let (invalid, too_large) = (["9", "256", "264", "-1", "", "x", "3s", "08"], ["4294967296"]);
    refuses(&mut rig, "latency_ewma_shift", &invalid, &too_large);
    assert!(rig.set(HEAD, "latency_ewma_shift", "9").unwrap_err().to_string().contains("to 8"));
    let shift = rig.head(HEAD).unwrap().parameters.latency.ewma_shift;
    assert_eq!(shift.to_string(), "7", "what the workers average by");
}

#[test]
fn l4_latency_batch_timeout_reads_back_as_it_was_written() {
    let mut rig = Rig::connected(1);
    let name = "latency_batch_timeout";
    assert_eq!(rig.get(HEAD, name), Ok(String::from("15")), "seconds");
    let cases = [
        ("20", "20"),
        ("0x10", "16"),
        ("200ms", "200ms"),
        ("50us\n", "50us"),
        ("3s", "3s"),
        ("4294967295", "4294967295"),
        ("0", "0"),
    ];
    round_trips(&mut rig, name, &cases);
    let invalid = ["", "ms", "-1", "1.5", "1 s", "1m", "15\n\n", "1e3", "1ns"];
    refuses(&mut rig, name, &invalid, &["4294967296", "4294967296ms", "0x100000000us"]);
    rig.set(HEAD, name, "250us").unwrap();
    let timeout = rig.head(HEAD).unwrap().parameters.latency.batch_timeout;
    assert_eq!(timeout.as_nanos(), 250_000, "what the workers go by");
}

#[test]
fn l11_l14_variants_of_latency_are_switches_of_the_device_under_any_policy() {
    let mut rig = two_namespaces();
    let names = ["latency_size_buckets", "latency_per_node", "latency_ignore_ana"];
    let of = |rig: &Rig, head: &str| {
        let latency = rig.head(head).unwrap().parameters.latency;
        [latency.size_buckets, latency.per_node, latency.compete]
    };
    for policy in ["latency", "round-robin"] {
        under(&mut rig, policy);
        for (index, name) in names.into_iter().enumerate() {
            assert_eq!(rig.get(HEAD, name), Ok(String::from("0")));
            refuses(&mut rig, name, &["2", "", "y", "-1", "on"], &[]);
            round_trips(&mut rig, name, &[("1\n", "1")]);
            let expected = std::array::from_fn(|at| at == index);
            assert_eq!(of(&rig, HEAD), expected, "{name}");
            assert_eq!(of(&rig, "nvme0n2"), [false; 3], "another device has its own");
            rig.set(HEAD, name, "0").unwrap();
        }
    }
}

#[test]
fn m3_a_path_is_as_far_as_the_network_device_that_it_goes_through() {
    let mut config = config(3);
    config.distances = vec![vec![10, 21], vec![21, 10], Vec::new()];
    let mut rig = Rig::with(config);
    rig.nodes = [(1, 0), (2, 1), (4, 7)].into();
    for port in 1..=4 {
        rig.put(port, Fake::new(NQN, port));
        rig.connect_ok(port, |_| ());
    }
    let distances = |rig: &Rig, controller| rig.path(HEAD, controller).unwrap().distance.to_vec();
    assert_eq!(distances(&rig, 0), [10, 21, 10], "the last worker may run anywhere");
    assert_eq!(distances(&rig, 1), [21, 10, 10]);
    assert_eq!(distances(&rig, 2), [10; 3], "not known");
    assert_eq!(distances(&rig, 3), [10; 3], "a node of which nothing is known");
    let nodes = [0, 1, 2, 3].map(|id| rig.get(&format!("nvme{id}"), "numa_node").unwrap());
    assert_eq!(nodes, ["0", "1", "-1", "7"]);
    // The address has moved to another card meanwhile.
    rig.nodes.insert(1, 1);
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(distances(&rig, 0), [21, 10, 10]);
}

/// It is a kilobyte per path and node: there is none where nothing is measured so.
#[test]
fn paths_have_room_for_what_nodes_measure_while_latency_averages_per_node() {
    let mut config = config(2);
    config.worker_nodes = vec![0, 1];
    let mut rig = Rig::with(config);
    rig.put(1, Fake::new(NQN, 1));
    rig.connect_ok(1, |_| ());
    let nodes = |rig: &Rig| rig.path(HEAD, 0).unwrap().nodes.clone();
    under(&mut rig, "latency");
    assert_eq!(nodes(&rig).len(), 0);
    rig.set(HEAD, "latency_per_node", "1").unwrap();
    let room = nodes(&rig);
    assert_eq!(room.len(), 2);
    rig.cut(1);
    rig.advance_s(11);
    let same = nodes(&rig).iter().zip(&room).all(|(a, b)| Arc::ptr_eq(a, b));
    assert!(same, "what was measured stays with the path");
    under(&mut rig, "round-robin");
    assert_eq!(nodes(&rig).len(), 0);
}

#[test]
fn l10_what_was_measured_is_dropped_when_it_would_mean_something_else() {
    let mut rig = Rig::connected(1);
    under(&mut rig, "latency");
    for (name, value, drops) in [
        ("latency_size_buckets", "1", true),
        ("latency_per_node", "1", true),
        ("latency_ignore_ana", "1", false),
        ("latency_ewma_shift", "1", false),
        ("latency_batch_timeout", "1", false),
        ("explain_sample", "1", false),
    ] {
        let before = rig.head(HEAD).unwrap().policy_epoch;
        let epoch = rig.topology.epoch;
        rig.set(HEAD, name, value).unwrap();
        assert_eq!(rig.topology.epoch, epoch + 1, "{name} is told to the workers");
        let after = rig.head(HEAD).unwrap().policy_epoch;
        assert_eq!(after, before + u32::from(drops), "{name}");
        rig.set(HEAD, name, value).unwrap();
        assert_eq!(rig.topology.epoch, epoch + 1, "{name}: the same value has no effect");
    }
}

#[test]
fn what_is_set_about_latency_stays_with_the_device_over_policies_and_reconnects() {
    let mut rig = Rig::connected_twice(1);
    rig.set(HEAD, "latency_batch_timeout", "100ms").unwrap();
    rig.set(HEAD, "latency_ewma_shift", "5").unwrap();
    under(&mut rig, "latency");
    rig.cut(1);
    rig.cut(2);
    rig.advance_s(11);
    under(&mut rig, "numa");
    assert_eq!(rig.get(HEAD, "latency_batch_timeout"), Ok(String::from("100ms")));
    assert_eq!(rig.head(HEAD).unwrap().parameters.latency.ewma_shift.to_string(), "5");
}

#[test]
fn parameters_of_historical_service_time_are_numbers_in_their_ranges() {
    let mut rig = Rig::connected(1);
    let of = |rig: &Rig| {
        let historical = rig.head(HEAD).unwrap().parameters.historical;
        (historical.base_weight.get(), historical.threshold_multiplier)
    };
    assert_eq!(of(&rig), (972, 0));
    for (name, value) in [("hst_base_weight", "0x3ff"), ("hst_threshold_multiplier", "4294967295")]
    {
        rig.set(SUBSYSTEM, name, value).unwrap();
        let error = rig.set(SUBSYSTEM, name, "4294967296").unwrap_err();
        assert!(matches!(error, VerbError::OutOfRange(_)), "{name}: {error}");
    }
    assert_eq!(of(&rig), (1023, u32::MAX), "what the workers go by");
    let error = rig.set(SUBSYSTEM, "hst_base_weight", "1024").unwrap_err().to_string();
    assert!(error.contains("1023"), "{error}");
}

/// Data of one worker about two paths: reads took 1 and 3 us, the weights are due to that.
fn measured(rig: &Rig) -> [LatencyReport; 2] {
    let parameters = rig.head(HEAD).unwrap().parameters;
    let locals = [Local::new(), Local::new()];
    let paths = [0, 1].map(|id| (rig.path(HEAD, id).unwrap(), rig.controller(id).unwrap()));
    let candidates = [0, 1].map(|at| Candidate {
        usable: true,
        rank: AnaRank::Optimized,
        numa_distance: LOCAL_DISTANCE,
        affinity: Affinity::Own,
        load: Load {
            controller: &paths[at].1.load.ledger,
            workers: &paths[at].1.load.workers,
            worker: 0,
            queue: 0,
            tags: 0,
            shared: &paths[at].0.load.shared,
            lane: &paths[at].0.load.lanes[0],
            node: paths[at].0.nodes.first().map(|node| &**node),
            local: Some(&locals[at]),
        },
    });
    for (candidate, taken_ns) in candidates.iter().zip([1_000, 3_000]) {
        let charge = start(&parameters, candidate.load, OpClass::Read, 4096, 0);
        let sampled = sample(&parameters, charge, candidate.load, 2, taken_ns);
        if let Sampled::BatchClosed(group) = sampled {
            compute_weights(&parameters, &candidates, group);
        }
        finish(charge, Ledgers::from(candidate.load));
    }
    let too_long = start(&parameters, candidates[1].load, OpClass::Other, 0, 0);
    assert_eq!(sample(&parameters, too_long, candidates[1].load, 2, 1 << 31), Sampled::TooLong);
    finish(too_long, Ledgers::from(candidates[1].load));
    candidates.map(|candidate| latency_report(&parameters, candidate.load))
}

fn told(rig: &mut Rig, worker: u16, reports: [LatencyReport; 2]) {
    let head = rig.head(HEAD).unwrap().id;
    let path = |(id, report)| PathStats {
        controller: ControllerId(id),
        latency: Some(Box::new(report)),
        ..stats(head, 1).paths.remove(0)
    };
    let paths = [0, 1].into_iter().zip(reports).map(path).collect();
    rig.stats.insert(worker, ShardStats { paths, ..ShardStats::default() });
}

#[test]
fn l12_latency_stat_has_the_columns_of_the_series_on_device_and_path() {
    let mut rig = Rig::connected_twice(2);
    under(&mut rig, "latency");
    let none = "0 0 0 0 0 0 0";
    let nothing = format!("{none} {none} {none}");
    let empty = format!(
        "nvme0c0n1:\ncpu 0 : {nothing}\ncpu 1 : {nothing}\n\
         nvme0c1n1:\ncpu 0 : {nothing}\ncpu 1 : {nothing}"
    );
    assert_eq!(rig.get(HEAD, "latency_stat"), Ok(empty));
    assert_eq!(rig.get("nvme0c0n1", "latency_stat"), Ok(["0"; 12].join(" ")));

    // weight credit score smoothed_ns selected samples ignored; reads, writes, others.
    let reports = measured(&rig);
    told(&mut rig, 2, reports);
    let ignored = "0 0 0 0 0 0 1";
    let text = format!(
        "nvme0c0n1:\ncpu 0 : {nothing}\ncpu 1 : 96 0 1000000 1000 0 1 0 {none} {none}\n\
         nvme0c1n1:\ncpu 0 : {nothing}\ncpu 1 : 31 0 333333 3000 0 1 0 {none} {ignored}"
    );
    assert_eq!(rig.get(HEAD, "latency_stat"), Ok(text));
    // weight selected samples ignored; workers without a weight do not count in its mean.
    told(&mut rig, 1, reports);
    let path = rig.get("nvme0c1n1", "latency_stat");
    assert_eq!(path, Ok(String::from("31 0 2 0 0 0 0 0 0 0 0 2")));
    assert!(rig.set(HEAD, "latency_stat", "0").is_err(), "read-only");
}

#[test]
fn finish_time_stat_tells_what_the_workers_know_in_words_and_units() {
    let mut rig = Rig::connected_twice(2);
    under(&mut rig, "finish-time");
    let stat = |rig: &mut Rig| rig.get("nvme0c1n1", "finish_time_stat").unwrap();
    assert!(stat(&mut rig).starts_with("rate: not measured\n"), "{}", stat(&mut rig));

    let mut report = stats(rig.head(HEAD).unwrap().id, 1).paths.remove(0);
    report.controller = ControllerId(1);
    let mut base_ns = [[0; SizeClass::COUNT]; 2];
    base_ns[1][SizeClass::of(65536).index()] = 1_234_567;
    report.finish_time = Some(Box::new(FinishTimeReport {
        measured: true,
        rate_bytes_per_s: 56 << 20,
        rate_is_least: false,
        apart_bytes_per_s: None,
        in_flight_bytes: 8192,
        base_ns,
        finish_ns: 95_300,
        outliers_ns: 7_250,
        standing_ns: 0,
        toll_ns: 1_500,
        elasticity_percent: None,
        silent_ns: 0,
        probes: 3,
        probe_bytes: 12288,
    }));
    rig.stats.insert(2, ShardStats { paths: vec![report], ..ShardStats::default() });
    let text = stat(&mut rig);
    for line in [
        "rate: 56.0 MiB/s",
        "read latency without a queue: not known",
        "write latency without a queue: 64k 1234.5 us",
        "in flight: 8 KiB (4 KiB more for each command)",
        "a read of 4 KiB would take: 95.3 us",
        "outliers: 7.2 us on average of all commands",
        "toll: 1.5 us",
        "elasticity: not known",
        "probes: 3, 12 KiB",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(rig.set("nvme0c1n1", "finish_time_stat", "0").is_err(), "read-only");
}

#[test]
fn l12_with_size_buckets_each_size_has_a_line() {
    let mut rig = Rig::connected_twice(1);
    under(&mut rig, "latency");
    rig.set(HEAD, "latency_size_buckets", "1").unwrap();
    let reports = measured(&rig);
    told(&mut rig, 1, reports);
    let text = rig.get(HEAD, "latency_stat").unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2 * (1 + SizeBucket::COUNT));
    assert!(lines[1].starts_with("cpu 0 <=16k : 96 0 1000000 1000 0 1 0 "), "{text}");
    assert!(lines[2].starts_with("cpu 0 32k : 0 0 0 0 0 0 0 "), "{text}");
    assert_eq!(lines[8], "nvme0c1n1:");
    let text = rig.get("nvme0c0n1", "latency_stat").unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), SizeBucket::COUNT);
    assert_eq!(lines[0], "<=16k : 96 0 1 0 0 0 0 0 0 0 0 0");
    assert_eq!(lines[6], ">512k : 0 0 0 0 0 0 0 0 0 0 0 0");
}

#[test]
fn d5_io_affinity_is_a_bitmap_of_workers_per_path() {
    use Affinity::{Mapped, Own, Unmapped};
    let mut config = crate::rig::config(4);
    config.worker_nodes = vec![0, 0, 1, 1];
    let mut rig = Rig::with(config);
    for port in 1..=2 {
        rig.put(port, Fake::new(NQN, port));
        rig.connect_ok(port, |_| ());
    }
    let of = |rig: &Rig| [0, 1].map(|id| rig.path(HEAD, id).unwrap().affinity.to_vec());
    let paths = ["nvme0c0n1", "nvme0c1n1"];
    assert_eq!(of(&rig), [[]; 2], "under another policy nobody asks");
    rig.set("nvme-subsys0", "iopolicy", "io-affinity").unwrap();
    assert_eq!(texts(&mut rig, &paths, "io_affinity"), ["5", "a"], "the workers in turn");
    let [first, second] = of(&rig);
    assert_eq!((first[0], first[2], second[1], second[3]), (Own, Own, Own, Own));
    for value in ["", "0", "0x1", "g", "-1", "1,"] {
        let error = rig.set(paths[1], "io_affinity", value).unwrap_err();
        assert!(matches!(error, VerbError::Invalid(_)), "{value:?}: {error}");
    }
    let error = rig.set(paths[1], "io_affinity", "10").unwrap_err();
    assert!(matches!(&error, VerbError::OutOfRange(text) if text.contains("0 to 3")), "{error}");
    assert_eq!(texts(&mut rig, &paths, "io_affinity"), ["5", "a"]);

    rig.set(paths[1], "io_affinity", "3\n").unwrap();
    assert_eq!(texts(&mut rig, &paths, "io_affinity"), ["0", "3"], "without one: nobody's");
    assert_eq!(of(&rig), [vec![Unmapped; 4], vec![Own, Own, Mapped, Mapped]]);
    rig.set(paths[0], "io_affinity", "0C").unwrap();
    assert_eq!(of(&rig)[0], [Mapped, Mapped, Own, Own]);
    let epoch = rig.topology.epoch;
    rig.set(paths[0], "io_affinity", "c").unwrap();
    assert_eq!(rig.topology.epoch, epoch, "the same value has no effect");
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(texts(&mut rig, &paths, "io_affinity"), ["c", "3"], "over a reconnect");
    assert!(rig.get(HEAD, "io_affinity").is_err(), "absent on the device");
}

#[test]
fn who_names_what_is_not_there_is_told_what_is() {
    let mut rig = two_namespaces();
    for (object, told) in [
        ("nvme9", "there is no controller nvme9: there are nvme0, nvme1"),
        ("nvme0n7", "there is no device nvme0n7: there are nvme0n1, nvme0n2"),
        ("nvme-subsys1", "there is no subsystem nvme-subsys1: there is nvme-subsys0"),
        (
            "nvme0c5n1",
            "there is no path nvme0c5n1: there are nvme0c0n1, nvme0c1n1, nvme0c0n2, nvme0c1n2",
        ),
        (
            "sda",
            "there is no sda (objects are nvme_core, nvme-subsysN, nvmeN, nvmeXnY and nvmeXcYnZ)",
        ),
    ] {
        assert_eq!(rig.get(object, "state"), Err(VerbError::Invalid(told.into())));
    }
    let no_device = "there is no device nvme7n1: there are nvme0n1, nvme0n2";
    let no_controller = "there is no controller nvme7: there are nvme0, nvme1";
    for (verb, told) in [
        (Verb::Explain { device: "nvme7n1".into() }, no_device),
        (Verb::IdNs { device: "nvme7n1".into() }, no_device),
        (Verb::IdCtrl { controller: "nvme7".into() }, no_controller),
        (Verb::Disconnect(Selection::Controller("nvme7".into())), no_controller),
    ] {
        match rig.ask(verb) {
            Reply::Error(error) => assert_eq!(error, VerbError::Invalid(told.into())),
            other => panic!("{other:?}"),
        }
    }
    let mut nothing = Rig::new(1);
    let told = "there is no device nvme0n1, nor any other";
    assert_eq!(nothing.get(HEAD, "size"), Err(VerbError::Invalid(told.into())));
}

#[test]
fn what_is_there_is_told_in_the_order_of_its_numbers() {
    let mut rig = Rig::connected_twice(1);
    rig.put(3, Fake::new(NQN, 3));
    rig.connect_ok(3, |_| ());
    rig.verb(Verb::Disconnect(Selection::Controller("nvme1".into())));
    rig.advance_s(1);
    assert_eq!(rig.connect_ok(2, |_| ()), "nvme1", "the number is free again");
    let told = "there is no controller nvme9: there are nvme0, nvme1, nvme2";
    assert_eq!(rig.get("nvme9", "state"), Err(VerbError::Invalid(told.into())));
}

#[test]
fn subsystems_are_told_in_the_order_of_their_numbers_whichever_answered_first() {
    let mut rig = Rig::new(1);
    let other = "nqn.2024-01.test:two";
    rig.connect(1, |request| request.keep_trying = true);
    rig.put(2, Fake::new(other, 1));
    rig.connect_ok(2, |request| request.subsystem_nqn = other.parse().unwrap());
    rig.put(1, Fake::new(NQN, 1));
    rig.advance_s(11);
    let told = "there is no subsystem nvme-subsys9: there are nvme-subsys0, nvme-subsys1";
    assert_eq!(rig.get("nvme-subsys9", "iopolicy"), Err(VerbError::Invalid(told.into())));
}

#[test]
fn who_names_a_subsystem_that_is_listed_but_has_not_answered_is_told_so() {
    let mut rig = Rig::new(1);
    rig.connect(1, |request| request.keep_trying = true);
    let listed = rig.snapshot().subsystems.remove(0).name;
    let told = "nvme-subsys0 has no attributes before one of its paths has answered";
    assert_eq!(rig.get(&listed, "iopolicy"), Err(VerbError::Invalid(told.into())));
    assert_eq!(rig.set(&listed, "iopolicy", "numa"), Err(VerbError::Invalid(told.into())));
    let told = "there is no subsystem nvme-subsys1, nor any other";
    assert_eq!(rig.get("nvme-subsys1", "iopolicy"), Err(VerbError::Invalid(told.into())));
}

#[test]
fn explain_sample_is_one_in_64_at_first() {
    let mut rig = Rig::connected(1);
    assert_eq!(rig.get(HEAD, "explain_sample"), Ok(String::from("64")));
    round_trips(&mut rig, "explain_sample", &[("1", "1"), ("0", "0"), ("0x80", "128")]);
    refuses(&mut rig, "explain_sample", &["", "-1", "all"], &["4294967296"]);
    assert_eq!(rig.head(HEAD).unwrap().explain_sample, 128);
}

/// Attribute, a value that is refused, the value in force, another; whether remembered choices go.
const OF_SUBSYSTEMS: [(&str, &str, &str, &str, bool); 8] = [
    ("iopolicy", "round", "queue-depth", "numa", true),
    ("kernel_exact", "yes", "0", "1", true),
    ("queue_depth_scope", "hctx", "controller", "sum", false),
    ("hst_base_weight", "1024", "972", "1023", false),
    ("hst_threshold_multiplier", "-1", "0", "2", false),
    ("finish_time_tail", "2", "0", "1", false),
    ("finish_time_compete", "yes", "0", "1", false),
    ("finish_time_probes", "2", "1", "0", false),
];

#[test]
fn m8_writing_what_is_in_force_changes_nothing_and_nonsense_is_refused() {
    for (name, nonsense, present, other, drops) in OF_SUBSYSTEMS {
        let mut rig = Rig::connected(1);
        let (epoch, before) = (rig.topology.epoch, rig.head("nvme0n1").unwrap().policy_epoch);
        for nonsense in [nonsense, "", "\n", &format!("{present} "), &format!("{other}\n\n")] {
            let error = rig.set(SUBSYSTEM, name, nonsense).unwrap_err();
            assert!(matches!(error, VerbError::Invalid(_)), "{name} {nonsense:?}: {error}");
            assert!(error.to_string().starts_with("nvme-subsys0 "), "{error}");
        }
        assert_eq!(rig.get(SUBSYSTEM, name), Ok(String::from(present)));
        rig.set(SUBSYSTEM, name, present).unwrap();
        assert_eq!(rig.topology.epoch, epoch, "{name}: nothing to tell the workers");
        rig.set(SUBSYSTEM, name, &format!("{other}\n")).unwrap();
        assert_eq!(rig.get(SUBSYSTEM, name), Ok(String::from(other)));
        let after = rig.head("nvme0n1").unwrap().policy_epoch;
        assert_eq!((rig.topology.epoch, after), (epoch + 1, before + u32::from(drops)), "{name}");
    }
}
