//! Why a device's commands went where they went, as it travels over the control socket. The shape
//! is a contract: `docs/EXPLAIN.md` describes it.

use super::view::{HostView, PathView, SubsystemView};
use anabranch_host::explain as host;
use anabranch_policy::{
    Affinity, AnaRank, FinishTimeReport, Inputs, OpClass, Policy, Reason, SizeClass,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of the shape.
pub const SCHEMA: u32 = 1;

/// Decisions in an answer unless the caller says how many.
pub const DEFAULT_SAMPLES: u32 = 10;

/// Everything about one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExplainView {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `nvmeXnY`.
    pub device: String,
    /// `nvme-subsysN`.
    pub subsystem: String,
    /// The policy in force.
    pub iopolicy: String,
    /// The default policy now.
    pub iopolicy_default: String,
    /// Where the policy in force was set: default, configuration or attribute.
    pub iopolicy_set_by: String,
    /// Whether it behaves kernel-exact.
    pub kernel_exact: bool,
    /// How often the device is quiesced: while not 0, its I/O waits.
    #[serde(default)]
    pub quiesced: u32,
    /// How often it is frozen: while not 0, no I/O is taken in.
    #[serde(default)]
    pub frozen: u32,
    /// One in so many choices of each worker is noted; 0 = none.
    pub explain_sample: u32,
    /// Another text: another run of the host, and all counts began anew.
    #[serde(default)]
    pub instance: String,
    /// When this was true, by the host's clock.
    pub at_ns: u64,
    /// The counts are those of so long a time until then; without it, those since each path
    /// joined.
    pub interval_ns: Option<u64>,
    /// Choices: the sum over the paths.
    pub commands: u64,
    /// The paths in order.
    pub paths: Vec<PathExplain>,
    /// Decisions that were noted, of all devices, since the host started (in the interval).
    pub noted: u64,
    /// The newest of this device, the oldest first.
    pub samples: Vec<Sample>,
}

/// One path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathExplain {
    /// `nvmeXcYnZ`.
    pub path: String,
    /// Another one when it comes back under the same name, and its counts begin anew.
    #[serde(default)]
    pub id: u64,
    /// It may be chosen now.
    pub usable: bool,
    /// What keeps it from being chosen, a word.
    #[serde(default)]
    pub hindrance: Option<String>,
    /// ANA state, the kernel's word.
    pub ana_state: String,
    /// The state of its controller.
    #[serde(default)]
    pub controller_state: String,
    /// It left before the interval was over, and its counts with it.
    pub left: bool,
    /// How often it was chosen.
    pub commands: u64,
    /// The same by size and reason; those that did not occur are not listed.
    pub choices: Vec<Choices>,
    /// Bytes of commands that ended well: reads.
    pub read_bytes: u64,
    /// Bytes of commands that ended well: writes.
    pub written_bytes: u64,
    /// What noted decisions found in flight on it.
    pub seen: Seen,
    /// What `finish-time` knows of it now, while that is in force.
    pub estimates: Option<Estimates>,
}

/// What `finish-time` knows of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimates {
    /// What it delivers, 4 KiB for each command counted with the payload; 0: not measured.
    pub rate_bytes_per_s: u64,
    /// There never was a queue at that rate: it delivers at least so much.
    #[serde(default)]
    pub rate_is_least: bool,
    /// The rates of reads and of writes, where they are predicted apart.
    pub apart_bytes_per_s: Option<[u64; 2]>,
    /// In flight, counted in the same way.
    pub in_flight_bytes: u64,
    /// How long a read of 4 KiB would take now; 0: not known.
    pub finish_ns: u64,
    /// What commands that took far longer than was predicted cost on average of all: a part of
    /// every prediction.
    #[serde(default)]
    pub outliers_ns: u64,
    /// How long the work takes that was always in flight of late.
    pub standing_ns: u64,
    /// What a queue costs there on top in an open load.
    #[serde(default)]
    pub toll_ns: u64,
    /// By how many per cent latencies grow with 100 % more in flight, 0 to 100; null: not known.
    #[serde(default)]
    pub elasticity_percent: Option<u8>,
    /// For how long it has not answered although it should have.
    pub silent_ns: u64,
    /// Reads that were sent to look at it.
    pub probes: u64,
    /// Bytes that they asked for.
    pub probe_bytes: u64,
    /// Latency without a queue, where it is known.
    pub bases: Vec<BaseLatency>,
}

