//! A target with two ports, a host that is connected to both, and its control socket.

use anabranch::daemon::control::{ControlServer, Handler, Limits};
use anabranch::daemon::host::{Host, HostSetup};
use anabranch::daemon::identity::Identity;
use anabranch::daemon::path::{PathSpec, Service};
use anabranch::daemon::rpc::Params;
use anabranch::daemon::target::{PortSpec, RunningTarget, SubsystemSpec, TargetSetup};
use anabranch_lab::load::{BlockSize, Job};
use anabranch_policy::Policy;
use anabranch_proto::machine::Endpoint;
use serde_json::json;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The device.
pub(crate) const DEVICE: &str = "nvme0n1";
/// How long anything may take when nothing is wrong, on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Stand {
    directory: PathBuf,
    target: RunningTarget,
    running: Option<(ControlServer, Arc<Host>)>,
}

impl Stand {
    pub(crate) fn new(name: &str) -> Stand {
        let directory =
            std::env::temp_dir().join(format!("anabranch-top-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::DirBuilder::new().mode(0o700).create(&directory).expect("a directory");
        let port = || PortSpec { listen: "127.0.0.1:0".to_owned(), ..PortSpec::default() };
        let setup = TargetSetup {
            ports: vec![port(), port()],
            subsystems: vec![SubsystemSpec {
                namespaces: vec!["mem:64MiB,bs=4096".parse().expect("a namespace")],
                ..SubsystemSpec::named("nqn.2026-01.org.anabranch:top")
            }],
            cpus: None,
        };
        let target = RunningTarget::start(&setup, |_| {}).expect("the target starts");
        let mut stand = Stand { directory, target, running: None };
        stand.start();
        stand
    }

    /// Starts a host and its control socket.
    pub(crate) fn start(&mut self) {
        let mut setup = HostSetup::new(Identity::fresh().expect("an identity"));
        setup.policy = Policy::RoundRobin;
        let host = Host::start(&setup, |_| {}).expect("the host starts");
        for listener in self.target.listeners().expect("listeners") {
            let Endpoint::Tcp(address) = listener else { panic!("{listener} is not TCP") };
            let path = PathSpec {
                traddr: address.ip().to_string(),
                trsvcid: Some(Service(address.port())),
                ..PathSpec::default()
            };
            let nqn = self.target.nqns()[0].as_str();
            host.connect(path.request(nqn, false).expect("a path")).expect("connected");
        }
        host.await_head(DEVICE).expect("the device appears");
        let host = Arc::new(host);
        let handler = Arc::clone(&host) as _;
        let server = ControlServer::start(&self.socket(), handler, Limits::default());
        self.running = Some((server.expect("a control socket"), host));
    }

    /// Ends the host, its control socket first.
    pub(crate) fn stop(&mut self) {
        let (server, host) = self.running.take().expect("it runs");
        drop(server);
        host.shut_down().expect("an orderly end");
        // Threads of clients may still hold it: it ends with them.
    }

    /// Reads of 4 KiB for as long as the host lives.
    pub(crate) fn load(&self) {
        let job = Job {
            device: DEVICE.to_owned(),
            read_percent: 100,
            random: true,
            sizes: vec![BlockSize { bytes: 4096, weight: 1 }],
            depth: 4,
            jobs: 1,
            offset: 0,
            size: None,
            number_ios: None,
            thinktime: Duration::ZERO,
            verify: false,
            seed: 1,
        };
        let (_, host) = self.running.as_ref().expect("it runs");
        host.start_load(job).expect("the load starts");
    }

    /// Writes an attribute.
    pub(crate) fn set(&self, object: &str, attribute: &str, value: &str) {
        let params = json!({ "object": object, "attribute": attribute, "value": value });
        let (_, host) = self.running.as_ref().expect("it runs");
        host.call("set", Params::from_text(&params.to_string())).expect("it is set");
    }

    /// Offers the device over NBD; where.
    pub(crate) fn export(&self) -> PathBuf {
        let at = self.directory.join("nbd.sock");
        let params = json!({ "device": DEVICE, "nbd": at });
        let (_, host) = self.running.as_ref().expect("it runs");
        host.call("export_add", Params::from_text(&params.to_string())).expect("it is offered");
        at
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("host.sock")
    }

    /// `anabranch top` on this host, in a plain environment.
    pub(crate) fn top(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.arg("top").arg("--socket").arg(self.socket()).args(arguments);
        for name in ["LC_ALL", "LC_CTYPE", "LANG", "COLUMNS", "NO_COLOR"] {
            command.env_remove(name);
        }
        command.env("TERM", "xterm");
        command
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        drop(self.running.take());
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
