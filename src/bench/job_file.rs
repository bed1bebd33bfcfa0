//! A fio job file in place of options.

use crate::cli::args::bench::{Bench, MAX_DEPTH, MAX_JOBS, Pattern};
use crate::failure::Failure;
use anabranch_lab::scenario::fio::{self, JobFile};
use anabranch_lab::scenario::{Arrival, BlockSize, Job, Order, Sizes};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// The options, with what the job file says. It has one job: several at once are a scenario's.
///
/// # Errors
/// Names the file, and what in it `bench` has no word for.
pub(super) fn applied(bench: &Bench) -> Result<Bench, Failure> {
    let Some(path) = &bench.job_file else { return Ok(bench.clone()) };
    let file = fio::read(path).map_err(|mistake| Failure::usage(mistake.to_string()))?;
    for notice in &file.notices {
        // Whether anybody reads it does not matter.
        let _ = writeln!(std::io::stderr(), "anabranch: {notice}");
    }
    if bench.device.is_some() && file.jobs.iter().any(|job| !job.workers.is_empty()) {
        let _ = writeln!(
            std::io::stderr(),
            "anabranch: {}: cpus_allowed: the workers of the running host send, wherever they are",
            shown(path)
        );
    }
    with(bench, &file).map_err(|why| Failure::usage(format!("{}: {why}", shown(path))))
}

fn shown(path: &Path) -> String {
    anabranch_lab::shown::Shown(&path.display().to_string()).to_string()
}

fn with(bench: &Bench, file: &JobFile) -> Result<Bench, String> {
    let several = "'anabranch lab run --mode live' takes a scenario with several";
    let [job] = &file.jobs[..] else {
        return Err(format!("has {} jobs, bench runs one; {several}", file.jobs.len()));
    };
    if !file.burners.is_empty() {
        return Err(format!("has sections with ioengine=cpuio, bench has none; {several}"));
    }
    if file.ramp_ns.is_some_and(|ns| ns > 0) {
        return Err("ramp_time: bench repeats runs instead, leave it out".to_owned());
    }
    refuse_what_has_no_option(job)?;
    let mut out = bench.clone();
    (out.rw, out.rwmixread) = (pattern(job), job.mix.read);
    let sizes = sizes(job)?;
    match sizes {
        [only] => (out.bs, out.bssplit) = (only.bytes.to_string(), None),
        several => out.bssplit = Some(split(several)),
    }
    out.iodepth = within("iodepth", job.depth, MAX_DEPTH)?;
    out.numjobs = within("numjobs", job.clones, MAX_JOBS)?;
    (out.offset, out.size) = (job.offset, job.size);
    if !job.workers.is_empty() && bench.device.is_none() && bench.cpus.is_none() {
        let cpus: Vec<String> = job.workers.iter().map(ToString::to_string).collect();
        out.cpus = Some(cpus.join(","));
    }
    out.runtime = bench.runtime.or(file.runtime_ns.map(Duration::from_nanos));
    Ok(out)
}

fn refuse_what_has_no_option(job: &Job) -> Result<(), String> {
    let rates =
        [job.rate_bytes.read, job.rate_bytes.write, job.rate_iops.read, job.rate_iops.write];
    let wrong = [
        (job.mix.trim > 0, "rw: bench sends no trims"),
        (rates.iter().any(Option::is_some), "rate, rate_iops: bench sends as fast as it can"),
        (job.thinktime_ns > 0, "thinktime: bench makes no pauses"),
        (job.arrival != Arrival::Closed, "rate_process: bench is a closed loop"),
    ];
    wrong.iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, why)| Err((*why).to_owned()))
}

fn pattern(job: &Job) -> Pattern {
    match (job.order, job.mix.read) {
        (Order::Sequential, 100) => Pattern::Read,
        (Order::Sequential, 0) => Pattern::Write,
        (Order::Sequential, _) => Pattern::Rw,
        (Order::Random, 100) => Pattern::RandRead,
        (Order::Random, 0) => Pattern::RandWrite,
        (Order::Random, _) => Pattern::RandRw,
    }
}

