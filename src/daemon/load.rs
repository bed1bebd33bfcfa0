//! A load in fio's words: as text, as a request, and its figures.

use crate::cli::args::bench::{MAX_DEPTH, MAX_JOBS};
use crate::units;
use anabranch_host::config::DEFAULT_MAX_REQUESTS;
use anabranch_lab::load::{BlockSize, Job, LatencySummary, LoadReport};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a load may go on behind its time before it is stopped by itself: its client was killed,
/// or stands still. What it writes would never end.
const GRACE: Duration = Duration::from_secs(10);

/// A load on one device, as the control socket takes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// The head.
    pub device: String,
    /// Reads among 100 requests.
    pub read_percent: u32,
    /// Random or sequential addresses.
    pub random: bool,
    /// Block sizes in bytes and their weights.
    pub sizes: Vec<(u32, u32)>,
    /// Requests at once per job.
    pub iodepth: u32,
    /// Jobs.
    pub numjobs: u32,
    /// First byte used.
    pub offset: u64,
    /// Bytes used from there.
    pub size: Option<u64>,
    /// Stamp what is written, check what is read.
    pub verify: bool,
    /// Write also while NBD clients use the device.
    #[serde(default)]
    pub allow_mounted_write: bool,
    /// Seed of the draws.
    pub seed: u64,
    /// After how many nanoseconds its client will stop it; until then when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_ns: Option<u64>,
}

impl JobSpec {
    /// What no device and no host can do.
    ///
    /// # Errors
    /// Names the field and its limit.
    pub fn check(&self) -> Result<(), String> {
        let within = |field: &str, value: u32, least: u32, most: u32| match value {
            _ if (least..=most).contains(&value) => Ok(()),
            _ => Err(format!("{field} is {value}, must lie between {least} and {most}")),
        };
        within("read_percent", self.read_percent, 0, 100)?;
        within("iodepth", self.iodepth, 1, MAX_DEPTH)?;
        within("numjobs", self.numjobs, 1, MAX_JOBS)?;
        if self.sizes.iter().all(|(_, weight)| *weight == 0) {
            return Err("sizes has no block size of a weight: write [[4096, 100]]".to_owned());
        }
        match self.sizes.iter().find(|(bytes, _)| !is_block_size((*bytes).into())) {
            Some((bytes, _)) => Err(format!("sizes has {bytes}, {BLOCK_SIZES}")),
            None => Ok(()),
        }
    }

    /// Whether it overwrites what is on the device.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.read_percent < 100
    }

    /// When it is stopped by itself, after its start.
    #[must_use]
    pub fn limit(&self) -> Option<Duration> {
        self.runtime_ns.map(|ns| Duration::from_nanos(ns).saturating_add(GRACE))
    }

    /// As the load takes it.
    #[must_use]
    pub fn job(self) -> Job {
        Job {
            device: self.device,
            read_percent: self.read_percent,
            random: self.random,
            sizes: self
                .sizes
                .into_iter()
                .map(|(bytes, weight)| BlockSize { bytes, weight })
                .collect(),
            depth: self.iodepth,
            jobs: self.numjobs,
            offset: self.offset,
            size: self.size,
            number_ios: None,
            thinktime: Duration::ZERO,
            verify: self.verify,
            seed: self.seed,
        }
    }
}

/// Whether so many data workers have room for the load. What finds none would wait in the load,
/// which then has less depth than its figures say.
///
/// # Errors
/// Names both words and the limit.
pub fn has_room(iodepth: u32, numjobs: u32, workers: u16) -> Result<(), String> {
    let on_one = u64::from(numjobs.div_ceil(workers.max(1).into())) * u64::from(iodepth);
    if on_one <= u64::from(DEFAULT_MAX_REQUESTS) {
        return Ok(());
    }
    Err(format!(
        "iodepth {iodepth} and numjobs {numjobs} make {on_one} requests at once on one of \
         {workers} data workers, which holds {DEFAULT_MAX_REQUESTS} of a device"
    ))
}

