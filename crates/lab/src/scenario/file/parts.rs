//! `[run]`, `[host]`, `[target]`, `[[path]]`.

use super::super::limits::{MAX_NODES, MAX_PATHS, MAX_WORKERS};
use super::super::mistake::Mistake;
use super::super::{AnaState, Brownout, Distribution, Hosts, Path, Run, Target};
use super::table::Table;
use anabranch_target::link::{Large, OnOff, Shape};
use std::time::Duration;

pub(super) fn run(root: &Table<'_>) -> Result<Run, Mistake> {
    let mut run = Run::default();
    let Some(table) = root.table("run", &["ramp", "window", "runs"])? else { return Ok(run) };
    run.ramp_ns = table.time("ramp")?.unwrap_or(run.ramp_ns);
    run.window_ns = table.time("window")?.unwrap_or(run.window_ns);
    run.runs = table.number("runs")?.unwrap_or(run.runs);
    table.checked(run.check())?;
    Ok(run)
}

pub(super) fn hosts(root: &Table<'_>) -> Result<Hosts, Mistake> {
    let mut hosts = Hosts::default();
    let known = ["count", "workers", "nodes", "io_queues", "queue_depth", "detect"];
    let Some(table) = root.table("host", &known)? else { return Ok(hosts) };
    hosts.count = table.number("count")?.unwrap_or(hosts.count);
    hosts.workers = table.number("workers")?.unwrap_or(hosts.workers);
    // Checked again below; here it keeps the list of nodes short.
    let workers = hosts.workers.min(MAX_WORKERS) as usize;
    hosts.nodes = table.numbers("nodes")?.unwrap_or_else(|| vec![0; workers]);
    // 0 is what holds when it is left out.
    hosts.io_queues = table.number("io_queues")?.filter(|queues: &u32| *queues > 0);
    hosts.queue_depth = table.number("queue_depth")?.unwrap_or(hosts.queue_depth);
    hosts.detect_ns = table.time("detect")?.unwrap_or(hosts.detect_ns);
    table.checked(hosts.check())?;
    Ok(hosts)
}

pub(super) fn target(root: &Table<'_>) -> Result<Target, Mistake> {
    let mut target = Target::default();
    let known = ["servers", "read", "write", "other", "distribution", "per_path", "block", "size"];
    let Some(table) = root.table("target", &known)? else { return Ok(target) };
    target.servers = table.number("servers")?.filter(|servers: &u32| *servers > 0);
    target.read_ns = table.time("read")?.unwrap_or(target.read_ns);
    target.write_ns = table.time("write")?.unwrap_or(target.write_ns);
    target.other_ns = table.time("other")?.unwrap_or(target.other_ns);
    let distributions =
        [("constant", Distribution::Constant), ("exponential", Distribution::Exponential)];
    target.distribution = table.choice("distribution", &distributions)?.unwrap_or_default();
    target.per_path = table.flag("per_path")?.unwrap_or(target.per_path);
    target.block_bytes = table.number("block")?.unwrap_or(target.block_bytes);
    target.size_bytes = table.size("size")?.unwrap_or(target.size_bytes);
    table.checked(target.check())?;
    Ok(target)
}

/// The keys of a path that changes can set too.
pub(super) const CHANGEABLE: [&str; 9] =
    ["rate", "rate_in", "rate_out", "delay", "jitter", "large", "onoff", "brownout", "ana"];

pub(super) fn path_tables<'a>(root: &Table<'a>) -> Result<Vec<Table<'a>>, Mistake> {
    let mut known = CHANGEABLE.to_vec();
    known.extend(["name", "node", "weight"]);
    root.tables("path", &known, MAX_PATHS)
}

pub(super) fn paths(root: &Table<'_>) -> Result<Vec<Path>, Mistake> {
    let mut paths: Vec<Path> = Vec::new();
    for table in path_tables(root)? {
        let name = table.must("name", table.word("name")?)?;
        let mut path = Path::new(&name);
        shape(&table, &mut path.shape)?;
        path.brownout = brownout(&table)?.flatten();
        path.ana = ana(&table)?.unwrap_or_default();
        path.node = table.number("node")?.unwrap_or(0);
        if path.node >= MAX_NODES {
            return Err(table.fail("node", format!("must be below {MAX_NODES}")));
        }
        path.weight = table.number("weight")?.unwrap_or(1);
        table.checked(path.check())?;
        if paths.iter().any(|other| other.name == name) {
            return Err(table.fail("name", format!("a path above is already called {name}")));
        }
        paths.push(path);
    }
    if paths.is_empty() {
        let text = "there is none; write [[path]] and a name, once for each path";
        return Err(root.fail("path", text));
    }
    Ok(paths)
}

/// Sets what the table names, leaves the rest as it is. Returns whether anything was named.
pub(super) fn shape(table: &Table<'_>, shape: &mut Shape) -> Result<bool, Mistake> {
    if let Some(rate) = table.rate("rate")? {
        if let Some(key) = ["rate_in", "rate_out"].into_iter().find(|key| table.has(key)) {
            return Err(table.fail(key, "rate already means both; leave one of them out"));
        }
        (shape.rate_in, shape.rate_out) = (Some(rate), Some(rate));
    }
    shape.rate_in = table.rate("rate_in")?.or(shape.rate_in);
    shape.rate_out = table.rate("rate_out")?.or(shape.rate_out);
    shape.delay = table.time("delay")?.map_or(shape.delay, Duration::from_nanos);
    shape.jitter = table.time("jitter")?.map_or(shape.jitter, Duration::from_nanos);
    if is_none(table, "large") {
        shape.large = None;
    } else if let Some(large) = table.table("large", &["size", "delay"])? {
        let bytes = large.must("size", large.size("size")?)?;
        let delay = Duration::from_nanos(large.must("delay", large.time("delay")?)?);
        shape.large = Some(Large { bytes, delay });
    }
    if is_none(table, "onoff") {
        shape.on_off = None;
    } else if let Some(onoff) = table.table("onoff", &["on", "off"])? {
        let on = Duration::from_nanos(onoff.must("on", onoff.time("on")?)?);
        let off = Duration::from_nanos(onoff.must("off", onoff.time("off")?)?);
        shape.on_off = Some(OnOff { on, off });
    }
    Ok(CHANGEABLE[..7].iter().any(|key| table.has(key)))
}

/// `"none"` ends what a table would describe.
fn is_none(table: &Table<'_>, key: &str) -> bool {
    matches!(table.word(key), Ok(Some(word)) if word == "none")
}

/// The outer `None`: not named.
pub(super) fn brownout(table: &Table<'_>) -> Result<Option<Option<Brownout>>, Mistake> {
    if is_none(table, "brownout") {
        return Ok(Some(None));
    }
    let Some(inner) = table.table("brownout", &["percent", "delay"])? else { return Ok(None) };
    let percent = inner.must("percent", inner.number("percent")?)?;
    let delay = Duration::from_nanos(inner.must("delay", inner.time("delay")?)?);
    let brownout = Brownout { percent, delay };
    table.checked(brownout.check())?;
    Ok(Some(Some(brownout)))
}

pub(super) fn ana(table: &Table<'_>) -> Result<Option<AnaState>, Mistake> {
    table.choice("ana", &AnaState::ALL.map(|state| (state.name(), state)))
}
