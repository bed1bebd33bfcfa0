//! What a generator is told.

use crate::cell::Cell;
use crate::scenario::Job;
use anabranch_proto::machine::Time;
use std::sync::Arc;

/// What requests carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// Whatever the buffers hold: payload is neither written nor read.
    #[default]
    Plain,
    /// Each block that is written carries its address in its first 16 bytes. Each block that is
    /// read must carry its own address there, or zeros, as blocks do that were never written.
    Stamped,
}

/// One run of one host.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All jobs of the scenario; every host runs all of them.
    pub jobs: Arc<[Job]>,
    /// The head's name: `nvme0n1`.
    pub device: String,
    /// Which of the scenario's hosts this is, from 0.
    pub host: u32,
    /// Paths of the scenario: draws are taken in the order of the light simulation, and there the
    /// paths come before the jobs.
    pub paths: usize,
    /// Decides every draw.
    pub seed: u64,
    /// When the run begins. The device should be there and this lie ahead when the plan arrives:
    /// what starts late counts as late.
    pub begin: Time,
    /// Before the window; counted in the series of windows and in the books only.
    pub ramp_ns: u64,
    /// What is counted. Nothing starts after it.
    pub window_ns: u64,
    /// Read after each submitted request, for the submission latency; without one that is measured
    /// in the time that the engine is told.
    pub clock: Option<fn() -> Time>,
    /// What requests carry.
    pub payload: Payload,
}

impl Plan {
    /// The plan of one host of a cell: no clock, plain payload.
    #[must_use]
    pub fn of(cell: Cell<'_>, host: u32, device: &str, begin: Time) -> Plan {
        Plan {
            jobs: cell.scenario.jobs.as_slice().into(),
            device: device.to_owned(),
            host,
            paths: cell.scenario.paths.len(),
            seed: cell.seed,
            begin,
            ramp_ns: cell.scenario.run.ramp_ns,
            window_ns: cell.scenario.run.window_ns,
            clock: None,
            payload: Payload::Plain,
        }
    }

    /// The end of the window, from the beginning.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.ramp_ns.saturating_add(self.window_ns)
    }
}
