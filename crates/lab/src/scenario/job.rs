//! Load: fio's words as values.

use super::limits::{
    MAX_CLONES, MAX_DEPTH, MAX_POISSON_IOPS, MAX_REQUEST_BYTES, MAX_RUNTIME_NS, MAX_SPLIT,
};
use super::model::{Hosts, Problem, Target, fail, within};
use crate::rng::Rng;
use anabranch_policy::OpClass;

/// A value per kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerOp<T> {
    /// Of reads.
    pub read: T,
    /// Of writes.
    pub write: T,
    /// Of trims (deallocate).
    pub trim: T,
}

impl<T> PerOp<T> {
    /// The value for a class; trims are [`OpClass::Other`].
    #[must_use]
    pub fn of(&self, op: OpClass) -> &T {
        match op {
            OpClass::Read => &self.read,
            OpClass::Write => &self.write,
            OpClass::Other => &self.trim,
        }
    }
}

impl<T: Clone> PerOp<T> {
    /// The same for all.
    #[must_use]
    pub fn all(value: T) -> PerOp<T> {
        PerOp { read: value.clone(), write: value.clone(), trim: value }
    }
}

/// Requests by kind, of 100: `rw` and `rwmixread`.
pub type Mix = PerOp<u32>;

impl Mix {
    /// The kind of the next request.
    pub fn draw(&self, rng: &mut Rng) -> OpClass {
        if self.read == 100 {
            return OpClass::Read;
        }
        if self.write == 100 {
            return OpClass::Write;
        }
        let at = rng.below(100);
        if at < u64::from(self.read) {
            OpClass::Read
        } else if at < u64::from(self.read + self.write) {
            OpClass::Write
        } else {
            OpClass::Other
        }
    }
}

/// Where requests go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// One behind the other; each clone for itself.
    #[default]
    Sequential,
    /// Anywhere.
    Random,
}

/// One block size and how often it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    /// Bytes per request.
    pub bytes: u32,
    /// Its share among all sizes' weights.
    pub weight: u32,
}

/// Block sizes of one kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Some sizes, by weight (`bs`, `bssplit`); at least one has a weight.
    Split(Vec<BlockSize>),
    /// Any multiple of `min` up to `max`, all equally often, and `max` (`bsrange`).
    ///
    /// fio draws evenly from `min` to below `min + max`, rounds down to a multiple of `min`, and
    /// makes `max` of what is more: where `max` is no multiple, it is drawn for the part
    /// `max % min / max` of all requests.
    Range {
        /// The smallest, and the step.
        min: u32,
        /// The largest.
        max: u32,
    },
}

impl Sizes {
    /// Always the same size.
    #[must_use]
    pub fn fixed(bytes: u32) -> Sizes {
        Sizes::Split(vec![BlockSize { bytes, weight: 100 }])
    }

