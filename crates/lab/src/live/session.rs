//! A session: one scenario's target and hosts, set up once, and its cells on them.

use super::LiveError;
use super::fit::{Fitted, fit};
use super::scale::{self, Parts, WHOLE, open_requests};
use super::stand::Stand;
use super::{ceiling, propose, reach};
use crate::cell::Cell;
use crate::figures::Figures;
use crate::result::{Ceiling, Circumstances, Mode};
use crate::scenario::{Scenario, Variant};

/// How live runs are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveOptions {
    /// The part of the scenario's rates that is used, in thousandths: 1 to 1000. Measured and
    /// chosen so that links bind and not the CPU when `None`.
    pub scale_permille: Option<u32>,
    /// Scaled rates leave the jobs' `iodepth` and `numjobs` alone. Otherwise the same part of the
    /// open requests is kept, so that latencies stay what they are, or more where links would run
    /// dry: see [`open_part`].
    pub keep_depth: bool,
    /// The kernel holds links to their rates (`tc tbf` on veth pairs between network namespaces of
    /// our own) instead of the target; delays, congestion and faults stay with the target. Needs
    /// root, and the commands `ip` and `tc`.
    pub kernel_shaping: bool,
}

/// A scenario set up live: one target with a port per path, and the hosts, connected to all of it.
///
/// Cells run on it one after the other. Run 1 of all variants, then run 2 of all variants and so
/// on, each in the order that [`order`] gives: then what drifts on the machine strikes all alike.
///
/// Dropping it ends every thread; [`Session::end`] also tells what went wrong with that.
pub struct Session {
    /// As it is run: fitted and scaled.
    scenario: Scenario,
    parts: Parts,
    kernel_shaping: bool,
    notes: Vec<String>,
    stand: Stand,
}

/// The scenario as a session on this machine runs it with these parts of its rates and of its open
/// requests, in thousandths: what to simulate beside it.
#[must_use]
pub fn as_run(scenario: &Scenario, permille: u32, open_permille: u32) -> Scenario {
    let parts = Parts { rates: permille.clamp(1, WHOLE), open: open_permille.clamp(1, WHOLE) };
    scale::scale(&fit(scenario, cpus()).scenario, parts)
}

/// The part of the scenario's open requests that a session on this machine keeps at this part of
/// its rates, both in thousandths: the same part, or, where links would run dry, as much as keeps
/// every path busy; all of them with `keep_depth`.
#[must_use]
pub fn open_part(scenario: &Scenario, permille: u32, keep_depth: bool) -> u32 {
    parts(&fit(scenario, cpus()).scenario, permille.clamp(1, WHOLE), keep_depth).open
}

