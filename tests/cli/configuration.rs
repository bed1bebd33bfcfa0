//! Configuration files and units: what is wrong is named with file, line and key.

use anabranch::daemon::backing::NamespaceSpec;
use anabranch::daemon::config::{ExportConfig, ServeConfig, Source, SubsystemConfig};
use anabranch::daemon::export::listen_endpoint;
use anabranch::daemon::path::PathSpec;
use anabranch::daemon::target::{PortSpec, SubsystemSpec, TargetSetup};
use anabranch::failure::Failure;
use anabranch::units;
use anabranch_policy::Policy;
use anabranch_proto::nvme::Nqn;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use std::fs;
use std::io::Write;
use std::net::ToSocketAddrs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) fn load(text: &str) -> Result<ServeConfig, Failure> {
    from_file(text, |path| ServeConfig::load(path).map(|(config, _)| config))
}

fn from_file<T>(text: &str, load: impl FnOnce(&Path) -> T) -> T {
    let path = std::env::temp_dir().join(format!(
        "anabranch-config-{}-{:?}.toml",
        std::process::id(),
        std::thread::current().id()
    ));
    fs::write(&path, text).expect("a file");
    let loaded = load(&path);
    fs::remove_file(&path).expect("removed");
    loaded
}

#[test]
fn a_whole_file() {
    let config = load(
        r#"
hostnqn = "nqn.2014-08.org.nvmexpress:uuid:12345678-9abc-def0-1234-56789abcdef0"
workers = 2
cpus = [0, 1]
spin = "20us"
iopolicy = "round-robin"
fence = "fast"
shutdown_timeout = 5

[[subsystem]]
nqn = "nqn.2026-01.org.example:a"
iopolicy = "service-time"
[[subsystem.path]]
traddr = "127.0.0.1"
trsvcid = 4420
reconnect-delay = "500ms"
ctrl_loss_tmo = -1
[[subsystem.path]]
traddr = "127.0.0.1"
trsvcid = "4421"
hdr_digest = true
relative-throughput = 100

[[export]]
device = "nvme0n1"
nbd = "/run/x/nbd.sock"
"#,
    )
    .expect("all well");
    assert_eq!(config.workers, Some(2));
    assert_eq!(config.iopolicy, Some(Policy::RoundRobin), "the default");
    assert_eq!(config.subsystems[0].iopolicy, Some(Policy::ServiceTime), "of one subsystem");
    assert_eq!(config.spin.map(|span| span.0), Some(Duration::from_micros(20)));
    let paths = &config.subsystems[0].paths;
    let first = paths[0].get_ref().request("nqn.2026-01.org.example:a", true).expect("a request");
    assert_eq!(first.options.reconnect_delay, Duration::from_millis(500));
    assert_eq!(first.options.ctrl_loss_tmo, None);
    assert_eq!(first.to.to_string(), "127.0.0.1:4420");
    let second = paths[1].get_ref().request("nqn.2026-01.org.example:a", true).expect("a request");
    assert!(second.options.hdr_digest && !second.options.data_digest);
    assert_eq!(second.options.queue_size, 128);
    assert_eq!(second.options.keep_alive_tmo, Duration::from_secs(5));
    let weights = [first, second].map(|request| request.options.relative_throughput);
    assert_eq!(weights, [1, 100]);
}

