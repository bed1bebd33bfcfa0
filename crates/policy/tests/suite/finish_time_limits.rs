//! `finish-time` at the limits of its numbers, and what it does not learn.

use crate::support::{Path, Random, paths};
use anabranch_policy::{
    Charge, FinishTimeReport, OpClass, Parameters, Policy, Sampled, Selector, finish,
    finish_time_report, overdue_at_ns, rejoined, reset_statistics, sample, start, start_on_disk,
    start_probe,
};

const HOUR: u64 = 3_600_000_000_000;
const TIMES: [u64; 9] =
    [0, 1, u32::MAX as u64, 1 << 32, HOUR, 1 << 52, u64::MAX / 2, u64::MAX - 1, u64::MAX];
const SIZES: [u32; 8] = [0, 1, 511, 512, 4096, 1 << 20, u32::MAX - 1, u32::MAX];

fn parameters() -> Parameters {
    Parameters::of(Policy::FinishTime)
}

fn report(path: &Path, now_ns: u64) -> FinishTimeReport {
    finish_time_report(path.load(), now_ns)
}

/// Ends what was charged, well.
fn end(path: &Path, charge: Charge, now_ns: u64) -> Sampled {
    finish(charge, path.load());
    sample(&parameters(), charge, path.load(), 2, now_ns)
}

#[test]
fn any_number_at_any_time_is_survived() {
    let mut random = Random::seeded();
    for _ in 0..if cfg!(miri) { 3 } else { 300 } {
        let table = paths("ooo");
        let mut selector = Selector::new();
        let mut flying: Vec<(usize, Charge)> = Vec::new();
        for _ in 0..if cfg!(miri) { 60 } else { 600 } {
            let now_ns = match random.below(3) {
                0 => TIMES[random.below(TIMES.len())],
                1 => random.next(),
                _ => random.next() % (10 * HOUR),
            };
            let bytes = SIZES[random.below(SIZES.len())];
            match random.below(8) {
                0..4 => {
                    let op = OpClass::ALL[random.below(3)];
                    let choice = selector.select(&parameters(), &table, op, bytes, now_ns);
                    let index = choice.expect("all are usable").index;
                    let load = table[index].load();
                    flying.push((index, start(&parameters(), load, op, bytes, now_ns)));
                    if let Some(probe) = selector.take_probe() {
                        let charge = start_probe(table[probe].load(), bytes, now_ns);
                        flying.push((probe, charge));
                    }
                }
                4..7 if !flying.is_empty() => {
                    let (index, charge) = flying.swap_remove(random.below(flying.len()));
                    end(&table[index], charge, now_ns);
                }
                _ => {
                    let path = &table[random.below(3)];
                    report(path, now_ns);
                    match random.below(20) {
                        0 => rejoined(&parameters(), path.load()),
                        1 => reset_statistics(path.load()),
                        _ => {}
                    }
                }
            }
        }
        for (index, charge) in flying {
            finish(charge, table[index].load());
        }
        assert!(table.iter().all(Path::is_idle));
    }
}

#[test]
fn many_huge_commands_in_flight_do_not_overflow() {
    let table = paths("oo");
    let mut selector = Selector::new();
    let count = if cfg!(miri) { 100 } else { 5000 };
    let mut flying = Vec::new();
    for now_ns in 0..count {
        let choice = selector.select(&parameters(), &table, OpClass::Write, u32::MAX, now_ns);
        let index = choice.expect("a path").index;
        let charge = start(&parameters(), table[index].load(), OpClass::Write, u32::MAX, now_ns);
        flying.push((index, charge));
    }
    let in_flight: u64 = table.iter().map(|path| report(path, count).in_flight_bytes).sum();
    assert!(in_flight >= count * u64::from(u32::MAX));
    for (place, (index, charge)) in flying.into_iter().enumerate() {
        end(&table[index], charge, u64::MAX / 5000 * place as u64);
        selector.select(&parameters(), &table, OpClass::Read, u32::MAX, u64::MAX);
    }
    assert!(table.iter().all(Path::is_idle));
}

