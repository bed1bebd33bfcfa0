//! The record of what a choice added to the load counters.

use crate::finish_time::{Flight, units};
use crate::{Lane, Ledgers, Load, OpClass, Parameters, Policy, Scope, Shared, WorkerLedger};

/// Exactly what starting one command added, to be taken away when it ends.
///
/// The prototypes on the mailing list look at the policy again when a request ends, or keep a flag
/// in the request; one of them admits to be wrong when the policy changes under load. Here the
/// command carries the charge, so its end undoes its start whatever happened in between: the policy
/// was switched, the path failed or left, the transfer was cut short.
///
/// A charge is `Copy` so that it can lie in a command table; return each charge once.
/// [`Charge::take`] helps: it leaves [`Charge::NONE`] behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    start_ns: u64,
    /// Of `finish-time`; or whose queue pair it took, when that was counted.
    flight: Flight,
    bytes: u32,
    epoch: u16,
    op: OpClass,
    counted: Counted,
}

/// Which counter was raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Nothing,
    Controller,
    Path,
    QueuePair,
    Worker,
    Bytes,
    Work,
    Probe,
    /// Of `finish-time`: what waits for the disk.
    Disk,
}

impl Counted {
    /// What a user's command is counted in.
    #[inline(always)]
    const fn under(parameters: &Parameters) -> Counted {
        match parameters.policy {
            Policy::Numa | Policy::RoundRobin | Policy::Latency | Policy::IoAffinity => {
                Counted::Nothing
            }
            Policy::QueueDepth => match parameters.scope {
                Scope::Controller => Counted::Controller,
                Scope::Namespace => Counted::Path,
                Scope::QueuePair | Scope::Sum => Counted::QueuePair,
                Scope::Worker => Counted::Worker,
            },
            Policy::ServiceTime => Counted::Bytes,
            Policy::QueueLength | Policy::HistoricalServiceTime => Counted::Path,
            Policy::FinishTime => Counted::Work,
        }
    }
}

impl Parameters {
    /// Whether anything is counted or measured in what belongs to a path alone, its [`Shared`] and
    /// its [`Lane`]s: otherwise nobody looks at those, and paths need none of their own.
    #[must_use]
    pub const fn count_by_path(&self) -> bool {
        matches!(Counted::under(self), Counted::Path | Counted::Work)
    }
}

const _: () = assert!(size_of::<Charge>() <= 32);

impl Charge {
    /// Charged nothing; returning it changes nothing.
    pub const NONE: Charge = Charge {
        start_ns: 0,
        flight: Flight::NONE,
        bytes: 0,
        epoch: 0,
        op: OpClass::Other,
        counted: Counted::Nothing,
    };

    /// Notes the policy epoch (a number that the owner of the policy raises at each switch), so
    /// that a sample taken under an earlier policy can be told from a current one.
    #[inline]
    #[must_use]
    pub const fn in_epoch(self, epoch: u16) -> Charge {
        Charge { epoch, ..self }
    }

    /// When the command was started, in the caller's nanoseconds.
    #[inline]
    #[must_use]
    pub const fn start_ns(self) -> u64 {
        self.start_ns
    }

    /// How long the command has taken at `now_ns`; zero when that lies before its start.
    #[inline]
    #[must_use]
    pub const fn elapsed_ns(self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.start_ns)
    }

    /// Payload bytes of the command.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.bytes
    }

    /// Its class.
    #[inline]
    #[must_use]
    pub const fn op(self) -> OpClass {
        self.op
    }

    /// The epoch noted with [`Charge::in_epoch`].
    #[inline]
    #[must_use]
    pub const fn epoch(self) -> u16 {
        self.epoch
    }

    /// Whether a counter was raised for this command.
    #[inline]
    #[must_use]
    pub const fn counts(self) -> bool {
        !matches!(self.counted, Counted::Nothing)
    }

    /// Whether the command is a probe ([`start_probe`](crate::start_probe)): no user waits for it.
    #[inline]
    #[must_use]
    pub const fn is_probe(self) -> bool {
        matches!(self.counted, Counted::Probe)
    }

    /// Whether it was work of the path under `finish-time`: what is not, is not delivered either.
    #[inline]
    pub(crate) const fn is_work(self) -> bool {
        matches!(self.counted, Counted::Work | Counted::Probe)
    }

    /// What the path had done when it was started under `finish-time`.
    #[inline]
    pub(crate) const fn flight(self) -> Option<Flight> {
        if matches!(self.counted, Counted::Work | Counted::Probe | Counted::Disk) {
            Some(self.flight)
        } else {
            None
        }
    }

    /// Takes the charge out of a command, which then has nothing to return any more.
    #[inline]
    #[must_use]
    pub const fn take(&mut self) -> Charge {
        core::mem::replace(self, Charge::NONE)
    }
}

