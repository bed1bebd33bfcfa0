//! `bench`: load with fio's words.

use crate::units;
use anabranch_lab::nbd::NbdUri;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Requests at once per job at most.
pub const MAX_DEPTH: u32 = 4096;
/// Jobs at most.
pub const MAX_JOBS: u32 = 1024;

/// Options of `bench`.
#[derive(Args, Clone, Debug)]
pub struct Bench {
    /// Device of the running host; without -a and without a device, an embedded target is used
    #[arg(value_name = "DEVICE", value_parser = super::device)]
    pub device: Option<String>,
    /// Transport of a host of its own: tcp
    #[arg(short = 't', long, value_name = "STR", default_value = "tcp", requires = "traddr")]
    pub transport: String,
    /// Address of a controller, for a host of its own; one path each (repeat)
    #[arg(short = 'a', long, value_name = "ADDR", conflicts_with = "device")]
    pub traddr: Vec<String>,
    /// TCP port of that controller (as often as -a, or once)
    #[arg(
        short = 's', long, value_name = "PORT", requires = "traddr",
        value_parser = super::whole::<u16>(1, u16::MAX.into()), allow_negative_numbers = true
    )]
    pub trsvcid: Vec<u16>,
    /// The subsystem
    #[arg(short = 'n', long, value_name = "NQN", requires = "traddr")]
    pub nqn: Option<String>,
    /// An NBD export instead, one connection per job: nbd://HOST:PORT/EXPORT or
    /// nbd+unix:///EXPORT?socket=PATH, as fio's uri
    #[arg(
        long, value_name = "URI",
        conflicts_with_all = ["device", "traddr", "trsvcid", "nqn", "bare", "policy", "paths"]
    )]
    pub nbd: Option<NbdUri>,
    /// A fio job file with one job, instead of the options that say the same
    #[arg(
        long, value_name = "FILE",
        conflicts_with_all = [
            "rw", "rwmixread", "bs", "bssplit", "iodepth", "numjobs", "size", "offset"
        ]
    )]
    pub job_file: Option<PathBuf>,
    /// What to do; all but read and randread overwrite what is there
    #[arg(long, default_value = "randread")]
    pub rw: Pattern,
    /// Reads among 100 requests of a mixed load
    #[arg(
        long, value_name = "PERCENT", default_value_t = 50,
        value_parser = super::whole::<u32>(0, 100), allow_negative_numbers = true
    )]
    pub rwmixread: u32,
    /// Block size, 512 bytes to 1 MiB
    #[arg(long, value_name = "SIZE", default_value = "4k")]
    pub bs: String,
    /// Block sizes and their shares: 4k/50:128k/50
    #[arg(long, value_name = "LIST")]
    pub bssplit: Option<String>,
    /// Requests at once per job, 1 to 4096
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = super::whole::<u32>(1, u64::from(MAX_DEPTH)), allow_negative_numbers = true
    )]
    pub iodepth: u32,
    /// Jobs, 1 to 1024, spread over the data workers (--nbd: connections)
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = super::whole::<u32>(1, u64::from(MAX_JOBS)), allow_negative_numbers = true
    )]
    pub numjobs: u32,
    /// How long each run takes [default: 2s, or what the job file says]
    #[arg(long, value_name = "TIME", value_parser = units::time, allow_negative_numbers = true)]
    pub runtime: Option<Duration>,
    /// Bytes of the device to use [default: all]
    #[arg(long, value_name = "SIZE", value_parser = units::size, allow_negative_numbers = true)]
    pub size: Option<u64>,
    /// First byte to use
    #[arg(
        long, value_name = "SIZE", default_value = "0",
        value_parser = units::size, allow_negative_numbers = true
    )]
    pub offset: u64,
    /// Seed of the first run's draws; the next run has the next one
    #[arg(
        long, value_name = "N", default_value_t = 0,
        value_parser = super::whole::<u64>(0, u64::MAX), allow_negative_numbers = true
    )]
    pub randseed: u64,
    /// Stamp what is written, check what the same run reads of it; a load of reads alone is refused
    #[arg(long)]
    pub verify: bool,
    /// Write also while NBD clients use DEVICE: what they have there is overwritten
    #[arg(long, requires = "device")]
    pub allow_mounted_write: bool,
    /// Data workers of a host of its own (--nbd: threads that share the connections)
    #[arg(
        long, value_name = "N", default_value_t = 1, conflicts_with = "device",
        value_parser = super::whole::<u16>(1, 128), allow_negative_numbers = true
    )]
    pub workers: u16,
    /// CPUs of a host of its own, and of the embedded target behind a slash: 0/1, 0/0
    #[arg(long, value_name = "HOST[/TARGET]", conflicts_with = "device")]
    pub cpus: Option<String>,
    /// I/O policy of a host of its own
    #[arg(
        long, default_value_t, value_parser = super::policy, conflicts_with = "device",
        help = super::policy_help("I/O policy of a host of its own")
    )]
    pub policy: anabranch_policy::Policy,
    /// Paths to the embedded target
    #[arg(
        long, value_name = "N", default_value_t = 1, conflicts_with_all = ["device", "traddr"],
        value_parser = super::whole::<u16>(1, 8), allow_negative_numbers = true
    )]
    pub paths: u16,
    /// Compare with the bare TCP exchange of the same bytes, interleaved in the same run
    #[arg(long)]
    pub bare: bool,
    /// Runs; the median counts
    #[arg(
        long, value_name = "N", default_value_t = 5,
        value_parser = super::whole::<u32>(1, 101), allow_negative_numbers = true
    )]
    pub runs: u32,
}

/// fio's `rw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Pattern {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Sequential mix.
    Rw,
    /// Random reads.
    RandRead,
    /// Random writes.
    RandWrite,
    /// Random mix.
    RandRw,
}

impl Pattern {
    /// Whether addresses are random.
    #[must_use]
    pub fn random(self) -> bool {
        matches!(self, Pattern::RandRead | Pattern::RandWrite | Pattern::RandRw)
    }

    /// Whether it reads and writes.
    #[must_use]
    pub fn is_mixed(self) -> bool {
        matches!(self, Pattern::Rw | Pattern::RandRw)
    }

    /// As fio spells it.
    #[must_use]
    pub fn word(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Reads among 100 requests, `mix` of them in a mixed load.
    #[must_use]
    pub fn read_percent(self, mix: u32) -> u32 {
        match self {
            Pattern::Read | Pattern::RandRead => 100,
            Pattern::Write | Pattern::RandWrite => 0,
            Pattern::Rw | Pattern::RandRw => mix,
        }
    }
}
