//! `connect-all`: what a discovery service lists is connected, and what those list to which it
//! refers, each once. And what is printed of it. `disconnect` of several at once, `reset`.

use anabranch::daemon::view::{DiscoveryLog, DiscoveryRecord};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::process::{Command, Output};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

const REFERRAL: &str = "discovery subsystem referral";
const NVM: &str = "nvme subsystem";

fn record(subtype: &str, trtype: &str, subnqn: &str, trsvcid: u16) -> DiscoveryRecord {
    DiscoveryRecord {
        subtype: subtype.into(),
        trtype: trtype.into(),
        subnqn: subnqn.into(),
        traddr: "127.0.0.1".into(),
        trsvcid: trsvcid.to_string(),
        ..DiscoveryRecord::default()
    }
}

fn refers_to(trsvcid: u16) -> DiscoveryRecord {
    record(REFERRAL, "tcp", "nqn.2014-08.org.nvmexpress.discovery", trsvcid)
}

fn answer(request: &Value, log: fn(u64) -> Option<Vec<DiscoveryRecord>>) -> Value {
    if request["method"] == "disconnect" {
        return match request["params"]["device"].as_str() {
            Some("nvme9") => json!({ "error": { "code": -32000, "message": "there is no nvme9" } }),
            Some("nvme8") => json!({ "result": { "disconnected": 0, "given_up": 1 } }),
            _ => json!({ "result": { "disconnected": 1, "given_up": 0 } }),
        };
    }
    let port = &request["params"]["path"]["trsvcid"];
    let port = port.as_u64().or_else(|| port.as_str()?.parse().ok());
    match request["method"].as_str() {
        Some("discover") => match log(port.expect("a port")) {
            Some(records) => {
                let port = port.unwrap_or_default();
                let skipped = vec![format!("entry 3 at {port} is skipped: odd")];
                json!({ "result": DiscoveryLog { genctr: 1, records, skipped } })
            }
            None => json!({ "error": { "code": -32000, "message": "connection refused" } }),
        },
        Some("connect") => match request["params"]["path"]["traddr"].as_str() {
            Some("late") => json!({ "result": { "controller": "nvme7", "waits_for": "a name" } }),
            Some("odd") => json!({ "result": { "controller": "nvme7", "warnings": ["odd"] } }),
            _ => json!({ "result": { "controller": "nvme7" } }),
        },
        Some("set") => json!({ "result": {} }),
        other => panic!("nobody asks for {other:?}"),
    }
}

/// Runs `connect-all` against a host whose discovery services, by port, have these logs. Returns
/// what it was asked for: method, NQN and port.
fn connect_all(
    name: &str,
    log: fn(u64) -> Option<Vec<DiscoveryRecord>>,
) -> (Output, Vec<(String, String, u64)>) {
    let (output, asked) = run(&["connect-all", "-a", "127.0.0.1", "-s", "4001"], name, log);
    let asked = asked.iter().map(|request| {
        let port = &request["params"]["path"]["trsvcid"];
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        (text(&request["method"]), text(&request["params"]["nqn"]), port.as_u64().expect("a port"))
    });
    (output, asked.collect())
}

/// Runs a verb against such a host.
fn run(
    arguments: &[&str],
    name: &str,
    log: fn(u64) -> Option<Vec<DiscoveryRecord>>,
) -> (Output, Vec<Value>) {
    let socket = std::env::temp_dir().join(format!("anabranch-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).expect("a socket");
    let (tell, told): (Sender<Value>, Receiver<Value>) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a client");
            for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                let request: Value = serde_json::from_str(&line).expect("JSON");
                let mut reply = answer(&request, log);
                reply["jsonrpc"] = json!("2.0");
                reply["id"] = request["id"].clone();
                tell.send(request).expect("the test waits");
                writeln!(&stream, "{reply}").expect("the client waits");
            }
        }
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.arg("--socket").arg(&socket).args(arguments);
    let output = command.output().expect("the binary runs");
    let _ = std::fs::remove_file(&socket);
    (output, told.try_iter().collect())
}

/// An interface has one number here and another where the host is, in a network namespace; a name
/// service may know other names there.
#[test]
fn what_an_address_means_is_for_the_host_to_say() {
    for given in ["fe80::1%eth7", "[::1]", "array..invalid"] {
        let arguments = ["connect-all", "-a", given, "-s", "4001"];
        let (output, asked) = run(&arguments, "interface", |_| Some(Vec::new()));
        assert!(output.status.success(), "{output:?}");
        assert_eq!(asked[0]["params"]["path"]["traddr"], given);
        assert_eq!(asked[0]["params"]["path"]["trsvcid"], 4001);
    }
}