/// Of reads and writes alike.
fn sizes(job: &Job) -> Result<&[BlockSize], String> {
    let of = if job.mix.read > 0 { &job.sizes.read } else { &job.sizes.write };
    if job.mix.read > 0 && job.mix.write > 0 && job.sizes.read != job.sizes.write {
        return Err("bs: bench has the same sizes for reads and writes".to_owned());
    }
    match of {
        Sizes::Split(sizes) => Ok(sizes),
        Sizes::Range { .. } => Err("bsrange: bench has no ranges, give bssplit".to_owned()),
    }
}

fn split(sizes: &[BlockSize]) -> String {
    let parts: Vec<String> =
        sizes.iter().map(|size| format!("{}/{}", size.bytes, size.weight)).collect();
    parts.join(":")
}

fn within(key: &str, value: u32, most: u32) -> Result<u32, String> {
    if value > most { Err(format!("{key} is {value}, at most {most}")) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Verb};
    use clap::Parser;

    fn options(words: &[&str]) -> Bench {
        let words = ["anabranch", "bench"].iter().chain(words);
        match Cli::try_parse_from(words).expect("they go together").verb {
            Verb::Bench(bench) => bench,
            other => panic!("{other:?}"),
        }
    }

    fn read(text: &str) -> Result<Bench, String> {
        let file = fio::parse(text, "a.fio").map_err(|mistake| mistake.to_string())?;
        with(&options(&["--runs", "3"]), &file)
    }

    #[test]
    fn a_job_file_says_what_options_would() {
        let text = "[global]\nioengine=libaio\nruntime=7\ntime_based\n[disk]\nrw=randrw\n\
                    rwmixread=70\nbssplit=4k/60:64k/40\niodepth=8\nnumjobs=2\noffset=1m\nsize=8m\n";
        let bench = read(text).expect("it has one job");
        assert_eq!((bench.rw, bench.rwmixread), (Pattern::RandRw, 70));
        assert_eq!(bench.bssplit.as_deref(), Some("4096/60:65536/40"));
        assert_eq!((bench.iodepth, bench.numjobs, bench.runs), (8, 2, 3));
        assert_eq!((bench.offset, bench.size), (1 << 20, Some(8 << 20)));
        assert_eq!(bench.runtime, Some(Duration::from_secs(7)));
        let bench = read("[disk]\nrw=write\nbs=128k\n").expect("it has one job");
        assert_eq!((bench.rw, bench.bs.as_str(), bench.bssplit), (Pattern::Write, "131072", None));
        assert_eq!((bench.iodepth, bench.runtime), (1, None));
    }

    #[test]
    fn processors_of_a_job_file_are_those_of_a_host_of_its_own() {
        let file = fio::parse("[disk]\nrw=read\ncpus_allowed=0-1\n", "a.fio").expect("a job");
        let cpus = |words: &[&str]| with(&options(words), &file).expect("it has one job").cpus;
        assert_eq!(cpus(&[]).as_deref(), Some("0,1"));
        assert_eq!(cpus(&["--cpus", "1/0"]).as_deref(), Some("1/0"));
        assert_eq!(cpus(&["nvme0n1"]), None, "it has its own");
    }

    #[test]
    fn what_bench_cannot_do_is_refused_by_name() {
        for (line, why) in [
            ("[a]\nrw=read\n[b]\nrw=write", "has 2 jobs"),
            ("[a]\nrw=read\n[b]\nioengine=cpuio\ncpuload=50", "cpuio"),
            ("[a]\nrw=randtrim", "trims"),
            ("[a]\nrw=read\nrate=1m", "rate"),
            ("[a]\nrw=read\nthinktime=10", "thinktime"),
            ("[a]\nrw=read\nramp_time=1", "ramp_time"),
            ("[a]\nrw=rw\nbs=4k,8k", "same sizes"),
            ("[a]\nrw=read\nbsrange=4k-8k", "bsrange"),
            ("[a]\nrw=read\nnumjobs=2000", "numjobs is 2000, at most 1024"),
            ("[a]\nrw=read\nno_such=1", "no_such"),
        ] {
            let refused = read(line).expect_err(line);
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }
}
