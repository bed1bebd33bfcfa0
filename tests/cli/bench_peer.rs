//! `bench` on a peer: one that offers nothing to put a load on is named, and a load that its device
//! cannot carry is refused.

use anabranch::daemon::control::{ControlServer, Handler, Limits};
use anabranch::daemon::host::{Host, HostSetup};
use anabranch::daemon::identity::Identity;
use anabranch::daemon::path::{PathSpec, Service};
use anabranch::daemon::rpc::{Answer, Params, RpcError};
use anabranch::daemon::target::{PortSpec, RunningTarget, SubsystemSpec, TargetSetup};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};

const NQN: &str = "nqn.2026-01.org.example:empty";

fn target(namespaces: &[&str]) -> RunningTarget {
    let namespaces = namespaces.iter().map(|text| text.parse().expect("a namespace")).collect();
    let setup = TargetSetup {
        ports: vec![PortSpec { listen: "127.0.0.1:0".to_owned(), ..PortSpec::default() }],
        subsystems: vec![SubsystemSpec { namespaces, ..SubsystemSpec::named(NQN) }],
        cpus: None,
    };
    RunningTarget::start(&setup, |_| {}).expect("a target")
}

#[test]
fn a_subsystem_without_a_namespace_is_named() {
    let target = target(&[]);
    let at = target.listeners().expect("ports")[0].to_string();
    let (address, port) = at.rsplit_once(':').expect("an address and a port");
    let output = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["bench", "-a", address, "-s", port, "-n", NQN, "--runtime", "1s"])
        .output()
        .expect("the binary runs");
    target.stop().expect("an end");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let offers = format!("anabranch: {NQN} offers no namespace to put a load on: ");
    assert!(told.starts_with(&offers), "{told}");
}

/// A host whose load does not end: no path is there on which its last requests could be answered.
/// It tells when it was asked to stop, and answers when nobody listens any more.
struct NeverStops(Mutex<mpsc::Sender<()>>);

impl Handler for NeverStops {
    fn call(&self, method: &str, _: Params<'_>) -> Result<Answer, RpcError> {
        if method == "bench_stop" {
            let asked = self.0.lock().expect("one client").send(());
            while asked.is_ok() && self.0.lock().expect("one client").send(()).is_ok() {
                std::thread::yield_now();
            }
        }
        Answer::of(&json!({}))
    }
}

#[test]
fn a_signal_ends_a_bench_whose_last_requests_are_not_answered() {
    let (tell, told) = mpsc::channel();
    let place = std::env::temp_dir().join(format!("anabranch-bench-{}", std::process::id()));
    let at = place.join("host.sock");
    let handler = Arc::new(NeverStops(Mutex::new(tell)));
    let server = ControlServer::start(&at, handler, Limits::default()).expect("a server");
    let bench = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["bench", "nvme0n1", "--runtime", "100ms", "--socket"])
        .arg(&at)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    told.recv().expect("it is asked to stop");
    kill_process(Pid::from_child(&bench), Signal::TERM).expect("it runs");
    let output = bench.wait_with_output().expect("it ends");
    drop(told);
    drop(server);
    let _ = std::fs::remove_dir_all(&place);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.starts_with("anabranch: ended by a signal; the load ends when"), "{text}");
    assert_eq!(output.status.code(), Some(1));
}

/// A host that is another one when a load is to end.
struct Restarted {
    before: Host,
    after: Host,
}

impl Handler for Restarted {
    fn call(&self, method: &str, params: Params<'_>) -> Result<Answer, RpcError> {
        let is_end = method == "bench_stop";
        if is_end { &self.after } else { &self.before }.call(method, params)
    }
}

#[test]
fn a_load_of_a_host_that_was_restarted_has_gone_with_it() {
    let target = target(&["mem:8MiB,bs=4096"]);
    let hosts = Arc::new(Restarted { before: host(&target), after: host(&target) });
    // Somebody else's, there: it is not taken for ours.
    let other = load("iodepth", json!(1)).to_string();
    hosts.after.call("bench_start", Params::from_text(&other)).expect("a load");
    let place = std::env::temp_dir().join(format!("anabranch-anew-{}", std::process::id()));
    let at = place.join("host.sock");
    let server = ControlServer::start(&at, Arc::clone(&hosts) as _, Limits::default());
    let server = server.expect("a server");
    let output = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["bench", "nvme0n1", "--runtime", "100ms", "--socket"])
        .arg(&at)
        .output()
        .expect("the binary runs");
    drop(server);
    let _ = std::fs::remove_dir_all(&place);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(told, "anabranch: the host was restarted, and the load has gone with it\n");
    assert_eq!(output.status.code(), Some(1));
    hosts.after.call("bench_stop", Params::default()).expect("it runs still");
    let Restarted { before, after } = Arc::into_inner(hosts).expect("nobody asks any more");
    before.stop().expect("an end");
    after.stop().expect("an end");
    target.stop().expect("an end");
}