#[test]
fn mistakes_name_line_and_key() {
    let cases = [
        ("colour = 1\n", "line 1 (colour)", "unknown field"),
        ("workers = 1\nworkers = 2\n", "line 2", "duplicate"),
        ("\niopolicy = \"best\"\n", "line 2 (iopolicy)", "queue-depth"),
        (
            "[[subsystem]]\nnqn = \"nqn.2026-01.org.example:a\"\niopolicy = \"best\"\npath = []\n",
            "line 3 (iopolicy)",
            "service-time",
        ),
        ("\n\nfence = \"strict\"\n", "line 3 (fence)", "not there yet"),
        ("fence = \"none\"\n", "line 1 (fence)", "fast"),
        ("workers = \"two\"\n", "line 1 (workers)", "invalid type"),
        ("\nworkers = 0\n", "line 2 (workers)", "is 0, must lie between 1 and 128"),
        ("workers = 129\n", "line 1 (workers)", "is 129, must lie between 1 and 128"),
        ("\n\"workers\" = 129\n", "line 2 (workers)", "is 129, must lie between 1 and 128"),
        ("hostid = '''\nworkers = 1'''\n'workers' = 0\n", "line 3 (workers)", "is 0, must"),
        ("cpus = []\n", "line 1 (cpus)", "at least one CPU"),
        ("pin = true\n  hostnqn = \"a\"\n", "line 2 (hostnqn)", "nqn."),
        ("hostid = \"b\"\n", "line 1 (hostid)", "UUID"),
        (
            "hostid = \"00000000-0000-0000-0000-000000000000\"\n",
            "line 1 (hostid)",
            "must not be all zero",
        ),
        ("spin = \"fast\"\n", "line 1 (spin)", "not a time"),
        ("\nspin = 20\n", "line 2 (spin)", "is 20 s, must not exceed 10ms"),
        ("[[subsystem]]\nnqn = \"x\"\npath = []\n", "line 2 (nqn)", "nqn"),
        (
            "[[subsystem]]\nnqn = \"nqn.2026-01.org.example:a\"\npath = []\n",
            "line 2",
            "at least one",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.2026-01.org.example:a\"\n[[subsystem.path]]\n\
             traddr = \"::1\"\ntrsvcid = 70000\n",
            "line 5 (trsvcid)",
            "'70000' is no TCP port: 1 to 65535 is expected",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.2026-01.org.example:a\"\n[[subsystem.path]]\n\
             traddr = \"::1\"\nqueue-size = 7\n",
            "line 5 (queue-size)",
            "is 7, must lie between 16 and 1024",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.2026-01.org.example:a\"\n[[subsystem.path]]\n\
             traddr = \"::1\"\ntransport = \"rdma\"\n",
            "line 5 (transport)",
            "only tcp",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.2026-01.org.example:a\"\n[[subsystem.path]]\n\
             'traddr' = \"::1\"\n'queue-size' = 7\n",
            "line 5 (queue-size)",
            "is 7, must lie between 16 and 1024",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.2026-01.org.example:a\"\npath = [\n\
             { traddr = \"::1\", queue_size = 16 },\n{ traddr = \"::1\",\nqueue_size = 7 }]\n",
            "line 6 (queue_size)",
            "is 7, must lie between 16 and 1024",
        ),
        ("[[export]]\ndevice = \"nvme0n1\"\n", "line 1", "missing field"),
        ("[[export]]\ndevice = \"nvme0n1\"\nnbd = \"\"\n", "line 3 (nbd)", "Unix socket"),
        ("[[export]]\ndevice = \"nvme0c0n1\"\nnbd = \"/x\"\n", "line 2 (device)", "'nvme0c0n1'"),
        ("[[export]]\ndevice = \"\"\nnbd = \"/x\"\n", "line 2 (device)", "such as nvme0n1"),
        ("workers = \n", "line 1 (workers)", ""),
    ];
    each_is_told(&cases);
}

/// In words of the file, not in names of types.
#[test]
fn values_that_no_key_has_are_told_with_what_could_be_written() {
    each_is_told(&[
        ("workers = -1\n", "line 1 (workers)", "is -1, must lie between 1 and 128"),
        ("workers = 70000\n", "line 1 (workers)", "is 70000, must lie between 1 and 128"),
        ("workers = \"2\"\n", "line 1 (workers)", "expected a whole number"),
        ("cpus = [1, 0, 1]\n", "line 1 (cpus)", "names CPU 1 twice"),
        ("cpus = [-1]\n", "line 1 (cpus)", "expected a whole number, 0 or more"),
        ("[subsystem]\nnqn = \"x\"\n", "line 1 ([subsystem])", "write [[subsystem]]"),
        ("\n[export]\n", "line 2 ([export])", "several of these: write [[export]]"),
        (
            "[[subsystem]]\nnqn = \"nqn.2026-01.org.example:a\"\n  [subsystem.path] # one\n",
            "line 3 ([subsystem.path]",
            "write [[subsystem.path]]",
        ),
        ("export = 5\n", "line 1 (export)", "expected a list"),
        (
            "pin = true\n[[subsystem.path]]\ntraddr = \"::1\"\n",
            "line 2 ([[subsystem.path]])",
            "belongs to a [[subsystem]], which must stand before it",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.2026-01.org.example:a\"\n",
            "line 2 (nqn)",
            "at least one [[subsystem.path]]",
        ),
        ("attr_fs = 1\n", "line 1 (attr_fs)", "expected a string"),
        ("[[export]]\ndevice = \"nvme0n0\"\nnbd = \"/x\"\n", "line 2 (device)", "'nvme0n0'"),
        ("\nattr_fs = \"\"\n", "line 2 (attr_fs)", "is empty"),
    ]);
}

/// Each text is refused, with the place and the reason in one sentence.
pub(crate) fn each_is_told(cases: &[(&str, &str, &str)]) {
    for (text, place, why) in cases {
        match load(text) {
            Err(failure @ Failure::Usage(_)) => {
                let message = failure.to_string();
                assert!(message.contains(place), "{text:?}: {message}");
                assert!(message.contains(why), "{text:?}: {message}");
                assert!(!message.contains('\n'), "one sentence: {message}");
            }
            other => panic!("{text:?} gave {other:?}"),
        }
    }
}

/// What a host would refuse later is refused before anything is started.
#[test]
fn what_no_host_can_have_is_a_mistake_of_the_file() {
    let path = "[[subsystem.path]]\ntraddr = \"a";
    let discovery = format!("[[subsystem]]\nnqn = \"{}\"\n{path}\"\n", Nqn::DISCOVERY);
    let subsystem = "[[subsystem]]\nnqn = \"nqn.2026-01.org.example:a\"\n".to_owned();
    let many = (0..1025).fold(subsystem, |text, n| format!("{text}{path}{n}\"\n"));
    for (text, place, why) in [
        (discovery, "line 2 (nqn)", "use discover or connect-all"),
        (many, "line 2051 ([[subsystem.path]])", "there may be 1024 of [[subsystem.path]]"),
    ] {
        let message = load(&text).expect_err(why).to_string();
        assert!(message.contains(place) && message.contains(why), "{message}");
    }
}