impl Default for Charge {
    fn default() -> Self {
        Charge::NONE
    }
}

/// Charges a command of `bytes` payload bytes to the path that it starts on.
///
/// Only what the policy in force reads is counted. By default the host charges when it selects, so
/// that the commands of one batch already see each other; in kernel-exact mode when the request
/// starts on the path ([`Parameters::charged_at_start`]).
#[inline(always)]
#[must_use = "the charge must be returned when the command ends"]
pub fn start(
    parameters: &Parameters,
    load: Load<'_>,
    op: OpClass,
    bytes: u32,
    now_ns: u64,
) -> Charge {
    let counted = Counted::under(parameters);
    let mut flight = Flight::NONE;
    match counted {
        Counted::Nothing => {}
        Counted::Controller => load.controller.commands().started(),
        Counted::Path => load.shared.commands().started(),
        Counted::QueuePair => {
            load.workers[usize::from(load.queue)].queue().started();
            flight = Flight::on_queue(load.queue);
        }
        Counted::Worker => load.workers[usize::from(load.worker)].worker().started_alone(),
        Counted::Bytes => load.controller.bytes_started(bytes),
        Counted::Work | Counted::Probe | Counted::Disk => {
            let worker = &load.workers[usize::from(load.worker)];
            flight = work_started(worker, load.shared, load.lane, op, bytes, now_ns);
        }
    }
    Charge { start_ns: now_ns, flight, bytes, epoch: 0, op, counted }
}

/// Charges a flush, zeroes or a deallocation. They move next to nothing, and how long they take is
/// the disk's affair: under `finish-time` each is a command of the worker, but no work of the path.
/// As work it would be waited for, its time be the path's rate, and a path that has nothing else in
/// flight be taken for silent until the disk is done.
#[must_use = "the charge must be returned when the command ends"]
pub fn start_on_disk(parameters: &Parameters, load: Load<'_>, bytes: u32, now_ns: u64) -> Charge {
    let op = OpClass::Other;
    if parameters.policy != Policy::FinishTime {
        return start(parameters, load, op, bytes, now_ns);
    }
    load.workers[usize::from(load.worker)].worker().started_alone();
    let (flight, counted) = (Flight::NONE, Counted::Disk);
    Charge { start_ns: now_ns, flight, bytes, epoch: 0, op, counted }
}

/// What `finish-time` counts. Not inlined: every other policy would carry it.
#[inline(never)]
fn work_started(
    worker: &WorkerLedger,
    shared: &Shared,
    lane: &Lane,
    op: OpClass,
    bytes: u32,
    now_ns: u64,
) -> Flight {
    worker.worker().started_alone();
    shared.forecast().started(lane, op, units(bytes), now_ns)
}

/// Charges a probe of `finish-time`.
#[inline]
pub(crate) fn of_probe(load: Load<'_>, bytes: u32, now_ns: u64) -> Charge {
    let worker = &load.workers[usize::from(load.worker)];
    let (op, counted) = (OpClass::Read, Counted::Probe);
    let flight = work_started(worker, load.shared, load.lane, op, bytes, now_ns);
    Charge { start_ns: now_ns, flight, bytes, epoch: 0, op, counted }
}

/// Returns a charge to the path it was made on, whatever the policy, the path's condition and the
/// queue pair of this worker are by now, and whether the command ended well or not.
#[inline]
pub fn finish<'a>(charge: Charge, ledgers: impl Into<Ledgers<'a>>) {
    let load = ledgers.into();
    match charge.counted {
        Counted::Nothing => {}
        Counted::Controller => load.controller.commands().ended(),
        Counted::Path => load.shared.commands().ended(),
        Counted::QueuePair => load.workers[usize::from(charge.flight.queue())].queue().ended(),
        Counted::Worker => load.workers[usize::from(load.worker)].worker().ended_alone(),
        Counted::Bytes => load.controller.bytes_ended(charge.bytes),
        Counted::Work | Counted::Probe => {
            let worker = &load.workers[usize::from(load.worker)];
            work_ended(worker, load.shared, load.lane, charge);
        }
        Counted::Disk => load.workers[usize::from(load.worker)].worker().ended_alone(),
    }
}

/// Takes away what [`work_started`] has added.
#[inline(never)]
fn work_ended(worker: &WorkerLedger, shared: &Shared, lane: &Lane, charge: Charge) {
    worker.worker().ended_alone();
    shared.forecast().ended(lane, charge.op, units(charge.bytes));
}
