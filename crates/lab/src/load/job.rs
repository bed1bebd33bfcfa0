//! What load to make: fio's words.

use crate::rng::Rng;
use std::fmt;
use std::time::Duration;

/// One block size and how often it is drawn (`bssplit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    /// Bytes per request.
    pub bytes: u32,
    /// Its share among all sizes' weights.
    pub weight: u32,
}

/// Load on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The head's name (`nvme0n1`).
    pub device: String,
    /// Reads among 100 requests (`rwmixread`); 100 = read only, 0 = write only.
    pub read_percent: u32,
    /// Random or sequential addresses.
    pub random: bool,
    /// Block sizes.
    pub sizes: Vec<BlockSize>,
    /// Requests at once per job (`iodepth`).
    pub depth: u32,
    /// Jobs, spread over the data workers in turn (`numjobs`).
    pub jobs: u32,
    /// First byte used.
    pub offset: u64,
    /// Bytes used from there; to the end of the device when `None`.
    pub size: Option<u64>,
    /// Requests that each data worker submits at most (`number_ios`); no limit when `None`.
    pub number_ios: Option<u64>,
    /// Pause after a completion before the worker submits again (`thinktime`).
    pub thinktime: Duration,
    /// Stamp what is written, check what is read. Each data worker then owns an equal part of the
    /// region.
    pub verify: bool,
    /// The same seed makes the same draws.
    pub seed: u64,
}

/// What a job works on.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// How many it has.
    pub blocks: u64,
}

/// Blocks that one worker verifies at most: what each must hold is kept in memory.
const MAX_VERIFIED_BLOCKS: u64 = 1 << 24;

/// Why a job cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError(pub String);

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Job {
    /// Requests at once on data worker `index` of `workers`.
    pub(super) fn depth_on(&self, index: u16, workers: u16) -> u32 {
        let (index, workers) = (u32::from(index), u32::from(workers.max(1)));
        let jobs = self.jobs / workers + u32::from(index < self.jobs % workers);
        jobs.saturating_mul(self.depth)
    }

    pub(crate) fn largest(&self) -> u32 {
        self.sizes.iter().map(|size| size.bytes).max().unwrap_or(0)
    }

    pub(super) fn draw_size(&self, rng: &mut Rng) -> u32 {
        if let [only] = self.sizes[..] {
            return only.bytes;
        }
        let total: u64 = self.sizes.iter().map(|size| u64::from(size.weight)).sum();
        let mut at = rng.below(total);
        for size in &self.sizes {
            if at < u64::from(size.weight) {
                return size.bytes;
            }
            at -= u64::from(size.weight);
        }
        unreachable!("the draw lies below the sum of weights")
    }

    /// Blocks of the device that each of `shares` workers uses; `None` when they lie beyond it.
    pub(super) fn blocks_each(&self, device: Device, shares: u16) -> Option<u64> {
        let block = u64::from(device.block_bytes);
        let rest = device.blocks.checked_sub(self.offset / block)?;
        let all = self.size.map_or(rest, |size| size / block);
        Some(if self.verify { all / u64::from(shares.max(1)) } else { all })
    }

    /// Whether it can run on the device, by so many workers.
    ///
    /// # Errors
    /// Names what does not fit, and the limit.
    pub fn check(&self, device: Device, shares: u16) -> Result<(), JobError> {
        let fail = |text: String| Err(JobError(text));
        let block_bytes = device.block_bytes;
        let Some(device_bytes) = device.blocks.checked_mul(u64::from(block_bytes)) else {
            return fail(format!("a device of {} blocks is none", device.blocks));
        };
        if self.sizes.is_empty() || self.sizes.iter().all(|size| size.weight == 0) {
            return fail("no block size has a weight".into());
        }
        for size in &self.sizes {
            if size.bytes == 0 || !size.bytes.is_multiple_of(block_bytes) {
                return fail(format!(
                    "block size {} is not a multiple of the device's {block_bytes} bytes",
                    size.bytes
                ));
            }
        }
        if self.depth == 0 || self.jobs == 0 || self.read_percent > 100 {
            return fail("iodepth and numjobs start at 1, rwmixread ends at 100".into());
        }
        let end = self.size.map_or(Some(device_bytes), |size| self.offset.checked_add(size));
        if end.is_none_or(|end| end > device_bytes) || self.offset >= device_bytes {
            return fail(format!("offset and size reach past the device's {device_bytes} bytes"));
        }
        if !self.offset.is_multiple_of(u64::from(block_bytes)) {
            return fail(format!("offset {} is not a multiple of {block_bytes}", self.offset));
        }
        let blocks = self.blocks_each(device, shares).unwrap_or(0);
        if blocks < u64::from(self.largest() / block_bytes) {
            return fail(format!("the region of {blocks} blocks is smaller than one request"));
        }
        if self.verify && blocks > MAX_VERIFIED_BLOCKS {
            return fail(format!(
                "a region of {blocks} blocks is too large to verify, at most \
                 {MAX_VERIFIED_BLOCKS}: give a size"
            ));
        }
        Ok(())
    }
}