/// Nothing is started before the whole file makes sense.
#[test]
fn what_contradicts_itself_or_can_never_be_is_a_mistake() {
    let subsystem = "[[subsystem]]\nnqn = \"nqn.2026-01.org.example:a\"\n[[subsystem.path]]\n";
    let path = |text: &str| format!("{subsystem}{text}");
    let export = "[[export]]\ndevice = \"nvme0n1\"\nnbd = \"/x\"\n";
    let cases = [
        (
            "[[export]]\ndevice = \"nvme0n1\"\nnbd = \"/x\"\nname = \"a\\nb\"\n".to_owned(),
            "line 4 (name)",
            "control character",
        ),
        (
            "[[export]]\ndevice = \"nvme0n1\"\nnbd = \"/x\"\n\
             [[export]]\nname = \"nvme0n1\"\ndevice = \"nvme0n2\"\nnbd = \"/y\"\n"
                .to_owned(),
            "line 5 (name)",
            "exists already",
        ),
        (
            path("traddr = \"a\"\n[[subsystem.path]]\ntrsvcid = 4420\ntraddr = \"a\"\n"),
            "line 7 (traddr)",
            "twice",
        ),
        (
            path("traddr = \"::1\"\n[[subsystem.path]]\ntraddr = \"[0:0::1]\"\n"),
            "line 6 (traddr)",
            "twice",
        ),
        (
            path("traddr = \"192.0.2.1\"\n[[subsystem.path]]\ntraddr = \"::ffff:192.0.2.1\"\n"),
            "line 6 (traddr)",
            "twice",
        ),
        (
            (0..257).map(|n| format!("{export}name = \"{n}\"\n")).collect(),
            "line 1025 ([[export]])",
            "there may be 256 of [[export]]",
        ),
        (path("traddr = \"\"\n"), "line 4 (traddr)", "is empty"),
        (path(&format!("traddr = \"{}\"\n", "a".repeat(254))), "(traddr)", "has 253 at most"),
        (path("traddr = \"a b\"\n"), "line 4 (traddr)", "neither an address nor a name"),
        (path("traddr = \"127.0.0.1:4420\"\n"), "line 4 (traddr)", "in trsvcid"),
        (path("traddr = \"1.2.3.4\"\nhost_traddr = \"::1\"\n"), "(host_traddr)", "cannot lead"),
        (path("traddr = \"a\"\nhost_iface = \"\"\n"), "line 5 (host_iface)", "1 to 15 bytes"),
        (path("traddr = \"a\"\nrelative_throughput = -1\n"), "line 5 (relative_th", "is -1, must"),
    ];
    for (text, place, why) in cases {
        match load(&text) {
            Err(failure @ Failure::Usage(_)) => {
                let message = failure.to_string();
                assert!(message.contains(place) && message.contains(why), "{text:?}: {message}");
            }
            other => panic!("{text:?} gave {other:?}"),
        }
    }
    for address in ["[::1]", "fe80::1%eth0", "array", "array.example.", "10.0.0.1"] {
        load(&path(&format!("traddr = \"{address}\"\n"))).expect(address);
    }
    let two = "traddr = \"a\"\nhost_iface = \"lo\"\n[[subsystem.path]]\ntraddr = \"a\"\n";
    load(&path(two)).expect("by two interfaces");
}

/// As with `--config <(…)`: what is still to come may never come.
#[test]
fn a_signal_ends_a_daemon_that_waits_for_its_configuration() {
    for verb in ["serve", "target"] {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let mut child = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        let child = child.args([verb, "--config", "/dev/stdin", "--socket", "/proc/none/x"]);
        let mut child = child.stdin(reader).stderr(Stdio::piped()).spawn().expect("started");
        // More than a pipe holds: once this is written, it reads.
        writer.write_all(&[b'#'; 256 << 10]).expect("it reads");
        kill_process(Pid::from_child(&child), Signal::TERM).expect("its signal");
        // Only now the file ends.
        drop(writer);
        let status = child.wait().expect("its end");
        assert_eq!(status.signal(), Some(Signal::TERM.as_raw()), "{verb}: {status}");
    }
}

