//! Scenarios drawn at random, to try policies on what nobody has thought of.
//!
//! A seed gives a scenario file's text; what runs is what is read from it. So a surprising one can
//! be kept as a file. Draws are integers from the seed alone: the same text on every machine. A
//! *series* is the series E24 (24 steps per decade, IEC 60063), each step equally often: as good as
//! log-uniform.
//!
//! - **Paths**: 2 (40 %), 3 (15 %), 4 (25 %), 5 to 8 (20 %).
//! - **Rates**: alike (35 %): the series from 20 to 2,400 MiB/s. Unequal (65 %): one path has the
//!   series from 60 to 2,400, each other that over the series from 1 to 20, at least 20. Both
//!   directions are alike (80 %), or drawn each by itself.
//! - **Delays**: alike (45 %) or each by itself (55 %): the series from 10 µs to 30 ms.
//! - **Jitter** (20 %): of one path or of all, 10, 20, 50 or 100 % of the delay.
//! - **Delay from a size on** (12 %): one path, from 16, 32, 64 or 128 KiB on, the series from 1 to
//!   10 ms.
//! - **Brownout** (10 %): one path, 1 to 5 % of its commands, the series from 2 to 30 ms.
//! - **Non-optimized** (8 %): one path.
//! - **Target**: reads take the series from 20 to 200 µs, writes from 10 to 100 µs, exponential in
//!   35 %. No limit of servers (40 %), 8 to 128 for all (30 %), 2 to 32 for each path (30 %).
//! - **Hosts**: 1 (85 %), 2 (8 %), 3 to 20 (7 %), with 1, 2, 4 or 8 workers and 32 (10 %), 128
//!   (80 %) or 1,024 (10 %) tags.
//! - **Load**: closed (75 %): 1 to 8 clones of depth 1, 2, 4 … 256. Open (25 %): 1, 2 or 4 streams
//!   of Poisson arrivals, together 30 to 95 % of the lowest limit.
//! - **Kinds**: reads (50 %), writes (20 %), mixed with 30, 50, 70 or 90 % reads (30 %).
//! - **Sizes**: one (55 %) or two to four (45 %) from 512 bytes to 1 MiB, 4 KiB the most often.
//! - **Changes** (35 %): as follows.
//!
//! One thing happens to one path at 25 to 40 % of the window: its rate falls to a tenth to two
//! thirds (30 %) or grows two to four times (8 %), its delay grows by the series from 0.5 to 20 ms
//! (20 %), it is cut (14 %), silent (12 %) or congested (12 %: on for the series from 10 to 200 ms,
//! off for a quarter, half or all of that), or it is non-optimized from then on (4 %). It ends at
//! 60 to 75 % of the window; what is neither cut nor silence stays in 30 %. In 30 % a second path's
//! rate or delay changes in between, and stays.
//!
//! The rest follows, so that a run is short, settled and long enough to measure. Where the limit is
//! beyond 300,000 requests a second (with changes: 80,000), all sizes are doubled until it is not,
//! or they are 1 MiB. A depth is halved while what is open takes more than 100 ms at the limit. The
//! window has as many requests at the limit as 180,000 (changes: 200,000), between 0.6 and 20
//! seconds (changes: 3 and 8); the ramp is half of it and five times what is open, between 0.3 and
//! 1 second. `weight` is the path's rate in the load's direction over that of the fastest, in
//! hundredths.

mod episodes;
mod links;
mod load;
mod series;
mod text;

use super::file::{self, Loaded};
use super::{Mistake, Scenario};
use crate::cell::Cell;
use crate::limit::limits;
use crate::rng::Rng;
use episodes::Change;
use links::{Hosts, Link, Target};
use load::Load;

/// Requests a second that a run may have, without and with changes.
const MOST_IOPS: [u64; 2] = [300_000, 80_000];
/// Requests that a window has, without and with changes.
const REQUESTS: [u64; 2] = [180_000, 200_000];
/// The shortest and the longest window, without and with changes.
const WINDOW_MS: [(u64, u64); 2] = [(600, 20_000), (3_000, 8_000)];
/// The shortest and the longest ramp.
const RAMP_MS: (u64, u64) = (300, 1_000);
/// What is open may take so long at the limit.
const OPEN_MS: u64 = 100;
/// The ramp is so many times that at least.
const TURNS: u64 = 5;
/// The largest size of a request.
const LARGEST: u32 = 1 << 20;

