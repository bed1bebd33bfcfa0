//! What the policy believes, to be shown.

use super::directions::place;
use super::elasticity::INELASTIC;
use super::forecast::Forecast;
use super::in_flight::Ahead;
use super::overflow::toll_ns;
use super::select::{Incoming, finish_ns, silence_ns, unheard_ms};
use super::spill::standing_ns;
use super::unit::{RATE_SHIFT, UNIT_BYTES, in_flight_bytes, ns, units};
use super::{FinishTimeParameters, STALE_MS};
use crate::{Load, OpClass, SizeClass};
use core::sync::atomic::Ordering::Relaxed;

/// What is shown as a prediction when no size is given.
const SMALL_BYTES: u32 = 4096;

/// What `finish-time` knows about one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishTimeReport {
    /// Something is known.
    pub measured: bool,
    /// What the path delivers when it is busy, bytes per second, 4 KiB per command counted with
    /// them; 0 when it is not known.
    pub rate_bytes_per_s: u64,
    /// There never was a queue at that rate: the path delivers at least so much, and is taken to
    /// deliver twice as much.
    pub rate_is_least: bool,
    /// The same of reads and of writes, each in its own direction of the link, where that predicts
    /// better than one rate for both.
    pub apart_bytes_per_s: Option<[u64; 2]>,
    /// What is in flight, bytes, 4 KiB per command counted with them.
    pub in_flight_bytes: u64,
    /// Unqueued latency of reads and of writes by size class, ns; 0 when it is not known.
    pub base_ns: [[u64; SizeClass::COUNT]; 2],
    /// When a read of 4 KiB would be done if it were sent now, ns; 0 when it is not known.
    pub finish_ns: u64,
    /// What commands that took far longer than was predicted cost, on the average of all, ns; it
    /// is a part of every prediction.
    pub outliers_ns: u64,
    /// The least that a command of late waited beyond its base latency, ns.
    pub standing_ns: u64,
    /// What a queue that stands there costs on top in an open load, so that commands that would be
    /// done there first may go to a farther path, ns.
    pub toll_ns: u64,
    /// By how many per cent latencies grow when one hundred per cent more is in flight, 0 to 100;
    /// none while about the same is always in flight.
    pub elasticity_percent: Option<u8>,
    /// For how long the path has not answered although all that is in flight should have been done
    /// by now, ns; 0: it answers, or there is just as much in flight.
    pub silent_ns: u64,
    /// Probes that were sent.
    pub probes: u64,
    /// Payload bytes that they asked for.
    pub probe_bytes: u64,
}

/// What the policy knows about a path.
#[cold]
#[must_use]
pub fn finish_time_report(load: Load<'_>, now_ns: u64) -> FinishTimeReport {
    let forecast = load.shared.forecast();
    let prediction =
        predict(FinishTimeParameters::default(), load, OpClass::Read, SMALL_BYTES, now_ns);
    let small = u64::from(units(SMALL_BYTES));
    let elasticity = forecast.elasticity.of(small, forecast.base.get());
    let base = |op| {
        let mut row = [0; SizeClass::COUNT];
        for class in SizeClass::all() {
            row[class.index()] = u64::from(forecast.of(op, class).latency.get());
        }
        row
    };
    let measured = forecast.pace.get() != 0;
    FinishTimeReport {
        measured,
        rate_is_least: measured && forecast.proven.get() == 0,
        rate_bytes_per_s: rate_bytes_per_s(forecast.pace.get()).unwrap_or(0),
        apart_bytes_per_s: forecast
            .paces_apart(OpClass::Read)
            .map(|paces| paces.map(|pace| rate_bytes_per_s(pace).unwrap_or(0))),
        in_flight_bytes: load.in_flight_work(),
        base_ns: [base(OpClass::Read), base(OpClass::Write)],
        finish_ns: prediction.finish_ns,
        outliers_ns: forecast.outliers.get().into(),
        standing_ns: match load.work() {
            // As commands that come will see it.
            0 if forecast.has_been_idle(now_ns) => 0,
            _ => standing_ns(forecast),
        },
        toll_ns: toll_ns(forecast, load.work(), Incoming::new(OpClass::Read, SMALL_BYTES, now_ns)),
        // At most 100.
        elasticity_percent: elasticity.map(|of| (of * 100 / INELASTIC) as u8),
        silent_ns: prediction.silent_ns,
        probes: forecast.probes.load(Relaxed),
        probe_bytes: forecast.probe_bytes.load(Relaxed),
    }
}

