//! An embedded target with shaped ports and a host that is connected to all of them.

use anabranch::daemon::control::Handler;
use anabranch::daemon::explain::ExplainView;
use anabranch::daemon::host::{Host, HostSetup};
use anabranch::daemon::identity::Identity;
use anabranch::daemon::path::{PathSpec, Service};
use anabranch::daemon::rpc::{Params, RpcError};
use anabranch::daemon::target::{PortSpec, RunningTarget, SubsystemSpec, TargetSetup};
use anabranch::daemon::view::{HeadView, HostView, PathView};
use anabranch::units::Span;
use anabranch_host::explain::{DECISIONS_MAX, Seen};
use anabranch_lab::load::{BlockSize, Job, LoadReport};
use anabranch_proto::machine::Endpoint;
use serde_json::{Value, json};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The head that all tests work on.
pub(crate) const HEAD: &str = "nvme0n1";
/// Its subsystem.
pub(crate) const SUBSYSTEM: &str = "nvme-subsys0";
/// Data workers of the host.
pub(crate) const WORKERS: u64 = 2;

/// How long anything may take when nothing is wrong, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(120);
/// The host tells of its own changes, but not of every figure: look again after this time.
const LOOK: Duration = Duration::from_millis(2);

/// A running pair.
pub(crate) struct Stand {
    host: Host,
    target: RunningTarget,
    news: Receiver<()>,
}

impl Stand {
    /// A port per shape (`KEY=V,…`); port N is controller `nvmeN`.
    pub(crate) fn new(shapes: &[&str], queue_size: u16) -> Stand {
        Stand::connected(shapes, |_| PathSpec {
            queue_size: Some(queue_size),
            ..PathSpec::default()
        })
    }

    /// The same, with options of each port's path.
    pub(crate) fn connected(shapes: &[&str], options: impl Fn(usize) -> PathSpec) -> Stand {
        let port = |shape: &&str| PortSpec {
            listen: "127.0.0.1:0".to_owned(),
            shape: Some((*shape).to_owned()),
            ..PortSpec::default()
        };
        let setup = TargetSetup {
            ports: shapes.iter().map(port).collect(),
            subsystems: vec![SubsystemSpec {
                namespaces: vec!["mem:64MiB,bs=4096".parse().expect("a namespace")],
                ..SubsystemSpec::named("nqn.2026-01.org.anabranch:steering")
            }],
            cpus: None,
        };
        let target = RunningTarget::start(&setup, |_| {}).expect("the target starts");
        let mut setup = HostSetup::new(Identity::fresh().expect("an identity"));
        setup.workers = u16::try_from(WORKERS).expect("a few workers");
        let (tell, news) = channel();
        let tell = move |_| {
            // The test may have ended already.
            let _ = tell.send(());
        };
        let host = Host::start(&setup, tell).expect("the host starts");
        let stand = Stand { host, target, news };
        stand.connect(options);
        stand
    }

    fn connect(&self, options: impl Fn(usize) -> PathSpec) {
        for (port, listener) in self.target.listeners().expect("listeners").iter().enumerate() {
            let Endpoint::Tcp(address) = listener else { panic!("{listener} is not TCP") };
            let path = PathSpec {
                traddr: address.ip().to_string(),
                trsvcid: Some(Service(address.port())),
                reconnect_delay: Some(Span(Duration::from_millis(20))),
                ..options(port)
            };
            let nqn = self.target.nqns()[0].as_str();
            self.host.connect(path.request(nqn, false).expect("a path")).expect("connected");
        }
        self.host.await_head(HEAD).expect("the device appears");
    }

