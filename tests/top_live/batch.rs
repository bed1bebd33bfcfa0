//! Without a terminal.

use crate::stand::{DEVICE, PATIENCE, Stand};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::process::{Output, Stdio};
use std::time::Instant;

fn text(output: &Output) -> (Option<i32>, String, String) {
    let utf8 = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (output.status.code(), utf8(&output.stdout), utf8(&output.stderr))
}

#[test]
fn frames_are_text_for_scripts() {
    let stand = Stand::new("text");
    stand.load();
    let mut command = stand.top(&["-b", "-n", "2", "-d", "0.5"]);
    let (status, frames, error) = text(&command.env("COLUMNS", "80").output().expect("it runs"));
    assert_eq!((status, error.as_str()), (Some(0), ""));
    let frames: Vec<&str> = frames.split("\n\n").collect();
    assert_eq!(frames.len(), 2, "{frames:?}");
    for frame in frames {
        let lines: Vec<&str> = frame.lines().collect();
        assert!(lines[0].contains("1 worker, 0 clients"), "{frame}");
        assert!(lines[1].starts_with("1 device, 2 paths  "), "{frame}");
        assert!(lines[3].contains("nvme-subsys0, round-robin, nsid 1, 64 MiB"), "{frame}");
        assert!(lines[5].starts_with(" nvme0c0n1 optimized "), "{frame}");
        assert!(lines[6].starts_with(" nvme0c1n1 optimized "), "{frame}");
        assert!(lines[5].contains("% ##"), "{frame}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{frame}");
        assert!(frame.chars().all(|c| c == '\n' || c == ' ' || c.is_ascii_graphic()), "{frame}");
    }
}

#[test]
fn json_has_a_frame_a_line() {
    let stand = Stand::new("json");
    stand.load();
    let mut command = stand.top(&["-o", "json", "-n", "2", "-d", "0.5", DEVICE]);
    let (status, frames, error) = text(&command.output().expect("it runs"));
    assert_eq!((status, error.as_str()), (Some(0), ""));
    let frames: Vec<Value> =
        frames.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(frames.len(), 2);
    assert!(frames[0]["at_ns"].as_u64() < frames[1]["at_ns"].as_u64());
    for frame in &frames {
        assert_eq!(frame["schema"], 1);
        assert!(frame["interval_ns"].as_u64().is_some_and(|ns| ns > 0), "{frame}");
        let head = &frame["heads"][0];
        assert_eq!((&head["device"], &head["iopolicy"]), (&DEVICE.into(), &"round-robin".into()));
        assert!(head["p99_ns"].as_u64().is_some_and(|ns| ns > 0), "{frame}");
        let paths = head["paths"].as_array().expect("paths");
        let of = |key: &str| -> Vec<f64> {
            paths.iter().map(|path| path[key].as_f64().expect("a number")).collect()
        };
        assert!((of("share").iter().sum::<f64>() - 1.0).abs() < 1e-9, "{frame}");
        // Whole requests of one command each: rates of the paths add up to the device's.
        let iops: f64 = of("iops").iter().sum();
        assert!(iops > 0.0 && head["iops"].as_f64().is_some_and(|all| all > 0.0), "{frame}");
        let bytes: f64 = of("read_bytes_per_s").iter().sum();
        assert!((bytes - iops * 4096.0).abs() < 1.0, "{frame}");
    }
}

/// Frames until one is like this.
fn await_frame(stand: &Stand, holds: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let mut command = stand.top(&["-o", "json", "-n", "1", "-d", "0.2"]);
        let (status, frame, error) = text(&command.output().expect("it runs"));
        assert_eq!((status, error.as_str()), (Some(0), ""));
        let frame: Value = serde_json::from_str(&frame).expect("JSON");
        if holds(&frame) {
            return frame;
        }
        assert!(Instant::now() < until, "in {PATIENCE:?} only {frame}");
    }
}

