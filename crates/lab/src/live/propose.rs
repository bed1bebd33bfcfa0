//! Which part of the scenario's rates this machine can carry, so that links bind.

use super::LiveError;
use super::ceiling::unbridled;
use super::fit::{WHOLE, scale};
use super::stand::{Stand, at_once};
use crate::cell::Cell;
use crate::limit::limit_of_window;
use crate::scenario::{AnaState, Run, Scenario, Variant};
use anabranch_policy::Policy;
use anabranch_target::link::Shape;

/// How the machine is measured.
const PROBE: Run = Run { ramp_ns: 100_000_000, window_ns: 400_000_000, runs: 1 };
/// Of what host and target do together at full speed, links may ask this much, in hundredths.
/// Shaped requests cost more than those of a full queue: fewer of them share a system call.
const SHARE_PERCENT: u64 = 30;
/// What is proposed, the largest that fits.
const STEPS: [u32; 12] = [WHOLE, 500, 250, 200, 100, 50, 25, 20, 10, 5, 2, 1];

/// Measures the scenario's own requests without any shaping, and chooses.
pub(super) fn permille(
    stand: &mut Stand,
    scenario: &Scenario,
    cpus: usize,
    notes: &mut Vec<String>,
) -> Result<u32, LiveError> {
    let probe = probe(scenario);
    let variant = Variant::plain(Policy::RoundRobin, scenario.paths.len());
    stand.begin_as(&probe, &variant)?;
    let measured = stand.run(Cell { scenario: &probe, variant: &variant, seed: 1 })?;
    let window = u128::from(measured.figures.window_ns.max(1)) * cpus as u128;
    // What all CPUs would do, had they nothing else to do.
    let busy = u128::from(measured.used_ns).clamp(1, window);
    let whole = u128::from(measured.figures.iops()) * window / busy;
    let burnt: u64 =
        scenario.burners.iter().map(|b| u64::from(b.load_percent) * u64::from(b.clones)).sum();
    let burnt = burnt.saturating_mul(u64::from(scenario.hosts.count));
    let free = (100 * cpus as u64).saturating_sub(burnt);
    let most = whole * u128::from(free) / (100 * cpus as u128) * u128::from(SHARE_PERCENT) / 100;
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    let asks = |permille: u32| {
        let scaled = scale(scenario, permille);
        limit_of_window(Cell { scenario: &scaled, variant: &variant, seed: 1 }).iops
    };
    let fits = STEPS.into_iter().find(|step| asks(*step) <= most);
    notes.push(format!(
        "host and target together do {} of these requests a second here without shaping",
        measured.figures.iops()
    ));
    Ok(fits.unwrap_or(1))
}

fn probe(scenario: &Scenario) -> Scenario {
    let mut probe = scenario.clone();
    probe.run = PROBE;
    probe.changes.clear();
    probe.burners.clear();
    probe.target = at_once(&scenario.target);
    probe.jobs.iter_mut().for_each(unbridled);
    for path in &mut probe.paths {
        path.shape = Shape::default();
        path.brownout = None;
        path.ana = AnaState::Optimized;
    }
    probe
}
