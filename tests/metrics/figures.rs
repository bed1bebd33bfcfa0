//! The figures are those of the control socket, at the same moment.

use crate::stand::{DEVICE, Stand};
use crate::text::Exposition;
use anabranch::daemon::top::TopView;
use anabranch::daemon::view::PathView;

const OPS: [&str; 3] = ["read", "write", "other"];

fn at_rest(stand: &Stand) -> (Exposition, TopView) {
    (stand.scrape(), stand.host.top().expect("a look"))
}

fn paths(view: &TopView) -> &[PathView] {
    &view.host.subsystems[0].heads[0].paths
}

fn same_path(found: &Exposition, view: &TopView, path: &PathView) {
    let of = [("path", path.name.as_str()), ("device", DEVICE), ("subsystem", "nvme-subsys0")];
    let value = |name: &str| found.value(name, &of);
    let by_op = |name: &str, op| found.value(name, &[of[0], ("op", op)]);
    for (op, count) in OPS.into_iter().zip(path.commands) {
        assert_eq!(by_op("anabranch_path_ios_completed_total", op), count as f64, "{op}");
    }
    for (op, bytes) in OPS.into_iter().zip(path.bytes) {
        assert_eq!(by_op("anabranch_path_bytes_total", op), bytes as f64, "{op}");
    }
    for (name, count) in [
        ("anabranch_path_inflight_ios", path.in_flight),
        ("anabranch_path_errors_total", path.errors),
        ("anabranch_path_flawed_answers_total", path.flawed),
        ("anabranch_path_retries_total", path.retries),
        ("anabranch_path_failovers_total", path.failovers),
        ("anabranch_path_uncertain_writes_resent_total", path.uncertain_writes_resent),
        ("anabranch_path_probes_total", path.probes),
        ("anabranch_path_io_duration_seconds_count", path.lat_ns.count),
        ("anabranch_path_usable", u64::from(path.usable)),
    ] {
        assert_eq!(value(name), count as f64, "{name} of {}", path.name);
    }
    let mean = value("anabranch_path_io_duration_seconds_sum") / path.lat_ns.count as f64;
    assert_eq!((mean * 1e9) as u64, path.lat_ns.mean, "of {}", path.name);
    let times = found.samples("anabranch_path_io_time_seconds_total");
    let times = times.iter().filter(|sample| sample.labels["path"] == path.name);
    let time: f64 = times.map(|sample| sample.value).sum();
    let sum = value("anabranch_path_io_duration_seconds_sum");
    assert!(sum > 0.0 && (time - sum).abs() < 1e-6, "{time} is the sum of {sum}");
    let counted: u64 = view.latencies[&path.name].iter().map(|(_, count)| count).sum();
    assert_eq!(value("anabranch_path_io_duration_seconds_count"), counted as f64);
    let states = found.samples("anabranch_path_ana_state");
    let mut states = states.iter().filter(|s| s.labels["path"] == path.name && s.value == 1.0);
    assert_eq!(states.next().map(|s| &s.labels["state"]), Some(&path.ana_state));
    assert_eq!(states.next(), None, "it is in one state");
}

#[test]
fn figures_are_those_of_the_control_socket() {
    let stand = Stand::new();
    stand.load(500);
    let (found, view) = at_rest(&stand);
    for path in paths(&view) {
        same_path(&found, &view, path);
    }
    let head = &view.host.subsystems[0].heads[0];
    assert!(head.requests.iter().sum::<u64>() >= 500);
    for (op, count) in OPS.into_iter().zip(head.requests) {
        let of = [("device", DEVICE), ("op", op)];
        let name = "anabranch_device_requests_completed_total";
        assert_eq!(found.value(name, &of), count as f64, "{op}");
    }
    for (op, bytes) in OPS.into_iter().zip(head.bytes) {
        let of = [("device", DEVICE), ("op", op)];
        assert_eq!(found.value("anabranch_device_bytes_total", &of), bytes as f64, "{op}");
    }
    assert_eq!(found.value("anabranch_device_size_bytes", &[]), f64::from(16 << 20));
}

#[test]
fn what_a_policy_weighs_paths_with_is_there_while_it_is_in_force() {
    let stand = Stand::new();
    stand.load(200);
    let rate = "anabranch_path_rate_estimate_bytes_per_second";
    let with = |policy: &str| {
        stand.set("nvme-subsys0", "iopolicy", policy);
        stand.load(200);
        at_rest(&stand)
    };
    let (found, view) = with("finish-time");
    for path in paths(&view) {
        let of = [("path", path.name.as_str())];
        let known = &view.estimates[&path.name];
        assert_eq!(found.value(rate, &of), known.rate_bytes_per_s as f64);
        assert_eq!(found.value("anabranch_path_inflight_bytes", &of), 0.0);
    }
    assert_eq!(found.samples("anabranch_path_weight").len(), 0);
    stand.set("nvme0c0n1", "relative_throughput", "7");
    let (found, _) = with("service-time");
    let of = [("controller", "nvme0"), ("op", "all")];
    assert_eq!(found.value("anabranch_path_weight", &of), 7.0);
    assert_eq!(found.samples(rate).len(), 0);
    let (found, view) = with("latency");
    for path in paths(&view) {
        for (op, weight) in OPS.into_iter().zip(path.latency_weights.expect("it has weights")) {
            let of = [("path", path.name.as_str()), ("op", op)];
            assert_eq!(found.value("anabranch_path_weight", &of), f64::from(weight), "{op}");
        }
    }
    assert_eq!(found.samples("anabranch_path_inflight_bytes").len(), 0);
    let of = [("policy", "latency"), ("set_by", "attribute")];
    assert_eq!(found.value("anabranch_policy_info", &of), 1.0);
}

#[test]
fn a_path_that_leaves_and_comes_back_counts_from_nothing() {
    let stand = Stand::new();
    stand.load(200);
    stand.disconnect("nvme1");
    let (found, view) = at_rest(&stand);
    assert_eq!(found.value("anabranch_subsystem_paths", &[]), 1.0);
    assert_eq!(found.samples("anabranch_path_usable").len(), 1, "what has left is not told of");
    let requests = |found: &Exposition| -> f64 {
        let all = found.samples("anabranch_device_requests_completed_total");
        all.iter().map(|sample| sample.value).sum()
    };
    assert!(requests(&found) >= 200.0, "its device keeps what it has done");
    stand.connect(1);
    stand.host.await_head(DEVICE).expect("it is there");
    let name = view.host.subsystems[0].heads[0].paths[0].name.clone();
    let again = loop {
        let found = stand.scrape();
        if found.samples("anabranch_path_usable").len() == 2 {
            break found;
        }
    };
    let ended = again.samples("anabranch_path_ios_completed_total");
    let back = ended.iter().filter(|sample| sample.labels["path"] != name);
    assert!(back.clone().count() == 3 && back.clone().all(|sample| sample.value == 0.0));
    assert_eq!(requests(&again), requests(&found));
}