fn parts(fitted: &Scenario, rates: u32, keep_depth: bool) -> Parts {
    let open = if keep_depth { WHOLE } else { scale::open_part(fitted, rates) };
    Parts { rates, open }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

impl Session {
    /// Fits the scenario to this machine, starts target and hosts, connects, and settles the scale.
    ///
    /// # Errors
    /// The scenario or an option is out of bounds, or the system refuses something. Nothing is left
    /// behind.
    pub fn new(scenario: &Scenario, options: &LiveOptions) -> Result<Session, LiveError> {
        scenario.check()?;
        scenario.check_device()?;
        if let Some(permille) = options.scale_permille
            && !(1..=WHOLE).contains(&permille)
        {
            let why = format!("{permille} is out of range; use 1 to {WHOLE}");
            return Err(LiveError::Option { name: "scale", why });
        }
        let cpus = cpus();
        let Fitted { scenario, mut notes } = fit(scenario, cpus);
        reach::check(&scenario)?;
        let mut stand = Stand::set_up(&scenario, options.kernel_shaping)?;
        if options.kernel_shaping {
            notes.push(
                "rates are the kernel's (tc tbf on veth pairs): it counts Ethernet, IP and TCP \
                 headers too"
                    .to_owned(),
            );
        }
        let permille = match options.scale_permille {
            Some(permille) => permille,
            None => propose::permille(&mut stand, &scenario, cpus, options.kernel_shaping)?,
        };
        let parts = parts(&scenario, permille, options.keep_depth);
        if permille != WHOLE {
            notes.push(told(&scenario, parts, options.keep_depth));
        }
        let scenario = scale::scale(&scenario, parts);
        if permille != WHOLE {
            reach::check_scaled(&scenario, &percent(permille))?;
        }
        let settled = ceiling::steady(&scenario).ramp_ns;
        if options.kernel_shaping && settled > scenario.run.ramp_ns {
            notes.push(format!(
                "the open requests take long to go through: only after a ramp of {} ms as many of \
                 them end as begin",
                settled / 1_000_000
            ));
        }
        Ok(Session { scenario, parts, kernel_shaping: options.kernel_shaping, notes, stand })
    }

    /// The scenario as it is run: limits are computed on this one.
    #[must_use]
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The part of the scenario's rates that is used, in thousandths.
    #[must_use]
    pub fn scale(&self) -> u32 {
        self.parts.rates
    }

    /// What a reader of the figures must know: what is other than in the scenario, and what the
    /// ceilings do not keep.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What the file of each cell says about the session.
    #[must_use]
    pub fn circumstances(&self, ceilings: &[Ceiling]) -> Circumstances {
        Circumstances {
            mode: Mode::Live,
            scale_permille: self.parts.rates,
            open_permille: Some(self.parts.open),
            kernel_shaping: self.kernel_shaping,
            ceilings: ceilings.to_vec(),
            notes: self.notes.clone(),
        }
    }

    /// Measures each path alone, all others inaccessible: what it carries of the scenario's own mix
    /// at enough depth, and how long one small read takes. A path that is off by more than 3 % of
    /// its rate or 1 ms of its delay leaves a note.
    ///
    /// # Errors
    /// A measurement did not come about; the text names the path.
    pub fn ceilings(&mut self) -> Result<Vec<Ceiling>, LiveError> {
        let mut found = Vec::new();
        for path in 0..self.scenario.paths.len() {
            let name = &self.scenario.paths[path].name;
            let (ceiling, notes) = ceiling::measure(&mut self.stand, &self.scenario, path)
                .map_err(|error| LiveError::failed(format!("path {name} alone"), error))?;
            self.notes.extend(notes);
            found.push(ceiling);
        }
        Ok(found)
    }

    /// One cell; `run`, from 1, is its seed.
    ///
    /// # Errors
    /// It was not completed; the text names the cell. The session can go on with another cell if
    /// paths and hosts come back in order.
    pub fn run(&mut self, variant: &Variant, run: u64) -> Result<Figures, LiveError> {
        let cell = Cell { scenario: &self.scenario, variant, seed: run };
        let checked = variant.check(self.scenario.paths.len()).map_err(LiveError::from);
        let begun = checked.and_then(|()| self.stand.begin_as(&self.scenario, variant));
        let ran = begun.and_then(|()| self.stand.run(cell));
        ran.map(|measured| measured.figures).map_err(|error| LiveError::Cell {
            scenario: self.scenario.name.clone(),
            variant: variant.name.clone(),
            run,
            why: error.to_string(),
        })
    }

    /// Ends hosts and target in order.
    ///
    /// # Errors
    /// Something did not end well; its threads are ended all the same.
    pub fn end(self) -> Result<(), LiveError> {
        self.stand.strike()
    }
}

/// In which order `variants` variants have their turn in a run: each run begins with another one.
pub fn order(variants: usize, run: u64) -> impl Iterator<Item = usize> {
    let first = run.saturating_sub(1) % (variants.max(1) as u64);
    // Below `variants`.
    let first = first as usize;
    (0..variants).map(move |place| (first + place) % variants)
}

/// What was scaled, in words.
fn told(asked: &Scenario, parts: Parts, keep_depth: bool) -> String {
    let open = |open| open_requests(&scale::scale(asked, Parts { open, ..parts }));
    let (was, left) = (open_requests(asked), open(parts.open));
    let mut text = format!(
        "rates are {} of the scenario's, so that links bind and not this machine's CPUs",
        percent(parts.rates)
    );
    if was == 0 {
        // An open loop: its rate says it all.
        return text;
    }
    text.push_str(&format!("; {left} of {was} requests are open"));
    if parts.open > parts.rates && !keep_depth {
        let few = open(parts.rates);
        text.push_str(&format!(", as {few}, the same part, would be too few to fill the links"));
    }
    text
}

fn percent(permille: u32) -> String {
    match permille % 10 {
        0 => format!("{} %", permille / 10),
        tenth => format!("{}.{tenth} %", permille / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_is_first_in_turn() {
        let orders: Vec<Vec<usize>> = (1..=4).map(|run| order(3, run).collect()).collect();
        assert_eq!(orders, [vec![0, 1, 2], vec![1, 2, 0], vec![2, 0, 1], vec![0, 1, 2]]);
        assert_eq!(order(0, 1).count(), 0);
    }

    #[test]
    fn scales_are_said_in_percent() {
        assert_eq!([50, 5, 1000].map(percent), ["5 %", "0.5 %", "100 %"]);
    }
}