#[test]
fn what_fails_teaches_nothing() {
    let table = paths("o");
    let path = &table[0];
    let began = |now_ns| start(&parameters(), path.load(), OpClass::Read, 4096, now_ns);
    for round in 0..10 {
        let charge = began(round * 1_000_000);
        assert_eq!(end(path, charge, round * 1_000_000 + 80_000), Sampled::Taken);
    }
    let known = report(path, 20_000_000);
    assert!(known.measured && known.base_ns[0][0] == 80_000);
    for round in 0..100 {
        // At once, and after seconds.
        finish(began(10_000_000 + round), path.load());
    }
    assert_eq!(report(path, 20_000_000), known);
    // A failed probe counts as one, and that is all.
    finish(start_probe(path.load(), 4096, 20_000_000), path.load());
    let failed = FinishTimeReport { probes: 1, probe_bytes: 4096, ..known };
    assert_eq!(report(path, 20_000_000), failed);
}

#[test]
fn a_probe_is_charged_as_a_read_and_returned_like_any_command() {
    let table = paths("o");
    let path = &table[0];
    let charge = start_probe(path.load(), 65_536, 5);
    assert_eq!((charge.op(), charge.is_probe(), charge.bytes()), (OpClass::Read, true, 65_536));
    assert!(!path.is_idle());
    assert_eq!(end(path, charge, 100_005), Sampled::Taken);
    assert!(path.is_idle());
    let report = report(path, 100_005);
    assert_eq!(report.base_ns[0].iter().max(), Some(&100_000));
    assert_eq!(report.base_ns[1], [0; 8], "nothing about writes");
}

#[test]
fn a_path_that_rejoins_is_measured_anew_and_keeps_its_books() {
    let table = paths("o");
    let path = &table[0];
    let before = start(&parameters(), path.load(), OpClass::Read, 4096, 0);
    let other = start(&parameters(), path.load(), OpClass::Read, 4096, 0);
    end(path, other, 50_000);
    assert!(report(path, 60_000).measured);
    rejoined(&parameters(), path.load());
    rejoined(&parameters(), path.load());
    let forgotten = report(path, 60_000);
    assert!(!forgotten.measured && forgotten.base_ns == [[0; 8]; 2]);
    assert_eq!(forgotten.in_flight_bytes, 8192);
    finish(before, path.load());
    assert!(path.is_idle());
}

#[test]
fn what_was_forgotten_is_not_shown() {
    const MS: u64 = 1_000_000;
    let table = paths("o");
    let path = &table[0];
    for (at_ns, latency_ns) in [(0, MS / 10), (MS, MS * 3 / 10), (2 * MS, MS * 3 / 10)] {
        let charge = start(&parameters(), path.load(), OpClass::Read, 4096, at_ns);
        end(path, charge, at_ns + latency_ns);
    }
    assert!(report(path, MS * 24 / 10).standing_ns > 0, "every command of late has waited");
    rejoined(&parameters(), path.load());
    let forgotten = report(path, 3 * MS);
    let shown = (forgotten.measured, forgotten.rate_bytes_per_s, forgotten.finish_ns);
    assert_eq!((shown, forgotten.standing_ns), ((false, 0, 0), 0));
}

/// Nobody predicts how long a flush takes.
#[test]
fn a_flush_that_takes_long_makes_no_path_forgotten() {
    const MS: u64 = 1_000_000;
    let table = paths("o");
    let path = &table[0];
    for round in 0..10 {
        let read = start(&parameters(), path.load(), OpClass::Read, 4096, round * MS);
        end(path, read, round * MS + MS / 10);
    }
    let known = report(path, HOUR);
    let flush = start(&parameters(), path.load(), OpClass::Other, 0, HOUR);
    assert_eq!(end(path, flush, HOUR + 200 * MS), Sampled::Nothing);
    assert_eq!(report(path, HOUR + 200 * MS), known);
}

