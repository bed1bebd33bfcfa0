//! fio's options, one by one.

use super::super::job::{Arrival, Burner, BurnerMode, Job, Mix, Order, PerOp, Sizes};
use super::super::mistake::{did_you_mean, shorten};
use super::{blocks, units};

/// Options that mean something here, or are known to mean nothing.
pub(in super::super) const OPTIONS: &[&str] = &[
    "rw",
    "readwrite",
    "rwmixread",
    "rwmixwrite",
    "bs",
    "blocksize",
    "bsrange",
    "blocksize_range",
    "bssplit",
    "iodepth",
    "numjobs",
    "rate",
    "rate_iops",
    "thinktime",
    "runtime",
    "timeout",
    "ramp_time",
    "time_based",
    "size",
    "offset",
    "norandommap",
    "randrepeat",
    "cpus_allowed",
    "group_reporting",
    "cpuload",
    "cpuchunks",
    "cpumode",
    "ioengine",
    "filename",
    "direct",
    "output",
    "name",
    "description",
];

/// Engines that keep `iodepth` requests in flight.
const DEEP: &[&str] = &["io_uring", "io_uring_cmd", "libaio", "posixaio", "nbd", "null"];
/// Engines that do one request at a time, whatever `iodepth` says. `psync` is fio's default.
const ONE_BY_ONE: &[&str] = &["psync", "sync", "pvsync", "pvsync2", "vsync", "mmap"];

/// What the options of one section say so far.
#[derive(Clone, Debug)]
pub(in super::super) struct Words {
    job: Job,
    /// What the section calls itself; nothing in `[global]`.
    pub(super) name: Option<String>,
    split: PerOp<Option<Sizes>>,
    /// Reads, writes and trims take part.
    ops: [bool; 3],
    mix_read: u32,
    engine: Option<String>,
    cpu: Option<Cpu>,
    pub(super) runtime_ns: Option<u64>,
    pub(super) ramp_ns: Option<u64>,
    pub(super) time_based: bool,
}

/// The options that only `ioengine=cpuio` has.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    load: u32,
    chunk_ns: Option<u64>,
    mode: BurnerMode,
}

/// What a section turned out to be.
pub(in super::super) enum Made {
    Job(Box<Job>),
    Burner(Burner),
}

