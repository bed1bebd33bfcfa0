//! `bench` on addresses: a peer that offers nothing to put a load on is named, and why.

use anabranch::daemon::target::{PortSpec, RunningTarget, SubsystemSpec, TargetSetup};
use std::process::Command;

const NQN: &str = "nqn.2026-01.org.example:empty";

#[test]
fn a_subsystem_without_a_namespace_is_named() {
    let setup = TargetSetup {
        ports: vec![PortSpec { listen: "127.0.0.1:0".to_owned(), ..PortSpec::default() }],
        subsystems: vec![SubsystemSpec::named(NQN)],
        cpus: None,
    };
    let target = RunningTarget::start(&setup, |_| {}).expect("a target");
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
