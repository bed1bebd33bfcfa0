//! The gate on instruction counts: what it lets through and what it stops. The counting itself is
//! `./test.sh instructions`.

#[path = "../../benches/selection/snapshot.rs"]
mod snapshot;

use snapshot::{Count, Snapshot, TOLERANCE_PERCENT};

fn count(name: &str, paths: usize, select: u64, command: u64) -> Count {
    Count { name: name.to_owned(), paths, select, command }
}

fn snapshot() -> Snapshot {
    let counts = vec![count("numa", 2, 10, 40), count("queue-depth/sum", 64, 2000, 3000)];
    Snapshot { compiler: "a compiler".to_owned(), counts }
}

/// What is said when the second case now takes so many instructions.
fn differences(select: u64, command: u64) -> Vec<String> {
    let now = [count("numa", 2, 10, 40), count("queue-depth/sum", 64, select, command)];
    snapshot().differences(&now)
}

#[test]
fn a_count_may_differ_by_the_tolerance_either_way_and_no_more() {
    assert_eq!(TOLERANCE_PERCENT, 15);
    assert_eq!(differences(2300, 2550), [] as [&str; 0]);
    assert_eq!(differences(1700, 3450), [] as [&str; 0]);
    let more =
        "queue-depth/sum, 64 paths, select: 2301 instructions, more than 2000 (tolerance 300)";
    assert_eq!(differences(2301, 3000), [more]);
    let fewer =
        "queue-depth/sum, 64 paths, command: 2549 instructions, fewer than 3000 (tolerance 450)";
    assert_eq!(differences(2000, 2549), [fewer]);
    assert_eq!(differences(1, 1).len(), 2);
}

#[test]
fn a_few_instructions_more_of_a_few_are_let_through() {
    let now = |select| {
        let now = [count("numa", 2, select, 40), snapshot().counts[1].clone()];
        snapshot().differences(&now).len()
    };
    assert_eq!([now(7), now(8), now(12), now(13)], [1, 0, 0, 1]);
}

#[test]
fn a_case_that_joins_or_leaves_asks_for_a_refresh() {
    let now = [snapshot().counts[0].clone(), count("numa", 8, 10, 40)];
    let expected =
        ["numa, 8 paths: not in the snapshot", "queue-depth/sum, 64 paths: in the snapshot alone"];
    assert_eq!(snapshot().differences(&now), expected);
}

#[test]
fn what_is_written_is_read_back() {
    let text = snapshot().text();
    let read = Snapshot::parse(&text).expect("what it wrote");
    assert_eq!((read.compiler, read.counts), (snapshot().compiler, snapshot().counts));
    for line in ["numa 2 10", "numa 2 10 40 1", "numa two 10 40", "numa 2 10 -40"] {
        let why = Snapshot::parse(&format!("{text}{line}\n")).err().expect("a bad line");
        assert!(why.contains(line), "{why}");
    }
}

#[test]
fn the_snapshot_in_the_tree_is_one() {
    let text = include_str!("../../benches/selection/instructions.txt");
    let snapshot = Snapshot::parse(text).expect("a snapshot");
    assert!(snapshot.compiler.starts_with("rustc "), "{}", snapshot.compiler);
    let named = |name| snapshot.counts.iter().filter(|count| count.name == name).count();
    for name in ["numa", "round-robin", "queue-depth", "service-time", "latency"] {
        assert_eq!(named(name), 3, "{name}");
    }
    assert_eq!(snapshot.text(), text, "written by hand?");
}
