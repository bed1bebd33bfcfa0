//! What a file says of who may use an export, and how: what is wrong is named with line and key,
//! before anything is started.

use anabranch::daemon::config::ServeConfig;
use anabranch::failure::Failure;
use rustix::process::{Pid, Signal, getgid, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

/// As `serve` does before it starts anything.
fn check(text: &str) -> Result<(), Failure> {
    let name =
        format!("anabranch-access-{}-{:?}.toml", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(name);
    fs::write(&path, text).expect("a file");
    let loaded = ServeConfig::load(&path);
    fs::remove_file(&path).expect("removed");
    let (config, source) = loaded?;
    config.check_machine(&source)
}

fn refused(text: &str, place: &str, why: &str) {
    match check(text) {
        Err(failure @ Failure::Usage(_)) => {
            let message = failure.to_string();
            assert!(message.contains(place) && message.contains(why), "{text:?}: {message}");
            assert!(!message.contains('\n'), "one sentence: {message}");
        }
        other => panic!("{text:?} gave {other:?}"),
    }
}

#[test]
fn mistakes_in_what_is_offered_to_whom_name_line_and_key() {
    let export = |key: &str| format!("[[export]]\ndevice = \"nvme0n1\"\nnbd = \"/x\"\n{key}\n");
    for (keys, place, why) in [
        ("read_only = 1", "line 4 (read_only)", "expected a boolean"),
        ("mode = 660", "line 4 (mode)", "expected octal digits in quotes"),
        ("mode = \"0577\"", "line 4 (mode)", "from 0600 to 0777 is expected"),
        ("mode = \"1000\"", "line 4 (mode)", "from 0600 to 0777 is expected"),
        ("mode = \"+660\"", "line 4 (mode)", "from 0600 to 0777 is expected"),
        ("mode = \"u=rw\"", "line 4 (mode)", "from 0600 to 0777 is expected"),
    ] {
        refused(&export(keys), place, why);
    }
}

#[test]
fn who_may_connect_to_a_socket_is_said_once_and_there_is_such_a_group() {
    let export = |name: &str, nbd: &str, keys: &str| {
        format!("[[export]]\ndevice = \"nvme0n1\"\nname = \"{name}\"\nnbd = \"{nbd}\"\n{keys}\n")
    };
    let ours = "mode = \"0660\"\ngroup = \"root\"";
    for keys in ["", ours, "mode = \"660\"", "group = \"0\""] {
        check(&(export("a", "/x", ours) + &export("b", "/x", keys))).expect(keys);
    }
    let two = export("a", "/x", ours) + &export("b", "/y", "mode = \"0600\"");
    check(&two).expect("two sockets");
    for (text, place, why) in [
        (export("a", "/x", "group = \"nobody-here\""), "line 5 (group)", "no such group"),
        (export("a", "/x", "group = \"\""), "line 5 (group)", "no such group"),
        (export("a", "/x", "group = \"4294967295\""), "line 5 (group)", "at most 4294967294"),
        (export("a", "[::1]:1", "mode = \"0660\""), "line 5 (mode)", "only a Unix socket"),
        (export("a", "[::1]:1", "group = \"root\""), "line 5 (group)", "only a Unix socket"),
        (
            export("a", "/x", "mode = \"0660\"") + &export("b", "/x", "mode = \"0600\""),
            "line 10 (mode)",
            "mode '0600': another export of unix:/x has '0660', say it once or alike",
        ),
        (
            export("a", "/x", ours) + &export("b", "/x", "group = \"1\""),
            "line 11 (group)",
            "group '1': another export of unix:/x has 'root', say it once or alike",
        ),
    ] {
        refused(&text, place, why);
    }
}

/// Whichever of them says it, and wherever the others stand.
#[test]
fn what_one_export_says_of_a_socket_holds_for_all_that_share_it() {
    let dir = std::env::temp_dir().join(format!("anabranch-shared-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory");
    let at = dir.join("nbd.sock");
    let export = |name: &str, keys: &str| {
        let nbd = at.display();
        format!("[[export]]\ndevice = \"nvme0n1\"\nname = \"{name}\"\nnbd = \"{nbd}\"\n{keys}\n")
    };
    let (mode, group) = ("mode = \"0664\"", format!("group = \"{}\"", getgid().as_raw()));
    let file = dir.join("host.toml");
    let text = export("a", "") + &export("b", mode) + &export("c", &group) + &export("d", "");
    fs::write(&file, text).expect("a file");
    let host = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["serve", "--config"])
        .arg(&file)
        .arg("--socket")
        .arg(dir.join("host.sock"))
        .stdout(Stdio::piped())
        .spawn();
    let mut host = host.expect("the binary runs");
    let mut stdout = BufReader::new(host.stdout.take().expect("a pipe"));
    let mut said = String::new();
    stdout.read_line(&mut said).expect("a text");
    let found = fs::metadata(&at).map(|found| (found.mode() & 0o777, found.gid()));
    kill_process(Pid::from_child(&host), Signal::TERM).expect("it runs");
    host.wait().expect("it ends");
    fs::remove_dir_all(&dir).expect("it is there");
    assert_eq!(found.expect("a socket"), (0o664, getgid().as_raw()), "{said}");
}