/// Frames until one has this about every path, under this policy and a load.
fn await_weights(stand: &Stand, policy: &str, holds: fn(&Value) -> bool) -> Value {
    stand.set("nvme-subsys0", "iopolicy", policy);
    await_frame(stand, |frame| {
        let head = &frame["heads"][0];
        assert_eq!(head["iopolicy"], policy);
        let paths = head["paths"].as_array().expect("paths");
        paths.iter().all(|path| holds(&path["weights"]))
    })
}

#[test]
fn what_the_policy_weighs_is_there() {
    let stand = Stand::new("weights");
    stand.load();
    stand.set("nvme0n1", "latency_batch_timeout", "10ms");
    await_weights(&stand, "latency", |weights| weights["latency"][0].as_u64() > Some(0));
    stand.set("nvme0c0n1", "relative_throughput", "4");
    let frame = await_weights(&stand, "service-time", |weights| {
        weights["relative_throughput"].is_u64() && weights["latency"].is_null()
    });
    assert_eq!(frame["heads"][0]["paths"][0]["weights"]["relative_throughput"], 4);
    await_weights(&stand, "queue-depth", |weights| weights["queue_depth"].is_u64());
    let frame = await_weights(&stand, "finish-time", |weights| {
        let known = &weights["finish_time"];
        let positive = |value: &Value| value.as_u64() > Some(0);
        positive(&known["rate_bytes_per_s"])
            && positive(&known["finish_ns"])
            && positive(&known["read_base_ns"][0])
    });
    assert!(frame["heads"][0]["paths"][0]["in_flight_bytes"].is_u64(), "{frame}");
}

#[test]
fn clients_are_counted_as_they_come_and_go() {
    let stand = Stand::new("clients");
    let at = stand.export();
    let clients = |count: u64| {
        await_frame(&stand, |frame| frame["clients"] == count);
    };
    clients(0);
    let both = [(); 2].map(|()| UnixStream::connect(&at).expect("it listens"));
    clients(2);
    let [first, second] = both;
    drop(first);
    clients(1);
    drop(second);
    clients(0);
}

#[test]
fn mistakes_end_with_a_sentence() {
    let stand = Stand::new("mistakes");
    let says = |arguments: &[&str], status: i32, words: &str| {
        let mut command = stand.top(arguments);
        let (got, out, error) = text(&command.stdin(Stdio::null()).output().expect("it runs"));
        assert_eq!((got, out.as_str()), (Some(status), ""), "{arguments:?}: {error}");
        assert!(error.contains(words), "{arguments:?}: {error}");
    };
    says(&[], 2, "--batch");
    says(&["-b", "-d", "0"], 2, "100ms to 1h");
    says(&["-b", "-n", "0"], 2, "--iterations");
    says(&["-b", "nvme7n1"], 1, "no device 'nvme7n1'");
}

#[test]
fn a_host_that_goes_ends_a_batch() {
    let mut stand = Stand::new("goes");
    let mut command = stand.top(&["-o", "json", "-d", "0.1"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a frame");
    assert!(line.starts_with("{\"schema\":1,"), "{line}");
    stand.stop();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("the end");
    let output = child.wait_with_output().expect("it ends");
    let (status, _, error) = text(&output);
    assert_eq!(status, Some(1));
    assert!(error.contains("anabranch serve"), "{error}");
    // And none at the start.
    let (status, _, error) = text(&stand.top(&["-b"]).output().expect("it runs"));
    assert_eq!(status, Some(1));
    assert!(error.contains("start one with 'anabranch serve'"), "{error}");
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let stand = Stand::new("enough");
    let mut command = stand.top(&["-b", "-d", "0.1"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    stdout.read_line(&mut line).expect("a frame");
    drop(stdout);
    let (status, _, error) = text(&child.wait_with_output().expect("it ends"));
    assert_eq!((status, error.as_str()), (Some(0), ""));
}