/// A whole load on 8 MiB in blocks of 4096, with this field in its place.
fn load(field: &str, value: Value) -> Value {
    let mut load = json!({
        "device": "nvme0n1", "read_percent": 50, "random": true, "sizes": [[4096, 100]],
        "iodepth": 1, "numjobs": 1, "offset": 0, "size": null, "verify": false, "seed": 0,
    });
    load[field] = value;
    load
}

/// A host of two workers with the target's device.
fn host(target: &RunningTarget) -> Host {
    let at = target.listeners().expect("ports")[0].to_string();
    let (address, port) = at.rsplit_once(':').expect("an address and a port");
    let mut setup = HostSetup::new(Identity::fresh().expect("an identity"));
    setup.workers = 2;
    let host = Host::start(&setup, |_| {}).expect("a host");
    let trsvcid = Some(Service(port.parse().expect("a port")));
    let path = PathSpec { traddr: address.to_owned(), trsvcid, ..PathSpec::default() };
    host.connect(path.request(NQN, false).expect("a request")).expect("it connects");
    host.await_head("nvme0n1").expect("its device comes");
    host
}

#[test]
fn a_load_that_is_asked_for_while_another_stops_is_refused_with_that() {
    let target = target(&["mem:8MiB,bs=4096"]);
    let host = host(&target);
    let call =
        |method: &str, params: &Value| host.call(method, Params::from_text(&params.to_string()));
    let device = json!({ "device": "nvme0n1" });
    call("quiesce", &device).expect("nothing is in flight");
    call("bench_start", &load("iodepth", json!(4))).expect("a load");
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| call("bench_stop", &json!({})));
        let told = loop {
            let again = call("bench_start", &load("iodepth", json!(4)));
            match again.expect_err("there is one").message.as_str() {
                "a load runs already" => std::thread::yield_now(),
                other => break other.to_owned(),
            }
        };
        call("unquiesce", &device).expect("its requests go on");
        stop.join().expect("no panic").expect("a report");
        assert_eq!(told, "a load is being stopped: its last requests are not answered yet");
    });
    host.stop().expect("an end");
    target.stop().expect("an end");
}

/// It must not begin, and say so only in the report.
#[test]
fn a_load_that_cannot_be_is_refused_with_its_field_and_the_limit() {
    let target = target(&["mem:8MiB,bs=4096"]);
    let host = host(&target);
    let call =
        |method: &str, params: &Value| host.call(method, Params::from_text(&params.to_string()));
    for (field, value, says) in [
        ("device", json!(""), "there is no device ''"),
        ("device", json!("nvme0"), "there is no device 'nvme0'"),
        ("read_percent", json!(101), "read_percent is 101, must lie between 0 and 100"),
        ("iodepth", json!(0), "iodepth is 0, must lie between 1 and 4096"),
        ("iodepth", json!(4097), "iodepth is 4097, must lie between 1 and 4096"),
        ("numjobs", json!(0), "numjobs is 0, must lie between 1 and 1024"),
        ("numjobs", json!(1025), "numjobs is 1025, must lie between 1 and 1024"),
        ("sizes", json!([]), "sizes has no block size"),
        ("sizes", json!([[4096, 0]]), "sizes has no block size"),
        ("sizes", json!([[4096, 1], [0, 1]]), "sizes has 0, must be a multiple of 512"),
        ("sizes", json!([[1_052_672, 1]]), "sizes has 1052672, must be a multiple of 512"),
        ("sizes", json!([[512, 1]]), "block size 512 is not a multiple of the device's 4096 bytes"),
        ("offset", json!(100), "offset 100 is not a multiple of 4096"),
        ("offset", json!(8 << 20), "offset and size reach past the device's 8388608 bytes"),
        ("size", json!((8 << 20) + 4096), "offset and size reach past the device's 8388608 bytes"),
        ("size", json!(0), "the region of 0 blocks is smaller than one request"),
    ] {
        let error = call("bench_start", &load(field, value)).expect_err(says);
        assert_eq!(error.code, RpcError::INVALID_PARAMS, "{says}");
        assert!(error.message.contains(says), "{says}: {}", error.message);
        assert!(!error.message.contains("params"), "people are told, too: {}", error.message);
    }
    // Two workers have two jobs and one.
    let mut deep = load("iodepth", json!(2049));
    deep["numjobs"] = json!(3);
    let error = call("bench_start", &deep).expect_err("a worker holds 4096");
    let says = "iodepth 2049 and numjobs 3 make 4098 requests at once on one of 2 data workers";
    assert!(error.message.contains(says), "{}", error.message);
    // Two workers verify a part each.
    let mut small = load("verify", json!(true));
    small["size"] = json!(4096);
    let error = call("bench_start", &small).expect_err("half a block for each");
    assert!(error.message.contains("the region of 0 blocks"), "{}", error.message);
    // None of them has begun: there is room for one that can be.
    call("bench_start", &load("iodepth", json!(4))).expect("a load");
    let report = call("bench_stop", &json!({})).expect("a report");
    let report: Value = serde_json::from_str(report.text()).expect("JSON");
    assert_eq!(report["rejected"], Value::Null);
    host.stop().expect("an end");
    target.stop().expect("an end");
}

/// A host whose loads come to this, one after the other; then it begins no more.
struct Answers(Mutex<Vec<Value>>);