    /// The size of the next request.
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        match self {
            Sizes::Split(sizes) => draw_split(sizes, rng),
            Sizes::Range { min, max } => {
                // Below `max`, which is 32 bits.
                let at = u32::try_from(rng.below(u64::from(*max))).unwrap_or(0);
                min.saturating_mul(at / min + 1).min(*max)
            }
        }
    }

    /// The largest size that is drawn.
    #[must_use]
    pub fn largest(&self) -> u32 {
        match self {
            Sizes::Split(sizes) => {
                let drawn = sizes.iter().filter(|size| size.weight > 0);
                drawn.map(|size| size.bytes).max().unwrap_or(0)
            }
            Sizes::Range { max, .. } => *max,
        }
    }

    /// The smallest size that is named, whether it has a weight or not: what `rate_iops` counts.
    #[must_use]
    pub fn smallest(&self) -> u32 {
        match self {
            Sizes::Split(sizes) => sizes.iter().map(|size| size.bytes).min().unwrap_or(0),
            Sizes::Range { min, .. } => *min,
        }
    }

    /// The mean size in bytes, times 1000, rounded down.
    #[must_use]
    pub fn mean_milli(&self) -> u64 {
        match self {
            Sizes::Split(sizes) => {
                let weights: u64 = sizes.iter().map(|size| u64::from(size.weight)).sum();
                let bytes: u64 =
                    sizes.iter().map(|size| u64::from(size.bytes) * u64::from(size.weight)).sum();
                bytes.saturating_mul(1000) / weights.max(1)
            }
            Sizes::Range { min, max } => {
                let (steps, rest) = (u128::from(max / min), u128::from(max % min));
                let multiples = u128::from(*min).pow(2) * steps * (steps + 1) * 500;
                // Below 1000 times `max`.
                (multiples / u128::from(*max) + rest * 1000) as u64
            }
        }
    }

    fn check(&self, block_bytes: u32) -> Result<(), Problem> {
        let all: &[u32] = match self {
            Sizes::Split(sizes) if sizes.iter().all(|size| size.weight == 0) => {
                return fail("bssplit", "no block size has a weight");
            }
            Sizes::Split(sizes) if sizes.len() > MAX_SPLIT => {
                let n = sizes.len();
                return fail("bssplit", format!("{n} block sizes; at most {MAX_SPLIT}"));
            }
            Sizes::Split(sizes) => &sizes.iter().map(|size| size.bytes).collect::<Vec<_>>(),
            Sizes::Range { min, max } if min > max => {
                return fail("bsrange", format!("{min} is more than {max}"));
            }
            Sizes::Range { min, max } => &[*min, *max],
        };
        let key = if matches!(self, Sizes::Range { .. }) { "bsrange" } else { "bs" };
        for bytes in all {
            if *bytes == 0 || *bytes > MAX_REQUEST_BYTES || !bytes.is_multiple_of(block_bytes) {
                let text = format!(
                    "a block size of {bytes} bytes is impossible here; use a multiple of the \
                     namespace's {block_bytes}, up to 16m"
                );
                return fail(key, text);
            }
        }
        Ok(())
    }
}

fn draw_split(sizes: &[BlockSize], rng: &mut Rng) -> u32 {
    if let [only] = sizes {
        return only.bytes;
    }
    let total: u64 = sizes.iter().map(|size| u64::from(size.weight)).sum();
    let mut at = rng.below(total);
    for size in sizes {
        if at < u64::from(size.weight) {
            return size.bytes;
        }
        at -= u64::from(size.weight);
    }
    unreachable!("the draw lies below the sum of weights")
}

/// What makes a job submit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// A request ends: `depth` requests of each clone exist at any time.
    #[default]
    Closed,
    /// Time: requests arrive independently of each other and of completions, whatever is in
    /// flight. `depth` and `clones` do not matter.
    Poisson {
        /// Mean number per second, of the whole job on one host.
        iops: u64,
    },
}

/// Load on the head, made by each host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The section's name in a job file.
    pub name: String,
    /// Requests by kind; the sum is 100.
    pub mix: Mix,
    /// Addresses.
    pub order: Order,
    /// Block sizes by kind.
    pub sizes: PerOp<Sizes>,
    /// Requests at once per clone (`iodepth`).
    pub depth: u32,
    /// Clones (`numjobs`), spread over the workers in turn.
    pub clones: u32,
    /// Bytes per second and clone at most (`rate`).
    pub rate_bytes: PerOp<Option<u64>>,
    /// Requests per second and clone at most (`rate_iops`), of the smallest size: with several
    /// sizes it is so many bytes, as in fio.
    pub rate_iops: PerOp<Option<u64>>,
    /// Pause of a clone after a completion (`thinktime`).
    pub thinktime_ns: u64,
    /// Closed or open loop.
    pub arrival: Arrival,
    /// First byte used.
    pub offset: u64,
    /// Bytes used from there; to the end of the namespace when `None`.
    pub size: Option<u64>,
    /// The workers that clones run on (`cpus_allowed`); all when empty.
    pub workers: Vec<u32>,
}

impl Default for Job {
    /// What fio does unless told: sequential reads of 4096 bytes, one at a time.
    fn default() -> Job {
        Job {
            name: "job".to_owned(),
            mix: Mix { read: 100, write: 0, trim: 0 },
            order: Order::Sequential,
            sizes: PerOp::all(Sizes::fixed(4096)),
            depth: 1,
            clones: 1,
            rate_bytes: PerOp::default(),
            rate_iops: PerOp::default(),
            thinktime_ns: 0,
            arrival: Arrival::Closed,
            offset: 0,
            size: None,
            workers: Vec::new(),
        }
    }
}

