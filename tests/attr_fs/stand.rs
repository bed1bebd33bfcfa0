//! An embedded target with two ports, a host that is connected to both, and its tree.

use anabranch::daemon::attr_fs::AttrFs;
use anabranch::daemon::control::Handler;
use anabranch::daemon::host::{Host, HostSetup};
use anabranch::daemon::identity::Identity;
use anabranch::daemon::path::{PathSpec, Service};
use anabranch::daemon::rpc::Params;
use anabranch::daemon::target::{PortSpec, RunningTarget, SubsystemSpec, TargetSetup};
use anabranch_host::attribute::{Attribute, Dir, MODULE, ObjectKind};
use anabranch_host::verb::Selection;
use anabranch_proto::machine::Endpoint;
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const NQN: &str = "nqn.2026-01.org.anabranch:attr-fs";

/// One object of each kind.
pub(crate) const OBJECTS: [(ObjectKind, &str); 5] = [
    (ObjectKind::Module, MODULE),
    (ObjectKind::Subsystem, "nvme-subsys0"),
    (ObjectKind::Controller, "nvme0"),
    (ObjectKind::Head, "nvme0n1"),
    (ObjectKind::Path, "nvme0c0n1"),
];

/// Whether this machine has FUSE; says so if it has not.
pub(crate) fn has_fuse() -> bool {
    let opened = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &opened {
        println!("NOT RUN: /dev/fuse cannot be opened: {error}");
    }
    opened.is_ok()
}

/// An empty directory that goes with the test.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("anabranch-attr-fs-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a directory");
        Place(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir(&path).expect("a directory");
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Never into a tree that is still mounted.
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let path = entry.path();
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        }
        let _ = fs::remove_dir(&self.0);
    }
}

pub(crate) struct Stand {
    tree: Option<AttrFs>,
    pub(crate) host: Arc<Host>,
    target: Option<RunningTarget>,
    ports: Vec<u16>,
    root: PathBuf,
    _place: Place,
}

impl Stand {
    /// `None` where there is no FUSE.
    pub(crate) fn new() -> Option<Stand> {
        if !has_fuse() {
            return None;
        }
        let port = || PortSpec { listen: "127.0.0.1:0".to_owned(), ..PortSpec::default() };
        let namespaces = ["mem:8MiB", "mem:4MiB,bs=4096"]
            .map(|text| text.parse().expect("a namespace"))
            .to_vec();
        let setup = TargetSetup {
            ports: vec![port(), port()],
            subsystems: vec![SubsystemSpec { namespaces, ..SubsystemSpec::named(NQN) }],
            cpus: None,
        };
        let target = RunningTarget::start(&setup, |_| {}).expect("a target");
        let ports = target.listeners().expect("listeners").into_iter().map(|at| match at {
            Endpoint::Tcp(at) => at.port(),
            Endpoint::Unix(path) => panic!("not a port: {path}"),
        });
        let ports = ports.collect();
        let mut setup = HostSetup::new(Identity::fresh().expect("an identity"));
        setup.workers = 2;
        let host = Arc::new(Host::start(&setup, |_| {}).expect("a host"));
        let place = Place::new();
        let root = place.dir("sys");
        let tree = AttrFs::mount(&root, &host).expect("it mounts");
        let stand =
            Stand { tree: Some(tree), host, target: Some(target), ports, root, _place: place };
        stand.connect(0);
        stand.connect(1);
        Some(stand)
    }

    /// Adds the path through a port.
    pub(crate) fn connect(&self, port: usize) -> String {
        self.connect_from(port, None)
    }

    /// The same from an address of our own.
    pub(crate) fn connect_from(&self, port: usize, own: Option<IpAddr>) -> String {
        let path = PathSpec {
            traddr: "127.0.0.1".to_owned(),
            trsvcid: Some(Service(self.ports[port])),
            host_traddr: own,
            ..PathSpec::default()
        };
        let request = path.request(NQN, false).expect("a request");
        let name = self.host.connect(request).expect("it connects");
        self.host.await_head("nvme0n2").expect("its devices come");
        name
    }

    pub(crate) fn disconnect(&self, controller: &str) {
        let selection = Selection::Controller(controller.to_owned());
        assert_eq!(self.host.disconnect(selection).expect("it goes"), 1);
    }

    /// Nothing comes from its first port any more.
    pub(crate) fn stall(&self) {
        let target = self.target.as_ref().expect("it runs");
        let port = json!({ "port": 1 }).to_string();
        target.call("stall", Params::from_text(&port)).expect("it is stalled");
    }

    /// What the control socket answers.
    pub(crate) fn call(&self, method: &str, params: Value) -> Option<Value> {
        let answer = self.host.call(method, Params::from_text(&params.to_string())).ok()?;
        Some(serde_json::from_str(answer.text()).expect("JSON"))
    }

    /// An attribute as `anabranch get` shows it; `None` when the object does not.
    pub(crate) fn get(&self, object: &str, attribute: &str) -> Option<String> {
        let answer = self.call("get", json!({ "object": object, "attribute": attribute }))?;
        Some(answer["value"].as_str().expect("a text").to_owned())
    }

    /// Something in the tree.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Where users look for an attribute.
    pub(crate) fn file(&self, object: &str, attribute: &Attribute) -> PathBuf {
        let dir = match (attribute.object, attribute.dir) {
            (ObjectKind::Module, _) => format!("module/{object}"),
            (ObjectKind::Subsystem, _) => format!("class/nvme-subsystem/{object}"),
            (ObjectKind::Controller, _) => format!("class/nvme/{object}"),
            (_, Dir::Debug) => format!("kernel/debug/block/{object}"),
            (ObjectKind::Head | ObjectKind::Path, _) => format!("block/{object}"),
        };
        let group = match attribute.dir {
            Dir::Device | Dir::Debug => "",
            Dir::Queue => "queue",
            Dir::Diag => "diag",
            Dir::Parameters => "parameters",
        };
        self.at(&dir).join(group).join(attribute.name)
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(crate) fn write(&self, path: &str, value: impl AsRef<[u8]>) -> io::Result<()> {
        fs::write(self.at(path), value)
    }

    /// Ends in order; the tree has gone then.
    pub(crate) fn finish(mut self) {
        self.tree = None;
        assert_eq!(fs::read_dir(&self.root).expect("the directory is there").count(), 0);
        assert_eq!(self.host.shut_down().expect("it ends"), 0, "no I/O is left");
        if let Some(target) = self.target.take() {
            target.stop().expect("the target ends");
        }
    }
}

/// The error number of a failure.
pub(crate) fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.expect_err("it fails").raw_os_error().expect("an error of the system")
}