    /// Waits until something holds.
    pub(crate) fn wait<T>(&self, what: &str, mut holds: impl FnMut(&Stand) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = holds(self) {
                return found;
            }
            assert!(Instant::now() < until, "in {PATIENCE:?} there was no {what}");
            // An early wake-up is as good as a time-out.
            let _ = self.news.recv_timeout(LOOK);
        }
    }

    /// Writes an attribute.
    pub(crate) fn try_set(&self, object: &str, name: &str, value: &str) -> Result<(), RpcError> {
        let params = json!({ "object": object, "attribute": name, "value": value }).to_string();
        self.host.call("set", Params::from_text(&params)).map(|_| ())
    }

    /// Writes an attribute, successfully.
    pub(crate) fn set(&self, object: &str, name: &str, value: &str) {
        if let Err(error) = self.try_set(object, name, value) {
            panic!("{object} {name} = {value}: {}", error.message);
        }
    }

    /// Reads an attribute.
    pub(crate) fn try_get(&self, object: &str, name: &str) -> Result<String, RpcError> {
        let params = json!({ "object": object, "attribute": name }).to_string();
        let value = self.call("get", &params)?;
        Ok(value["value"].as_str().expect("a text").to_owned())
    }

    /// Calls a method of the control socket.
    pub(crate) fn call(&self, method: &str, params: &str) -> Result<Value, RpcError> {
        let answer = self.host.call(method, Params::from_text(params))?;
        Ok(serde_json::from_str(answer.text()).expect("JSON"))
    }

    /// Why the head's commands went where they went, with every decision that is still noted.
    pub(crate) fn explain(&self) -> ExplainView {
        let params = json!({ "device": HEAD, "samples": DECISIONS_MAX }).to_string();
        let answer = self.call("explain", &params).unwrap_or_else(|e| panic!("{}", e.message));
        serde_json::from_value(answer).expect("the documented shape")
    }

    /// Reads an attribute that there is.
    pub(crate) fn get(&self, object: &str, name: &str) -> String {
        self.try_get(object, name)
            .unwrap_or_else(|error| panic!("{object} {name}: {}", error.message))
    }

    fn target(&self, method: &str, params: &serde_json::Value) {
        let params = params.to_string();
        let answer = self.target.call(method, Params::from_text(&params));
        answer.unwrap_or_else(|error| panic!("{method} {params}: {}", error.message));
    }

    /// Sets the ANA states of all ports, and waits until the host acts by them.
    pub(crate) fn ana(&self, states: &[&str]) {
        for (port, state) in (1..).zip(states) {
            let port = u32::to_string(&port);
            self.target("ana", &json!({ "port": port, "group": 1, "state": state }));
        }
        self.wait("news of the ANA states", |stand| {
            let paths = stand.paths();
            let known = paths.iter().map(|path| path.ana_state.as_str());
            known.eq(states.iter().copied()).then_some(())
        });
        // What control knows it has sent to the workers; figures come by the same way, later.
        self.view();
    }

    /// Resets a port's connections and refuses new ones.
    pub(crate) fn cut(&self, port: usize) {
        self.target.cut(u16::try_from(port).expect("a port")).expect("a cut");
    }

    /// Ends a cut.
    pub(crate) fn restore(&self, port: usize) {
        self.target.restore(u16::try_from(port).expect("a port")).expect("a restored port");
    }

    /// Waits until a controller is in this state.
    pub(crate) fn await_state(&self, controller: &str, state: &str) {
        self.wait("controller in that state", |stand| {
            let controllers = stand.view().subsystems.into_iter().flat_map(|s| s.controllers);
            let mut found = controllers.filter(|c| c.name == controller && c.state == state);
            found.next().map(|_| ())
        });
    }

    /// Waits until every controller is live.
    pub(crate) fn await_live(&self) {
        self.wait("live controllers", |stand| {
            let mut subsystems = stand.view().subsystems.into_iter();
            let live = subsystems.all(|s| s.controllers.iter().all(|c| c.state == "live"));
            live.then_some(())
        });
    }

    /// Everything there is to see.
    pub(crate) fn view(&self) -> HostView {
        self.host.view().expect("a view")
    }

    /// What noted decisions have found on each path so far, by port.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let mut paths = self.host.explain(HEAD).expect("a report").paths;
        paths.sort_by(|a, b| a.name.cmp(&b.name));
        paths.iter().map(|path| path.seen).collect()
    }

    /// The head.
    pub(crate) fn head(&self) -> HeadView {
        let heads = self.view().subsystems.into_iter().flat_map(|subsystem| subsystem.heads);
        heads.into_iter().find(|head| head.name == HEAD).expect("the head")
    }

    /// Its paths, by port.
    pub(crate) fn paths(&self) -> Vec<PathView> {
        let mut paths = self.head().paths;
        paths.sort_by(|a, b| a.controller.cmp(&b.controller));
        paths
    }

    /// Commands that ended well, by port.
    pub(crate) fn completed(&self) -> Vec<u64> {
        self.paths().iter().map(|path| path.commands.iter().sum()).collect()
    }

    /// Begins a load.
    pub(crate) fn start(&self, job: &Job) {
        self.host.start_load(job.clone()).expect("the load starts");
    }

    /// Figures of the load so far.
    pub(crate) fn report(&self) -> LoadReport {
        self.host.load_report(false).expect("a report")
    }

    /// Waits until so many requests of the load have ended.
    pub(crate) fn await_requests(&self, count: u64) {
        self.wait("so many requests", |stand| {
            let report = stand.report();
            (report.total_requests() + report.errors >= count).then_some(())
        });
    }

    /// Whether so many requests have ended; none of them has failed, no byte was wrong.
    pub(crate) fn moved_on(&self, count: u64) -> bool {
        let report = self.report();
        assert_eq!(report.errors, 0, "{:?}", report.first_error);
        assert_eq!(report.verify_errors, 0, "{:?}", report.mismatches);
        report.total_requests() >= count
    }

    /// Ends the load: nothing has failed, no byte was wrong.
    pub(crate) fn stop(&self) -> LoadReport {
        let report = self.host.load_report(true).expect("a report");
        assert_eq!(report.errors, 0, "{:?}", report.first_error);
        assert_eq!(report.verify_errors, 0, "{:?}", report.mismatches);
        report
    }

    /// Runs a load that has an end.
    pub(crate) fn run(&self, job: &Job) -> LoadReport {
        let count = job.number_ios.expect("a load that ends") * WORKERS;
        self.start(job);
        self.await_requests(count);
        self.stop()
    }

    /// Nothing is in flight, and an orderly end leaves nothing unanswered.
    pub(crate) fn finish(self) {
        let head = self.head();
        assert_eq!(head.in_flight, 0);
        for path in head.paths {
            assert_eq!((path.in_flight, path.queue_depth), (0, 0), "{}", path.name);
        }
        assert_eq!(self.host.shut_down().expect("an orderly end"), 0, "unanswered I/Os");
        self.host.stop().expect("the host ends");
        self.target.stop().expect("the target ends");
    }
}

/// Random reads of these sizes, equally often; `depth` at once on each worker.
pub(crate) fn reads(sizes: &[u32], depth: u32, number_ios: Option<u64>) -> Job {
    Job {
        device: HEAD.to_owned(),
        read_percent: 100,
        random: true,
        sizes: sizes.iter().map(|&bytes| BlockSize { bytes, weight: 1 }).collect(),
        depth,
        jobs: u32::try_from(WORKERS).expect("a few workers"),
        offset: 0,
        size: None,
        number_ios,
        thinktime: Duration::ZERO,
        verify: false,
        seed: 1,
    }
}
