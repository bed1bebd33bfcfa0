//! Target and hosts of one session, and one run of a load on them.

use super::LiveError;
use super::burn::Burners;
use super::cpu::{Names, Reading};
use super::files;
use super::host::{DEVICE, LiveHost, open_requests};
use super::ports::{Ports, wire_state};
use super::wires::Wires;
use crate::cell::Cell;
use crate::figures::{Cpu, Figures, SERIES_NS};
use crate::generator::{HostFigures, PathSample, Payload, Plan, assemble};
use crate::scenario::{Alteration, Arrival, PathState, Scenario, Target, Variant};
use anabranch_host::config::DEFAULT_MAX_REQUESTS;
use anabranch_proto::machine::Time;
use anabranch_target::link::Shape;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Sessions of this process so far: their threads have names of their own.
static SESSIONS: AtomicU32 = AtomicU32::new(0);
/// From handing a plan to the first host to the beginning of the load.
const LEAD: Duration = Duration::from_millis(20);
/// The same for each host more.
const LEAD_PER_HOST: Duration = Duration::from_millis(1);
/// From the end of a run until every host has given its figures.
const COLLECT: Duration = Duration::from_secs(60);
/// Payload memory beyond what open requests take, per worker.
const SPARE_BYTES: u64 = 32 << 20;
/// Hosts that are looked at together; more take turns, each has its own every few samples.
const AT_ONCE: usize = 8;
/// The deepest queue that a measurement of our own asks of each clone.
pub(super) const DEEPEST: u32 = 256;

/// Target and hosts.
pub(super) struct Stand {
    ports: Ports,
    hosts: Vec<LiveHost>,
    names: Names,
    burner_name: String,
}

/// What the processors did while a load was measured.
pub(super) struct Measured {
    pub(super) figures: Figures,
    /// CPU time of the hosts' threads over the window.
    pub(super) hosts_ns: u64,
    /// CPU time of the target's.
    pub(super) target_ns: u64,
}

/// By host, path and time.
type Samples = Vec<Vec<Vec<PathSample>>>;

/// What the driver does at a time.
enum Step {
    Sample,
    Read,
    Change(usize),
}

impl Stand {
    /// Starts the target, then each host and its controllers. On an error nothing is left.
    pub(super) fn set_up(scenario: &Scenario, wired: bool) -> Result<Stand, LiveError> {
        let session = SESSIONS.fetch_add(1, Ordering::Relaxed);
        // The kernel shows 15 characters.
        let name = |what: &str| format!("lab{session}{what}");
        let names = Names { hosts: name("h"), target: name("t") };
        let open = open_bytes(scenario);
        let all = open.saturating_mul(u64::from(scenario.hosts.count));
        files::allow(scenario)?;
        let wires = wired.then(|| Wires::set_up(session, scenario.paths.len())).transpose()?;
        let ports = Ports::start(scenario, &names.target, pool(all), wires)?;
        let mut stand = Stand { ports, hosts: Vec::new(), names, burner_name: name("b") };
        for host in 0..scenario.hosts.count {
            let thread = format!("{}{host}", stand.names.hosts);
            let addresses = stand.ports.addresses();
            let start = || LiveHost::start(scenario, host, &thread, pool(open), addresses);
            let host = stand.ports.among_hosts(start)?;
            stand.hosts.push(host);
        }
        stand.settle(scenario)?;
        Ok(stand)
    }

    /// Gives every path the condition that the scenario begins with and the variant's queue pairs,
    /// and waits until hosts see it.
    pub(super) fn begin_as(
        &mut self,
        scenario: &Scenario,
        variant: &Variant,
    ) -> Result<(), LiveError> {
        for (at, path) in scenario.paths.iter().enumerate() {
            self.ports.state(at, PathState::Up)?;
            self.ports.shape(at, &path.shape)?;
            self.ports.brownout(at, path.brownout)?;
            self.ports.ana(at, path.ana)?;
        }
        let queues = variant.queues(&scenario.hosts);
        for host in &mut self.hosts {
            host.connect_all(scenario, self.ports.addresses(), queues)?;
        }
        self.ports.service(Some(&scenario.target))?;
        self.settle(scenario)
    }

