//! `latency`: weights are what the formula makes of the measured latencies, and selections follow
//! the weights.

use crate::size_buckets::settle;
use crate::stand::{HEAD, SUBSYSTEM, Stand, WORKERS, reads};

const SMALL: u32 = 4 << 10;
/// The weights of a group add up to about this much.
const SCALE: u64 = 128;

/// What one worker has measured about the reads of one path.
#[derive(Clone, Copy, Debug)]
struct Measured {
    weight: u64,
    score: u64,
    smoothed_ns: u64,
    selected: u64,
    samples: u64,
}

/// `latency_stat` of the head: per worker, per path.
fn measured(stand: &Stand) -> Vec<Vec<Measured>> {
    let text = stand.get(HEAD, "latency_stat");
    let mut workers: Vec<Vec<Measured>> = vec![Vec::new(); WORKERS as usize];
    let mut worker = 0;
    for line in text.lines() {
        let Some(line) = line.strip_prefix("cpu ") else {
            worker = 0;
            continue;
        };
        let (_, numbers) = line.split_once(':').expect("cpu N : NUMBERS");
        let number = |text: &str| text.parse().expect("a number");
        let numbers: Vec<u64> = numbers.split_whitespace().map(number).collect();
        let [weight, _credit, score, smoothed_ns, selected, samples, _ignored, ..] = numbers[..]
        else {
            panic!("{line}");
        };
        workers[worker].push(Measured { weight, score, smoothed_ns, selected, samples });
        worker += 1;
    }
    workers
}

#[test]
fn l1_weights_follow_the_latencies_and_selections_the_weights() {
    let stand = Stand::new(&["delay=2ms", "delay=20ms"], 128);
    stand.set(SUBSYSTEM, "iopolicy", "latency");
    settle(&stand, &[SMALL]);
    let before = measured(&stand);
    for paths in &before {
        let total: u64 = paths.iter().map(|path| path.score).sum();
        for path in paths {
            assert!(path.samples > 0, "{path:?}");
            assert_eq!(path.score, 1_000_000_000 / path.smoothed_ns, "{path:?}");
            assert_eq!(path.weight, (path.score * SCALE / total).max(1), "{paths:?}");
        }
        assert!(paths[0].weight > paths[1].weight, "the path without delay is better: {paths:?}");
    }
    let completed = stand.completed();
    let count = 1500;
    stand.run(&reads(&[SMALL], 16, Some(count)));
    let after = measured(&stand);
    let mut selected = [0; 2];
    for (before, after) in before.iter().zip(&after) {
        let cycle: u64 = before.iter().map(|path| path.weight).sum();
        for (path, (before, after)) in before.iter().zip(after).enumerate() {
            assert_eq!(before.weight, after.weight, "weights stood still");
            let times = after.selected - before.selected;
            let share = count * before.weight / cycle;
            assert!(times.abs_diff(share) <= before.weight, "{times}, not {share}: {after:?}");
            selected[path] += times;
        }
    }
    let carried: Vec<u64> =
        stand.completed().iter().zip(completed).map(|(after, before)| after - before).collect();
    assert_eq!(carried, selected, "what was selected is what was carried");
    stand.finish();
}
