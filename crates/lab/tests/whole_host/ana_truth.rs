//! The truth table of policies and ANA states, in virtual time.

use crate::ana_table::{Case, Cell, cases};
use crate::rig::{MS, Rig, SECOND, Setup, reads};
use anabranch_policy::Policy;
use anabranch_proto::nvme::AnaState;
use core::time::Duration;

/// Reads that each of two workers submits at once: more than a cycle of credits of `latency`.
const READS: u64 = 400;
/// `finish-time` may leave a path alone that was slower when it was looked at last, until it is
/// looked at again: 160 ms at most.
const ROUNDS: u32 = 20;
const BETWEEN: Duration = MS.saturating_mul(10);

/// Commands that ended well on path `a` and path `b`.
fn completed(rig: &mut Rig) -> [u64; 2] {
    [0, 1].map(|port| rig.path(port).commands.iter().sum())
}

fn set_ana(rig: &mut Rig, cell: &Cell) {
    for (port, state) in (0..).zip(cell.ana) {
        let state: AnaState = state.parse().expect("a state of ANA");
        rig.ana(port, state);
    }
    // The host hears of it by an event and reads the log.
    rig.run(10 * MS);
}

fn submit(rig: &mut Rig) -> Vec<u64> {
    (1..=2).flat_map(|worker| rig.submit_to(worker, "nvme0n1", reads(READS))).collect()
}

/// Without a usable path: nothing ends until there is one.
fn waits(rig: &mut Rig, case: &Case) {
    let names = submit(rig);
    rig.run(10 * SECOND);
    assert_eq!(rig.answered(&names), 0, "{}: neither well nor with an error", case.policy);
    rig.ana(0, AnaState::Optimized);
    rig.succeed(&names);
}

/// How many commands each path is given, until all are used.
fn counts(rig: &mut Rig, case: &Case, before: [u64; 2]) -> [u64; 2] {
    let mut counts = [0; 2];
    for round in 1..=ROUNDS {
        let names = submit(rig);
        rig.succeed(&names);
        let after = completed(rig);
        counts = [0, 1].map(|path| after[path] - before[path]);
        let sent = 2 * READS * u64::from(round);
        assert_eq!(counts.iter().sum::<u64>(), sent, "{}", case.policy);
        if !case.policy.starts_with("finish-time") || counts.iter().all(|count| *count > 0) {
            break;
        }
        rig.run(BETWEEN);
    }
    counts
}

fn check(rig: &mut Rig, case: &Case) {
    rig.set("nvme-subsys0", "kernel_exact", if case.kernel_exact { "1" } else { "0" });
    rig.set("nvme-subsys0", "iopolicy", case.policy);
    for cell in &case.cells {
        set_ana(rig, cell);
        let before = completed(rig);
        if cell.used == [false; 2] {
            waits(rig, case);
            continue;
        }
        let counts = counts(rig, case, before);
        assert_eq!(
            counts.map(|count| count > 0),
            cell.used,
            "{} (kernel_exact {}), {:?}: {counts:?} commands",
            case.policy,
            case.kernel_exact,
            cell.ana,
        );
    }
}

#[test]
fn m2_each_policy_uses_the_paths_that_the_table_says() {
    let mut setup = Setup::new(2, 2);
    setup.host.max_requests = 64;
    let mut rig = setup.connect();
    for case in cases(&Policy::ALL.map(Policy::name)) {
        check(&mut rig, &case);
    }
    rig.finish();
}
