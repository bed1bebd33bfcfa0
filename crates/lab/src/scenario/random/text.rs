//! A draft as the text of a scenario file.

use super::episodes::{Change, What};
use super::links::Link;
use super::load::Load;
use super::{Draft, Hosts, Target};
use std::fmt::{Error, Write};

pub(super) fn text(draft: &Draft) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(draft, &mut text);
    text
}

fn write(draft: &Draft, to: &mut String) -> Result<(), Error> {
    let (seed, paths, load) = (draft.seed, draft.paths.len(), &draft.load);
    writeln!(to, "# Drawn at random, seed {seed}.")?;
    writeln!(to, "title = \"Random {seed}: {paths} paths, {}\"", describe(draft))?;
    writeln!(to, "source = \"drawn at random\"")?;
    let (ramp, window) = (draft.ramp_ms, draft.window_ms);
    writeln!(to, "\n[run]\nramp = \"{ramp}ms\"\nwindow = \"{window}ms\"")?;
    hosts(&draft.hosts, to)?;
    // The smallest request decides.
    let block = if load.sizes.iter().any(|(bytes, _)| bytes % 4096 != 0) { 512 } else { 4096 };
    target(&draft.target, block, to)?;
    for (place, link) in draft.paths.iter().enumerate() {
        path(place, link, to)?;
    }
    jobs(load, to)?;
    draft.changes.iter().try_for_each(|one| change(one, window, to))
}

/// The load and the changes in a few words.
fn describe(draft: &Draft) -> String {
    let load = &draft.load;
    let sizes: Vec<String> = load.sizes.iter().map(|(bytes, _)| size(*bytes)).collect();
    let mut text = format!("{} of {}", load.rw(), sizes.join(" and "));
    let _ = match load.open_percent {
        Some(percent) => write!(text, ", open loop at {percent} %"),
        None => write!(text, ", {} x {} open", load.clones, load.depth),
    };
    if draft.hosts.count > 1 {
        let _ = write!(text, ", {} hosts", draft.hosts.count);
    }
    for Change { path, what, .. } in &draft.changes {
        let (name, what) = (
            name(*path),
            match what {
                What::Rates(..) => "another rate",
                What::Delay { .. } => "another delay",
                What::State(state) => state,
                What::Congestion(Some(_)) => "congested",
                What::Congestion(None) => "not congested",
                What::Ana(ana) => ana,
            },
        );
        let _ = write!(text, ", {name} {what}");
    }
    text
}

/// `p1`, `p2` …
fn name(place: usize) -> String {
    format!("p{}", place + 1)
}

/// As a person would write it.
fn size(bytes: u32) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{}m", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
        _ => bytes.to_string(),
    }
}

fn hosts(hosts: &Hosts, to: &mut String) -> Result<(), Error> {
    let Hosts { count, workers, queue_depth, detect_ms } = hosts;
    writeln!(to, "\n[host]\ncount = {count}\nworkers = {workers}\nqueue_depth = {queue_depth}")?;
    writeln!(to, "detect = \"{detect_ms}ms\"")
}

fn target(target: &Target, block: u32, to: &mut String) -> Result<(), Error> {
    let (read, write) = (target.read_us, target.write_us);
    writeln!(to, "\n[target]\nread = \"{read}us\"\nwrite = \"{write}us\"\nblock = {block}")?;
    if target.exponential {
        writeln!(to, "distribution = \"exponential\"")?;
    }
    if target.servers > 0 {
        writeln!(to, "servers = {}\nper_path = {}", target.servers, target.per_path)?;
    }
    Ok(())
}

/// Both directions in a line, where they are alike.
fn rates((rate_in, rate_out): (u64, u64), to: &mut String) -> Result<(), Error> {
    if rate_in == rate_out {
        return writeln!(to, "rate = \"{rate_in}MiB/s\"");
    }
    writeln!(to, "rate_in = \"{rate_in}MiB/s\"\nrate_out = \"{rate_out}MiB/s\"")
}

fn path(place: usize, link: &Link, to: &mut String) -> Result<(), Error> {
    writeln!(to, "\n[[path]]\nname = \"{}\"", name(place))?;
    rates((link.rate_in, link.rate_out), to)?;
    writeln!(to, "delay = \"{}us\"", link.delay_us)?;
    if link.jitter_us > 0 {
        writeln!(to, "jitter = \"{}us\"", link.jitter_us)?;
    }
    if let Some((kib, us)) = link.large {
        writeln!(to, "large = {{ size = \"{kib}k\", delay = \"{us}us\" }}")?;
    }
    if let Some((percent, us)) = link.brownout {
        writeln!(to, "brownout = {{ percent = {percent}, delay = \"{us}us\" }}")?;
    }
    if !link.optimized {
        writeln!(to, "ana = \"{}\"", link.ana())?;
    }
    writeln!(to, "weight = {}", link.weight)
}

fn jobs(load: &Load, to: &mut String) -> Result<(), Error> {
    // Each stream of an open loop is a job.
    let jobs = if load.open_percent.is_some() { load.clones } else { 1 };
    for _ in 0..jobs {
        writeln!(to, "\n[[job]]\nrw = \"{}\"", load.rw())?;
        if ![0, 100].contains(&load.read_percent) {
            writeln!(to, "rwmixread = {}", load.read_percent)?;
        }
        match load.sizes.as_slice() {
            [(bytes, _)] => writeln!(to, "bs = \"{}\"", size(*bytes))?,
            split => {
                let split: Vec<String> = split
                    .iter()
                    .map(|(bytes, share)| format!("{}/{share}", size(*bytes)))
                    .collect();
                writeln!(to, "bssplit = \"{}\"", split.join(":"))?;
            }
        }
        if load.open_percent.is_some() {
            writeln!(to, "poisson_iops = {}", load.poisson_iops)?;
        } else {
            writeln!(to, "iodepth = {}\nnumjobs = {}", load.depth, load.clones)?;
        }
    }
    Ok(())
}

fn change(change: &Change, window_ms: u64, to: &mut String) -> Result<(), Error> {
    let at = window_ms * change.at_percent / 100;
    writeln!(to, "\n[[change]]\nat = \"{at}ms\"\npath = \"{}\"", name(change.path))?;
    match change.what {
        What::Rates(rate_in, rate_out) => rates((rate_in, rate_out), to),
        What::Delay { us } => writeln!(to, "delay = \"{us}us\""),
        What::State(state) => writeln!(to, "state = \"{state}\""),
        What::Congestion(Some((on, off))) => {
            writeln!(to, "onoff = {{ on = \"{on}ms\", off = \"{off}ms\" }}")
        }
        What::Congestion(None) => writeln!(to, "onoff = \"none\""),
        What::Ana(ana) => writeln!(to, "ana = \"{ana}\""),
    }
}
