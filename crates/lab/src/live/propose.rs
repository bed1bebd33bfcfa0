//! Which part of the scenario's rates this machine can carry, so that links bind.

use super::LiveError;
use super::ceiling::{fill, steady, unbridled};
use super::scale::{Parts, WHOLE, scale};
use super::stand::{Measured, Stand, at_once};
use crate::cell::Cell;
use crate::light;
use crate::limit::limit_of_window;
use crate::scenario::{AnaState, Run, Scenario, Variant};
use anabranch_policy::Policy;
use anabranch_target::link::Shape;

/// How the machine is measured without shaping.
const PROBE: Run = Run { ramp_ns: 100_000_000, window_ns: 400_000_000, runs: 1 };
/// Of the CPUs' time host and target may need this much together, in hundredths.
const TOGETHER_PERCENT: u128 = 45;
/// The target has one thread: of one CPU it may need this much, in hundredths.
const TARGET_PERCENT: u128 = 55;
/// Of what the light simulation carries on the same links, so much must come through, in
/// hundredths: less, and something else than the links binds.
const CARRIED_PERCENT: u128 = 95;
/// So many proposals may leave the links less full, then the reason is not their rates.
const TRIES: u32 = 6;
/// What is proposed, the largest that fits.
const STEPS: [u32; 12] = [WHOLE, 500, 250, 200, 100, 50, 25, 20, 10, 5, 2, 1];

/// The machine, and what a request costs on it.
struct Machine<'a> {
    scenario: &'a Scenario,
    variant: Variant,
    cpus: u64,
}

/// CPU time per request, in nanoseconds.
#[derive(Clone, Copy)]
struct Cost {
    together: u128,
    target: u128,
    /// Whether the links were as full as they should be.
    carried: bool,
}

/// Measures what the scenario's requests cost, and chooses: first without any shaping, which is the
/// cheapest (many requests share a system call), then shaped by each proposal, until one fits and
/// its links are full. (The kernel's links also carry what the simulation does not count.)
pub(super) fn permille(
    stand: &mut Stand,
    scenario: &Scenario,
    cpus: usize,
    wired: bool,
) -> Result<u32, LiveError> {
    let variant = Variant::plain(Policy::QueueDepth, scenario.paths.len());
    let machine = Machine { scenario, variant, cpus: cpus.max(1) as u64 };
    let mut cost = machine.cost(stand, unshaped(scenario))?;
    let mut tries = if wired { 0 } else { TRIES };
    for step in STEPS {
        if !machine.fits(step, cost) {
            continue;
        }
        cost = machine.cost(stand, shaped(scenario, step))?;
        if !machine.fits(step, cost) {
            continue;
        }
        if cost.carried || tries == 0 {
            return Ok(step);
        }
        tries -= 1;
    }
    // Nothing fits: the cells will say that the CPU binds.
    Ok(1)
}

impl Machine<'_> {
    fn cost(&self, stand: &mut Stand, probe: Scenario) -> Result<Cost, LiveError> {
        stand.begin_as(&probe, &self.variant)?;
        let cell = Cell { scenario: &probe, variant: &self.variant, seed: 1 };
        let Measured { figures, hosts_ns, target_ns } = stand.run(cell)?;
        let requests = u128::from(figures.requests.max(1));
        let (hosts, target) = (u128::from(hosts_ns), u128::from(target_ns));
        let most = light::run(cell).map_or(0, |figures| figures.bytes);
        let carried = u128::from(figures.bytes) * 100 >= u128::from(most) * CARRIED_PERCENT;
        Ok(Cost { together: (hosts + target) / requests, target: target / requests, carried })
    }

    /// Whether there is CPU time enough for what the links of this scale carry.
    fn fits(&self, permille: u32, cost: Cost) -> bool {
        const SECOND_NS: u128 = 1_000_000_000;
        let scaled = scale(self.scenario, Parts::deep(permille));
        let cell = Cell { scenario: &scaled, variant: &self.variant, seed: 1 };
        let iops = u128::from(limit_of_window(cell).iops);
        let burners = self.scenario.burners.iter();
        let burnt: u64 = burners.map(|b| u64::from(b.load_percent) * u64::from(b.clones)).sum();
        let burnt = burnt.saturating_mul(u64::from(self.scenario.hosts.count));
        let free = u128::from((100 * self.cpus).saturating_sub(burnt));
        let together = free * SECOND_NS / 100 * TOGETHER_PERCENT / 100;
        let target = SECOND_NS * TARGET_PERCENT / 100;
        iops.saturating_mul(cost.together) <= together && iops.saturating_mul(cost.target) <= target
    }
}

/// The scenario's links of this scale, full but without long queues; nothing changes, comes and
/// goes or burns.
fn shaped(scenario: &Scenario, permille: u32) -> Scenario {
    let mut probe = scale(scenario, Parts::deep(permille));
    probe.changes.clear();
    probe.burners.clear();
    for path in &mut probe.paths {
        path.brownout = None;
        path.shape.on_off = None;
    }
    fill(&mut probe);
    probe.run = steady(&probe);
    probe
}

/// The scenario's requests as fast as host and target can.
fn unshaped(scenario: &Scenario) -> Scenario {
    let mut probe = shaped(scenario, WHOLE);
    probe.run = PROBE;
    probe.target = at_once(&scenario.target);
    probe.jobs.iter_mut().for_each(unbridled);
    for path in &mut probe.paths {
        path.shape = Shape::default();
        path.ana = AnaState::Optimized;
    }
    probe
}