/// What stands for one path in a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prediction {
    /// ns; 0 when nothing is known.
    pub(crate) finish_ns: u64,
    /// Of this op and size, ns; 0 when it is not known.
    pub(crate) base_ns: u64,
    /// In flight, bytes, 4 KiB per command counted with them; where reads and writes are predicted
    /// apart, those of the direction that is done last.
    pub(crate) in_flight_bytes: u64,
    /// Bytes per second, of the same; 0 when it is not known.
    pub(crate) rate_bytes_per_s: u64,
    /// For how long the path has been silent, ns, when that is what is predicted; 0 when it is not.
    pub(crate) silent_ns: u64,
    /// For how long nothing has ended there, ns, when a write therefore goes anywhere else that it
    /// can; 0 when it does not.
    pub(crate) unheard_ns: u64,
}

/// What is expected of such a command.
pub(crate) fn predict(
    parameters: FinishTimeParameters,
    load: Load<'_>,
    op: OpClass,
    bytes: u32,
    now_ns: u64,
) -> Prediction {
    let forecast = load.shared.forecast();
    let incoming = Incoming::new(op, bytes, now_ns);
    let ahead = Ahead::of(load.lane, forecast);
    let silent_ns = if ahead.units == 0 { 0 } else { silence_ns(forecast, now_ns) };
    let (work, pace) =
        done_last(forecast, load, incoming).unwrap_or((load.work(), forecast.pace.get()));
    let in_flight_bytes = in_flight_bytes(work);
    let Some(rate_bytes_per_s) = rate_bytes_per_s(pace) else {
        let (finish_ns, base_ns, rate_bytes_per_s, unheard_ns) = (0, 0, 0, 0);
        return Prediction {
            finish_ns,
            base_ns,
            in_flight_bytes,
            rate_bytes_per_s,
            silent_ns,
            unheard_ns,
        };
    };
    let finish = finish_ns(forecast, ahead, incoming);
    let unheard_ms = unheard_ms(forecast, now_ns);
    let kept_away = op == OpClass::Write && parameters.probes && unheard_ms > STALE_MS;
    Prediction {
        finish_ns: finish.max(silent_ns),
        base_ns: forecast.base_ns(op, incoming.class).into(),
        in_flight_bytes,
        rate_bytes_per_s,
        // Quiet for less than its queue takes: that is no silence to anybody who looks.
        silent_ns: if silent_ns > finish { silent_ns } else { 0 },
        unheard_ns: if kept_away { ns(unheard_ms) } else { 0 },
    }
}

/// Where reads and writes are predicted apart, the direction that is done last: what is in flight
/// there, in units, and its pace.
fn done_last(forecast: &Forecast, load: Load<'_>, incoming: Incoming) -> Option<(u64, u32)> {
    let [own_pace, other_pace] = forecast.paces_apart(incoming.op)?;
    let at = place(incoming.op);
    let all = load.lane.in_flight(forecast);
    let [own, other] = [all[at].units(), all[1 - at].units()];
    let own_ns = forecast.queued_at_ns(own_pace, own + incoming.units);
    let is_other = forecast.queued_at_ns(other_pace, other) > own_ns;
    Some(if is_other { (other, other_pace) } else { (own, own_pace) })
}

/// The rate at this pace; none when there is none.
fn rate_bytes_per_s(pace: u32) -> Option<u64> {
    let per_second = (u64::from(UNIT_BYTES) * 1_000_000_000) << RATE_SHIFT;
    per_second.checked_div(u64::from(pace))
}
