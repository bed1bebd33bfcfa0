//! One run: everything is set up, the load begins, what the scenario plans happens, figures.

use super::checked::Checked;
use super::core::TRAVEL_NS;
use super::setup::{self, DEVICE, GROUP};
use super::stamp::Ledger;
use super::stolen::Stolen;
use super::store::Store;
use super::world::World;
use crate::cell::Cell;
use crate::figures::{Figures, SERIES_NS};
use crate::generator::{
    Generator, GeneratorReply, GeneratorVerb, HostFigures, PathSample, Plan, assemble,
};
use crate::scenario::{Alteration, Part, PathState, Problem};
use anabranch_host::event::HostEvent;
use anabranch_host::load::Charged;
use anabranch_host::topology::ControllerState;
use anabranch_host::verb::{HostSnapshot, Reply, Verb};
use anabranch_host::{Event, Worker};
use anabranch_proto::machine::{Time, VerbId, WorkerId};
use anabranch_target::{Shape, Target, TargetVerb};
use std::cell::RefCell;
use std::rc::Rc;

/// How long one step of the setup may take in virtual time, and the end of the run.
const PATIENCE_NS: u64 = 300_000_000_000;
const STEP_NS: u64 = 100_000;
/// After the hosts have shut down: what connections may take to end.
const CLOSING_NS: u64 = 10_000_000_000;

type Host = Worker<Checked<Generator>>;
type HostVerb = Verb<GeneratorVerb>;
type HostReply = Reply<GeneratorReply>;

/// A run that is set up: every host is connected through every path, nothing is shaped yet.
pub struct Engine<'a> {
    cell: Cell<'a>,
    world: World<Host, Target>,
    ledger: Rc<RefCell<Ledger>>,
    /// When the controllers of each path went live, at the last host: Keep Alive counts from there.
    live: Vec<Time>,
}

/// What went wrong inside: never the user's mistake.
fn failed(what: String) -> Problem {
    Problem::of(Part::Whole, "engine", what)
}