/// 50 ms, or eight times what was predicted, after the path's last word.
#[test]
fn flushes_beside_writes_make_no_path_look_faster() {
    let rate = |flushes: bool| {
        let table = paths("o");
        let path = &table[0];
        let mut flying = std::collections::VecDeque::new();
        for turn in 0..400 {
            let now_ns = turn * 100_000;
            flying.push_back(start(&parameters(), path.load(), OpClass::Write, 4096, now_ns));
            if flushes {
                let flush = start_on_disk(&parameters(), path.load(), 0, now_ns);
                end(path, flush, now_ns + 50_000);
            }
            // Four are in flight, and one ends each 100 us.
            if flying.len() > 4 {
                end(path, flying.pop_front().expect("five"), now_ns + 50_000);
            }
        }
        report(path, 400 * 100_000).rate_bytes_per_s
    };
    let (without, with) = (rate(false), rate(true));
    assert!(without > 0 && with <= without + without / 10, "{with} beside {without}");
}

#[test]
fn what_is_in_flight_on_a_silent_path_is_overdue() {
    const MS: u64 = 1_000_000;
    let cases = [(MS / 10, 50 * MS), (20 * MS, 160 * MS), (500 * MS, 1_500 * MS)];
    for (base_ns, patience_ns) in cases {
        let table = paths("o");
        let path = &table[0];
        let begin = |now_ns| start(&parameters(), path.load(), OpClass::Read, 4096, now_ns);
        let first = begin(0);
        assert_eq!(overdue_at_ns(path.load()), Some(1_000 * MS), "nothing is known of the path");
        end(path, first, base_ns);
        assert_eq!(overdue_at_ns(path.load()), None, "nothing is in flight");
        let (other, last) = (begin(HOUR), begin(HOUR));
        let due_ns = overdue_at_ns(path.load()).expect("two are in flight");
        // Two at the pace of one are as much longer as they are more.
        assert!((HOUR + patience_ns..=HOUR + 2 * patience_ns).contains(&due_ns), "{due_ns}");
        let answer_ns = HOUR + base_ns;
        end(path, other, answer_ns);
        assert_eq!(overdue_at_ns(path.load()), Some(answer_ns + patience_ns), "it answers");
        // What comes later than that is from another path than the one that was known.
        assert_eq!(end(path, last, answer_ns + patience_ns + MS), Sampled::TooLong);
    }
}

/// The first answer of a path that stood still says that it is a far one; those that follow do not,
/// but how long its answers take at most is forgotten slowly.
#[test]
fn an_answer_that_was_late_makes_patience_a_second_longer_at_most() {
    const MS: u64 = 1_000_000;
    let table = paths("o");
    let path = &table[0];
    let begin = |now_ns| start(&parameters(), path.load(), OpClass::Read, 4096, now_ns);
    end(path, begin(0), 900 * MS);
    for n in 1..=8 {
        end(path, begin(HOUR + n * MS), HOUR + n * MS + MS / 10);
    }
    begin(HOUR + 9 * MS);
    let due_ns = overdue_at_ns(path.load()).expect("one is in flight") - (HOUR + 9 * MS);
    assert!((900 * MS..=1_900 * MS).contains(&due_ns), "{due_ns}");
}

