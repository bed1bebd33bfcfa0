//! What a daemon says does not control the terminal of whoever asks, and cannot pass for a line of
//! the program: whatever the verb, as text, as JSON, and as an error. Nor does a file that somebody
//! else has written.

use anabranch::daemon::explain::{Candidate, Choices, ExplainView, PathExplain, Sample};
use anabranch::daemon::top::TopView;
use anabranch::daemon::view::{
    AttributeView, ControllerView, DiscoveryLog, DiscoveryRecord, HeadView, HostView, PathView,
    SubsystemView,
};
use anabranch_lab::shown::obeyed;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

/// A title, a colour (as one character, too), another writing direction, and another line.
const EVIL: &str = "x\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\r\nforged\tline\u{7f}";

fn view() -> HostView {
    let path = PathView { usable: true, ..PathView::default() };
    let head = HeadView { paths: vec![path], ..HeadView::default() };
    let controller = ControllerView {
        host_traddr: Some(String::new()),
        host_iface: Some(String::new()),
        last_error: Some(String::new()),
        options: vec![(String::new(), String::new())],
        ..ControllerView::default()
    };
    let (controllers, heads) = (vec![controller], vec![head]);
    let subsystem = SubsystemView { controllers, heads, ..SubsystemView::default() };
    HostView { subsystems: vec![subsystem], ..HostView::default() }
}

fn explained() -> ExplainView {
    let path = PathExplain {
        usable: true,
        choices: vec![Choices { commands: 3, ..Choices::default() }],
        commands: 3,
        ..PathExplain::default()
    };
    let left = PathExplain { left: true, ..PathExplain::default() };
    let candidate = Candidate { usable: true, ..Candidate::default() };
    let sample = Sample { candidates: vec![candidate], ..Sample::default() };
    let (paths, samples) = (vec![path, left], vec![sample]);
    ExplainView { commands: 3, noted: 1, paths, samples, ..ExplainView::default() }
}

/// All its texts are evil.
fn evil(mut value: Value) -> Value {
    match &mut value {
        Value::String(text) => EVIL.clone_into(text),
        Value::Array(all) => all.iter_mut().for_each(|one| *one = evil(one.take())),
        Value::Object(map) => map.values_mut().for_each(|one| *one = evil(one.take())),
        _ => {}
    }
    value
}

fn answer(method: &str, whole: bool) -> Value {
    evil(match method {
        "snapshot" => json!(view()),
        "top" => json!(TopView { host: view(), ..TopView::default() }),
        "explain" => json!(explained()),
        "discover" => json!(DiscoveryLog {
            genctr: 1,
            records: vec![DiscoveryRecord::default()],
            skipped: vec![String::new()],
        }),
        "get" if whole => json!({ "attributes": [AttributeView::default()] }),
        "get" => json!({ "value": "" }),
        "connect" => json!({ "controller": "" }),
        "export_add" => json!({ "uri": "" }),
        "export_list" => {
            let used_by = json!([{ "address": "" }, { "pid": 1, "command": "" }]);
            json!({ "exports": [{ "name": "", "device": "", "uris": [""], "used_by": used_by }] })
        }
        "status" => json!({
            "ports": [{ "port": 1, "listen": "", "state": "", "shape": "", "ana": { "1": "" } }],
            "subsystems": [{ "nqn": "", "namespaces": [{ "nsid": 1, "uuid": "" }] }],
            "controllers": [{ "cntlid": 1, "subsystem": "", "host": "" }],
        }),
        "ns_add" => json!({ "nsid": "" }),
        other => panic!("nobody asks for {other} here"),
    })
}

/// A daemon at a socket of its own, until the test ends.
struct Daemon(PathBuf);

impl Daemon {
    fn start(name: &str, fails: bool) -> Daemon {
        let socket =
            std::env::temp_dir().join(format!("anabranch-{name}-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).expect("a socket");
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("a client");
                let mut lines = BufReader::new(&stream).lines();
                while let Some(Ok(line)) = lines.next() {
                    let request: Value = serde_json::from_str(&line).expect("JSON");
                    let method = request["method"].as_str().expect("a method");
                    let whole = request["params"]["attribute"].is_null();
                    let mut reply = if fails {
                        json!({ "error": { "code": -32000, "message": EVIL } })
                    } else {
                        json!({ "result": answer(method, whole) })
                    };
                    reply["jsonrpc"] = json!("2.0");
                    reply["id"] = request["id"].clone();
                    // Whether the client still wants it is its own matter.
                    let _ = writeln!(&stream, "{reply}");
                }
            }
        });
        Daemon(socket)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn run(socket: &Path, verb: &str, json: bool) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.arg("--socket").arg(socket).args(json.then_some("-ojson")).args(verb.split(' '));
    command.output().expect("the binary runs")
}

fn check(verb: &str, what: &str, bytes: &[u8]) -> String {
    let text = str::from_utf8(bytes).expect("UTF-8");
    let bad = text.chars().find(|c| obeyed(*c) && *c != '\n');
    assert!(bad.is_none(), "{what} of {verb} holds {bad:?}: {text:?}");
    text.to_owned()
}

const VERBS: [&str; 16] = [
    "list",
    "list -v",
    "list-subsys",
    "show-topology --ranking namespace",
    "show-topology --ranking ctrl",
    "show-topology --ranking multipath",
    "discover -a 127.0.0.1",
    "connect -a 127.0.0.1 -n nqn.2026-01.org.example:a",
    "connect-all -a 127.0.0.1",
    "get nvme0n1",
    "get nvme0n1 latency_stat",
    "explain nvme0n1",
    "export list",
    "export add nvme0n1 --nbd 127.0.0.1:0",
    "top --batch -n 1 -d 100ms",
    "target ctl status",
];

