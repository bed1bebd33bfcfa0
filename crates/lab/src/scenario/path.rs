//! Paths, and what happens to them while a run goes on.

use super::limits::MAX_DELAY_NS;
use super::model::{Part, Problem, fail};
use anabranch_policy::MAX_RELATIVE_THROUGHPUT;
use anabranch_target::link::Shape;
use std::time::Duration;

/// A port of the target, and each host's controller behind it. Its two links are shared by all
/// hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Unique in the scenario.
    pub name: String,
    /// Rates, delays and congestion of its links.
    pub shape: Shape,
    /// A share of the commands is much slower.
    pub brownout: Option<Brownout>,
    /// The ANA state it begins with.
    pub ana: AnaState,
    /// The NUMA node that it is near to.
    pub node: u32,
    /// The `relative_throughput` that the variant `service-time tuned` gives it: 0 to 100.
    pub weight: u32,
}

impl Path {
    /// A path without any shaping.
    #[must_use]
    pub fn new(name: &str) -> Path {
        Path {
            name: name.to_owned(),
            shape: Shape::default(),
            brownout: None,
            ana: AnaState::Optimized,
            node: 0,
            weight: 1,
        }
    }

    /// Checks what concerns this path alone.
    ///
    /// # Errors
    /// Names the key and its limit.
    pub fn check(&self) -> Result<(), Problem> {
        super::model::check_name("name", &self.name)?;
        check_shape(&self.shape)?;
        if let Some(brownout) = self.brownout {
            brownout.check()?;
        }
        if self.node >= super::MAX_NODES {
            return fail("node", format!("must be below {}", super::MAX_NODES));
        }
        if self.weight > MAX_RELATIVE_THROUGHPUT {
            return fail("weight", format!("must lie between 0 and {MAX_RELATIVE_THROUGHPUT}"));
        }
        Ok(())
    }
}

/// The limits of [`Shape`], and that what it holds can be counted in nanoseconds.
pub(super) fn check_shape(shape: &Shape) -> Result<(), Problem> {
    let key = |name: &str| {
        ["rate_in", "rate_out", "delay", "jitter", "large", "onoff"]
            .into_iter()
            .find(|known| *known == name)
            .unwrap_or("rate")
    };
    shape.check().map_err(|error| Problem::of(Part::Whole, key(&error.key), error.problem))
}

/// Of 100 commands, `percent` take `delay` longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brownout {
    /// 1 to 100.
    pub percent: u32,
    /// At most one minute.
    pub delay: Duration,
}

impl Brownout {
    /// The extra delay in nanoseconds.
    #[must_use]
    pub fn delay_ns(&self) -> u64 {
        u64::try_from(self.delay.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn check(&self) -> Result<(), Problem> {
        if !(1..=100).contains(&self.percent) {
            return fail("brownout", "percent must lie between 1 and 100");
        }
        if self.delay_ns() > MAX_DELAY_NS || self.delay.is_zero() {
            return fail("brownout", "delay must lie between 1ns and 60s");
        }
        Ok(())
    }
}

/// The ANA state of the namespace on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AnaState {
    /// Used.
    #[default]
    Optimized,
    /// Used while no path is optimized.
    NonOptimized,
    /// Not used.
    Inaccessible,
}

impl AnaState {
    /// Every state, in the order in which texts list them.
    pub const ALL: [AnaState; 3] =
        [AnaState::Optimized, AnaState::NonOptimized, AnaState::Inaccessible];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AnaState::Optimized => "optimized",
            AnaState::NonOptimized => "non-optimized",
            AnaState::Inaccessible => "inaccessible",
        }
    }
}

/// Whether a path carries anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathState {
    /// It does.
    #[default]
    Up,
    /// The connection is cut: hosts know at once, and send what was in flight elsewhere.
    Cut,
    /// Nothing comes back: hosts know after [`Hosts::detect_ns`](super::Hosts::detect_ns).
    Silent,
}

impl PathState {
    /// Every state, in the order in which texts list them.
    pub const ALL: [PathState; 3] = [PathState::Up, PathState::Cut, PathState::Silent];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PathState::Up => "up",
            PathState::Cut => "cut",
            PathState::Silent => "silent",
        }
    }
}

/// Something happens to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// From the beginning of the *window*, in nanoseconds; below the window's length. Nothing
    /// changes during the ramp.
    pub at_ns: u64,
    /// Index of the path.
    pub path: usize,
    /// What.
    pub what: Alteration,
}

/// What happens to a path. Each value is complete: it replaces the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alteration {
    /// The links behave like this from now on.
    Shape(Shape),
    /// A brownout begins, changes or ends.
    Brownout(Option<Brownout>),
    /// The ANA state changes, and hosts are told.
    Ana(AnaState),
    /// The path fails or returns.
    State(PathState),
}