impl Job {
    /// Checks the job against what it runs on.
    ///
    /// # Errors
    /// Names the key and its limit.
    pub fn check(&self, target: &Target, hosts: &Hosts) -> Result<(), Problem> {
        super::model::check_name("name", &self.name)?;
        let percents = [self.mix.read, self.mix.write, self.mix.trim];
        if percents.iter().map(|p| u64::from(*p)).sum::<u64>() != 100 {
            return fail("rwmixread", "reads, writes and trims must add up to 100");
        }
        within("iodepth", self.depth, 1, MAX_DEPTH)?;
        within("numjobs", self.clones, 1, MAX_CLONES)?;
        let used = [
            (self.mix.read, &self.sizes.read),
            (self.mix.write, &self.sizes.write),
            (self.mix.trim, &self.sizes.trim),
        ];
        let used = used.into_iter().filter(|(percent, _)| *percent > 0).map(|(_, sizes)| sizes);
        let mut largest = 0;
        for sizes in used {
            sizes.check(target.block_bytes)?;
            largest = largest.max(sizes.largest());
        }
        if self.thinktime_ns > MAX_RUNTIME_NS {
            return fail("thinktime", "must not exceed 1h");
        }
        if let Arrival::Poisson { iops } = self.arrival
            && !(1..=MAX_POISSON_IOPS).contains(&iops)
        {
            return fail("poisson_iops", format!("use 1 to {MAX_POISSON_IOPS}"));
        }
        self.check_region(target, largest)?;
        match self.workers.iter().find(|worker| **worker >= hosts.workers) {
            Some(worker) => fail(
                "cpus_allowed",
                format!("CPU {worker}: each host has {} workers, counted from 0", hosts.workers),
            ),
            None => Ok(()),
        }
    }

    fn check_region(&self, target: &Target, largest: u32) -> Result<(), Problem> {
        let (block, end) = (u64::from(target.block_bytes), target.size_bytes);
        if !self.offset.is_multiple_of(block) || self.offset >= end {
            let text = format!("must be a multiple of {block} and below the namespace's {end}");
            return fail("offset", text);
        }
        let size = self.size.unwrap_or(end - self.offset);
        if size == 0 || self.offset.checked_add(size).is_none_or(|past| past > end) {
            return fail("size", format!("reaches past the end of the namespace, {end} bytes"));
        }
        if size < u64::from(largest) {
            return fail("size", format!("is smaller than the largest block, {largest} bytes"));
        }
        Ok(())
    }

    /// The bytes that the job uses: first, and behind the last.
    #[must_use]
    pub fn region(&self, target: &Target) -> (u64, u64) {
        let end = self.size.map_or(target.size_bytes, |size| self.offset.saturating_add(size));
        (self.offset, end)
    }
}

/// How a burner burns (`cpumode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BurnerMode {
    /// Empty instructions.
    #[default]
    Noop,
    /// Sorting: caches and memory work too.
    Qsort,
}

/// CPU load beside the jobs: fio's `ioengine=cpuio`. In the simulator, time that workers do not
/// have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Burner {
    /// The section's name in a job file.
    pub name: String,
    /// Share of one CPU that each clone uses, 1 to 100 (`cpuload`).
    pub load_percent: u32,
    /// How long it burns at a stretch (`cpuchunks`).
    pub chunk_ns: u64,
    /// What it does (`cpumode`).
    pub mode: BurnerMode,
    /// Clones (`numjobs`), spread over the workers in turn.
    pub clones: u32,
}

impl Burner {
    /// Checks the limits.
    ///
    /// # Errors
    /// Names the key and its limit.
    pub fn check(&self) -> Result<(), Problem> {
        super::model::check_name("name", &self.name)?;
        within("cpuload", self.load_percent, 1, 100)?;
        within("numjobs", self.clones, 1, MAX_CLONES)?;
        if self.chunk_ns == 0 || self.chunk_ns > MAX_RUNTIME_NS {
            return fail("cpuchunks", "must lie between 1us and 1h");
        }
        Ok(())
    }
}