/// Latency of one operation and size without a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseLatency {
    /// `read` or `write`.
    pub op: String,
    /// The size class, by the largest size in it.
    pub size: String,
    /// How long.
    pub base_ns: u64,
}

impl Estimates {
    fn new(from: &FinishTimeReport) -> Estimates {
        let ops = ["read", "write"].into_iter().zip(&from.base_ns);
        let rows = ops.flat_map(|(op, row)| SizeClass::all().zip(row).map(move |at| (op, at)));
        let known = rows.filter(|(_, (_, base_ns))| **base_ns > 0);
        Estimates {
            rate_bytes_per_s: if from.measured { from.rate_bytes_per_s } else { 0 },
            rate_is_least: from.rate_is_least,
            apart_bytes_per_s: from.apart_bytes_per_s,
            in_flight_bytes: from.in_flight_bytes,
            finish_ns: if from.measured { from.finish_ns } else { 0 },
            outliers_ns: from.outliers_ns,
            standing_ns: from.standing_ns,
            toll_ns: from.toll_ns,
            elasticity_percent: from.elasticity_percent,
            silent_ns: from.silent_ns,
            probes: from.probes,
            probe_bytes: from.probe_bytes,
            bases: known
                .map(|(op, (size, base_ns))| BaseLatency {
                    op: op.to_owned(),
                    size: size.name().to_owned(),
                    base_ns: *base_ns,
                })
                .collect(),
        }
    }

    /// What is known is known now; probes are counts.
    fn since(self, before: &Estimates) -> Estimates {
        Estimates {
            probes: self.probes.saturating_sub(before.probes),
            probe_bytes: self.probe_bytes.saturating_sub(before.probe_bytes),
            ..self
        }
    }
}

/// How often a path was chosen for one reason by commands of one size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choices {
    /// The size class, by the largest size in it.
    pub size: String,
    /// The reason.
    pub reason: String,
    /// How often.
    pub commands: u64,
}

/// Sums over noted decisions; divided by the number of those that counted it, the mean.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Decisions.
    pub decisions: u64,
    /// Commands in flight, as the policy in force counted them.
    pub commands: u64,
    /// Bytes in flight, under `service-time` and `finish-time`.
    pub bytes: u64,
    /// Of the decisions, those under policies that count commands.
    #[serde(default)]
    pub counted_commands: u64,
    /// Of the decisions, those under policies that count bytes.
    #[serde(default)]
    pub counted_bytes: u64,
}

impl Seen {
    fn since(&self, before: &Seen) -> Seen {
        let less = u64::saturating_sub;
        Seen {
            decisions: less(self.decisions, before.decisions),
            commands: less(self.commands, before.commands),
            bytes: less(self.bytes, before.bytes),
            counted_commands: less(self.counted_commands, before.counted_commands),
            counted_bytes: less(self.counted_bytes, before.counted_bytes),
        }
    }
}

/// One decision that was noted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// How long before [`ExplainView::at_ns`].
    pub before_ns: u64,
    /// The worker, from 1.
    pub worker: u16,
    /// `read`, `write` or `other`.
    pub op: String,
    /// Payload of the command.
    pub bytes: u32,
    /// The policy in force then.
    pub iopolicy: String,
    /// What decided.
    pub reason: String,
    /// The path that was chosen; `#N` when its controller is gone.
    pub path: String,
    /// How many paths the device had.
    pub paths: u16,
    /// At most 8 of them, the chosen one always.
    pub candidates: Vec<Candidate>,
}

/// A path as a decision found it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// As [`Sample::path`].
    pub path: String,
    /// It could be chosen.
    pub usable: bool,
    /// `optimized` or `non-optimized`; without meaning when not usable.
    pub ana_state: String,
    /// What the policy compared, by name; units stand last.
    pub inputs: Map<String, Value>,
}

