//! `lab run --kernel-shaping` that is told to end takes its network namespaces with it.

use std::fs;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks at something that is awaited.
const LOOK: Duration = Duration::from_millis(5);
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Network namespaces that this process made.
fn namespaces(process: u32) -> Vec<String> {
    let ours = format!("anabranch-lab-{process}-");
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&ours)).collect()
}

/// Waits for both namespaces; an exit status when there will be none.
fn await_namespaces(child: &mut Child) -> Option<ExitStatus> {
    let until = Instant::now() + PATIENCE;
    loop {
        if namespaces(child.id()).len() == 2 {
            return None;
        }
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return Some(status);
        }
        assert!(Instant::now() < until, "no namespaces came");
        sleep(LOOK);
    }
}

#[test]
fn its_namespaces_are_gone_when_it_is_ended_by_a_signal() {
    for signal in ["-INT", "-TERM"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_anabranch"))
            .args(["lab", "run", "twenty-to-one", "--mode", "live", "--kernel-shaping"])
            .args(["--scale", "0.02", "--window", "60s"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        if let Some(status) = await_namespaces(&mut child) {
            assert_eq!(status.code(), Some(2));
            eprintln!("not tested: this user cannot make network namespaces");
            return;
        }
        let process = child.id();
        let sent = Command::new("kill").args([signal, &process.to_string()]).status();
        assert!(sent.expect("there is kill").success());
        let ended = child.wait_with_output().expect("it can be waited for");
        assert_eq!(ended.status.code(), Some(1));
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(told.contains("ended by a signal"), "{told}");
        assert_eq!(namespaces(process), Vec::<String>::new());
    }
}