#[test]
fn mistakes_in_a_targets_file_name_line_and_key_too() {
    let port = "[[port]]\nlisten = \"127.0.0.1:0\"\n";
    let space = "[[subsystem]]\n[[subsystem.namespace]]\nbackend = \"mem:1MiB\"\n";
    for (text, place, why) in [
        (format!("[[port]]\nlisten = \"x\"\n{space}"), "line 2 (listen)", "not ADDR:PORT"),
        (
            format!("[[port]]\nlisten = \"[fe80::1%nosuch0]:1\"\n{space}"),
            "line 2 (listen)",
            "is on an interface that this machine does not have",
        ),
        (format!("{port}shape = \"rate=1\"\n{space}"), "line 3 (shape)", "rate"),
        (format!("{port}shape = \"\"\n{space}"), "line 3 (shape)", "or none"),
        (format!("{port}ana = {{ 1 = \"best\" }}\n{space}"), "line 3 (ana)", "optimized"),
        (format!("{port}{space}bs = 777\n"), "line 6 (bs)", "must be 512 or 4096"),
        (format!("{port}{space}size = \"2MiB\"\n"), "line 6 (size)", "belongs to file:PATH"),
        (
            format!("{port}{space}[[subsystem.namespace]]\nbackend = \"mem:0\"\n"),
            "line 7 (backend)",
            "mem has 0 bytes",
        ),
        (format!("{port}[[subsystem]]\nnqn = \"x\"\n"), "line 4 (nqn)", "nqn."),
        (format!("{port}[[subsystem]]\nallow_hosts = [\"x\"]\n"), "line 4 (allow_hosts)", "nqn."),
        (format!("{port}colour = 1\n{space}"), "line 3 (colour)", "unknown field"),
        (format!("{port}ana = {{ 0 = \"optimized\" }}\n{space}"), "line 3 (ana)", "from 1 to 128"),
        (format!("{port}ana = {{ 129 = \"change\" }}\n{space}"), "line 3 (ana)", "from 1 to 128"),
        (format!("{port}advertise = \"10.0.0.1:0\"\n{space}"), "line 3 (advertise)", "to 65535"),
        (format!("{port}{space}nsid = 0\n"), "line 6 (nsid)", "between 1 and 1024"),
        (format!("{port}{space}nsid = 1025\n"), "line 6 (nsid)", "between 1 and 1024"),
        (format!("{port}{space}anagrp = 129\n"), "line 6 (anagrp)", "between 1 and 128"),
        (
            format!("{port}{space}nsid = 1\n{}nsid = 1\n", &space[14..]),
            "line 9 (nsid)",
            "nsid 1 stands here twice",
        ),
        (
            format!("{port}{}", space.replace("mem:1MiB\"", "file:/x/y\"\nsize = \"17TiB\"")),
            "line 6 (size)",
            "must not exceed 16 TiB",
        ),
        (format!("{port}[[subsystem]]\nserial = \"\"\n"), "line 4 (serial)", "between 1 and 20"),
        (
            format!("{port}[[subsystem]]\nmodel = \"{}\"\n", "m".repeat(41)),
            "line 4 (model)",
            "between 1 and 40",
        ),
        (
            format!("{port}[[subsystem]]\nnqn = \"nqn.2026-01.a:b\"\n").repeat(2),
            "line 8 (nqn)",
            "stands here twice",
        ),
        (String::new(), ".toml: ", "at least one [[port]]"),
    ] {
        is_told_of_a_target(&text, place, why);
    }
}

#[test]
fn what_a_targets_file_lacks_or_says_twice_is_told_with_its_place() {
    let port = "[[port]]\nlisten = \"127.0.0.1:0\"\n";
    let space = "[[subsystem]]\n[[subsystem.namespace]]\nbackend = \"mem:1MiB\"\n";
    let uuid = "uuid = \"12345678-9abc-def0-1234-56789abcdef0\"\n";
    for (text, place, why) in [
        (port.to_owned(), ".toml: ", "at least one [[subsystem]]"),
        (format!("{port}{}", &space[14..]), "line 3", "belongs to a [[subsystem]], which must"),
        (
            format!("{port}{space}uuid = \"00000000-0000-0000-0000-000000000000\"\n"),
            "line 6 (uuid)",
            "must not be zero",
        ),
        (
            format!("{port}{space}{uuid}{}{uuid}", &space[14..]),
            "line 9 (uuid)",
            "stands here twice",
        ),
        (
            format!("{port}{}", space.replace("mem:1MiB", "file:/x/y")),
            "line 5 (backend)",
            "/x/y does not exist",
        ),
        (
            format!("{port}{}", space.replace("mem:1MiB", "file:/dev/null")),
            "line 5 (backend)",
            "is a device",
        ),
        (format!("{port}ana = 1\n{space}"), "line 3 (ana)", "expected a table"),
    ] {
        is_told_of_a_target(&text, place, why);
    }
}

/// Nothing listens, and no file is made, before that is seen.
#[test]
fn what_a_target_cannot_have_twice_or_more_of_is_told_with_its_place() {
    let port = "[[port]]\nlisten = \"127.0.0.1:4420\"\n";
    let any = "[[port]]\nlisten = \"127.0.0.1:0\"\n";
    let subsystem =
        |name: usize| format!("[[subsystem]]\nnqn = \"nqn.2026-01.org.example:{name}\"\n");
    let space = |backend: &str| format!("[[subsystem.namespace]]\nbackend = \"{backend}\"\n");
    let new = format!("{}size = 4096\n", space("file:/new.img"));
    for (text, place, why) in [
        (format!("{port}{port}{}", subsystem(0)), "line 4 (listen)", "127.0.0.1:4420' stands here"),
        (format!("{}{}", any.repeat(257), subsystem(0)), "line 513 ([[port]])", "may be 256"),
        (
            format!("{any}{}", (0..257).map(subsystem).collect::<String>()),
            "line 515 ([[subsystem]])",
            "there may be 256 of [[subsystem]]",
        ),
        (
            format!("{any}{}{}", subsystem(0), space("mem:512").repeat(1025)),
            "line 2053 ([[subsystem.namespace]])",
            "may be 1024",
        ),
        (
            format!("{any}{}{new}{}{new}", subsystem(0), subsystem(1)),
            "line 11 (backend)",
            "backend /new.img stands here twice",
        ),
    ] {
        is_told_of_a_target(&text, place, why);
    }
    let two = format!("{any}{any}{}", subsystem(0));
    from_file(&two, TargetSetup::load).expect("each takes another port");
}