impl ExplainView {
    /// Puts together what the engine tells about the device's choices and about the device.
    #[must_use]
    pub fn new(report: host::ExplainReport, view: &HostView, samples: usize) -> ExplainView {
        let found = view.subsystems.iter().find_map(|subsystem| {
            let head = subsystem.heads.iter().find(|head| head.name == report.device)?;
            Some((subsystem, head))
        });
        let path_view = |name: &str| {
            found.and_then(|(_, head)| head.paths.iter().find(|path| path.name == name))
        };
        let controller_state = |path: &PathView| {
            let known = |(subsystem, _): (&SubsystemView, _)| {
                let of = subsystem.controllers.iter().find(|c| c.name == path.controller)?;
                Some(of.state.clone())
            };
            found.and_then(known).unwrap_or_default()
        };
        let paths = report.paths.iter().map(|path| {
            let view = path_view(&path.name);
            let controller_state = view.map(controller_state).unwrap_or_default();
            PathExplain::new(path, view, controller_state)
        });
        let paths: Vec<PathExplain> = paths.collect();
        let newest = report.decisions.len().saturating_sub(samples);
        let at = report.at.ns();
        let subsystem = found.map(|(subsystem, _)| subsystem);
        let head = found.map(|(_, head)| head);
        ExplainView {
            schema: SCHEMA,
            subsystem: subsystem.map(|s| s.name.clone()).unwrap_or_default(),
            iopolicy: report.policy.to_string(),
            iopolicy_default: subsystem.map(|s| s.iopolicy_default.clone()).unwrap_or_default(),
            iopolicy_set_by: subsystem.map(|s| s.iopolicy_set_by.clone()).unwrap_or_default(),
            kernel_exact: report.kernel_exact,
            quiesced: head.map_or(0, |head| head.quiesced),
            frozen: head.map_or(0, |head| head.frozen),
            explain_sample: report.explain_sample,
            instance: String::new(),
            at_ns: at,
            interval_ns: None,
            commands: paths.iter().map(|path| path.commands).sum(),
            paths,
            noted: report.noted,
            samples: report.decisions[newest..].iter().map(|d| Sample::new(d, at)).collect(),
            device: report.device,
        }
    }

    /// What happened since `before`, exactly: counts are differences, samples those taken since.
    /// Nothing when that was another run of the host: names and identifiers repeat, counts do not.
    #[must_use]
    pub fn since(self, before: &ExplainView) -> Option<ExplainView> {
        if self.instance != before.instance {
            return None;
        }
        let interval_ns = self.at_ns.saturating_sub(before.at_ns);
        let same =
            |one: &PathExplain, other: &PathExplain| (&one.path, one.id) == (&other.path, other.id);
        let mut paths: Vec<PathExplain> = Vec::new();
        for path in self.paths {
            let then = before.paths.iter().find(|then| same(then, &path));
            paths.push(match then {
                Some(then) => path.since(then),
                None => path,
            });
        }
        for gone in &before.paths {
            if !paths.iter().any(|path| same(path, gone)) {
                let (path, id) = (gone.path.clone(), gone.id);
                paths.push(PathExplain { path, id, left: true, ..PathExplain::default() });
            }
        }
        let samples = self.samples.into_iter().filter(|sample| sample.before_ns <= interval_ns);
        Some(ExplainView {
            interval_ns: Some(interval_ns),
            commands: paths.iter().map(|path| path.commands).sum(),
            paths,
            noted: self.noted.saturating_sub(before.noted),
            samples: samples.collect(),
            ..self
        })
    }
}

impl PathExplain {
    fn new(
        from: &host::PathExplain,
        view: Option<&PathView>,
        controller_state: String,
    ) -> PathExplain {
        let mut choices = Vec::new();
        for size in SizeClass::all() {
            for reason in Reason::ALL {
                let commands = from.choices.of(size, reason);
                if commands > 0 {
                    let (size, reason) = (size.name().to_owned(), reason.name().to_owned());
                    choices.push(Choices { size, reason, commands });
                }
            }
        }
        let [read_bytes, written_bytes] = view.map(|view| view.bytes).unwrap_or_default();
        PathExplain {
            path: from.name.to_string(),
            id: from.id.0,
            usable: from.usable,
            hindrance: view.and_then(|view| view.hindrance.clone()),
            ana_state: view.map(|view| view.ana_state.clone()).unwrap_or_default(),
            controller_state,
            left: false,
            commands: from.choices.total(),
            choices,
            read_bytes,
            written_bytes,
            seen: Seen {
                decisions: from.seen.decisions,
                commands: from.seen.commands,
                bytes: from.seen.bytes,
                counted_commands: from.seen.counted_commands,
                counted_bytes: from.seen.counted_bytes,
            },
            estimates: from.finish_time.as_ref().map(Estimates::new),
        }
    }