/// The option at fault, and a sentence.
pub(in super::super) type Fault = (&'static str, String);

impl Default for Words {
    fn default() -> Words {
        Words {
            job: Job::default(),
            name: None,
            split: PerOp { read: None, write: None, trim: None },
            ops: [true, false, false],
            mix_read: 50,
            engine: None,
            cpu: None,
            runtime_ns: None,
            ramp_ns: None,
            time_based: false,
        }
    }
}

impl Words {
    /// Takes one option. Returns a notice when it does not do what it does in fio.
    pub(in super::super) fn set(
        &mut self,
        key: &str,
        value: Option<&str>,
    ) -> Result<Option<String>, String> {
        if let Some(notice) = self.set_flag(key, value)? {
            return Ok(notice);
        }
        // Left out, they would make one load of several.
        if ["stonewall", "wait_for"].contains(&key) {
            return Err(
                "jobs run all at once here; make a file of what waits for others".to_owned()
            );
        }
        if !OPTIONS.contains(&key) {
            return Err(match did_you_mean(key, OPTIONS).as_str() {
                "" => "no such option of fio is known here; leave it out".to_owned(),
                near => format!("no such option of fio is known here{near}"),
            });
        }
        let Some(value) = value.filter(|value| !value.trim().is_empty()) else {
            return Err("needs a value".to_owned());
        };
        if value.contains("${") {
            return Err("variables of the environment are not read; write the value".to_owned());
        }
        if ["$pagesize", "$mb_memory", "$ncpus"].iter().any(|word| value.contains(word)) {
            return Err("fio's keywords are not expanded; write the value".to_owned());
        }
        match key {
            "cpuload" | "cpuchunks" | "cpumode" => self.set_cpu(key, value).map(|()| None),
            "ioengine" | "filename" | "output" | "name" | "description" => {
                self.set_surroundings(key, value)
            }
            _ => self.set_load(key, value).map(|()| None),
        }
    }

    /// Options with 0 or 1. The outer `None`: it is not one of them.
    fn set_flag(
        &mut self,
        key: &str,
        value: Option<&str>,
    ) -> Result<Option<Option<String>>, String> {
        let notice = match key {
            "time_based" => {
                self.time_based = units::flag(value, Some(true))?;
                None
            }
            "group_reporting" => units::flag(value, Some(true)).map(|_| None)?,
            "norandommap" => (!units::flag(value, Some(true))?)
                .then(|| "no map is kept: a block may be drawn again before all were".to_owned()),
            "randrepeat" => (!units::flag(value, None)?)
                .then(|| "draws follow from the number of the run, and repeat with it".to_owned()),
            "direct" => (!units::flag(value, None)?)
                .then(|| "there is no page cache: all I/O is direct".to_owned()),
            _ => return Ok(None),
        };
        Ok(Some(notice))
    }

    fn set_load(&mut self, key: &str, value: &str) -> Result<(), String> {
        let job = &mut self.job;
        match key {
            "rw" | "readwrite" => (job.order, self.ops) = direction(value)?,
            "rwmixread" => self.mix_read = percent(value)?,
            "rwmixwrite" => self.mix_read = 100 - percent(value)?,
            "bs" | "blocksize" => blocks::fixed(value, &mut job.sizes)?,
            "bsrange" | "blocksize_range" => blocks::range(value, &mut job.sizes)?,
            "bssplit" => {
                let split = blocks::split(value)?;
                self.split = PerOp {
                    read: split.read.or(self.split.read.take()),
                    write: split.write.or(self.split.write.take()),
                    trim: split.trim.or(self.split.trim.take()),
                };
            }
            "iodepth" => job.depth = at_least_one(value)?,
            "numjobs" => job.clones = at_least_one(value)?,
            "rate" => rates(value, &mut job.rate_bytes)?,
            "rate_iops" => rates(value, &mut job.rate_iops)?,
            "thinktime" => job.thinktime_ns = units::time(value, 1_000)?,
            "runtime" | "timeout" => self.runtime_ns = Some(units::time(value, 1_000_000_000)?),
            "ramp_time" => self.ramp_ns = Some(units::time(value, 1_000_000_000)?),
            "size" => job.size = Some(region(value)?).filter(|size| *size > 0),
            "offset" => job.offset = region(value)?,
            _ => job.workers = units::cpus(value)?,
        }
        Ok(())
    }

    fn set_cpu(&mut self, key: &str, value: &str) -> Result<(), String> {
        let cpu = self.cpu.get_or_insert_default();
        match key {
            "cpuload" => cpu.load = percent(value)?,
            "cpuchunks" => cpu.chunk_ns = Some(units::time(value, 1_000)?),
            _ => {
                cpu.mode = match value {
                    "noop" => BurnerMode::Noop,
                    "qsort" => BurnerMode::Qsort,
                    _ => return Err(format!("{} is neither noop nor qsort", shorten(value))),
                }
            }
        }
        Ok(())
    }

    /// Options about fio's surroundings.
    fn set_surroundings(&mut self, key: &str, value: &str) -> Result<Option<String>, String> {
        match key {
            "ioengine" => {
                let engine = value.split(':').next().unwrap_or(value);
                if engine != "cpuio" && !DEEP.contains(&engine) && !ONE_BY_ONE.contains(&engine) {
                    let engine = shorten(engine);
                    return Err(format!("{engine} does no I/O to a block device; write io_uring"));
                }
                self.engine = Some(engine.to_owned());
                Ok(None)
            }
            "filename" => Ok(Some("the load goes to the scenario's namespace".to_owned())),
            "output" => Ok(Some("results go where the lab writes them".to_owned())),
            "name" => {
                self.name = Some(value.to_owned());
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Sets how requests arrive: not an option of fio.
    pub(in super::super) fn set_arrival(&mut self, arrival: Arrival) {
        self.job.arrival = arrival;
    }

    /// The engine when the section names none.
    pub(in super::super) fn default_engine(&mut self, engine: &str) {
        self.engine.get_or_insert_with(|| engine.to_owned());
    }

    /// Puts the section together, which is called `section` unless it names itself. Returns a
    /// notice beside it.
    pub(in super::super) fn make(mut self, section: &str) -> Result<(Made, Option<String>), Fault> {
        let name = self.name.take();
        let name = name.as_deref().unwrap_or(section);
        if self.engine.as_deref() == Some("cpuio") {
            return self.make_burner(name);
        }
        if self.cpu.is_some() {
            return Err(("cpuload", "belongs to ioengine=cpuio, which this job is not".to_owned()));
        }
        let mut job = self.job;
        job.name = name.to_owned();
        job.mix = mix(self.ops, self.mix_read);
        let [read, write, trim] = [self.split.read, self.split.write, self.split.trim];
        job.sizes.read = read.unwrap_or(job.sizes.read);
        job.sizes.write = write.unwrap_or(job.sizes.write);
        job.sizes.trim = trim.unwrap_or(job.sizes.trim);
        if job.rate_bytes != PerOp::default() && job.rate_iops != PerOp::default() {
            return Err(("rate_iops", "excludes rate; leave one of them out".to_owned()));
        }
        let engine = self.engine.as_deref().unwrap_or("psync");
        let why = if ONE_BY_ONE.contains(&engine) {
            format!("{engine} does one request at a time")
        } else if job.thinktime_ns > 0 {
            // fio's page about thinktime_blocks, which is 1: "any queue depth setting redundant".
            "before thinktime fio waits until all have ended".to_owned()
        } else {
            return Ok((Made::Job(Box::new(job)), None));
        };
        let notice = (job.depth > 1).then(|| format!("{why}: iodepth is 1, not {}", job.depth));
        job.depth = 1;
        Ok((Made::Job(Box::new(job)), notice))
    }

    fn make_burner(self, name: &str) -> Result<(Made, Option<String>), Fault> {
        let cpu = self.cpu.unwrap_or_default();
        if cpu.load == 0 {
            return Err(("cpuload", "is missing or 0; ioengine=cpuio needs 1 to 100".to_owned()));
        }
        let notice = (!self.job.workers.is_empty())
            .then(|| "burners are spread over all workers, whatever cpus_allowed says".to_owned());
        let burner = Burner {
            name: name.to_owned(),
            load_percent: cpu.load,
            // fio's default.
            chunk_ns: cpu.chunk_ns.unwrap_or(50_000_000),
            mode: cpu.mode,
            clones: self.job.clones,
        };
        Ok((Made::Burner(burner), notice))
    }
}

/// Requests of 100 by kind. `trimwrite` trims and writes each block: half and half.
fn mix(ops: [bool; 3], mix_read: u32) -> Mix {
    match ops {
        [true, true, _] => Mix { read: mix_read, write: 100 - mix_read, trim: 0 },
        [true, false, _] => Mix { read: 100, write: 0, trim: 0 },
        [false, true, true] => Mix { read: 0, write: 50, trim: 50 },
        [false, true, false] => Mix { read: 0, write: 100, trim: 0 },
        [false, false, _] => Mix { read: 0, write: 0, trim: 100 },
    }
}

fn direction(value: &str) -> Result<(Order, [bool; 3]), String> {
    const WORDS: [(&str, Order, [bool; 3]); 10] = [
        ("read", Order::Sequential, [true, false, false]),
        ("write", Order::Sequential, [false, true, false]),
        ("trim", Order::Sequential, [false, false, true]),
        ("randread", Order::Random, [true, false, false]),
        ("randwrite", Order::Random, [false, true, false]),
        ("randtrim", Order::Random, [false, false, true]),
        ("rw", Order::Sequential, [true, true, false]),
        ("readwrite", Order::Sequential, [true, true, false]),
        ("randrw", Order::Random, [true, true, false]),
        ("trimwrite", Order::Sequential, [false, true, true]),
    ];
    if let Some((word, _)) = value.split_once(':') {
        let word = shorten(word);
        return Err(format!("strides and runs ({word}:N) are not simulated; write rw={word}"));
    }
    let found = WORDS.into_iter().find(|(word, ..)| *word == value);
    found.map(|(_, order, ops)| (order, ops)).ok_or_else(|| {
        let names: Vec<&str> = WORDS.iter().map(|(word, ..)| *word).collect();
        format!("{} is none of {}", shorten(value), names.join(", "))
    })
}

fn percent(value: &str) -> Result<u32, String> {
    match units::number(value) {
        Ok(percent) if percent <= 100 => Ok(percent),
        _ => Err(format!("{} is no percentage; write 0 to 100", shorten(value))),
    }
}

fn at_least_one(value: &str) -> Result<u32, String> {
    match units::number(value)? {
        0 => Err("0 is out of range; write 1 or more".to_owned()),
        n => Ok(n),
    }
}

fn region(value: &str) -> Result<u64, String> {
    if value.trim_end().ends_with('%') {
        return Err("percentages of the device are not read; write bytes: 512m".to_owned());
    }
    units::bytes(value)
}

/// `READ,WRITE,TRIM`; 0 is no limit.
fn rates(value: &str, rates: &mut PerOp<Option<u64>>) -> Result<(), String> {
    let parts = blocks::per_op(value, "READ,WRITE,TRIM")?;
    let set = |part: Option<&str>, to: &mut Option<u64>| {
        if let Some(part) = part {
            *to = Some(units::bytes(part).map_err(|_| {
                format!("{} is no rate; write a number above 0, as 10m", shorten(part))
            })?)
            .filter(|rate| *rate > 0);
        }
        Ok(())
    };
    set(parts.read, &mut rates.read)?;
    set(parts.write, &mut rates.write)?;
    set(parts.trim, &mut rates.trim)
}
