//! `[[variant]]`.

use super::super::limits::MAX_VARIANTS;
use super::super::mistake::{Mistake, near_or_all, shorten};
use super::super::{Hosts, Path, Variant};
use super::table::Table;
use anabranch_policy::{LatencyParameters, MAX_RELATIVE_THROUGHPUT, Parameters, Policy};

/// What any policy can be given.
const OF_ALL: [&str; 4] = ["name", "policy", "io_queues", "kernel_exact"];

/// What only one has.
const OF_ONE: [(&str, Policy); 12] = [
    ("weights", Policy::ServiceTime),
    ("queue_depth_scope", Policy::QueueDepth),
    ("latency_batch_timeout", Policy::Latency),
    ("latency_ewma_shift", Policy::Latency),
    ("latency_size_buckets", Policy::Latency),
    ("latency_per_node", Policy::Latency),
    ("latency_compete", Policy::Latency),
    ("hst_base_weight", Policy::HistoricalServiceTime),
    ("hst_threshold_multiplier", Policy::HistoricalServiceTime),
    ("finish_time_tail", Policy::FinishTime),
    ("finish_time_compete", Policy::FinishTime),
    ("finish_time_probes", Policy::FinishTime),
];

pub(super) fn read(
    root: &Table<'_>,
    paths: &[Path],
    hosts: &Hosts,
    all: &mut Vec<Variant>,
) -> Result<(), Mistake> {
    let known: Vec<&str> = OF_ALL.into_iter().chain(OF_ONE.map(|(key, _)| key)).collect();
    // The standard ones' window is the default of the cell.
    let latency = all.first().map(|standard| standard.parameters.latency).unwrap_or_default();
    for table in root.tables("variant", &known, MAX_VARIANTS)? {
        let variant = variant(&table, paths, hosts, latency)?;
        if all.iter().any(|other| other.name == variant.name) {
            let text = format!("there is already a variant {}", variant.name);
            return Err(table.fail("name", text));
        }
        all.push(variant);
    }
    Ok(())
}

fn variant(
    table: &Table<'_>,
    paths: &[Path],
    hosts: &Hosts,
    latency: LatencyParameters,
) -> Result<Variant, Mistake> {
    let name = table.must("name", table.word("name")?)?;
    let parameters = parameters(table, latency)?;
    // 0 is one per worker, whatever [host] says.
    let io_queues = table.number("io_queues")?.map(|n| if n == 0 { hosts.workers } else { n });
    if io_queues.is_some_and(|queues| queues > hosts.workers) {
        let text = format!("each host has {} workers; use 0 to {0}", hosts.workers);
        return Err(table.fail("io_queues", text));
    }
    let weights = weights(table, paths)?;
    let own_batch = table.has("latency_batch_timeout");
    let variant = Variant { name, parameters, weights, io_queues, own_batch };
    table.checked(variant.check(paths.len()))?;
    Ok(variant)
}

fn parameters(table: &Table<'_>, latency: LatencyParameters) -> Result<Parameters, Mistake> {
    let policy = table.must("policy", table.parsed("policy")?)?;
    // It would change nothing, and whoever wrote it thinks that it does.
    if let Some((key, owner)) = OF_ONE.into_iter().find(|(key, of)| *of != policy && table.has(key))
    {
        let text = format!("sets {}, and this variant is {}", owner.name(), policy.name());
        return Err(table.fail(key, text));
    }
    let mut p = Parameters { latency, ..Parameters::of(policy) };
    p.kernel_exact = table.flag("kernel_exact")?.unwrap_or(p.kernel_exact);
    p.scope = table.parsed("queue_depth_scope")?.unwrap_or(p.scope);
    let latency = &mut p.latency;
    latency.batch_timeout = table.parsed("latency_batch_timeout")?.unwrap_or(latency.batch_timeout);
    latency.ewma_shift = table.parsed("latency_ewma_shift")?.unwrap_or(latency.ewma_shift);
    latency.size_buckets = table.flag("latency_size_buckets")?.unwrap_or(latency.size_buckets);
    latency.per_node = table.flag("latency_per_node")?.unwrap_or(latency.per_node);
    latency.compete = table.flag("latency_compete")?.unwrap_or(latency.compete);
    let hst = &mut p.historical;
    hst.base_weight = table.parsed("hst_base_weight")?.unwrap_or(hst.base_weight);
    hst.threshold_multiplier =
        table.number("hst_threshold_multiplier")?.unwrap_or(hst.threshold_multiplier);
    let finish = &mut p.finish_time;
    finish.tail = table.flag("finish_time_tail")?.unwrap_or(finish.tail);
    finish.compete = table.flag("finish_time_compete")?.unwrap_or(finish.compete);
    finish.probes = table.flag("finish_time_probes")?.unwrap_or(finish.probes);
    Ok(p)
}

/// `weights = { fast = 4, slow = 1 }`; paths that are not named have 1.
fn weights(table: &Table<'_>, paths: &[Path]) -> Result<Vec<u32>, Mistake> {
    let mut weights = vec![1; paths.len()];
    let Some(named) = table.any_table("weights")? else { return Ok(weights) };
    let names: Vec<&str> = paths.iter().map(|path| path.name.as_str()).collect();
    for key in named.keys() {
        let Some(index) = names.iter().position(|name| *name == key) else {
            let near = near_or_all(key, &names);
            return Err(named.fail(key, format!("there is no path {}{near}", shorten(key))));
        };
        weights[index] = named.must(key, named.number(key)?)?;
        if weights[index] > MAX_RELATIVE_THROUGHPUT {
            let text = format!("a weight lies between 0 and {MAX_RELATIVE_THROUGHPUT}");
            return Err(named.fail(key, text));
        }
    }
    Ok(weights)
}
