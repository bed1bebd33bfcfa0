//! What burners take from workers in a simulation.

use super::{Burner, Scenario};
use crate::rng::Rng;

/// No stretch is longer: a fair scheduler takes the CPU from a burner for a worker that waits
/// (Linux's `base_slice_ns` on eight CPUs or more).
pub const MAX_STRETCH_NS: u64 = 3_000_000;
/// No worker loses more of its time than this, in millionths.
pub const MAX_STOLEN_PPM: u64 = 950_000;

/// The stretches of time that burners take from one worker: one per period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stolen {
    stretch_ns: u64,
    period_ns: u64,
    /// What has passed of a period at time 0.
    phase_ns: u64,
}

impl Stolen {
    /// By worker, host by host; empty without burners.
    ///
    /// Clones of burners are spread over the workers in turn. Those on one worker add up: their
    /// loads, to at most [`MAX_STOLEN_PPM`]; a stretch is the mean of their chunks by load, at most
    /// [`MAX_STRETCH_NS`]. When the first one begins is drawn for each worker, from a chain of
    /// draws that nothing else uses.
    #[must_use]
    pub fn of_workers(scenario: &Scenario, seed: u64) -> Vec<Stolen> {
        if scenario.burners.is_empty() {
            return Vec::new();
        }
        let loads = loads(scenario);
        let mut rng = Rng::new(!seed);
        let one = |(load, chunks): (u64, u128)| {
            if load == 0 {
                return Stolen::default();
            }
            let chunk_ns = u64::try_from(chunks / u128::from(load)).unwrap_or(MAX_STRETCH_NS);
            let stretch_ns = chunk_ns.min(MAX_STRETCH_NS);
            let period_ns = stretch_ns * 1_000_000 / (load * 10_000).min(MAX_STOLEN_PPM);
            Stolen { stretch_ns, period_ns, phase_ns: rng.below(period_ns.max(1)) }
        };
        let all = loads.len() * scenario.hosts.count as usize;
        loads.iter().copied().cycle().take(all).map(one).collect()
    }

    /// Whether burners get less, or less at a time, than the scenario asks for.
    #[must_use]
    pub fn is_less_than_asked(scenario: &Scenario) -> bool {
        let long = |burner: &Burner| burner.chunk_ns > MAX_STRETCH_NS;
        scenario.burners.iter().any(long)
            || loads(scenario).iter().any(|(load, _)| load * 10_000 > MAX_STOLEN_PPM)
    }

    /// When the worker does what it would like to do now.
    #[must_use]
    pub fn free_at(&self, now_ns: u64) -> u64 {
        if self.stretch_ns == 0 {
            return now_ns;
        }
        let at = now_ns.saturating_add(self.phase_ns) % self.period_ns;
        now_ns.saturating_add(self.stretch_ns.saturating_sub(at))
    }
}

/// By worker of a host: the loads of its burners in percent, and the sum of load times chunk.
fn loads(scenario: &Scenario) -> Vec<(u64, u128)> {
    let mut loads = vec![(0, 0); scenario.hosts.workers as usize];
    let workers = loads.len().max(1);
    let clones = scenario.burners.iter().flat_map(|b| (0..b.clones).map(move |_| b));
    for (turn, burner) in clones.enumerate() {
        let Burner { load_percent, chunk_ns, .. } = burner;
        if let Some((load, chunks)) = loads.get_mut(turn % workers) {
            *load += u64::from(*load_percent);
            *chunks += u128::from(*load_percent) * u128::from(*chunk_ns);
        }
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::super::{BurnerMode, file};
    use super::*;

    fn stolen(workers: u32, burners: &[(u32, u64, u32)]) -> Vec<Stolen> {
        let text = format!(
            "title = \"t\"\n[host]\nworkers = {workers}\n[[path]]\nname = \"a\"\n\
             [[job]]\nrw = \"read\"\n"
        );
        let mut scenario = file::parse(&text, "x.toml").expect("good").scenario;
        scenario.burners = burners
            .iter()
            .map(|&(load_percent, chunk_us, clones)| Burner {
                name: "b".to_owned(),
                load_percent,
                chunk_ns: chunk_us * 1000,
                mode: BurnerMode::Noop,
                clones,
            })
            .collect();
        Stolen::of_workers(&scenario, 7)
    }

    /// Of a second, in microseconds: how long it is stolen, in how many stretches.
    fn of_a_second(stolen: &Stolen) -> (u64, u64) {
        let taken = |us: u64| stolen.free_at(us * 1000) > us * 1000;
        let all = (0..1_000_000).filter(|us| taken(*us)).count() as u64;
        (all, (1..1_000_000).filter(|us| taken(*us) && !taken(us - 1)).count() as u64)
    }

    #[test]
    fn a_burner_takes_its_chunk_of_every_chunk_over_load() {
        for (load, chunk_us) in [(25, 100), (50, 1000), (80, 2000)] {
            let (taken, stretches) = of_a_second(&stolen(1, &[(load, chunk_us, 1)])[0]);
            let (want, periods) = (u64::from(load) * 10_000, 10_000 * u64::from(load) / chunk_us);
            assert!(taken.abs_diff(want) <= 2 * chunk_us, "{load} %: {taken} of {want}");
            assert!(stretches.abs_diff(periods) <= 1, "{load} %: {stretches} of {periods}");
        }
    }

    #[test]
    fn clones_are_spread_and_add_up_below_all() {
        let all = stolen(2, &[(20, 100, 3)]);
        let share = |of: &Stolen| of.stretch_ns * 100 / of.period_ns;
        assert_eq!(all.iter().map(share).collect::<Vec<_>>(), [40, 20]);
        let all = stolen(4, &[(85, 50_000, 32)]);
        assert_eq!(all.iter().map(share).collect::<Vec<_>>(), [95; 4]);
        assert!(all.iter().all(|of| of.stretch_ns == MAX_STRETCH_NS));
        assert_ne!(all[0].phase_ns, all[1].phase_ns, "they do not keep time");
        assert_eq!(stolen(4, &[(85, 100, 2)])[2], Stolen::default(), "nothing is taken");
        assert_eq!(stolen(4, &[]), []);
    }

    #[test]
    fn a_stretch_ends_at_its_end() {
        let stolen = Stolen { stretch_ns: 30, period_ns: 100, phase_ns: 10 };
        let at = |now| stolen.free_at(now);
        assert_eq!([at(0), at(19), at(20), at(89), at(90), at(119)], [20, 20, 20, 89, 120, 120]);
        assert_eq!(at(u64::MAX), u64::MAX);
    }
}
