//! What the options ask for, checked.

use super::stand::{BLOCK_BYTES, DEVICE_BYTES};
use crate::cli::args::bench::Bench;
use crate::daemon::host::check_cpus;
use crate::daemon::load::{JobSpec, block_size, bssplit, has_room};
use crate::failure::Failure;
use anabranch_lab::bare::Exchange;
use serde_json::{Value, json};
use std::time::Duration;

/// How long a run takes unless something is said.
const RUNTIME: Duration = Duration::from_secs(2);

/// Where host and target run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) host: Option<Vec<usize>>,
    pub(super) target: Option<Vec<usize>>,
}

/// A checked plan.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    bench: Bench,
    sizes: Vec<(u32, u32)>,
    pub(super) runtime: Duration,
    pub(super) placement: Placement,
    /// What one bare exchange carries, when a comparison is asked for.
    pub(super) exchange: Option<Exchange>,
}

impl Plan {
    pub(super) fn new(bench: &Bench) -> Result<Plan, Failure> {
        let sizes = match &bench.bssplit {
            Some(split) => bssplit(split).map_err(Failure::Usage)?,
            None => vec![(block_size(&bench.bs).map_err(Failure::Usage)?, 100)],
        };
        let runtime = bench.runtime.unwrap_or(RUNTIME);
        if runtime.is_zero() {
            return Err(Failure::usage("runtime is 0, must be longer"));
        }
        fits(bench, &sizes).map_err(Failure::Usage)?;
        verifies(bench).map_err(Failure::Usage)?;
        // A running host knows its workers itself, and connections hold what their memory does.
        if bench.device.is_none() && bench.nbd.is_none() {
            has_room(bench.iodepth, bench.numjobs, bench.workers)
                .map_err(|why| Failure::usage(format!("{why}: give more --workers")))?;
        }
        let placement = placement(bench)?;
        let exchange = bench.bare.then(|| exchange(bench, &sizes)).transpose()?;
        Ok(Plan { bench: bench.clone(), sizes, runtime, placement, exchange })
    }

    /// The load on `device`; each run draws other addresses.
    pub(super) fn job(&self, device: &str, run: u64) -> JobSpec {
        let bench = &self.bench;
        JobSpec {
            device: device.to_owned(),
            read_percent: bench.rw.read_percent(bench.rwmixread),
            random: bench.rw.random(),
            sizes: self.sizes.clone(),
            iodepth: bench.iodepth,
            numjobs: bench.numjobs,
            offset: bench.offset,
            size: bench.size,
            verify: bench.verify,
            allow_mounted_write: bench.allow_mounted_write,
            seed: bench.randseed.wrapping_add(run),
            runtime_ns: u64::try_from(self.runtime.as_nanos()).ok(),
        }
    }

    /// The largest block size.
    pub(super) fn largest(&self) -> u32 {
        self.sizes.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0)
    }

    /// Exchanges at once.
    pub(super) fn depth(&self) -> u32 {
        self.bench.iodepth.saturating_mul(self.bench.numjobs)
    }

    /// Data workers of the host, or as many as have something to do.
    pub(super) fn workers(&self) -> u16 {
        self.bench.workers.min(u16::try_from(self.depth()).unwrap_or(u16::MAX))
    }

    /// The plan in fio's words, for the report.
    pub(super) fn words(&self, device: &str) -> Value {
        let bench = &self.bench;
        // What a running host has is its own affair.
        let own = bench.device.is_none();
        let embedded = bench.traddr.is_empty() && bench.trsvcid.is_empty();
        let paths = match embedded {
            true => usize::from(bench.paths),
            false => bench.traddr.len().max(bench.trsvcid.len()),
        };
        json!({
            "device": device,
            "rw": bench.rw.word(),
            "rwmixread": bench.rw.read_percent(bench.rwmixread),
            "bs": bench.bssplit.as_deref().unwrap_or(&bench.bs),
            "iodepth": bench.iodepth,
            "numjobs": bench.numjobs,
            "verify": bench.verify,
            "runtime_ns": self.runtime.as_nanos() as u64,
            "randseed": bench.randseed,
            "runs": bench.runs,
            "policy": (own && bench.nbd.is_none()).then(|| bench.policy.to_string()),
            "paths": (own && bench.nbd.is_none()).then_some(paths),
            "workers": own.then_some(bench.workers),
            "cpus": bench.cpus,
        })
    }
}