#[test]
fn the_length_of_a_file_is_compared_before_anything_starts() {
    let image = std::env::temp_dir().join(format!("anabranch-image-{}", std::process::id()));
    fs::write(&image, [0; 1024]).expect("a file");
    let text = format!(
        "[[port]]\nlisten = \"127.0.0.1:0\"\n[[subsystem]]\n[[subsystem.namespace]]\n\
         backend = \"file:{}\"\n",
        image.display()
    );
    is_told_of_a_target(&format!("{text}size = 2048\n"), "line 5 (backend)", "not the 2048 asked");
    is_told_of_a_target(&format!("{text}bs = 4096\n"), "line 5 (backend)", "a multiple of 4096");
    from_file(&text, TargetSetup::load).expect("it fits");
    fs::remove_file(&image).expect("removed");
}

/// The text is refused, with the place and the reason.
fn is_told_of_a_target(text: &str, place: &str, why: &str) {
    match from_file(text, TargetSetup::load) {
        Err(failure @ Failure::Usage(_)) => {
            let message = failure.to_string();
            assert!(message.contains(place), "{text:?}: {message}");
            assert!(message.contains(why), "{text:?}: {message}");
        }
        other => panic!("{text:?} gave {other:?}"),
    }
}

/// The second would replace the first, and what that asked for be missing without a word.
#[test]
fn two_shapes_for_one_port_are_a_mistake() {
    let output = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["target", "--socket", "/proc/none/x", "--listen", "127.0.0.1:4433"])
        .args(["--shape", "1:delay=2ms", "--shape", "4433:rate=500mbit"])
        .output()
        .expect("the binary runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("4433:rate=500mbit") && told.contains("'delay=2ms' already"), "{told}");
}

#[test]
fn a_file_that_is_no_text_is_told_with_its_line() {
    let path = std::env::temp_dir().join(format!("anabranch-bytes-{}.toml", std::process::id()));
    fs::write(&path, b"# one\n# two \xff\n").expect("a file");
    let told = ServeConfig::load(&path).expect_err("no text").to_string();
    fs::remove_file(&path).expect("removed");
    assert!(told.ends_with(".toml, line 2: is not text (UTF-8)"), "{told}");
}

/// Where a name leads is not for the file to say: what has no address of its own is waited for. It
/// would listen where it cannot.
#[test]
fn a_name_that_leads_to_another_path_keeps_nothing_from_starting() {
    let localhost = ("localhost", 4420).to_socket_addrs().expect("looked up").next();
    let ip = localhost.expect("an address").ip();
    let file = std::env::temp_dir().join(format!("anabranch-twice-{}.toml", std::process::id()));
    let text = format!(
        "[[subsystem]]\nnqn = \"nqn.2026-01.org.example:a\"\n\
         [[subsystem.path]]\ntrsvcid = 4420\ntraddr = \"{ip}\"\n\
         [[subsystem.path]]\ntrsvcid = 4420\ntraddr = \"localhost\"\n"
    );
    fs::write(&file, text).expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["serve", "--socket", "/proc/none/x", "--config"])
        .arg(&file)
        .output()
        .expect("the binary runs");
    fs::remove_file(&file).expect("removed");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!told.contains("twice") && told.contains("/proc/none"), "{told}");
}

/// Scripts wait for a name to come; what cannot be right they give up.
#[test]
fn a_name_without_an_address_is_a_failure_and_no_misuse() {
    let output = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["discover", "-a", "array..invalid"])
        .output()
        .expect("the binary runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("traddr 'array..invalid' cannot be looked up"), "{told}");
    assert!(told.contains("give the controller's address"), "{told}");
}

