//! What the command line alone can tell is told with exit status 2, whether anybody runs or not.

use std::fs::File;
use std::process::{Command, Output, Stdio};

#[test]
fn what_no_host_could_do_is_misuse() {
    let discovery = "nqn.2014-08.org.nvmexpress.discovery";
    let long = "a".repeat(257);
    let export = |option, text| vec!["export", "add", "nvme0n1", "--nbd", "./x", option, text];
    for (words, says) in [
        (export("--name", &long), "the export's name has 257 bytes, at most 256 fit"),
        (export("--name", "a\tb"), "the export's name holds a control character"),
        (export("--description", "a\nb"), "the export's description holds a control character"),
        (
            vec!["connect", "-t", "tcp", "-a", "127.0.0.1", "-n", discovery],
            "the discovery subsystem carries no namespaces: use discover or connect-all",
        ),
        (vec!["reset", "nvme0n1"], "reset takes a controller, nvmeN: 'nvme0n1' is none"),
        (
            vec!["ns-rescan", "/dev/nvme0n1"],
            "ns-rescan takes a controller, nvmeN: 'nvme0n1' is none",
        ),
        (
            vec!["bench", "-a", "127.0.0.1", "-n", discovery],
            "the discovery subsystem carries no namespaces: use discover or connect-all",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.args(&words).args(["--socket", "/nowhere/host.sock"]);
        let output = command.output().expect("the binary runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {told}");
        assert_eq!(told, format!("anabranch: {says}\n"));
    }
}

#[test]
fn each_verb_that_connects_says_its_own_default_port() {
    for (verb, port) in [("connect", 4420), ("connect-all", 8009), ("discover", 8009)] {
        for help in ["-h", "--help"] {
            let output = told_to(Stdio::piped(), &[verb, help]);
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(told.contains(&format!("TCP port [default: {port}]")), "{verb} {help}: {told}");
            assert_eq!(told.matches("TCP port").count(), 1, "{verb} {help}: {told}");
        }
    }
}

/// What this verb has for standard output.
fn told_to(stdout: Stdio, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    let child = command.args(words).stdout(stdout).stderr(Stdio::piped()).spawn();
    child.and_then(std::process::Child::wait_with_output).expect("the binary runs")
}

/// As with `| head` behind any other tool. A disk that is full is something else.
#[test]
fn whoever_has_read_enough_gets_no_complaint() {
    for words in [&["lab", "list"][..], &["--help"], &["help", "serve"], &["--version"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = told_to(writer.into(), words);
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
        let full = File::options().write(true).open("/dev/full").expect("a device");
        let output = told_to(full.into(), words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {told}");
        assert!(told.starts_with("anabranch: cannot write to standard output: No space"), "{told}");
    }
}