impl Handler for Answers {
    fn call(&self, method: &str, _: Params<'_>) -> Result<Answer, RpcError> {
        let mut reports = self.0.lock().expect("one client");
        match method {
            "bench_stop" => Answer::of(&reports.pop()),
            _ if reports.is_empty() => Err(RpcError::failed("no load any more")),
            _ => Answer::of(&json!({})),
        }
    }
}

/// What `bench` says on a host whose loads come to this, and its exit status.
fn told(name: &str, reports: &[&Value], format: &str) -> (Option<i32>, String, String) {
    let name = format!("anabranch-bench-{name}-{format}-{}", std::process::id());
    let place = std::env::temp_dir().join(name);
    let at = place.join("host.sock");
    let reports = reports.iter().rev().copied().cloned().collect();
    let handler = Arc::new(Answers(Mutex::new(reports)));
    let server = ControlServer::start(&at, handler, Limits::default()).expect("a server");
    let output = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["bench", "nvme0n1", "--runtime", "1ms", "--runs", "3", "-o", format, "--socket"])
        .arg(&at)
        .output()
        .expect("the binary runs");
    drop(server);
    let _ = std::fs::remove_dir_all(&place);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn what_has_failed_is_told_in_json_too_and_is_no_figure() {
    let good = |iops: f64| json!({ "reads": 5, "errors": 0, "iops": iops });
    let failed = json!({ "reads": 9, "errors": 2, "first_error": "no path", "iops": 900.0 });
    let wrong = json!({
        "reads": 9, "errors": 0, "verify_errors": 1, "mismatches": ["block 7 is damaged"],
    });
    let (few, many) = (good(100.0), good(200.0));
    for (name, reports, runs, iops, says) in [
        ("failed", &[&failed][..], 1, Value::Null, "2 I/Os failed, 0 blocks were wrong; the first"),
        ("wrong", &[&wrong], 1, Value::Null, "1 blocks were wrong; the first: block 7 is damaged"),
        ("later", &[&few, &many, &failed], 3, json!(100.0), "the first: no path"),
        ("gone", &[&few], 1, json!(100.0), "no load any more"),
    ] {
        let (status, json, text) = told(name, reports, "json");
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains(says), "{text}");
        let json: Value = serde_json::from_str(&json).expect("JSON alone");
        let made = json["runs"].as_array().expect("runs");
        assert_eq!((made.len(), &json["median"]["iops"]), (runs, &iops), "{name}: {json}");
        let last = made.last().expect("a run");
        assert_eq!(&last["load"], *reports.last().expect("a report"), "{name}");
        let (status, out, text) = told(name, reports, "normal");
        assert_eq!((status, out.as_str()), (Some(1), ""), "no table of a part: {text}");
    }
    assert_eq!(told("none", &[], "json").1, "", "nothing was run");
}

/// A client of an export, which has opened it.
fn nbd_client(at: &Path, export: &str) -> UnixStream {
    let mut client = UnixStream::connect(at).expect("it listens");
    let mut greeting = [0; 18];
    client.read_exact(&mut greeting).expect("a greeting");
    let mut words = 3_u32.to_be_bytes().to_vec();
    words.extend(b"IHAVEOPT");
    words.extend(1_u32.to_be_bytes());
    words.extend((export.len() as u32).to_be_bytes());
    words.extend(export.as_bytes());
    client.write_all(&words).expect("it is asked for");
    let mut size_and_flags = [0; 10];
    client.read_exact(&mut size_and_flags).expect("it is there");
    client
}

#[test]
fn a_load_that_would_overwrite_what_a_client_uses_is_refused() {
    let target = target(&["mem:8MiB,bs=4096"]);
    let host = host(&target);
    let call = |method: &str, params: Value| -> Result<Value, RpcError> {
        let answer = host.call(method, Params::from_text(&params.to_string()))?;
        Ok(serde_json::from_str(answer.text()).expect("JSON"))
    };
    let place = std::env::temp_dir().join(format!("anabranch-used-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a directory");
    let at = place.join("nbd.sock");
    call("export_add", json!({ "device": "nvme0n1", "nbd": at, "name": "disk" }))
        .expect("a socket");
    let stop = || call("bench_stop", json!({})).expect("a report");
    call("bench_start", load("iodepth", json!(4))).expect("nobody uses it");
    stop();
    let client = nbd_client(&at, "disk");
    let clients =
        || call("export_list", json!({})).expect("a list")["exports"][0]["clients"].clone();
    while clients() != json!(1) {
        std::thread::yield_now();
    }
    let error = call("bench_start", load("iodepth", json!(4))).expect_err("it would write");
    let says = "nvme0n1 is in use, its export \"disk\" has NBD clients (1)";
    assert!(error.message.starts_with(says), "{}", error.message);
    for (field, value) in [("read_percent", json!(100)), ("allow_mounted_write", json!(true))] {
        call("bench_start", load(field, value)).expect("it takes nothing from anybody, or may");
        stop();
    }
    drop(client);
    host.stop().expect("an end");
    target.stop().expect("an end");
    std::fs::remove_dir_all(&place).expect("it is there");
}