/// Whoever waits for a daemon, or reads its answer, need not know what it was asked.
#[test]
fn what_is_wrong_whoever_answers_is_misuse() {
    let place = std::env::temp_dir().join(format!("anabranch-misuse-{}", std::process::id()));
    fs::create_dir_all(&place).expect("a directory");
    let (file, long) = (place.join("cpus.toml"), "x".repeat(120));
    fs::write(&file, "pin = true\ncpus = [0, 99999]\n").expect("a file");
    let (file, nobody) = (file.display().to_string(), place.join("s").display().to_string());
    let address = ["-a", "127.0.0.1", "-n", "nqn.2026-01.org.example:a"];
    let with = |verb: &[&str], more: &[&str]| -> Vec<String> {
        [verb, more].concat().iter().map(ToString::to_string).collect()
    };
    for (words, why) in [
        (with(&["connect", "-q", "x"], &address), "hostnqn 'x'"),
        (with(&["connect", "-I", "x"], &address), "hostid 'x'"),
        (with(&["discover", "-a", "::1", "-n", ""], &[]), "nqn '': empty NQN"),
        (with(&["connect-all", "-a", "::1", "-w", "1.2.3.4"], &[]), "host-traddr 1.2.3.4"),
        (with(&["disconnect", "-n", "a\tb"], &[]), "nqn 'a\\tb': NQN has a control character"),
        (with(&["list", "--socket", &long], &[]), "at most 107"),
        (with(&["serve", "--socket", &long], &[]), "at most 107"),
        (with(&["serve", "--config", &file], &[]), "line 2 (cpus): CPU 99999 is not allowed"),
        (with(&["target", "--namespace", "mem:0"], &[]), "namespace 'mem:0': backend mem has 0"),
        (with(&["target", "ctl", "ns", "resize", "1", "0"], &[]), "multiple of 512 and not 0"),
        (with(&["lab", "list", &nobody], &[]), "there is no such file"),
        (with(&["bench", "-a", "127.0.0.1", "-n", ""], &[]), "nqn ''"),
        (with(&["bench", "--cpus", "99999"], &[]), "cpus '99999': CPU 99999 is not allowed"),
        (with(&["bench", "nvme0n1", "--offset", "1"], &[]), "offset is 1, must be a multiple of 5"),
        (with(&["bench", "--offset", "512"], &[]), "offset is 512, must be a multiple of 4096"),
        (with(&["bench", "--size", "1"], &[]), "size is 1, must be 4096 or more"),
        (with(&["bench", "--bs", "512"], &[]), "bs is 512, must be a multiple of 4096"),
        (with(&["bench", "--size", "257m"], &[]), "must not exceed the 268435456 bytes"),
        (with(&["bench", "--bs", "x"], &[]), "block size: 'x' is not a size"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        if !words.iter().any(|word| word == "--socket") {
            command.args(["--socket", &nobody]);
        }
        let output = command.args(&words).output().expect("the binary runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {told}");
        assert!(told.contains(why), "{words:?}: {told}");
    }
    fs::remove_dir_all(&place).expect("it goes");
}

/// What a device node says of its length is 0, and it never ends.
#[test]
fn a_file_without_an_end_is_refused() {
    let failure = ServeConfig::load(Path::new("/dev/zero")).expect_err("refused");
    assert!(failure.to_string().contains("longer than the 1048576 bytes"), "{failure}");
}

#[test]
fn messages_stay_short_whatever_stands_in_the_file() {
    let long = "x".repeat(500_000);
    let texts = [format!("{long} = 1"), format!("[[subsystem]]\nnqn = \"{long}\"\npath = []\n")];
    for text in texts {
        let message = load(&text).expect_err("refused").to_string();
        assert!(message.chars().count() < 1000, "{} characters", message.len());
        assert!(message.contains('…'), "{message}");
    }
}

#[test]
fn places_in_a_file_survive_odd_texts() {
    let source = Source::new(Path::new("x.toml"), "a = 1\nü = 2".to_owned());
    assert_eq!(source.wrong(Some(6), "no").to_string(), "x.toml, line 2 (ü): no");
    assert_eq!(source.wrong(Some(7), "no").to_string(), "x.toml: no", "inside a character");
    assert_eq!(source.wrong(Some(99), "no").to_string(), "x.toml: no");
    assert_eq!(source.wrong(None, "no").to_string(), "x.toml: no");
}

#[test]
fn path_limits_are_the_kernels() {
    let nqn = "nqn.2026-01.org.example:a";
    let path = |text: &str| -> PathSpec { serde_json::from_str(text).expect(text) };
    for (text, why) in [
        (r#"{"traddr":"127.0.0.1","queue_size":15}"#, "between 16 and 1024"),
        (r#"{"traddr":"127.0.0.1","queue_size":1025}"#, "between 16 and 1024"),
        (r#"{"traddr":"127.0.0.1","nr_io_queues":0}"#, "at least 1"),
        (r#"{"traddr":"127.0.0.1","keep_alive_tmo":0}"#, "discovery controllers only"),
        (r#"{"traddr":"127.0.0.1","keep_alive_tmo":4294968}"#, "must not exceed 4294967 s"),
        (r#"{"traddr":"127.0.0.1","reconnect_delay":0}"#, "is 0ns, must be at least 1 ms"),
        (
            r#"{"traddr":"127.0.0.1","io_timeout":"1ns"}"#,
            "io-timeout is 1ns, must be at least 1 ms",
        ),
        (r#"{"traddr":"127.0.0.1","admin_timeout":"999us"}"#, "must be at least 1 ms"),
        (r#"{"traddr":"127.0.0.1","keep_alive_tmo":"1us"}"#, "must be at least 1 ms"),
        (r#"{"traddr":"127.0.0.1","io_timeout":"600000h"}"#, "must not exceed 2147483647 s"),
        (r#"{"traddr":"127.0.0.1","ctrl_loss_tmo":2147483648}"#, "must not exceed 2147483647 s"),
        (r#"{"traddr":"127.0.0.1","fast_io_fail_tmo":"600000h"}"#, "must not exceed 2147483647 s"),
        (
            r#"{"traddr":"127.0.0.1","relative_throughput":101}"#,
            "relative-throughput is 101, must lie between 0 and 100",
        ),
        (r#"{"traddr":"127.0.0.1","transport":"rdma"}"#, "only tcp"),
    ] {
        let error = path(text).request(nqn, false).expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }
    for text in [
        r#""queue_size":16"#,
        r#""queue_size":1024"#,
        r#""ctrl_loss_tmo":2147483647"#,
        r#""relative_throughput":0"#,
        r#""relative_throughput":100"#,
    ] {
        path(&format!(r#"{{"traddr":"127.0.0.1",{text}}}"#))
            .request(nqn, false)
            .expect("at the limit");
    }
    // Taken as by Linux and by 'set'; the log tells.
    path(r#"{"traddr":"127.0.0.1","fast_io_fail_tmo":60,"ctrl_loss_tmo":30}"#)
        .request(nqn, false)
        .expect("harmless");
    let discovery = Nqn::DISCOVERY;
    let found = path(r#"{"traddr":"::1","keep_alive_tmo":0}"#).request(discovery, false);
    assert_eq!(found.expect("discovery may").to.to_string(), "[::1]:8009");
    // So it is where its NQN is its own.
    let found = path(r#"{"traddr":"::1","keep_alive_tmo":0}"#).discovery(nqn);
    assert_eq!(found.expect("likewise").port, 8009);
    assert!(path(r#"{"traddr":"::1"}"#).request("", false).is_err(), "no NQN");
}

#[test]
fn addresses_may_stand_in_brackets() {
    let path = PathSpec { traddr: "[::1]".to_owned(), ..PathSpec::default() };
    let found = path.request("nqn.2026-01.org.example:a", false).expect("an address");
    assert_eq!(found.to.to_string(), "[::1]:4420");
}

/// So that a path is not had twice: the system connects to the same place.
#[test]
fn an_address_of_ipv4_in_the_words_of_ipv6_is_that_address() {
    let request = |text: &str| {
        let path: PathSpec = serde_json::from_str(text).expect(text);
        path.request("nqn.2026-01.org.example:a", false).expect("a path")
    };
    let mapped = request(r#"{"traddr":"::ffff:127.0.0.1","host_traddr":"127.0.0.1"}"#);
    assert_eq!(mapped, request(r#"{"traddr":"127.0.0.1","host_traddr":"::ffff:127.0.0.1"}"#));
}

#[test]
fn an_address_of_a_link_needs_its_interface() {
    let path = |text: &str| -> PathSpec { serde_json::from_str(text).expect(text) };
    let nqn = "nqn.2026-01.org.example:a";
    let found = path(r#"{"traddr":"[fe80::1%1]"}"#).request(nqn, false).expect("by number");
    assert_eq!(found.to.to_string(), "[fe80::1%1]:4420");
    let told = path(r#"{"traddr":"fe80::1"}"#).request(nqn, false).expect_err("which link?");
    assert!(told.contains("traddr fe80::1") && told.contains("host-iface"), "{told}");
    let own = path(r#"{"traddr":"fe80::1","host_iface":"lo","host_traddr":"fe80::2"}"#);
    own.request(nqn, false).expect("its interface is named");
    own.check_own_side().expect("only connecting shows whether it is ours there");
}

/// One that is taken away and made again has its name again, and another number.
#[test]
fn an_interface_in_an_address_is_known_by_its_name() {
    let path = |text: &str| -> PathSpec { serde_json::from_str(text).expect(text) };
    let nqn = "nqn.2026-01.org.example:a";
    // Not there yet, perhaps.
    let found = path(r#"{"traddr":"[fe80::1%later0]"}"#).request(nqn, false).expect("a path");
    let apart = path(r#"{"traddr":"fe80::1","host_iface":"later0"}"#);
    assert_eq!(found, apart.request(nqn, false).expect("the same path"));
    assert_eq!(found.options.socket.interface.as_deref(), Some("later0"));
    let same = path(r#"{"traddr":"fe80::1%later0","host_iface":"later0"}"#);
    assert_eq!(found, same.request(nqn, false).expect("said twice"));
    let other = path(r#"{"traddr":"fe80::1%later0","host_iface":"lo"}"#);
    let told = other.request(nqn, false).expect_err("which one?");
    assert_eq!(told, "traddr fe80::1%later0 is on later0, and host-iface is lo");
}

#[test]
fn what_this_machine_does_not_have_is_named() {
    let path = |text: &str| -> PathSpec { serde_json::from_str(text).expect(text) };
    for (text, why) in [
        (r#"{"traddr":"::1","host_iface":"nosuch0"}"#, "host-iface 'nosuch0'"),
        (r#"{"traddr":"::1","host_iface":".."}"#, "host-iface '..'"),
        (r#"{"traddr":"fe80::1%nosuch0"}"#, "traddr: interface 'nosuch0'"),
        (r#"{"traddr":"::1","host_iface":"a-name-that-is-long"}"#, "1 to 15 bytes"),
        (r#"{"traddr":"::1","host_iface":""}"#, "1 to 15 bytes"),
        (r#"{"traddr":"::1","host_traddr":"192.0.2.1"}"#, "host-traddr 192.0.2.1"),
    ] {
        let error = path(text).check_own_side().expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }
    let own = path(r#"{"traddr":"127.0.0.1","host_iface":"lo","host_traddr":"127.0.0.1"}"#);
    own.check_own_side().expect("every machine has these");
}

#[test]
fn sizes_and_times() {
    for (text, bytes) in [
        ("0", 0),
        ("512", 512),
        ("4k", 4096),
        ("4K", 4096),
        ("64MiB", 64 << 20),
        ("64 mib", 64 << 20),
        ("1g", 1 << 30),
        ("2TiB", 2 << 40),
    ] {
        assert_eq!(units::size(text), Ok(bytes), "{text}");
    }
    for text in ["", "k", "4kb", "4.5k", "-1", "0x10", "18446744073709551616", "16777216TiB"] {
        assert!(units::size(text).is_err(), "{text}");
    }
    let ns = |ns| Ok(Duration::from_nanos(ns));
    for (text, expected) in [
        ("5", ns(5_000_000_000)),
        ("250ms", ns(250_000_000)),
        ("0.5s", ns(500_000_000)),
        ("1.25us", ns(1_250)),
        ("7ns", ns(7)),
        ("2m", ns(120_000_000_000)),
        ("1h", ns(3_600_000_000_000)),
    ] {
        assert_eq!(units::time(text), expected, "{text}");
    }
    for text in ["", "s", "-5", "1.2.3s", "5 parsecs", "99999999999h"] {
        assert!(units::time(text).is_err(), "{text}");
    }
    for text in ["-1", "-600", "off"] {
        assert_eq!(units::time_or_off(text), Ok(None), "{text}");
    }
    for text in ["-", "-0", "-1s", "-99999999999999999999"] {
        assert!(units::time_or_off(text).is_err(), "{text}");
    }
}

#[test]
fn export_addresses() {
    assert_eq!(listen_endpoint("127.0.0.1:10809").expect("TCP").to_string(), "127.0.0.1:10809");
    assert_eq!(listen_endpoint("/run/x.sock").expect("Unix").to_string(), "unix:/run/x.sock");
    let relative = listen_endpoint("x.sock").expect("relative").to_string();
    assert!(relative.starts_with("unix:/") && relative.ends_with("/x.sock"), "{relative}");
    let scoped = listen_endpoint("[fe80::1%lo]:10809").expect("TCP").to_string();
    assert_eq!(scoped, "[fe80::1%1]:10809", "an interface by its name");
    let told = listen_endpoint("[fe80::1]:10809").expect_err("which link?");
    assert!(told.starts_with("nbd '[fe80::1]:10809' is there on every link"), "{told}");
    assert!(listen_endpoint("").is_err());
    assert!(listen_endpoint(&format!("/{}", "x".repeat(107))).is_err(), "longer than sun_path");
}

/// The keys of a structure, as its refusal of an unknown one lists them; hyphens are only taken.
fn keys<T: DeserializeOwned + std::fmt::Debug>() -> Vec<String> {
    let refusal = serde_json::from_str::<T>(r#"{"no such key":1}"#).expect_err("no such key");
    let text = refusal.to_string();
    let (_, known) = text.split_once("expected").expect("the refusal lists the keys");
    let keys = known.split('`').skip(1).step_by(2).filter(|key| !key.contains('-'));
    keys.map(str::to_owned).collect()
}

#[test]
fn the_page_names_every_key_and_its_files_are_read() {
    let page = include_str!("../../docs/CONFIGURATION.md");
    let all = [
        keys::<ServeConfig>(),
        keys::<SubsystemConfig>(),
        keys::<PathSpec>(),
        keys::<ExportConfig>(),
        keys::<TargetSetup>(),
        keys::<PortSpec>(),
        keys::<SubsystemSpec>(),
        keys::<NamespaceSpec>(),
    ];
    assert!(all.iter().flatten().count() > 50, "{all:?}");
    for key in all.iter().flatten() {
        let named = [format!("`{key}`"), format!("[{key}]]"), format!(".{key}]]")];
        assert!(named.iter().any(|text| page.contains(text)), "{key} is not on the page");
    }
    let file = |name: &str| {
        let begin = page.find(&format!("# {name}\n")).expect(name);
        let text = &page[begin..];
        let text = text[..text.find("```").expect("the end")].to_owned();
        Source::new(Path::new(name), text)
    };
    let serve: ServeConfig = file("serve.toml").parse().expect("the host's file");
    assert_eq!((serve.subsystems[0].paths.len(), serve.exports.len()), (2, 1));
    let target: TargetSetup = file("target.toml").parse().expect("the target's file");
    assert_eq!((target.ports.len(), target.subsystems[0].namespaces.len()), (2, 2));
}