    fn since(self, before: &PathExplain) -> PathExplain {
        let then = |now: &Choices| {
            let same =
                before.choices.iter().find(|c| (&c.size, &c.reason) == (&now.size, &now.reason));
            same.map_or(0, |choices| choices.commands)
        };
        let mut choices = Vec::new();
        for now in &self.choices {
            let commands = now.commands.saturating_sub(then(now));
            if commands > 0 {
                choices.push(Choices { commands, ..now.clone() });
            }
        }
        let less = u64::saturating_sub;
        PathExplain {
            commands: less(self.commands, before.commands),
            choices,
            read_bytes: less(self.read_bytes, before.read_bytes),
            written_bytes: less(self.written_bytes, before.written_bytes),
            seen: self.seen.since(&before.seen),
            estimates: self.estimates.map(|now| match &before.estimates {
                Some(then) => now.since(then),
                None => now,
            }),
            ..self
        }
    }
}

impl Sample {
    fn new(from: &host::Decision, at_ns: u64) -> Sample {
        let op = match from.op {
            OpClass::Read => "read",
            OpClass::Write => "write",
            OpClass::Other => "other",
        };
        let candidates = from.candidates.iter().map(|contender| Candidate {
            path: contender.path.to_string(),
            usable: contender.inputs.usable,
            ana_state: match contender.inputs.rank {
                AnaRank::Optimized => "optimized".to_owned(),
                AnaRank::NonOptimized => "non-optimized".to_owned(),
            },
            inputs: named(from.policy, &contender.inputs),
        });
        Sample {
            before_ns: at_ns.saturating_sub(from.at.ns()),
            worker: from.worker.0,
            op: op.to_owned(),
            bytes: from.bytes,
            iopolicy: from.policy.to_string(),
            reason: from.reason.name().to_owned(),
            path: from.path.to_string(),
            paths: from.paths,
            candidates: candidates.collect(),
        }
    }
}

/// What the policy looked at, by name.
fn named(policy: Policy, from: &Inputs) -> Map<String, Value> {
    // Every field is given a name: a new one does not compile until it has.
    let Inputs {
        usable: _,
        rank: _,
        commands,
        bytes,
        weight,
        credit,
        latency_ns,
        stale_ns,
        finish_ns,
        rate_kib_per_s,
        distance,
        affinity,
    } = *from;
    let weight_name = if policy == Policy::ServiceTime { "relative_throughput" } else { "weight" };
    let known_name = match policy {
        Policy::Latency => "latency_ns",
        Policy::FinishTime => "base_ns",
        _ => "history_ns",
    };
    let stale_name = if policy == Policy::FinishTime { "unheard_ns" } else { "stale_ns" };
    let affinity = affinity.map(|affinity| match affinity {
        Affinity::Own => "this worker",
        Affinity::Node => "a worker of this node",
        Affinity::Mapped => "a worker of another node",
        Affinity::Unmapped => "nobody",
    });
    let all = [
        ("in_flight_commands", commands.map(Value::from)),
        ("load_bytes", bytes.map(Value::from)),
        (weight_name, weight.map(Value::from)),
        ("credit", credit.map(Value::from)),
        (known_name, latency_ns.map(Value::from)),
        (stale_name, stale_ns.map(Value::from)),
        ("finish_ns", finish_ns.map(Value::from)),
        ("rate_bytes_per_s", rate_kib_per_s.map(|kib| Value::from(u64::from(kib) << 10))),
        ("numa_distance", distance.map(Value::from)),
        ("affinity", affinity.map(Value::from)),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}
