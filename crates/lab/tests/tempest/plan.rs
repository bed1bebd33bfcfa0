//! What a run is made of, drawn from its seed.

use crate::noise::Noise;
use crate::setup;
use crate::user::{Job, REGION};
use anabranch_host::config::{ControllerOptions, HostConfig};
use anabranch_host::verb::Verb;
use anabranch_lab::rng::Rng;
use anabranch_lab::sim::LinkTimes;
use anabranch_policy::Policy;
use anabranch_proto::machine::{FileId, VerbId};
use anabranch_target::config::{BackendConfig, Limits, NamespaceConfig, PortConfig};
use anabranch_target::{Shape, Target, TargetConfig};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// How often a device may be as large as what is used of it.
pub(crate) const LARGEST: u64 = 3;

/// Devices, and those of them that stay all the time.
pub(crate) const DEVICES: u32 = 3;
pub(crate) const SAFE: usize = 2;

const PORTS_MIN: u16 = 2;
pub(crate) const PORTS_MAX: u16 = 3;

const WORKERS_MAX: u16 = 5;

pub(crate) struct Plan {
    pub(crate) rng: Rng,
    pub(crate) ports: u16,
    pub(crate) workers: u16,
    shared_queue: bool,
    kernel_exact: bool,
    max_requests: u32,
    pub(crate) block_bytes: u32,
    limits: Limits,
    pub(crate) options: ControllerOptions,
    policy: Policy,
    slow: u64,
    pub(crate) times: LinkTimes,
    /// Entries of an I/O queue, if the controllers take fewer than the host asks for.
    pub(crate) entries: Rc<Cell<Option<u16>>>,
    pub(crate) requests: u64,
    pub(crate) depth: usize,
    pub(crate) most_blocks: u32,
    pub(crate) withdrawals: u64,
    pub(crate) faults: u64,
    pub(crate) noise: Option<Noise>,
    /// No noise any more.
    pub(crate) quiet: Rc<Cell<bool>>,
    /// How long nothing else happens.
    pub(crate) linger: Duration,
    /// Ports whose controller an administrator has removed some time.
    pub(crate) removed: Vec<bool>,
    /// How often each device was quiesced and frozen.
    pub(crate) stopped: Vec<(u32, u32)>,
    /// Nothing happens to paths but resets on request: else all can be used all the time.
    pub(crate) fair: bool,
    /// One of them joins when the users have begun.
    pub(crate) late: bool,
    /// The devices are files behind write caches, and the target loses its power.
    pub(crate) caches: bool,
    pub(crate) power_cuts: Arc<AtomicU64>,
    /// Verbs that must have been answered in the end.
    pub(crate) asked: Vec<VerbId>,
}

fn limits(rng: &mut Rng) -> Limits {
    Limits {
        in_capsule_bytes: [0, 4096, 8192][rng.below(3) as usize],
        max_transfer_bytes: (16 << 10) << rng.below(3),
        max_h2c_data_bytes: [4096, 128 << 10][rng.below(2) as usize],
        ana_transition_s: 1,
        ..Limits::default()
    }
}

fn entries(rng: &mut Rng) -> Option<u16> {
    rng.percent(60).then(|| 2 + rng.below(6) as u16)
}

fn times(rng: &mut Rng) -> LinkTimes {
    let mut times = LinkTimes::default();
    if rng.percent(30) {
        times.mail.1 = MS * 3;
    }
    if rng.percent(20) {
        times.closing.1 = MS;
    }
    if rng.percent(40) {
        times.telling.1 = Duration::from_micros(300);
    }
    times
}

