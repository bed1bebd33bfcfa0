//! `demo`: the main job, shown on an embedded target in a few seconds.

pub mod report;

mod keep;
mod progress;

use crate::cli::args::{Demo, Global};
use crate::daemon::host::{Host, HostSetup, usual_workers};
use crate::daemon::identity::{Identity, random_seed};
use crate::daemon::path::{PathSpec, Service};
use crate::daemon::rpc::RpcError;
use crate::daemon::target::{PortSpec, RunningTarget, SubsystemSpec, TargetSetup};
use crate::daemon::view::{ControllerView, HostView, PathView};
use crate::failure::Failure;
use crate::units::Span;
use anabranch_lab::load::{BlockSize, Job, LoadReport};
use anabranch_proto::machine::Endpoint;
use anabranch_rt::signal::Termination;
use progress::Progress;
use report::DemoReport;
use std::time::{Duration, Instant};

/// What the fast path carries; the slow one carries a quarter of it.
const FAST: &str = "rate=800mbit";
/// A quarter of [`FAST`].
const SLOW: &str = "rate=200mbit";
/// Size of the device.
const DEVICE: &str = "mem:128MiB";
/// The head that the demo works on.
const HEAD: &str = "nvme0n1";
/// The fast port's place at the target.
const FAST_PORT: u16 = 0;
/// The fast path's controller: it is the first to be connected.
const FAST_CONTROLLER: &str = "nvme0";
/// Pause before each attempt to reconnect.
const RECONNECT_DELAY: Duration = Duration::from_millis(250);
/// How long the fast path may take to have I/O in flight before it is cut.
const IN_FLIGHT: Duration = Duration::from_secs(2);
/// How long the restored path may take until it is live.
const BACK: Duration = Duration::from_secs(20);
/// How often the demo looks.
const LOOK: Duration = Duration::from_millis(100);

/// Runs it.
///
/// # Errors
/// A byte was wrong, an I/O failed, the path did not come back, or something could not start.
pub fn run(global: &Global, demo: &Demo) -> Result<(), Failure> {
    // Taken over before any thread starts, so that --keep can end in order.
    let termination = Termination::install()
        .map_err(|error| Failure::failed(format!("cannot take over signals: {error}")))?;
    let keeper = if demo.keep { Some(keep::Keeper::prepare(global)?) } else { None };
    let stage = Stage::set_up(demo, termination)?;
    let progress = Progress::new(global.json(), demo.seconds);
    let report = stage.play(demo, &progress)?;
    progress.finish();
    crate::cli::print(global, || report::text(&report), || report::json(&report))?;
    let verdict = report.verdict();
    match keeper {
        Some(keeper) if verdict.is_ok() => keeper.serve(global, stage)?,
        _ => stage.strike()?,
    }
    verdict.map_err(Failure::Failed)
}

fn failed(error: RpcError) -> Failure {
    Failure::Failed(error.message)
}

/// Target, host and what connects them.
struct Stage {
    target: RunningTarget,
    host: Host,
    termination: Termination,
}

impl Stage {
    fn set_up(demo: &Demo, termination: Termination) -> Result<Stage, Failure> {
        let target = RunningTarget::start(&target_setup()?, |_| {})?;
        let mut setup = HostSetup::new(Identity::fresh()?);
        setup.workers = usual_workers(None).min(2);
        setup.policy = demo.policy;
        let host = Host::start(&setup, |_| {})?;
        for listener in target.listeners().map_err(failed)? {
            let Endpoint::Tcp(address) = listener else { continue };
            let path = PathSpec {
                traddr: address.ip().to_string(),
                trsvcid: Some(Service(address.port())),
                reconnect_delay: Some(Span(RECONNECT_DELAY)),
                ..PathSpec::default()
            };
            let nqn = target.nqns()[0].as_str();
            host.connect(path.request(nqn, false).map_err(Failure::Failed)?).map_err(failed)?;
        }
        host.await_head(HEAD).map_err(failed)?;
        Ok(Stage { target, host, termination })
    }

    /// Load for the whole time, a cut at one third, the path back at two thirds.
    fn play(&self, demo: &Demo, progress: &Progress) -> Result<DemoReport, Failure> {
        let total = Duration::from_secs(demo.seconds.into());
        self.host.start_load(job()?).map_err(failed)?;
        let start = Instant::now();
        progress.say(format!(
            "0.0 s: a load that verifies every block runs on two paths, {FAST} and {SLOW}"
        ));
        self.watch(start, total / 3, "both paths carry I/O", progress)?;
        let in_flight = self.await_in_flight()?;
        self.target.cut(FAST_PORT).map_err(failed)?;
        progress.say(format!(
            "{:.1} s: the fast path is cut by a reset, {in_flight} commands in flight on it",
            start.elapsed().as_secs_f64()
        ));
        self.watch(start, total * 2 / 3, "the slow path carries all", progress)?;
        let down = self.controller(FAST_CONTROLLER)?.state != "live";
        self.target.restore(FAST_PORT).map_err(failed)?;
        let restored = Instant::now();
        let back = self.await_live(start, progress)?;
        if back {
            progress.say(format!(
                "{:.1} s: the fast path is live again, {:.2} s after its port came back",
                start.elapsed().as_secs_f64(),
                restored.elapsed().as_secs_f64()
            ));
        }
        self.watch(start, total, "both paths carry I/O", progress)?;
        let load = self.host.load_report(true).map_err(failed)?;
        let view = self.host.view().map_err(failed)?;
        Ok(DemoReport::new(demo, &load, &view, report::Course { in_flight, down, back }))
    }