/// Parses fio's `bssplit`: `4k/50:128k/50`. Percentages that are left out share the rest.
///
/// # Errors
/// One sentence that says what would be right.
pub fn bssplit(text: &str) -> Result<Vec<(u32, u32)>, String> {
    let mut sizes = Vec::new();
    for part in text.split(':') {
        let (bytes, weight) = match part.split_once('/') {
            Some((bytes, "")) => (bytes, None),
            Some((bytes, weight)) => (bytes, Some(weight)),
            None => (part, None),
        };
        let bytes = block_size(bytes)?;
        let weight = match weight {
            Some(weight) => {
                Some(weight.parse::<u32>().ok().filter(|weight| *weight <= 100).ok_or(format!(
                    "bssplit '{text}': '{weight}' is no percentage, write 4k/50:128k/50"
                ))?)
            }
            None => None,
        };
        sizes.push((bytes, weight));
    }
    let given: u32 = sizes.iter().filter_map(|(_, weight)| *weight).sum();
    let open = sizes.iter().filter(|(_, weight)| weight.is_none()).count();
    if given > 100 || (open == 0 && given != 100) {
        return Err(format!("bssplit '{text}': the percentages make {given}, must make 100"));
    }
    let share = (100 - given) / u32::try_from(open.max(1)).unwrap_or(1);
    Ok(sizes.into_iter().map(|(bytes, weight)| (bytes, weight.unwrap_or(share))).collect())
}

/// The largest request: what one buffer of a worker's pool holds.
const MAX_BLOCK: u32 = 1 << 20;
/// What a block size may be, in a sentence about one that is none.
const BLOCK_SIZES: &str = "must be a multiple of 512, from 512 to 1048576 (1 MiB)";

fn is_block_size(bytes: u64) -> bool {
    (512..=u64::from(MAX_BLOCK)).contains(&bytes) && bytes.is_multiple_of(512)
}

/// Parses one block size.
///
/// # Errors
/// One sentence that says what would be right.
pub fn block_size(text: &str) -> Result<u32, String> {
    let bytes = units::size(text).map_err(|why| format!("block size: {why}"))?;
    match u32::try_from(bytes) {
        Ok(size) if is_block_size(bytes) => Ok(size),
        _ => Err(format!("block size '{text}' {BLOCK_SIZES}")),
    }
}

/// A report as JSON: times in ns, bytes in bytes.
#[must_use]
pub fn report_json(report: &LoadReport) -> Value {
    let seconds = report.elapsed.as_secs_f64().max(1e-9);
    json!({
        "reads": report.requests[0],
        "writes": report.requests[1],
        "read_bytes": report.bytes[0],
        "written_bytes": report.bytes[1],
        "errors": report.errors,
        "first_error": report.first_error,
        "verify_errors": report.verify_errors,
        "mismatches": report.mismatches,
        "blocks_verified": report.blocks_verified,
        "elapsed_ns": report.elapsed.as_nanos() as u64,
        "rejected": report.rejected,
        "depth": report.depth,
        "longest_gap_ns": report.longest_gap.as_nanos() as u64,
        "iops": report.total_requests() as f64 / seconds,
        "bytes_per_s": (report.bytes[0] + report.bytes[1]) as f64 / seconds,
        "lat_ns": latency_json(report.latency()),
        "read_lat_ns": latency_json(LatencySummary::of(&report.latency_ns[0])),
        "write_lat_ns": latency_json(LatencySummary::of(&report.latency_ns[1])),
    })
}

fn latency_json(latency: LatencySummary) -> Value {
    json!({
        "mean": latency.mean,
        "stdev": latency.stdev,
        "p50": latency.p50,
        "p99": latency.p99,
        "p999": latency.p999,
        "max": latency.max,
    })
}
