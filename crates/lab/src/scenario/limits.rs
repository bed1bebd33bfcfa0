//! How large a scenario may be.

/// Paths per host.
pub const MAX_PATHS: usize = 64;
/// Hosts.
pub const MAX_HOSTS: u32 = 1_000;
/// Workers per host.
pub const MAX_WORKERS: u32 = 128;
/// NUMA nodes per host; nodes count from 0.
pub const MAX_NODES: u32 = 64;
/// Workers of all hosts, times paths: some 2 KiB each.
pub const MAX_LANES: u64 = 1 << 20;
/// Tags per queue pair, as NVMe has it (CAP.MQES is 16 bits).
pub const MAX_QUEUE_DEPTH: u32 = 65_535;
/// Changes, after `repeat` was written out.
pub const MAX_CHANGES: usize = 100_000;
/// Jobs and burners of one scenario.
pub const MAX_JOBS: usize = 64;
/// Clones of one job (`numjobs`).
pub const MAX_CLONES: u32 = 4_096;
/// Requests of one clone at once (`iodepth`).
pub const MAX_DEPTH: u32 = 65_536;
/// Requests of all hosts, jobs and clones at once.
pub const MAX_REQUESTS: u64 = 1_000_000;
/// Requests per second of an open loop, per job and host.
pub const MAX_POISSON_IOPS: u64 = 100_000_000;
/// Bytes of one request.
pub const MAX_REQUEST_BYTES: u32 = 16 << 20;
/// Block sizes of one operation in a `bssplit`, as fio has it (`BSSPLIT_MAX`).
pub const MAX_SPLIT: usize = 64;
/// Variants of one scenario, the standard ones not counted.
pub const MAX_VARIANTS: usize = 64;
/// Published rows of one scenario.
pub const MAX_PUBLISHED: usize = 64;
/// Runs, each with a seed of its own.
pub const MAX_RUNS: u32 = 1_000;
/// Ramp and window together: one hour.
pub const MAX_RUNTIME_NS: u64 = 3_600_000_000_000;
/// The shortest window: one millisecond.
pub const MIN_WINDOW_NS: u64 = 1_000_000;
/// Service time of the target, and the delay of a brownout: one minute.
pub const MAX_DELAY_NS: u64 = 60_000_000_000;
/// Servers of the target.
pub const MAX_SERVERS: u32 = 65_536;
/// Bytes of the namespace: 1 PiB.
pub const MAX_NAMESPACE_BYTES: u64 = 1 << 50;
/// Bytes of a scenario or job file.
pub const MAX_FILE_BYTES: u64 = 1 << 20;
/// Characters of a name.
pub const MAX_NAME: usize = 64;