    /// Looks on until `until` after the start.
    fn watch(
        &self,
        start: Instant,
        until: Duration,
        phase: &'static str,
        progress: &Progress,
    ) -> Result<(), Failure> {
        while start.elapsed() < until {
            let load = self.look()?;
            progress.show(start.elapsed(), phase, &load);
            self.pause(LOOK.min(until.saturating_sub(start.elapsed())))?;
        }
        Ok(())
    }

    /// The figures so far. A wrong byte or a failed I/O ends the demo at once, and so does a load
    /// that gives up.
    fn look(&self) -> Result<LoadReport, Failure> {
        let load = self.host.load_report(false).map_err(failed)?;
        if let Some(why) = &load.rejected {
            return Err(Failure::failed(format!("the load gave up: {why}")));
        }
        if load.verify_errors == 0 && load.errors == 0 {
            return Ok(load);
        }
        let told = load.mismatches.first().or(load.first_error.as_ref());
        Err(Failure::failed(format!(
            "{} I/Os failed and {} blocks were wrong; the first: {}",
            load.errors,
            load.verify_errors,
            told.map_or("not told", String::as_str)
        )))
    }

    /// Waits, and notices when the user has had enough.
    fn pause(&self, time: Duration) -> Result<(), Failure> {
        match self.termination.wait_for(time) {
            Ok(false) => Ok(()),
            Ok(true) => Err(Failure::failed("ended by a signal before the demo was over")),
            Err(error) => Err(Failure::failed(format!("cannot wait for signals: {error}"))),
        }
    }

    fn controller(&self, name: &str) -> Result<ControllerView, Failure> {
        let view = self.host.view().map_err(failed)?;
        let found = view.subsystems.into_iter().flat_map(|s| s.controllers);
        found
            .into_iter()
            .find(|controller| controller.name == name)
            .ok_or_else(|| Failure::failed(format!("controller {name} is gone")))
    }

    /// Waits until the fast path has I/O in flight; how much.
    fn await_in_flight(&self) -> Result<u64, Failure> {
        let until = Instant::now() + IN_FLIGHT;
        loop {
            let view = self.host.view().map_err(failed)?;
            let in_flight = paths(&view)
                .find(|path| path.controller == FAST_CONTROLLER)
                .map_or(0, |path| path.in_flight);
            if in_flight > 0 || Instant::now() >= until {
                return Ok(in_flight);
            }
            self.pause(Duration::from_millis(1))?;
        }
    }

    /// Waits until the fast path is live again, while the load goes on; whether it is.
    fn await_live(&self, start: Instant, progress: &Progress) -> Result<bool, Failure> {
        let until = Instant::now() + BACK;
        while self.controller(FAST_CONTROLLER)?.state != "live" {
            if Instant::now() >= until {
                return Ok(false);
            }
            progress.show(start.elapsed(), "the fast path comes back", &self.look()?);
            self.pause(Duration::from_millis(20))?;
        }
        Ok(true)
    }

    /// Ends in order.
    fn strike(self) -> Result<(), Failure> {
        let unanswered = self.host.shut_down().map_err(failed)?;
        self.host.stop()?;
        self.target.stop()?;
        if unanswered > 0 {
            return Err(Failure::failed(format!("{unanswered} I/Os were not answered at the end")));
        }
        Ok(())
    }
}

/// The paths of the demo's head.
fn paths(view: &HostView) -> impl Iterator<Item = &PathView> {
    view.subsystems
        .iter()
        .flat_map(|subsystem| &subsystem.heads)
        .filter(|head| head.name == HEAD)
        .flat_map(|head| &head.paths)
}

fn target_setup() -> Result<TargetSetup, Failure> {
    let port = |shape: &str| PortSpec {
        listen: "127.0.0.1:0".to_owned(),
        shape: Some(shape.to_owned()),
        ..PortSpec::default()
    };
    Ok(TargetSetup {
        ports: vec![port(FAST), port(SLOW)],
        subsystems: vec![SubsystemSpec {
            namespaces: vec![DEVICE.parse().map_err(Failure::Failed)?],
            ..SubsystemSpec::named("nqn.2026-01.org.anabranch:demo")
        }],
        cpus: None,
    })
}

/// Reads and writes of mixed sizes all over the device, every block stamped and checked.
fn job() -> Result<Job, Failure> {
    let size = |kib: u32, weight: u32| BlockSize { bytes: kib << 10, weight };
    Ok(Job {
        device: HEAD.to_owned(),
        read_percent: 50,
        random: true,
        sizes: vec![size(4, 50), size(16, 30), size(128, 20)],
        depth: 16,
        jobs: 2,
        offset: 0,
        size: None,
        number_ios: None,
        thinktime: Duration::ZERO,
        verify: true,
        seed: random_seed()?,
    })
}