/// A scenario as it is drawn, before it is written down.
struct Draft {
    seed: u64,
    ramp_ms: u64,
    window_ms: u64,
    hosts: Hosts,
    target: Target,
    paths: Vec<Link>,
    load: Load,
    changes: Vec<Change>,
}

/// The scenario of a seed, called `random-SEED`, with the text that it was read from.
///
/// # Errors
/// None that a seed is known to lead to: what the reader of scenario files says.
pub fn scenario(seed: u64) -> Result<Loaded, Mistake> {
    let mut draft = Draft::draw(seed);
    draft.fit()?;
    draft.read()
}

impl Draft {
    /// Each part has a chain of its own: one that draws more does not move the others.
    fn draw(seed: u64) -> Draft {
        let mut rng = Rng::new(seed);
        let mut next = || rng.split();
        let mut paths = links::paths(&mut next());
        let hosts = links::hosts(&mut next());
        let target = links::target(&mut next());
        let load = load::draw(&mut next(), &hosts);
        let changes = episodes::draw(&mut next(), &paths);
        links::set_weights(&mut paths, load.read_percent);
        let (ramp_ms, window_ms) = (RAMP_MS.0, WINDOW_MS[1].0);
        Draft { seed, ramp_ms, window_ms, hosts, target, paths, load, changes }
    }

    fn read(&self) -> Result<Loaded, Mistake> {
        file::parse(&text::text(self), &format!("random-{}.toml", self.seed))
    }

    /// Sizes, depth, arrivals and length, by what is possible.
    fn fit(&mut self) -> Result<(), Mistake> {
        let kind = usize::from(!self.changes.is_empty());
        let mut limits = self.limits()?;
        while limits.most > MOST_IOPS[kind] && self.load.double_sizes() {
            limits = self.limits()?;
        }
        let mut settled_ms = 0;
        if let Some(percent) = self.load.open_percent {
            let iops = limits.least.saturating_mul(percent) / 100;
            let streams = u64::from(self.load.clones) * u64::from(self.hosts.count);
            self.load.poisson_iops = (iops / streams).max(1);
        } else {
            // A smaller depth may have a lower limit.
            while self.load.depth > 1 && self.open_ms(limits.first) > OPEN_MS {
                self.load.depth /= 2;
                limits = self.limits()?;
            }
            settled_ms = self.open_ms(limits.first) * TURNS;
        }
        let expected = self.limits()?.most.max(1);
        let (shortest, longest) = WINDOW_MS[kind];
        self.window_ms = (REQUESTS[kind] * 1000 / expected).clamp(shortest, longest);
        self.ramp_ms = (self.window_ms / 2).max(settled_ms).clamp(RAMP_MS.0, RAMP_MS.1);
        Ok(())
    }

    /// How long what is open takes.
    fn open_ms(&self, iops: u64) -> u64 {
        let clones = u64::from(self.load.clones) * u64::from(self.hosts.count);
        clones * u64::from(self.load.depth) * 1000 / iops.max(1)
    }

    fn limits(&self) -> Result<Limits, Mistake> {
        let Loaded { scenario, .. } = self.read()?;
        Ok(Limits::of(&scenario))
    }
}

/// Requests a second that are possible: before any change, at the best time, at the worst.
struct Limits {
    first: u64,
    most: u64,
    least: u64,
}

impl Limits {
    fn of(scenario: &Scenario) -> Limits {
        let Some(variant) = scenario.variants.first() else {
            return Limits { first: 0, most: 0, least: 0 };
        };
        let all = limits(Cell { scenario, variant, seed: 1 });
        let iops = || all.iter().map(|(_, limit)| limit.iops);
        Limits {
            first: iops().next().unwrap_or(0),
            most: iops().max().unwrap_or(0),
            least: iops().min().unwrap_or(0),
        }
    }
}
