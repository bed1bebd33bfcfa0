//! `finish-time` where queue pairs take turns: a command waits for its own worker's, and as many of
//! each other worker that has something there.

use crate::support::paths;
use anabranch_policy::{
    Charge, Load, OpClass, Parameters, Policy, finish, finish_time_report, sample, start,
};

const READ_BYTES: u32 = 4096;
const LATENCY_NS: u64 = 100_000;

fn parameters() -> Parameters {
    Parameters::of(Policy::FinishTime)
}

fn begin(load: Load<'_>, now_ns: u64) -> Charge {
    start(&parameters(), load, OpClass::Read, READ_BYTES, now_ns)
}

fn end(load: Load<'_>, charge: Charge, now_ns: u64) {
    finish(charge, load);
    sample(&parameters(), charge, load, 1, now_ns);
}

#[test]
fn a_worker_waits_for_its_own_commands_more_than_for_those_of_others() {
    let path = &paths("o")[0];
    let load = |worker: u16| {
        let lane = &path.lanes[usize::from(worker)];
        Load { lane, worker, queue: worker, ..path.load() }
    };
    let mut now_ns = 1_000_000_000;
    for _ in 0..100 {
        let charge = begin(load(0), now_ns);
        now_ns += LATENCY_NS;
        end(load(0), charge, now_ns);
    }
    let charges: Vec<Charge> = (0..6).map(|_| begin(load(0), now_ns)).collect();

    // A read of 4 KiB is 16 units. The first worker waits for all seven. Of the other's six the
    // second waits for one, its turn, and three quarters of the rest.
    let seen = [0, 1].map(|worker| finish_time_report(load(worker), now_ns).finish_ns);
    let units = [6 * 16 + 16, 16 + 5 * 16 * 3 / 4 + 16];
    assert!(seen[1] > LATENCY_NS, "{seen:?}");
    assert!((seen[0] * units[1]).abs_diff(seen[1] * units[0]) < 1_000, "{seen:?}");

    // Two of the second's: before its third, three of the first are done. The seventh of the first
    // waits for more than there are now, as the second goes on; for twice as many at most.
    let mut others: Vec<Charge> = (0..2).map(|_| begin(load(1), now_ns)).collect();
    let seen = [0, 1].map(|worker| finish_time_report(load(worker), now_ns).finish_ns);
    let units = [8 * 16 + 5 * 16 / 4 + 16, 8 * 16 - 3 * 16 / 4 + 16];
    assert!((seen[0] * units[1]).abs_diff(seen[1] * units[0]) < 1_000, "{seen:?}");

    // As many as the first: then all count, whoever looks.
    others.extend((0..4).map(|_| begin(load(1), now_ns)));
    let seen = [0, 1].map(|worker| finish_time_report(load(worker), now_ns).finish_ns);
    assert_eq!(seen[0], seen[1]);

    for (worker, charges) in [(0, charges), (1, others)] {
        for charge in charges {
            now_ns += LATENCY_NS;
            end(load(worker), charge, now_ns);
        }
    }
    assert!(path.is_idle());
}