    fn settle(&mut self, scenario: &Scenario) -> Result<(), LiveError> {
        let states: Vec<_> = scenario.paths.iter().map(|path| wire_state(path.ana)).collect();
        self.hosts.iter_mut().try_for_each(|host| host.settle(&states))
    }

    /// Runs a cell on the paths as they are; its hosts are the first ones of ours. When it is over
    /// nothing is open, and paths have no shape any more: see [`Stand::begin_as`].
    pub(super) fn run(&mut self, cell: Cell<'_>) -> Result<Measured, LiveError> {
        let count = (cell.scenario.hosts.count as usize).min(self.hosts.len());
        for host in &self.hosts[..count] {
            host.set_variant(cell.variant)?;
        }
        let lead = LEAD + LEAD_PER_HOST * u32::try_from(count).unwrap_or(0);
        let begin = anabranch_rt::now().after(lead);
        let mut started = 0;
        let driven = self.start(cell, begin, count, &mut started);
        let driven = driven.and_then(|()| self.drive(cell, begin, count));
        // In any case: what was started is ended, so that the next cell can begin.
        let opened = self.open_up(cell.scenario);
        let deadline = begin.after(Duration::from_nanos(cell.end_ns())).after(COLLECT);
        let figures: Vec<_> =
            self.hosts[..started].iter().map(|host| host.collect(deadline)).collect();
        let (samples, used) = driven?;
        opened?;
        let figures = figures.into_iter().collect::<Result<Vec<HostFigures>, LiveError>>()?;
        let cpu = Cpu {
            user_ns: used.hosts.user_ns(),
            system_ns: used.hosts.system_ns(),
            idle_ppm: used.idle_ppm(),
        };
        let (hosts_ns, target_ns) = (used.hosts.sum(), used.target.sum());
        let figures = assemble(cell, begin, &figures, &samples, Some(cpu));
        Ok(Measured { figures, hosts_ns, target_ns })
    }

    fn start(
        &self,
        cell: Cell<'_>,
        begin: Time,
        count: usize,
        started: &mut usize,
    ) -> Result<(), LiveError> {
        for (index, host) in (0..).zip(&self.hosts[..count]) {
            let mut plan = Plan::of(cell, index, DEVICE, begin);
            plan.clock = Some(anabranch_rt::now);
            plan.payload = Payload::Stamped;
            host.start_load(plan)?;
            *started += 1;
        }
        Ok(())
    }

    /// Does what the cell's time line says until the end of its window.
    fn drive(
        &self,
        cell: Cell<'_>,
        begin: Time,
        count: usize,
    ) -> Result<(Samples, Reading), LiveError> {
        let scenario = cell.scenario;
        let burners = Burners::start(&scenario.burners, scenario.hosts.count, &self.burner_name)?;
        let mut samples = vec![vec![Vec::new(); scenario.paths.len()]; count];
        let mut readings = Vec::new();
        let end = cell.end_ns();
        let (mut tick, turns) = (0, count.div_ceil(AT_ONCE).max(1));
        for (at_ns, step) in time_line(cell) {
            let due = begin.after(Duration::from_nanos(at_ns));
            let now = anabranch_rt::now();
            std::thread::sleep(due.since(now));
            match step {
                // The next one is due already: this one would only say the same.
                Step::Sample if at_ns != end && now.since(due).as_nanos() >= SERIES_NS.into() => {}
                Step::Sample => {
                    tick += 1;
                    let all = at_ns == 0 || at_ns == scenario.run.ramp_ns || at_ns == end;
                    for (index, (host, into)) in self.hosts.iter().zip(&mut samples).enumerate() {
                        if !all && !(tick + index).is_multiple_of(turns) {
                            continue;
                        }
                        let paths = host.sample()?;
                        into.iter_mut().zip(paths).for_each(|(path, sample)| path.push(sample));
                    }
                }
                Step::Read => readings.push(Reading::take(&self.names)?),
                Step::Change(index) => self.change(scenario, index)?,
            }
        }
        drop(burners);
        let used = match readings[..] {
            [first, .., last] => last.since(first),
            _ => Reading::default(),
        };
        Ok((samples, used))
    }

