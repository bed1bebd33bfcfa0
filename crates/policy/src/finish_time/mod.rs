//! `finish-time`: the path on which this command will be done first. It needs no weights.
//!
//! Source: our own. The prediction is that of multipath transports (ECF: what is under way by the
//! rate, or the round trip), the rate is measured as BBR measures it, the standing queue is
//! CoDel's.
//!
//! # State, per path, shared by all workers ([`Forecast`])
//!
//! A command counts as many *units* as its payload has 512-byte blocks, and 8 more for itself;
//! what waits for the disk, as a flush, has none ([`start_on_disk`](crate::start_on_disk)).
//!
//! 1. *Work*: units in flight. *Pace*: time per unit, the reciprocal of the delivery rate; a sample
//!    is the time from the completion before the command's start to its own completion, by all
//!    units that were delivered in between (so completions in bursts do not disturb it). Faster
//!    samples count a quarter (a sixteenth when the latency was more than one and a half times the
//!    base latency), slower ones an eighth, and only when there was a queue: when the latency was
//!    so long, and the elasticity is not known, or a quarter at least, or the latency 16 times as
//!    long. Until a latency was so long for the first time, a path is taken to be twice as fast: it
//!    is let grow.
//! 2. *Base latency*, per op and size class: what a command takes without a queue. It follows
//!    shorter latencies by a quarter (of probes by a half); longer ones by an eighth when hardly
//!    anything else was in flight, by a half when nothing was and none of its kind had ended there
//!    for 5 ms. A command that takes more than four times as long as was predicted is an *outlier*;
//!    one that comes alone moves neither the base latency up nor the pace down (one after another
//!    is a longer way), and what it took too long, 1024 times the base latency at most, is averaged
//!    over 512 commands or so (probes that are none make it fall by a sixteenth). Where a probe
//!    takes less than a third of the base latency of writes of its size, of which none has ended
//!    for 40 ms, that goes half of the way down to it.
//! 3. *Least latency*, of the last 100 to 200 ms, per op and size class.
//! 4. *Least wait* beyond the base latency, of the last two windows; a window is twice the mean
//!    base latency, at least 250 µs. After two windows in which the path had nothing to do there is
//!    none.
//! 5. *Elasticity*: by how many per cent latencies grow when one per cent more is in flight, from
//!    the covariance of the wait of the last commands with the work that each of them found: of
//!    128, or of eight times as many as are in flight, up to 2048 (those of one round trip have
//!    all met the same queue). 0 on a cable, 1 behind a queue that never ends; not known when
//!    about the same was always in flight. As *work / latency* is delivered, a command more adds
//!    *(1 - elasticity) / latency*.
//! 6. *Reads and writes apart*: a link carries both ways at once. The pace of each op is measured
//!    as that of all, of its own units and completions; slower samples count only when the latency
//!    was more than one and a half times the base latency, and what was found in flight of the op
//!    takes half as long again as what was of the other one, or the command took a quarter longer
//!    than that, and was no outlier; and no pace is slower than a command of its op of the last 100
//!    to 200 ms was, with all that it waited for, per unit. Of 256 commands it is averaged by how
//!    much latencies were off what one queue for all that was in flight predicts, and a queue for
//!    each op, by turns (7). Nothing of this is looked at where all went one way.
//!
//! Workers tell each other ([`Lane`]): what one starts and ends, and what it learns, it writes to
//! the words that all read, at once, as long as it ends no more than a command in 2 µs on the path
//! (256 more after a time in which there were fewer). Beyond that it learns from one command in
//! 2 µs, and keeps what it starts and ends to itself for so long, but never more than a quarter of
//! what it has in flight: a worker that has nothing on the path any more has said so. Its own part
//! it always knows exactly. So the words wander between processors once in 2 µs, not with every
//! command: two workers that do nothing but place commands on the same two paths take about 1.4
//! times as long for each as one alone (`cargo bench --bench selection -- flow`; 2.7 times as long,
//! if all were told at once).
//!
//! # Selection
//!
//! 7. The predicted finish: the base latency, or what is in flight and the command itself at the
//!    path's pace, whichever is longer, and what outliers cost on average. Queue pairs may take
//!    turns: then as much is done for each worker that has something there as for this one, and
//!    the path has that to do before; of the difference a quarter counts, and of no more than
//!    twice what is in flight. Where a queue for each op, with the workers that have something in
//!    it, has predicted better than one for all, or worse by less than an eighth, it is what is in
//!    flight of the command's own op with it at the pace of that, or of the other op at the pace of
//!    the other, whichever is longer, a fifth of the way from there to the former.
//!    Otherwise, with at most one command like it in flight, it matters how far the path is with
//!    that one: half a command longer, less the time since its last completion (or since it was
//!    idle), of which no more counts than a command takes. A path that has work and has been
//!    silent for more than twice its longest base latency and 200 µs: at least as long as the
//!    silence.
//! 8. The path with the least predicted finish, of those of the best ANA class (unless `compete`).
//!    Predictions that differ by less than a sixty-fourth (an eighth, between paths whose rates do)
//!    are equal: then the path on which this worker has fewer commands; when it has as many, of
//!    those whose rates do not differ so much the one with less in flight, of all workers; then
//!    the earlier one; turn by turn, when none is earlier.
//! 9. *Spill*, unless `tail`: when the load is closed and that path is busy, the command goes to
//!    the earliest of the other paths that has room and takes less than 16 times as long (4 times,
//!    when nothing is in flight on the nearest; twice, when it is regular, and seen to be elastic).
//!    On a *regular* path what is in flight tells it alone: with more than one command there, and
//!    more than its mean base latency holds and a sixteenth (of fewer than eight, which wait for a
//!    32nd of it on average, seven eighths), it is full, and the command goes to one that has a
//!    command at most, or less than seven eighths of what it holds, if it takes less than 3 times
//!    as long there. A path is regular for a command while latencies are off what the path needs
//!    for all that it does meanwhile, or the base latency, by less than an eighth of the mean base
//!    latency, on average of 32 or so, the base latency of the command is within a quarter of that
//!    mean, and the elasticity is not known or a half at least. Busy: every command of late has
//!    waited there for more than half of its mean base latency, and its elasticity is not known or
//!    nearly 1 (31/32 or more); or it is not known, eight commands like this one are in flight, and
//!    they wait for a quarter on average. Or it is not that certain, and the command must add half
//!    more on the other path than here (where nothing is in flight nobody is made to wait): when
//!    every command has waited so, and the elasticity is a half at least (then half of what it
//!    lacks to 1 is held to be noise); or when commands wait for a quarter of the mean base latency
//!    on average, and the elasticity is a quarter at least (of which no more than 7/8 are
//!    believed). Where eight or more like it are in flight, but with this one no more than the mean
//!    base latency holds and a quarter, nothing is spilled: waits are those of commands that have
//!    ended. (So the least wait counts only in the first half of a window, and the elasticity as 0
//!    where nothing has ended for two windows.) Nor is anything spilled where the path had nothing
//!    to do for a mean base latency in the last two windows: what comes in bursts waits, and leaves
//!    it time. A path has room when a command at most is in flight, or no more than what its base
//!    latency holds, and a sixteenth; and when its base latency is at most four times its least
//!    latency (else the queue is that of others). Where waits do not hang together with the work
//!    (by less than a quarter), and no queue stands, the mean wait counts beside the base latency;
//!    in a closed load also, and however short the least latency, where waits differ from one
//!    command to the next by half of what they are on average or more (and do not hang together, or
//!    shrink with the work by less than three quarters). Where the least latency is more than four
//!    times the base latency, and waits do not hang together with the work (by less than a quarter,
//!    neither way), the way has become longer, and the least latency counts instead. Where this
//!    worker has no tag left on the best path (as far as that is known), the command goes to the
//!    next path that has room and a tag; none spills to a path without one. A load is closed when
//!    the number of commands of the worker in flight varies by less than half of what it would by
//!    chance.
//! 10. *Overflow*: in an open load the nearest path has a *toll*. While more is in flight there
//!     than twice what its mean base latency holds, its elasticity is not known or a half at
//!     least, and another path has room, the toll grows by a sixteenth of the time; while less is,
//!     it falls by all of it. While a queue stands, a command goes to the earliest of the other
//!     paths that have room and answer, if that is earlier than the nearest path and the toll
//!     together. (Who waits in a queue that does not end makes all wait who come later: where each
//!     goes where it is done first, all wait for as long as the next path is away.)
//! 11. A path of which nothing is known comes last (without probes: first, when it is idle), by
//!     what this worker has there, then by what is in flight. None is spilled to.
//! 12. A path that answers a read or a write that it had throughout a silence of more than 50 ms
//!     and eight times what was predicted, or than a second more than that, is forgotten and
//!     measured anew. Where what it answers was sent during the silence, nothing is learned any
//!     more from what was sent before.
//!
//! # Probes
//!
//! 13. Every eighth selection looks for a usable path that has nothing in flight, or on which that
//!     is overdue (15), and where no read of this size class has ended for the *gap*, from the one
//!     behind the path that was looked at last: the command is sent there, too, as a read, and what
//!     it brings is dropped. The gap is 10 ms, doubled up to 160 ms while nothing gets better by an
//!     eighth. Each command earns 1/128 of its bytes for probes; a path of which nothing is known
//!     may be looked at on credit, eight probes deep. When four probes in a row could not be sent,
//!     the command itself goes there; where they are answered with errors it does not.
//! 14. A write goes to a path where nothing has ended for 2 s, or that is overdue, only when there
//!     is no other. Where a probe or a read was answered in the last 50 ms, the write itself is
//!     sent when no write of its size class has ended there for the gap, for eight times its bytes
//!     of what was earned, apart from what is earned for reads. (So where nothing is in flight the
//!     write behind one that was sent as a probe looks, too.)
//!
//! # Rescue
//!
//! 15. What is on a path that has been silent for as long as in 12, or for a second when nothing is
//!     known of it, is overdue ([`overdue_at_ns`]): the caller may place reads that are stuck there
//!     once more, and whatever it has not sent.
//!
//! # Default and kernel-exact
//!
//! The same: the kernel has no such policy.

mod directions;
mod elasticity;
mod flight;
mod forecast;
mod in_flight;
mod lane;
mod learn;
mod outlier;
mod overflow;
mod parameters;
mod probe;
mod recent;
mod regular;
mod report;
mod rescue;
mod select;
mod short;
mod spill;
mod unit;

pub(crate) use flight::Flight;
pub(crate) use forecast::Forecast;
pub use lane::Lane;
pub(crate) use learn::sample;
pub use parameters::FinishTimeParameters;
pub use probe::{probe_failed, start_probe};
pub(crate) use recent::Recent;
pub(crate) use report::predict;
pub use report::{FinishTimeReport, finish_time_report};
pub use rescue::overdue_at_ns;
pub(crate) use select::select;
pub(crate) use unit::{in_flight_bytes, units};

/// How long an unused path is left alone at first, ms.
const FIRST_GAP_MS: u32 = 10;
/// … and at last.
const LAST_GAP_MS: u32 = 160;
/// A write goes only to a path that has been heard of since, ms.
const STALE_MS: u32 = 2000;
/// For how long a probe's answer is good for a write, ms.
const ANSWERED_MS: u32 = 50;