/// As by nvme-cli, for `jq -r .device`; of many there is a list, so that all is one document.
#[test]
fn connect_prints_an_object_and_connect_all_a_list() {
    let nqn = "nqn.2026-01.org.test:a";
    let connect = ["connect", "-a", "127.0.0.1", "-s", "5001", "-n", nqn, "-o", "json"];
    let all = ["connect-all", "-a", "127.0.0.1", "-s", "4001", "-o", "json"];
    let log = |_| Some(vec![record(NVM, "tcp", "nqn.2026-01.org.test:a", 5001)]);
    for (arguments, printed) in
        [(&connect[..], json!({ "device": "nvme7" })), (&all, json!([{ "device": "nvme7" }]))]
    {
        let (output, _) = run(arguments, "printed", log);
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(told, printed);
    }
}

/// As by a target whose subsystem has no namespace for this host, or does not allow it.
#[test]
fn a_log_with_nothing_but_discovery_is_told() {
    let note = "anabranch: nothing but discovery is offered to this host: no path is connected";
    let current = |port| {
        let own = record("current discovery subsystem", "tcp", "nqn.2014-08.x", 4001);
        Some(if port == 4001 { vec![own, refers_to(4002)] } else { Vec::new() })
    };
    let told = |(output, _): (Output, Vec<_>)| {
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    let notes = told(connect_all("nothing", current));
    assert_eq!(notes.lines().last(), Some(note), "{notes}");
    let other = |_| Some(vec![record(NVM, "rdma", "nqn.2026-01.org.test:a", 5001)]);
    let notes = told(connect_all("something", other));
    assert!(!notes.contains("nothing but discovery"), "{notes}");
}

#[test]
fn connect_says_what_it_waits_for() {
    let nqn = "nqn.2026-01.org.test:a";
    let connect = ["connect", "-a", "late", "-n", nqn, "--keep-trying"];
    let (output, _) = run(&connect, "waits", |_| None);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"connecting to device: nvme7\n");
    assert_eq!(output.stderr, b"anabranch: a name\n");
}

/// It succeeds, as with nvme-cli: what is of use is used.
#[test]
fn connect_says_what_of_a_controller_is_of_no_use() {
    let connect = ["connect", "-a", "odd", "-n", "nqn.2026-01.org.test:a"];
    let (output, _) = run(&connect, "odd", |_| None);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"connecting to device: nvme7\n");
    assert_eq!(output.stderr, b"anabranch: nvme7: odd\n");
    let (output, _) = run(&[&connect[..], &["-o", "json"]].concat(), "odd", |_| None);
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told, json!({ "device": "nvme7", "warnings": ["odd"] }));
}

#[test]
fn referrals_are_followed_once() {
    let (output, asked) = connect_all("referrals", |port| {
        Some(match port {
            4001 => vec![
                record(NVM, "tcp", "nqn.2026-01.org.test:a", 5001),
                record(REFERRAL, "rdma", "nqn.2026-01.org.test:rdma", 4003),
                refers_to(4001),
                refers_to(4002),
            ],
            _ => vec![refers_to(4001), record(NVM, "tcp", "nqn.2026-01.org.test:b", 5002)],
        })
    });
    let asked: Vec<(&str, &str, u64)> =
        asked.iter().map(|(method, nqn, port)| (method.as_str(), nqn.as_str(), *port)).collect();
    let discovery = "nqn.2014-08.org.nvmexpress.discovery";
    assert_eq!(
        asked,
        [
            ("discover", discovery, 4001),
            ("connect", "nqn.2026-01.org.test:a", 5001),
            ("discover", discovery, 4002),
            ("connect", "nqn.2026-01.org.test:b", 5002),
        ]
    );
    assert!(output.status.success());
    let notes = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(notes.contains("rdma at 127.0.0.1:4003 is skipped"), "{notes}");
    for port in [4001, 4002] {
        assert!(
            notes.contains(&format!("anabranch: entry 3 at {port} is skipped: odd")),
            "{notes}"
        );
    }
}

/// They say nothing without an interface, and the log is of the one that was asked on.
#[test]
fn what_is_listed_of_a_link_is_on_the_interface_that_was_asked() {
    let arguments = ["connect-all", "-a", "fe80::9%va", "-s", "4001"];
    let (output, asked) = run(&arguments, "link", |_| {
        let on = |traddr: &str| DiscoveryRecord {
            traddr: traddr.to_owned(),
            ..record(NVM, "tcp", "nqn.2026-01.org.test:a", 5001)
        };
        Some(vec![on("fe80::1"), on("fd00::1"), on("192.0.2.1")])
    });
    assert!(output.status.success(), "{output:?}");
    let to = |request: &Value| request["params"]["path"]["traddr"].as_str().map(str::to_owned);
    let to: Vec<String> = asked[1..].iter().filter_map(to).collect();
    assert_eq!(to, ["fe80::1%va", "fd00::1", "192.0.2.1"]);
}

