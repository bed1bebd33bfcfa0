//! The truth table of policies and ANA states, over real TCP.

use crate::ana_table::{Case, cases};
use crate::stand::{SUBSYSTEM, Stand, WORKERS, reads};
use anabranch_lab::load::Job;
use anabranch_policy::Policy;

/// Reads of each worker: more than a cycle of credits of `latency`.
const READS: u64 = 400;
/// At once on each worker.
const DEPTH: u32 = 16;

/// Reads do not end all at once: then every path would be idle when the next one is chosen, and
/// kernel-exact policies would go on with the first in the list.
const SHAPE: &str = "delay=300us,jitter=250us";

/// Without a usable path: nothing ends until there is one.
fn waits(stand: &Stand, job: &Job, case: &Case) {
    let before = stand.head();
    stand.start(job);
    let waiting = before.requeued_no_usable_path + u64::from(DEPTH) * WORKERS;
    stand.wait("requests that wait", |stand| {
        (stand.head().requeued_no_usable_path >= waiting).then_some(())
    });
    let head = stand.head();
    assert_eq!(head.requests, before.requests, "{}: none has ended well", case.policy);
    assert_eq!(head.errors, before.errors, "{}: none has failed", case.policy);
    stand.ana(&["optimized", "inaccessible"]);
    stand.await_requests(READS * WORKERS);
    stand.stop();
}

fn check(stand: &Stand, case: &Case) {
    let job = reads(&[4096], DEPTH, Some(READS));
    stand.set(SUBSYSTEM, "kernel_exact", if case.kernel_exact { "1" } else { "0" });
    stand.set(SUBSYSTEM, "iopolicy", case.policy);
    for cell in &case.cells {
        stand.ana(&cell.ana);
        let before = stand.completed();
        if cell.used == [false; 2] {
            waits(stand, &job, case);
            continue;
        }
        stand.run(&job);
        let after = stand.completed();
        let counts = [0, 1].map(|path| after[path] - before[path]);
        assert_eq!(counts.iter().sum::<u64>(), READS * WORKERS, "{}", case.policy);
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
fn each_policy_uses_the_paths_that_the_table_says() {
    let stand = Stand::new(&[SHAPE; 2], 128);
    for case in cases(&Policy::ALL.map(Policy::name)) {
        check(&stand, &case);
    }
    stand.finish();
}
