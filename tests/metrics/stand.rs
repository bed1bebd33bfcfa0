//! A client, and a host with metrics that is connected to an embedded target.

use crate::text::{Exposition, parse};
use anabranch::daemon::control::Handler;
use anabranch::daemon::host::{Host, HostSetup};
use anabranch::daemon::identity::Identity;
use anabranch::daemon::metrics::{BoundMetrics, Format, Limits, MetricsServer};
use anabranch::daemon::path::{PathSpec, Service};
use anabranch::daemon::rpc::Params;
use anabranch::daemon::target::{PortSpec, RunningTarget, SubsystemSpec, TargetSetup};
use anabranch_host::verb::Selection;
use anabranch_lab::load::{BlockSize, Job};
use anabranch_proto::machine::Endpoint;
use rustix::net;
use serde_json::json;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn read(stream: &TcpStream) -> Answer {
        let text = String::from_utf8(read_all(stream)).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and an empty line");
        let mut lines = head.split("\r\n");
        let line = lines.next().expect("a first line");
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).expect("HTTP");
        let field = |line: &str| {
            let (name, value) = line.split_once(": ").expect("a field");
            (name.to_ascii_lowercase(), value.to_owned())
        };
        let fields = lines.map(field).collect();
        let status = status.parse().expect("a number");
        let answer = Answer { status, fields, body: body.to_owned() };
        assert_eq!(answer.field("connection"), "close");
        if !answer.body.is_empty() {
            assert_eq!(answer.field("content-length"), answer.body.len().to_string());
        }
        answer
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(field, _)| field == name)
    }

    pub(crate) fn field(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(field, _)| field == name);
        &found.unwrap_or_else(|| panic!("{name} of {self:?}")).1
    }
}

pub(crate) fn open(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    stream
}

/// The same from another address of this machine.
pub(crate) fn open_from(from: [u8; 4], at: SocketAddr) -> TcpStream {
    let from: SocketAddr = (from, 0).into();
    let socket = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None);
    let socket = socket.expect("a socket");
    net::bind(&socket, &from).expect("an address of this machine");
    net::connect(&socket, &at).expect("it listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    stream
}

/// Everything up to an orderly end.
pub(crate) fn read_all(mut stream: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an answer, and no reset");
    bytes
}

/// What is answered to these bytes.
pub(crate) fn ask(at: SocketAddr, request: &[u8]) -> Answer {
    let stream = open(at);
    (&stream).write_all(request).expect("sent");
    Answer::read(&stream)
}

pub(crate) fn get(at: SocketAddr, path: &str) -> Answer {
    ask(at, format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes())
}

/// One scrape.
pub(crate) fn scrape(at: SocketAddr) -> Exposition {
    let answer = get(at, "/metrics");
    assert_eq!(answer.status, 200, "{answer:?}");
    parse(&answer.body, Format::Plain)
}

/// The device.
pub(crate) const DEVICE: &str = "nvme0n1";
const NQN: &str = "nqn.2026-01.org.anabranch:metrics";

pub(crate) struct Stand {
    server: MetricsServer,
    pub(crate) host: Arc<Host>,
    target: RunningTarget,
}

impl Stand {
    pub(crate) fn new() -> Stand {
        Stand::of_model("metrics")
    }

    /// The target says that this is its model.
    pub(crate) fn of_model(model: &str) -> Stand {
        let port = || PortSpec { listen: "127.0.0.1:0".to_owned(), ..PortSpec::default() };
        let setup = TargetSetup {
            ports: vec![port(), port()],
            subsystems: vec![SubsystemSpec {
                namespaces: vec!["mem:16MiB,bs=4096".parse().expect("a namespace")],
                model: model.to_owned(),
                ..SubsystemSpec::named(NQN)
            }],
            cpus: None,
        };
        let target = RunningTarget::start(&setup, |_| {}).expect("the target starts");
        let mut setup = HostSetup::new(Identity::fresh().expect("an identity"));
        setup.workers = 2;
        let host = Arc::new(Host::start(&setup, |_| {}).expect("the host starts"));
        let at = "127.0.0.1:0".parse().expect("an address");
        let bound = BoundMetrics::bind(at).expect("a port");
        let server = bound.serve(Arc::downgrade(&host), Limits::default()).expect("a thread");
        let stand = Stand { server, host, target };
        stand.connect(0);
        stand.connect(1);
        stand.host.await_head(DEVICE).expect("the device appears");
        stand
    }

    pub(crate) fn connect(&self, port: usize) {
        let Endpoint::Tcp(address) = &self.target.listeners().expect("listeners")[port] else {
            panic!("port {port} is not TCP")
        };
        let path = PathSpec {
            traddr: address.ip().to_string(),
            trsvcid: Some(Service(address.port())),
            ..PathSpec::default()
        };
        self.host.connect(path.request(NQN, false).expect("a path")).expect("connected");
    }

    pub(crate) fn disconnect(&self, controller: &str) {
        let selection = Selection::Controller(controller.to_owned());
        assert_eq!(self.host.disconnect(selection).expect("it goes"), 1);
    }

    pub(crate) fn set(&self, object: &str, attribute: &str, value: &str) {
        let params = json!({ "object": object, "attribute": attribute, "value": value });
        self.host.call("set", Params::from_text(&params.to_string())).expect("it is set");
    }

    /// Reads and writes, until at least so many have ended, and none is in flight any more.
    pub(crate) fn load(&self, requests: u64) {
        let done = || self.host.load_report(false).expect("a report").requests.iter().sum::<u64>();
        let job = Job {
            device: DEVICE.to_owned(),
            read_percent: 60,
            random: true,
            sizes: vec![
                BlockSize { bytes: 4096, weight: 1 },
                BlockSize { bytes: 65536, weight: 1 },
            ],
            depth: 8,
            jobs: 2,
            offset: 0,
            size: None,
            number_ios: None,
            thinktime: Duration::ZERO,
            verify: false,
            seed: 1,
        };
        self.host.start_load(job).expect("the load starts");
        while done() < requests {}
        self.host.load_report(true).expect("it ends");
    }

    pub(crate) fn scrape(&self) -> Exposition {
        scrape(self.server.at())
    }
}
