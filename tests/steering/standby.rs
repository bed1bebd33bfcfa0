//! `service-time`: a path of weight 0 carries nothing while another one lives, and everything when
//! none does. Looked at as in the mail that posted the policy: on the paths' `stat` ("IO split
//! 118052:0, verified via diskstats").

use crate::stand::{SUBSYSTEM, Stand, WORKERS, reads};

/// Reads of each worker.
const READS: u64 = 3000;
const ACTIVE: &str = "nvme0c0n1";
const STANDBY: &str = "nvme0c1n1";

/// Reads that `stat` counts: its first field.
fn stat_reads(stand: &Stand, path: &str) -> u64 {
    let text = stand.get(path, "stat");
    let first = text.split_whitespace().next().expect("fields");
    first.parse().expect("a number")
}

/// How a load is split between the two, by their `stat`.
fn split(stand: &Stand) -> [u64; 2] {
    let before = [ACTIVE, STANDBY].map(|path| stat_reads(stand, path));
    stand.run(&reads(&[4096], 64, Some(READS)));
    let after = [ACTIVE, STANDBY].map(|path| stat_reads(stand, path));
    [0, 1].map(|path| after[path] - before[path])
}

#[test]
fn t2_a_path_of_weight_0_is_used_only_when_no_other_is_left() {
    let stand = Stand::new(&["rate=800mbit", "rate=200mbit"], 128);
    stand.set(SUBSYSTEM, "iopolicy", "service-time");
    stand.set(STANDBY, "relative_throughput", "0");
    let all = READS * WORKERS;
    assert_eq!(split(&stand), [all, 0], "nothing on the standby path");
    stand.ana(&["non-optimized", "optimized"]);
    assert_eq!(split(&stand), [all, 0], "nor when it is the only optimized one");
    stand.ana(&["inaccessible", "optimized"]);
    assert_eq!(split(&stand), [0, all], "it takes over when it is the last one");
    stand.ana(&["optimized", "optimized"]);
    stand.cut(1);
    stand.await_state("nvme1", "connecting");
    stand.restore(1);
    stand.await_live();
    assert_eq!(stand.get(STANDBY, "relative_throughput"), "0", "it is kept over a reconnect");
    assert_eq!(split(&stand), [all, 0]);
    stand.finish();
}
