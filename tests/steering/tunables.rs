//! What can be changed about the choice of paths while I/O runs, and where its counters are read.

use anabranch_lab::rng::Rng;
use anabranch_policy::{Policy, Scope};

/// Who has an attribute.
#[derive(Clone, Copy)]
enum Of {
    Subsystem,
    Head,
    Path,
}

/// What is written.
#[derive(Clone, Copy)]
enum Value {
    One(&'static [&'static str]),
    UpTo(u64),
}

/// What may change, besides the policy.
const TUNABLES: &[(Of, &str, Value)] = &[
    (Of::Subsystem, "kernel_exact", Value::UpTo(1)),
    (
        Of::Subsystem,
        "queue_depth_scope",
        Value::One(&["controller", "namespace", "queue-pair", "worker", "sum"]),
    ),
    (Of::Subsystem, "hst_base_weight", Value::UpTo(1023)),
    (Of::Subsystem, "hst_threshold_multiplier", Value::UpTo(10)),
    (Of::Subsystem, "finish_time_tail", Value::UpTo(1)),
    (Of::Subsystem, "finish_time_compete", Value::UpTo(1)),
    (Of::Subsystem, "finish_time_probes", Value::UpTo(1)),
    (Of::Path, "relative_throughput", Value::UpTo(100)),
    (Of::Path, "relative_throughput", Value::One(&["0", "1"])),
    (Of::Path, "io_affinity", Value::One(&["1", "2", "3"])),
    (Of::Head, "latency_ewma_shift", Value::UpTo(8)),
    (Of::Head, "latency_batch_timeout", Value::One(&["0", "1ms", "20ms", "15"])),
    (Of::Head, "latency_size_buckets", Value::UpTo(1)),
    (Of::Head, "latency_per_node", Value::UpTo(1)),
    (Of::Head, "latency_ignore_ana", Value::UpTo(1)),
    (Of::Head, "explain_sample", Value::One(&["0", "1", "64"])),
];

/// An attribute is to be written.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) object: String,
    pub(crate) attribute: &'static str,
    pub(crate) value: String,
}

impl Change {
    fn of(object: &str, attribute: &'static str, value: &str) -> Change {
        Change { object: object.to_owned(), attribute, value: value.to_owned() }
    }

    /// A change of the first subsystem, its first head or one of that head's first `ports` paths.
    /// Half of them are of the policy.
    pub(crate) fn draw(rng: &mut Rng, ports: u64) -> Change {
        let mut draw = |count: usize| rng.below(count as u64) as usize;
        if draw(2) == 0 {
            let policy = Policy::ALL[draw(Policy::ALL.len())];
            return Change::of("nvme-subsys0", "iopolicy", policy.name());
        }
        let (of, attribute, value) = TUNABLES[draw(TUNABLES.len())];
        let object = match of {
            Of::Subsystem => "nvme-subsys0".to_owned(),
            Of::Head => "nvme0n1".to_owned(),
            Of::Path => format!("nvme0c{}n1", draw(ports as usize)),
        };
        let value = match value {
            Value::One(words) => words[draw(words.len())].to_owned(),
            Value::UpTo(most) => draw(most as usize + 1).to_string(),
        };
        Change { object, attribute, value }
    }
}

/// Every counter of what is in flight: what makes the paths of a subsystem show it, and the path's
/// attribute.
pub(crate) fn counters(subsystem: &str) -> Vec<(Vec<Change>, &'static str)> {
    let policy = |policy: Policy| Change::of(subsystem, "iopolicy", policy.name());
    let scope = |scope: Scope| {
        let scope = Change::of(subsystem, "queue_depth_scope", scope.name());
        (vec![policy(Policy::QueueDepth), scope], "queue_depth")
    };
    let bytes = (vec![policy(Policy::ServiceTime)], "in_flight_bytes");
    Scope::ALL.into_iter().map(scope).chain([bytes]).collect()
}