    fn change(&self, scenario: &Scenario, index: usize) -> Result<(), LiveError> {
        let change = &scenario.changes[index];
        match &change.what {
            Alteration::Shape(shape) => self.ports.shape(change.path, shape),
            Alteration::Brownout(brownout) => self.ports.brownout(change.path, *brownout),
            Alteration::Ana(ana) => self.ports.ana(change.path, *ana),
            Alteration::State(state) => self.ports.state(change.path, *state),
        }
    }

    /// Lets what is still under way come through at once: it is in no figure any more.
    fn open_up(&self, scenario: &Scenario) -> Result<(), LiveError> {
        for at in 0..scenario.paths.len() {
            self.ports.state(at, PathState::Up)?;
            self.ports.brownout(at, None)?;
            self.ports.shape(at, &Shape::default())?;
        }
        self.ports.service(None)
    }

    /// Ends everything, in order.
    pub(super) fn strike(self) -> Result<(), LiveError> {
        let hosts: Vec<_> = self.hosts.into_iter().map(LiveHost::stop).collect();
        let target = self.ports.stop();
        hosts.into_iter().collect::<Result<(), LiveError>>().and(target)
    }
}

/// Samples at the beginning, every [`SERIES_NS`] and at the end; readings at both ends of the
/// window; changes when the scenario says. What is at the same time is in this order.
fn time_line(cell: Cell<'_>) -> Vec<(u64, Step)> {
    let (ramp, end) = (cell.scenario.run.ramp_ns, cell.end_ns());
    let mut steps = vec![(ramp, Step::Read)];
    for index in 0..cell.scenario.changes.len() {
        steps.push((cell.change_ns(index), Step::Change(index)));
    }
    steps.push((end, Step::Read));
    let every = usize::try_from(SERIES_NS).unwrap_or(usize::MAX);
    steps.extend((0..end).step_by(every).map(|at| (at, Step::Sample)));
    if !ramp.is_multiple_of(SERIES_NS) {
        steps.push((ramp, Step::Sample));
    }
    steps.push((end, Step::Sample));
    steps.sort_by_key(|(at, _)| *at);
    steps
}

/// What requests of one host that are open at once may hold, in bytes: buffers are powers of two.
fn open_bytes(scenario: &Scenario) -> u64 {
    let jobs = scenario.jobs.iter().map(|job| {
        let sizes = [&job.sizes.read, &job.sizes.write, &job.sizes.trim];
        let largest = sizes.into_iter().map(|sizes| sizes.largest()).max().unwrap_or(0);
        let open = match job.arrival {
            Arrival::Closed => job.depth.max(DEEPEST).saturating_mul(job.clones),
            Arrival::Poisson { .. } => DEFAULT_MAX_REQUESTS.max(open_requests(scenario)),
        };
        u64::from(largest.next_power_of_two()).saturating_mul(u64::from(open))
    });
    jobs.fold(0, u64::saturating_add)
}

/// Memory is only taken as far as it is used.
fn pool(open_bytes: u64) -> usize {
    const MOST: u64 = 16 << 30;
    usize::try_from(open_bytes.saturating_add(SPARE_BYTES).min(MOST)).unwrap_or(usize::MAX)
}

/// The target without times of its own.
pub(super) fn at_once(target: &Target) -> Target {
    Target { servers: None, read_ns: 0, write_ns: 0, other_ns: 0, ..*target }
}