impl<'a> Engine<'a> {
    /// Makes the engines and connects them.
    ///
    /// # Errors
    /// The cell cannot be run: see [`Cell::check`]; and what only real queue pairs cannot do.
    pub fn new(cell: Cell<'a>) -> Result<Engine<'a>, Problem> {
        setup::check(cell)?;
        let target = &cell.scenario.target;
        let ledger = Rc::new(RefCell::new(Ledger::new(target.block_bytes, target.size_bytes)));
        let mut workers = Vec::new();
        for number in 0..cell.scenario.hosts.count {
            let user = |_: WorkerId| Checked::new(Generator::new(), Rc::clone(&ledger));
            workers.extend(Worker::group(&setup::host(cell, number), user));
        }
        let store = Store::new(target.block_bytes, target.size_bytes);
        let target = Target::new(setup::target(cell), cell.seed)
            .map_err(|error| failed(error.to_string()))?;
        let mut world = World::new(workers, cell.workers() + 1, target, store);
        world.near(setup::nodes(cell));
        let mut engine = Engine { cell, world, ledger, live: Vec::new() };
        for path in 0..cell.scenario.paths.len() {
            engine.connect(path)?;
        }
        for setting in setup::settings(cell) {
            engine.set(&setting)?;
        }
        Ok(engine)
    }

    fn hosts(&self) -> usize {
        self.cell.scenario.hosts.count as usize
    }

    /// Gives every host the same verb and waits for the answers.
    fn ask(&mut self, verb: impl Fn() -> HostVerb) -> Result<Vec<HostReply>, Problem> {
        let ids: Vec<VerbId> =
            (0..self.hosts()).map(|host| self.world.host_verb(host, verb())).collect();
        self.answers(ids)
    }

    fn answers(&mut self, ids: Vec<VerbId>) -> Result<Vec<HostReply>, Problem> {
        let end = self.world.now().ns() + PATIENCE_NS;
        let (mut replies, mut step) = (Vec::new(), 3 * TRAVEL_NS);
        for id in ids {
            loop {
                if let Some(reply) = self.world.take_reply(id) {
                    break replies.push(reply);
                }
                if self.world.now().ns() > end {
                    return Err(failed("a host does not answer".to_owned()));
                }
                self.run_for(step);
                step = (step * 2).min(STEP_NS);
            }
        }
        Ok(replies)
    }

    fn run_for(&mut self, ns: u64) {
        let until = self.world.now().ns() + ns;
        self.world.run_until(until);
    }

    fn connect(&mut self, path: usize) -> Result<(), Problem> {
        let request = setup::connect(self.cell, path);
        let replies = self.ask(|| Verb::Connect(Box::new(request.clone())))?;
        for reply in replies {
            if !matches!(reply, Reply::Connected(..)) {
                return Err(failed(format!("connecting path {path}: {reply:?}")));
            }
        }
        // The other workers hear of it a moment later.
        self.run_for(STEP_NS);
        let live = self.world.take_events().into_iter().filter(|(_, _, event)| {
            let Event::Host(HostEvent::State { to, .. }) = event else { return false };
            *to == ControllerState::Live
        });
        self.live.push(live.map(|(at, _, _)| at).max().unwrap_or(self.world.now()));
        Ok(())
    }

    fn set(&mut self, (object, attribute, value): &setup::Setting) -> Result<(), Problem> {
        let verb = || Verb::Set {
            object: object.clone(),
            attribute: (*attribute).to_owned(),
            value: value.clone(),
        };
        for reply in self.ask(verb)? {
            if !matches!(reply, Reply::Done) {
                return Err(failed(format!("setting {attribute} of {object}: {reply:?}")));
            }
        }
        Ok(())
    }

    /// Asks something of the target, as a scenario cannot: faults for tests.
    ///
    /// # Errors
    /// The target's own, in words.
    pub fn target(&mut self, verb: TargetVerb) -> Result<(), Problem> {
        match self.world.target_verb(verb) {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(failed(error.to_string())),
            None => Err(failed("the target does not answer".to_owned())),
        }
    }

    /// When the run begins: soon; and so that Keep Alive commands of the first path that will fall
    /// silent leave right after that.
    fn begin(&self) -> Time {
        const SOON_NS: u64 = 1_000_000;
        const AFTER_NS: u64 = 10_000;
        let soon = self.world.now().ns() + SOON_NS;
        let silent = self
            .cell
            .scenario
            .changes
            .iter()
            .enumerate()
            .find(|(_, change)| change.what == Alteration::State(PathState::Silent));
        let Some((index, change)) = silent else { return Time::from_ns(soon) };
        let interval = setup::keep_alive_interval(self.cell).as_nanos() as u64;
        let live = self.live[change.path].ns();
        let falls = soon + self.cell.change_ns(index) + AFTER_NS;
        let ahead = (falls - live) % interval;
        Time::from_ns(soon + (interval - ahead) % interval)
    }

    /// From the first request to the end of the window.
    ///
    /// # Errors
    /// Defects of the engines alone: hosts that refuse or do not answer.
    pub fn run(mut self) -> Result<Figures, Problem> {
        let cell = self.cell;
        let begin = self.begin();
        let plans = (0..self.hosts()).map(|host| Plan::of(cell, host as u32, DEVICE, begin));
        let plans: Vec<Plan> = plans.collect();
        let ids = plans.into_iter().enumerate().map(|(host, plan)| {
            let verb = Verb::User(GeneratorVerb::Start(Box::new(plan)));
            self.world.host_verb(host, verb)
        });
        let ids = ids.collect();
        for reply in self.answers(ids)? {
            if !matches!(reply, Reply::User(GeneratorReply::Started)) {
                return Err(failed(format!("the load does not start: {reply:?}")));
            }
        }
        self.world.run_until(begin.ns() - 1);
        self.shape_all()?;
        let thefts = crate::scenario::Stolen::of_workers(cell.scenario, cell.seed);
        self.world.steal(Stolen::new(thefts, cell.workers() + 1, begin.ns()));
        let samples = self.pass(begin)?;
        self.calm_down()?;
        let hosts = self.collect()?;
        let mut figures = assemble(cell, begin, &hosts, &samples, None);
        self.add_wrong_reads(&mut figures);
        (figures.books.charged_commands, figures.books.charged_bytes) = self.charged()?;
        self.shut_down()?;
        Ok(figures)
    }

    /// Reads that brought what they must not are errors.
    fn add_wrong_reads(&self, figures: &mut Figures) {
        let ledger = self.ledger.borrow();
        let (errors, first) = ledger.errors();
        figures.errors += errors;
        if figures.first_error.is_none() {
            figures.first_error = first.map(str::to_owned);
        }
    }

    /// The paths and the target become what the scenario says.
    fn shape_all(&mut self) -> Result<(), Problem> {
        let scenario = self.cell.scenario;
        for (port, path) in (0u16..).zip(&scenario.paths) {
            self.target(TargetVerb::Shape { port, shape: path.shape.clone() })?;
            let brownout = setup::brownout(path.brownout);
            self.target(TargetVerb::Brownout { port, brownout })?;
        }
        self.target(TargetVerb::Service(setup::service(self.cell)))
    }

    /// Lets the run pass: changes happen, samples are taken. By host, path and time.
    fn pass(&mut self, begin: Time) -> Result<Vec<Vec<Vec<PathSample>>>, Problem> {
        let end = self.cell.end_ns();
        let changes = self.cell.scenario.changes.len();
        let paths = self.cell.scenario.paths.len();
        let mut samples = vec![vec![Vec::new(); paths]; self.hosts()];
        let mut next_change = 0;
        let mut sample_at = 0;
        loop {
            let change_at = match next_change < changes {
                true => self.cell.change_ns(next_change),
                false => u64::MAX,
            };
            let at = change_at.min(sample_at).min(end);
            self.world.run_until(begin.ns() + at);
            if at == change_at {
                self.change(next_change)?;
                next_change += 1;
                continue;
            }
            self.sample(&mut samples)?;
            if at == end {
                return Ok(samples);
            }
            sample_at += SERIES_NS;
        }
    }

    fn sample(&mut self, samples: &mut [Vec<Vec<PathSample>>]) -> Result<(), Problem> {
        let at = self.world.now();
        let replies = self.ask(|| Verb::Snapshot)?;
        for (paths, reply) in samples.iter_mut().zip(replies) {
            let Reply::Snapshot(snapshot) = reply else {
                return Err(failed(format!("no snapshot: {reply:?}")));
            };
            for (path, sample) in paths.iter_mut().zip(path_samples(&snapshot, at)) {
                path.push(sample);
            }
        }
        Ok(())
    }

    fn change(&mut self, index: usize) -> Result<(), Problem> {
        let change = &self.cell.scenario.changes[index];
        let port = change.path as u16;
        self.target(match &change.what {
            Alteration::Shape(shape) => TargetVerb::Shape { port, shape: shape.clone() },
            Alteration::Brownout(of) => {
                TargetVerb::Brownout { port, brownout: setup::brownout(*of) }
            }
            Alteration::Ana(state) => {
                TargetVerb::Ana { port, group: GROUP, state: setup::ana(*state) }
            }
            Alteration::State(PathState::Up) => TargetVerb::Restore { port },
            Alteration::State(PathState::Cut) => TargetVerb::Cut { port },
            Alteration::State(PathState::Silent) => TargetVerb::Stall { port },
        })
    }

    /// Whatever is still open ends quickly.
    fn calm_down(&mut self) -> Result<(), Problem> {
        self.world.steal(Stolen::default());
        for port in 0..self.cell.scenario.paths.len() as u16 {
            self.target(TargetVerb::Restore { port })?;
            self.target(TargetVerb::Shape { port, shape: Shape::default() })?;
            self.target(TargetVerb::Brownout { port, brownout: None })?;
            let state = setup::ana(crate::scenario::AnaState::Optimized);
            self.target(TargetVerb::Ana { port, group: GROUP, state })?;
        }
        self.target(TargetVerb::Service(None))
    }

    /// What the load counters of all policies still hold when the last probe should have ended,
    /// for which no request waits: commands, bytes.
    fn charged(&mut self) -> Result<(u64, u64), Problem> {
        let end = self.world.now().ns() + PATIENCE_NS;
        let (mut held, mut step) = (self.charged_now()?, STEP_NS);
        while held != (0, 0) && self.world.now().ns() < end {
            self.run_for(step);
            step *= 2;
            held = self.charged_now()?;
        }
        Ok(held)
    }

    fn charged_now(&mut self) -> Result<(u64, u64), Problem> {
        let (mut commands, mut bytes) = (0, 0);
        for reply in self.ask(|| Verb::Snapshot)? {
            let Reply::Snapshot(snapshot) = reply else { continue };
            let heads = snapshot.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
            for path in heads.flat_map(|head| &head.paths) {
                let Charged { controller, path, queue_pairs, workers, bytes: open, work } =
                    path.charged;
                let counts = [controller, path, queue_pairs, workers];
                commands += counts.into_iter().map(u64::from).sum::<u64>();
                bytes += open + work;
            }
        }
        Ok((commands, bytes))
    }

    /// An orderly end, after which nobody holds a buffer.
    fn shut_down(&mut self) -> Result<(), Problem> {
        for reply in self.ask(|| Verb::Shutdown)? {
            if !matches!(reply, Reply::ShutDown { unanswered: 0 }) {
                return Err(failed(format!("a host does not shut down in order: {reply:?}")));
            }
        }
        self.run_for(CLOSING_NS);
        match self.world.buffers() {
            (0, 0) => Ok(()),
            (host, target) => Err(failed(format!(
                "buffers were not given back: {host} of the hosts, {target} of the target"
            ))),
        }
    }

    fn collect(&mut self) -> Result<Vec<HostFigures>, Problem> {
        let replies = self.ask(|| Verb::User(GeneratorVerb::Collect))?;
        let figures = replies.into_iter().map(|reply| match reply {
            Reply::User(GeneratorReply::Figures(figures)) => Ok(*figures),
            other => Err(failed(format!("no figures: {other:?}"))),
        });
        figures.collect()
    }
}

/// What a host knows of each path, in the order in which they were connected.
fn path_samples(snapshot: &HostSnapshot, at: Time) -> Vec<PathSample> {
    let heads = snapshot.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
    let mut paths: Vec<_> = heads.flat_map(|head| &head.paths).collect();
    let number = |name: &str| name.trim_start_matches("nvme").parse().unwrap_or(u32::MAX);
    paths.sort_by_key(|path| number(&path.controller));
    let sample = |path: &&anabranch_host::verb::PathSnapshot| PathSample {
        at,
        commands: path.commands.iter().sum(),
        bytes: path.bytes.iter().sum(),
        latency_ns: path.latency_ns.sum() as u64,
        in_flight: path.in_flight,
    };
    paths.iter().map(sample).collect()
}