#[test]
fn nothing_in_an_answer_controls_a_terminal() {
    let daemon = Daemon::start("answers", false);
    for verb in VERBS {
        let output = run(&daemon.0, verb, false);
        check(verb, "standard error", &output.stderr);
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
        let text = check(verb, "standard output", &output.stdout);
        // Lines of one attribute are lines.
        let forged = text.lines().any(|line| line.trim_start().starts_with("forged"));
        assert_eq!(forged, verb.starts_with("get"), "{verb}: {text}");
    }
}

#[test]
fn json_says_the_same_in_harmless_characters() {
    let daemon = Daemon::start("json", false);
    for verb in VERBS {
        let output = run(&daemon.0, verb, true);
        check(verb, "standard error", &output.stderr);
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
        let text = check(verb, "standard output", &output.stdout);
        let value: Value = serde_json::from_str(&text).expect("JSON alone");
        let quoted = serde_json::to_string(EVIL).expect("JSON");
        let says = value.to_string().contains(&quoted);
        assert!(says || verb == "connect-all -a 127.0.0.1", "{verb}: {value}");
    }
}

#[test]
fn nothing_in_an_error_controls_a_terminal() {
    let daemon = Daemon::start("errors", true);
    for verb in VERBS.into_iter().chain(["bench nvme0n1 --runtime 1s"]) {
        for json in [false, true] {
            let output = run(&daemon.0, verb, json);
            assert_eq!(output.status.code(), Some(1), "{verb}");
            assert!(output.stdout.is_empty(), "{verb}");
            let text = check(verb, "standard error", &output.stderr);
            assert_eq!(text.lines().count(), 1, "{verb}: {text}");
            assert!(text.contains(r"\u{1b}]0;owned"), "{verb}: {text}");
        }
    }
}

/// Runs it in a directory, and looks at what it says.
fn says(dir: &Path, words: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    let output = command.current_dir(dir).args(words.split(' ')).output().expect("it runs");
    let told = check(words, "standard error", &output.stderr);
    (output.status.code(), told + &check(words, "standard output", &output.stdout))
}

#[test]
fn what_is_wrong_with_a_name_is_told_in_one_line() {
    let nqn = "nqn.2026-01.org.test:a\nanabranch: all is well";
    for verb in ["connect", "connect-all", "discover", "disconnect"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.args([verb, "-n", nqn]);
        if verb != "disconnect" {
            command.args(["-a", "127.0.0.1"]);
        }
        let output = command.output().expect("it runs");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    }
}

#[test]
fn nothing_in_a_refused_file_controls_a_terminal() {
    let dir = std::env::temp_dir().join(format!("anabranch-refused-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(dir.join("a.toml"), format!("{EVIL} = 1\n")).expect("a file");
    for words in ["serve --socket s --config a.toml", "target --socket s --config a.toml"] {
        let (status, told) = says(&dir, words);
        assert_eq!(status, Some(2), "{words}: {told}");
        assert!(told.contains(r"a.toml, line 1 (x\u{1b}]0;owned"), "{words}: {told}");
    }
    std::fs::remove_dir_all(&dir).expect("it goes");
}

#[test]
fn nothing_in_a_scenario_controls_a_terminal() {
    let dir = std::env::temp_dir().join(format!("anabranch-scenario-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let evil: String = EVIL.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
    let text = format!(
        "title = \"{evil}\"\nsource = \"{evil}\"\n[[path]]\nname = \"a\\u202e\"\n[[path]]\n\
         name = \"b\"\n[[job]]\nrw = \"randread\"\n[[variant]]\nname = \"v\\u202e\"\n\
         policy = \"numa\"\n[[published]]\npolicy = \"{evil}\"\n"
    );
    std::fs::write(dir.join("x.toml"), text).expect("a file");
    for words in ["lab list .", "lab run x.toml --short --runs 1"] {
        let (status, told) = says(&dir, words);
        assert_eq!(status, Some(0), "{words}: {told}");
        assert!(told.contains(r"x\u{1b}]0;owned"), "{words}: {told}");
        assert!(!told.contains("\nforged"), "{words}: {told}");
    }
    std::fs::remove_dir_all(&dir).expect("it goes");
}

#[test]
fn nothing_in_results_controls_a_terminal() {
    let dir = std::env::temp_dir().join(format!("anabranch-results-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let (status, told) = says(&dir, "lab run path-fails --short --runs 1 --policies numa --out a");
    assert_eq!(status, Some(0), "{told}");
    let summary = std::fs::read_to_string(dir.join("a/summary.json")).expect("a summary");
    let evil = serde_json::to_string(EVIL).expect("JSON");
    for (name, text) in [
        ("variant.json", summary.replace("\"numa\"", &evil)),
        ("scenario.json", summary.replace("\"path-fails\"", &evil)),
        ("damaged.json", summary.replace("\"light\"", &evil)),
    ] {
        assert_ne!(text, summary, "{name}");
        std::fs::write(dir.join(name), text).expect("a file");
    }
    for (words, status) in [
        ("lab compare variant.json variant.json", 0),
        ("lab compare scenario.json a", 2),
        ("lab compare damaged.json a", 2),
    ] {
        let (ended, told) = says(&dir, words);
        assert_eq!(ended, Some(status), "{words}: {told}");
        assert!(told.contains(r"x\u{1b}]0;owned"), "{words}: {told}");
    }
    std::fs::remove_dir_all(&dir).expect("it goes");
}