#[test]
fn who_discovers_hears_of_entries_that_are_left_out() {
    let arguments = ["discover", "-a", "127.0.0.1", "-s", "4001"];
    let (output, _) = run(&arguments, "left-out", |_| Some(Vec::new()));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stderr, b"anabranch: entry 3 at 4001 is skipped: odd\n");
}

#[test]
fn a_referral_that_does_not_answer_is_told_after_the_rest() {
    let (output, asked) = connect_all("silent-referral", |port| {
        let second = record(NVM, "tcp", "nqn.2026-01.org.test:b", 5002);
        (port == 4001).then(|| vec![refers_to(4002), second])
    });
    assert_eq!(asked.len(), 3);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"connecting to device: nvme7\n");
    let why = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(why.contains("127.0.0.1:4002: connection refused"), "{why}");
}

#[test]
fn referrals_without_end_are_left_alone() {
    let (output, asked) = connect_all("endless-referrals", |port| {
        Some(vec![refers_to(u16::try_from(port).expect("a port") + 1)])
    });
    assert_eq!(asked.len(), 17);
    let notes = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(notes.contains("too many referrals"), "{notes}");
}

#[test]
fn disconnect_takes_several_and_goes_on_when_one_is_not_there() {
    let disconnect = |name: &str, words: &[&str]| {
        let words = [&["disconnect"], words].concat();
        let (output, asked) = run(&words, name, |_| None);
        let asked = asked.iter().map(|request| request["params"].to_string());
        let told = |bytes| String::from_utf8(bytes).expect("UTF-8");
        let (stdout, stderr) = (told(output.stdout), told(output.stderr));
        (output.status.code(), asked.collect::<Vec<_>>(), stdout, stderr)
    };
    let (status, asked, told, _) =
        disconnect("d-nqns", &["-n", "nqn.2026-01.org.test:a,nqn.2026-01.org.test:b"]);
    let nqns = ["a", "b"].map(|of| format!("nqn.2026-01.org.test:{of}"));
    assert_eq!(
        (status, asked),
        (Some(0), nqns.clone().map(|nqn| format!("{{\"nqn\":\"{nqn}\"}}")).to_vec())
    );
    assert_eq!(told, nqns.map(|nqn| format!("NQN:{nqn} disconnected 1 controller(s)\n")).concat());
    let (status, asked, told, why) = disconnect("d-devices", &["-d", "nvme9,/dev/nvme2,nvme4"]);
    assert_eq!((status, asked.len()), (Some(1), 3));
    assert_eq!(told, "nvme2 disconnected 1 controller(s)\nnvme4 disconnected 1 controller(s)\n");
    assert!(why.contains("there is no nvme9"), "{why}");
    let (_, _, told, _) = disconnect("d-late", &["-d", "nvme8"]);
    let rest = " and gave up 1 path(s) whose names have no address\n";
    assert_eq!(told, format!("nvme8 disconnected 0 controller(s){rest}"));
    let (status, _, told, _) = disconnect("d-json", &["-d", "nvme2,nvme8,nvme4", "-o", "json"]);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((status, told), (Some(0), json!({ "disconnected": 2, "given_up": 1 })));
    let (status, asked, ..) = disconnect("d-mistake", &["-n", "nqn.2026-01.org.test:a,x\ny"]);
    assert_eq!((status, asked.len()), (Some(2), 0), "nothing is done of what makes no sense");
}

/// `nvme reset`, `nvme ns-rescan` and `nvme disconnect-all` are words that people have in their
/// fingers.
#[test]
fn short_verbs_of_nvme_cli_are_what_their_long_forms_are() {
    for (name, words, method, params) in [
        ("v-all", &["disconnect-all"][..], "disconnect", json!({ "all": true })),
        (
            "v-reset",
            &["reset", "/dev/nvme2"],
            "set",
            json!({ "object": "nvme2", "attribute": "reset_controller", "value": "1" }),
        ),
        (
            "v-rescan",
            &["ns-rescan", "nvme3", "-o", "json"],
            "set",
            json!({ "object": "nvme3", "attribute": "rescan_controller", "value": "1" }),
        ),
    ] {
        let (output, asked) = run(words, name, |_| None);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        let asked: Vec<_> = asked.iter().map(|it| (&it["method"], &it["params"])).collect();
        assert_eq!(asked, [(&json!(method), &params)], "{words:?}");
        let told = String::from_utf8(output.stdout).expect("UTF-8");
        match name {
            "v-all" => assert_eq!(told, "all subsystems disconnected 1 controller(s)\n"),
            "v-reset" => assert_eq!(told, ""),
            _ => assert_eq!(told, "{\n  \"device\": \"nvme3\"\n}\n"),
        }
    }
}
