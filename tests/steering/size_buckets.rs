//! `latency` with size buckets: they matter where delays depend on the size, and nowhere else.

use crate::stand::{HEAD, SUBSYSTEM, Stand, reads};

const SMALL: u32 = 4 << 10;
const LARGE: u32 = 128 << 10;

/// Runs until the weights stand, then keeps them as they are.
pub(crate) fn settle(stand: &Stand, sizes: &[u32]) {
    stand.set(HEAD, "latency_batch_timeout", "20ms");
    stand.run(&reads(sizes, 16, Some(1000)));
    stand.set(HEAD, "latency_batch_timeout", "1000000");
}

/// Of the small and of the large reads, the part in percent that the second path carries.
fn shares(shapes: [&str; 2], size_buckets: &str) -> [u64; 2] {
    let stand = Stand::new(&shapes, 128);
    stand.set(SUBSYSTEM, "iopolicy", "latency");
    stand.set(HEAD, "latency_size_buckets", size_buckets);
    settle(&stand, &[SMALL, LARGE]);
    let figures = |stand: &Stand| -> Vec<[u64; 2]> {
        let paths = stand.paths();
        paths.iter().map(|path| [path.commands[0], path.bytes[0]]).collect()
    };
    let before = figures(&stand);
    stand.run(&reads(&[SMALL, LARGE], 16, Some(1500)));
    let carried: Vec<[u64; 2]> = figures(&stand)
        .iter()
        .zip(before)
        .map(|(after, before)| {
            let [commands, bytes] = [0, 1].map(|at| after[at] - before[at]);
            let large = (bytes - commands * u64::from(SMALL)) / u64::from(LARGE - SMALL);
            [commands - large, large]
        })
        .collect();
    stand.finish();
    [0, 1].map(|size| 100 * carried[1][size] / (carried[0][size] + carried[1][size]))
}

#[test]
fn l14_size_buckets_matter_where_delay_depends_on_size() {
    let shapes = ["delay=2ms", "delay=2ms,large=64k:50ms"];
    let [apart, large] = shares(shapes, "1");
    println!("with buckets: {apart} % of the small, {large} % of the large reads");
    assert!(apart > 30, "small reads are as quick there: {apart} %");
    assert!(large < 25, "large ones are not: {large} %");
    let [small, large] = shares(shapes, "0");
    println!("without: {small} % of the small, {large} % of the large reads");
    assert!(small.abs_diff(large) <= 10, "one weight for all: {small} % and {large} %");
    // How far depends on how quick the near path is, and so on what else the machine does.
    assert!(small + 10 < apart, "the large ones have spoilt it for the small ones: {small} %");
}

#[test]
fn l14_size_buckets_do_not_matter_on_equal_paths() {
    let shapes = ["delay=2ms,large=64k:20ms"; 2];
    for size_buckets in ["0", "1"] {
        let [small, large] = shares(shapes, size_buckets);
        println!("buckets {size_buckets}: {small} % of the small, {large} % of the large reads");
        for share in [small, large] {
            assert!(share.abs_diff(50) <= 15, "buckets {size_buckets}: {small} %, {large} %");
        }
    }
}