/// What no device takes, or not the embedded target's. Others say it themselves.
fn fits(bench: &Bench, sizes: &[(u32, u32)]) -> Result<(), String> {
    let embedded = bench.device.is_none() && bench.nbd.is_none() && bench.traddr.is_empty();
    let block = if embedded { BLOCK_BYTES } else { 512 };
    let whole = |what: &str, bytes: u64| match bytes.is_multiple_of(block.into()) {
        true => Ok(()),
        false => Err(format!("{what} is {bytes}, must be a multiple of {block}")),
    };
    sizes.iter().try_for_each(|(bytes, _)| whole("bs", (*bytes).into()))?;
    whole("offset", bench.offset)?;
    let least = sizes.iter().map(|(bytes, _)| u64::from(*bytes)).max().unwrap_or(0);
    if let Some(size) = bench.size.filter(|size| *size < least) {
        return Err(format!("size is {size}, must be {least} or more: one block of the load"));
    }
    let end = bench.offset.saturating_add(bench.size.unwrap_or(least));
    if embedded && end > DEVICE_BYTES {
        return Err(format!(
            "offset and size make {end}, must not exceed the {DEVICE_BYTES} bytes of the embedded \
             target's device"
        ));
    }
    Ok(())
}

/// Whoever asks for a check believes afterwards that there was one.
fn verifies(bench: &Bench) -> Result<(), String> {
    if !bench.verify || bench.rw.read_percent(bench.rwmixread) < 100 {
        return Ok(());
    }
    let rw = bench.rw.word();
    Err(format!(
        "--verify checks only what the same run has written, and '{rw}' writes nothing{}: use a \
         mixed load, such as --rw randrw",
        if bench.rw.is_mixed() { " with rwmixread 100" } else { "" }
    ))
}

/// `HOST[/TARGET]`, each a CPU or a list with commas.
fn placement(bench: &Bench) -> Result<Placement, Failure> {
    let Some(text) = &bench.cpus else { return Ok(Placement::default()) };
    let list = |part: &str| {
        let cpus: Result<Vec<usize>, _> = part.split(',').map(str::parse).collect();
        let cpus = cpus.map_err(|_| {
            Failure::usage(format!("cpus '{text}': write numbers, for example 0/1 or 0,1/0"))
        })?;
        let checked = check_cpus(&cpus).map(|()| Some(cpus));
        checked.map_err(|why| Failure::usage(format!("cpus '{text}': {why}")))
    };
    match text.split_once('/') {
        Some((host, target)) => Ok(Placement { host: list(host)?, target: list(target)? }),
        None => Ok(Placement { host: list(text)?, target: None }),
    }
}

fn exchange(bench: &Bench, sizes: &[(u32, u32)]) -> Result<Exchange, Failure> {
    let (read, &[(bytes, _)]) = (bench.rw.read_percent(bench.rwmixread), sizes) else {
        return Err(Failure::usage("--bare compares one block size: give --bs, not --bssplit"));
    };
    if read != 0 && read != 100 {
        return Err(Failure::usage("--bare compares reads or writes alone, not a mix"));
    }
    if bytes > 1 << 20 {
        return Err(Failure::usage(format!("--bare: bs is {bytes}, at most 1 MiB")));
    }
    if bench.device.is_some() || !bench.traddr.is_empty() {
        return Err(Failure::usage(
            "--bare compares with the embedded target: give neither a device nor -a",
        ));
    }
    Ok(Exchange { bytes, read: read == 100 })
}