impl Plan {
    pub(crate) fn draw(seed: u64) -> Plan {
        let mut rng = Rng::new(seed);
        let workers = 1 + rng.below(u64::from(WORKERS_MAX)) as u16;
        let ports = PORTS_MIN + rng.below(u64::from(PORTS_MAX - PORTS_MIN + 1)) as u16;
        let mut times = times(&mut rng);
        let fewer = rng.percent(50);
        let options = ControllerOptions {
            queue_size: 16,
            reconnect_delay: MS * (1 + rng.below(20) as u32),
            ctrl_loss_tmo: None,
            keep_alive_tmo: Duration::from_millis(200 + rng.below(1000)),
            io_timeout: Duration::from_millis(100 + rng.below(900)),
            admin_timeout: Duration::from_millis(100 + rng.below(400)),
            hdr_digest: rng.percent(40),
            data_digest: rng.percent(60),
            disable_sqflow: rng.percent(50),
            nr_io_queues: fewer.then(|| 1 + rng.below(u64::from(workers)) as u16),
            nr_write_queues: if rng.percent(30) { 1 + rng.below(4) as u16 } else { 0 },
            ..ControllerOptions::default()
        };
        let fair = rng.percent(20);
        let late = fair && rng.percent(50);
        if late {
            times.mail.1 = MS * 3;
        }
        let noise = (!fair && rng.percent(50)).then(|| Noise {
            errors: rng.below(30),
            flips: rng.below(8),
            echoes: rng.below(4),
            hdr_digest: options.hdr_digest,
            data_digest: options.data_digest,
            everywhere: false,
        });
        let limits = limits(&mut rng);
        // Rescue belongs to one of them.
        let finish_time = rng.percent(50);
        let any = Policy::ALL[rng.below(Policy::ALL.len() as u64) as usize];
        Plan {
            ports,
            workers,
            shared_queue: rng.percent(20),
            kernel_exact: rng.percent(15),
            max_requests: [4, 16, 64][rng.below(3) as usize],
            block_bytes: [512, 4096][rng.below(2) as usize],
            limits,
            policy: if finish_time { Policy::FinishTime } else { any },
            slow: rng.below(4),
            times,
            entries: Rc::new(Cell::new(entries(&mut rng))),
            requests: if finish_time { 300 } else { 120 },
            depth: 1 + rng.below(12) as usize,
            most_blocks: [1, 8, 48][rng.below(3) as usize],
            withdrawals: if rng.percent(40) { 20 } else { 0 },
            faults: 2 + rng.below(12),
            noise,
            quiet: Rc::default(),
            linger: Duration::ZERO,
            removed: vec![false; ports.into()],
            stopped: vec![(0, 0); DEVICES as usize],
            fair,
            late,
            caches: rng.percent(50),
            power_cuts: Arc::default(),
            asked: Vec::new(),
            options,
            rng,
        }
    }

    pub(crate) fn host(&self) -> HostConfig {
        HostConfig {
            shared_queue: self.shared_queue,
            kernel_exact: self.kernel_exact,
            max_requests: self.max_requests,
            ..setup::host(self.workers, self.policy)
        }
    }

    /// Bytes that users of a device use.
    pub(crate) fn used_bytes(&self) -> u64 {
        REGION * u64::from(WORKERS_MAX) * u64::from(self.block_bytes)
    }

    /// The file of a device, if that is one.
    pub(crate) fn file(&self, nsid: u32) -> Option<FileId> {
        self.caches.then_some(FileId(nsid))
    }

    pub(crate) fn namespace(&self, nsid: u32) -> NamespaceConfig {
        let bytes = self.used_bytes();
        NamespaceConfig {
            backend: match self.file(nsid) {
                Some(file) => BackendConfig::File { file, bytes },
                None => BackendConfig::Memory { bytes },
            },
            ana_group: nsid,
            ..setup::namespace(nsid, self.block_bytes)
        }
    }

    pub(crate) fn target(&self) -> TargetConfig {
        let slow = Shape { delay: MS * self.slow as u32, ..Shape::default() };
        let ports = (0..self.ports).map(|index| PortConfig {
            shape: if index == 1 { slow.clone() } else { Shape::default() },
            ..PortConfig::new(setup::port(index))
        });
        let namespaces = (1..=DEVICES).map(|nsid| self.namespace(nsid)).collect();
        TargetConfig { limits: self.limits.clone(), ..setup::target(ports.collect(), namespaces) }
    }

    /// The target starts anew. What its controllers take at once may be less by then, or more.
    pub(crate) fn fresh_target(&mut self) -> Target {
        if self.rng.percent(50) {
            self.limits = limits(&mut self.rng);
            self.limits.io_queues = 1 + self.rng.below(2 * u64::from(WORKERS_MAX)) as u16;
            self.entries.set(entries(&mut self.rng));
        }
        Target::new(self.target(), self.rng.below(1000)).expect("a valid configuration")
    }

    pub(crate) fn connect(&self, port: u16) -> Verb<Job> {
        Verb::Connect(Box::new(setup::connect(port, &self.options)))
    }
}