#[test]
fn what_answers_after_a_long_silence_is_measured_anew() {
    const MS: u64 = 1_000_000;
    let table = paths("o");
    let path = &table[0];
    let begin = |now_ns| start(&parameters(), path.load(), OpClass::Read, 4096, now_ns);
    for round in 0..10 {
        end(path, begin(round * MS), round * MS + MS / 10);
    }
    assert_eq!(end(path, begin(HOUR), HOUR + 49 * MS), Sampled::Taken);
    let known = report(path, HOUR + 49 * MS);
    assert!(known.measured && known.base_ns[0][0] > 0);
    let [first, second] = [begin(2 * HOUR), begin(2 * HOUR)];
    assert_eq!(end(path, first, 2 * HOUR + 500 * MS), Sampled::TooLong);
    let forgotten = report(path, 2 * HOUR + 500 * MS);
    assert!(!forgotten.measured && forgotten.base_ns == [[0; 8]; 2], "{forgotten:?}");
    // What was on its way meanwhile says nothing.
    assert_eq!(end(path, second, 2 * HOUR + 501 * MS), Sampled::Nothing);
    assert!(!report(path, 2 * HOUR + 501 * MS).measured);
    // Nor does what is on its way while the clock goes back, but what follows does.
    assert_eq!(end(path, begin(HOUR), HOUR + MS), Sampled::Nothing);
    assert_eq!(end(path, begin(HOUR + MS), HOUR + 2 * MS), Sampled::Taken);
    assert_eq!(report(path, HOUR + 2 * MS).base_ns[0][0], MS);
}

#[test]
fn what_scatters_whatever_is_in_flight_makes_no_rate_lower_unless_by_far() {
    const MS: u64 = 1_000_000;
    let table = paths("o");
    let path = &table[0];
    let begin = |now_ns: u64, count: u64| -> Vec<Charge> {
        let begin = |_| start(&parameters(), path.load(), OpClass::Read, 4096, now_ns);
        (0..count).map(begin).collect()
    };
    let end_all = |charges: Vec<Charge>, now_ns: u64| {
        charges.into_iter().for_each(|charge| _ = end(path, charge, now_ns));
    };
    let round = |now_ns: u64, count: u64, latency_ns: u64| {
        end_all(begin(now_ns, count), now_ns + latency_ns);
    };
    let rate = || report(path, HOUR).rate_bytes_per_s;
    // A cable: as long, however many there are.
    (0..400).for_each(|turn| round(HOUR + turn * MS, 1 + turn * 7 % 32, MS));
    assert_eq!(report(path, HOUR).elasticity_percent, Some(0));
    let known = rate();
    round(HOUR + 400 * MS, 1, 2 * MS);
    assert_eq!(rate(), known, "twice as long is no queue there");
    // More than sixteen times as long, not one alone, and while others end.
    let late = begin(HOUR + 403 * MS, 3);
    (403..443).for_each(|turn| round(HOUR + turn * MS, 1, MS));
    end_all(late, HOUR + 444 * MS);
    assert!(rate() < known, "{}, {known} before", rate());
}

/// Another worker's writes hang in its connection: that they took long says nothing of the path.
#[test]
fn what_was_sent_before_a_young_answer_ended_a_silence_teaches_nothing() {
    const MS: u64 = 1_000_000;
    let table = paths("o");
    let path = &table[0];
    let begin = |op, now_ns| start(&parameters(), path.load(), op, 4096, now_ns);
    let mut now_ns = 1_000 * MS;
    for _ in 0..100 {
        end(path, begin(OpClass::Read, now_ns), now_ns + MS / 10);
        end(path, begin(OpClass::Write, now_ns + MS / 2), now_ns + MS / 2 + MS / 10);
        now_ns += MS;
    }
    let stuck: Vec<_> = (0..8).map(|_| begin(OpClass::Write, now_ns)).collect();
    now_ns += 350 * MS;
    for _ in 0..1000 {
        end(path, begin(OpClass::Read, now_ns), now_ns + MS / 10);
        now_ns += MS / 2;
    }
    let known = report(path, now_ns);
    assert!(known.measured);
    for charge in stuck {
        end(path, charge, now_ns);
    }
    let after = report(path, now_ns);
    assert_eq!((after.base_ns, after.outliers_ns), (known.base_ns, known.outliers_ns));
    assert_eq!(after.rate_bytes_per_s, known.rate_bytes_per_s);
}
