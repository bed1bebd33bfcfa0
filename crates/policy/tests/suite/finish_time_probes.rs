//! When `finish-time` asks for probes, and when users' commands take their place.

use crate::support::{Path, Random, paths};
use anabranch_policy::{
    OpClass, Parameters, Policy, Reason, Selector, finish, probe_failed, rejoined, sample, start,
    start_probe,
};

const BYTES: u32 = 4096;
const US: u64 = 1_000;
/// The policy's milliseconds.
const MS: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
/// Selections between two looks.
const EVERY: u32 = 8;

fn parameters() -> Parameters {
    Parameters::of(Policy::FinishTime)
}

/// A command of a user that ends now.
fn ended(path: &Path, op: OpClass, latency_ns: u64, now_ns: u64) {
    let charge = start(&parameters(), path.load(), op, BYTES, now_ns - latency_ns);
    finish(charge, path.load());
    sample(&parameters(), charge, path.load(), 2, now_ns);
}

/// A probe that ends now.
fn probed(path: &Path, latency_ns: u64, now_ns: u64) {
    let charge = start_probe(path.load(), BYTES, now_ns - latency_ns);
    finish(charge, path.load());
    sample(&parameters(), charge, path.load(), 2, now_ns);
}

/// Reads until the worker has looked: where that sends one of them, and where a probe.
fn look(selector: &mut Selector, table: &[Path], now_ns: u64) -> (usize, Option<usize>) {
    let mut next = || {
        let choice = selector.select(&parameters(), table, OpClass::Read, BYTES, now_ns);
        (choice.expect("a path").index, selector.take_probe())
    };
    (0..EVERY).map(|_| next()).find(|&found| found != (0, None)).unwrap_or((0, None))
}

/// How many milliseconds pass until a probe is asked for, by looks every millisecond.
fn pause(selector: &mut Selector, table: &[Path], now_ns: &mut u64) -> u64 {
    let asked = (1..1000).find(|_| {
        *now_ns += MS;
        ended(&table[0], OpClass::Read, 50 * US, *now_ns);
        look(selector, table, *now_ns).1 == Some(1)
    });
    asked.expect("one is asked for")
}

/// A worker that has earned much, and two paths that are known, the second of which is farther.
fn unused() -> (Selector, Vec<Path>, u64) {
    let table = paths("oo");
    let mut selector = Selector::new();
    for _ in 0..4000 {
        selector.select(&parameters(), &table, OpClass::Read, 1 << 20, SECOND);
    }
    ended(&table[0], OpClass::Read, 50 * US, SECOND);
    ended(&table[1], OpClass::Read, 200 * US, SECOND);
    (selector, table, SECOND)
}

#[test]
fn an_unused_path_is_looked_at_ever_more_seldom_while_nothing_gets_better() {
    let (mut selector, table, mut now_ns) = unused();
    let mut next = |latency_ns| {
        let pause = pause(&mut selector, &table, &mut now_ns);
        probed(&table[1], latency_ns, now_ns);
        pause
    };
    assert_eq!([(); 7].map(|()| next(200 * US)), [11, 21, 41, 81, 161, 161, 161]);
    // Better by less than an eighth is not better.
    assert_eq!([180, 100, 100].map(|us| next(us * US)), [161, 161, 11]);
}

#[test]
fn a_path_that_is_used_again_is_soon_looked_at_and_a_probe_that_was_not_sent_is_asked_for_again() {
    let (mut selector, table, mut now_ns) = unused();
    for _ in 0..6 {
        pause(&mut selector, &table, &mut now_ns);
        probed(&table[1], 200 * US, now_ns);
    }
    ended(&table[1], OpClass::Read, 200 * US, now_ns);
    assert_eq!(pause(&mut selector, &table, &mut now_ns), 11);
    // Nothing comes of these.
    assert_eq!([(); 3].map(|()| pause(&mut selector, &table, &mut now_ns)), [11; 3]);
}

#[test]
fn a_user_looks_at_an_unknown_path_when_probes_are_never_sent_but_not_when_they_fail() {
    for fail in [false, true] {
        let table = paths("oo");
        let mut selector = Selector::new();
        let (mut asked, mut went) = (0, None);
        for now_ns in (0..3000).map(|ms| SECOND + ms * MS) {
            ended(&table[0], OpClass::Read, 50 * US, now_ns);
            let (index, probe) = look(&mut selector, &table, now_ns);
            if index == 1 {
                went = went.or(Some(asked));
            } else if probe == Some(1) {
                asked += 1;
                if fail {
                    let charge = start_probe(table[1].load(), BYTES, now_ns);
                    finish(charge, table[1].load());
                    probe_failed(table[1].load(), charge);
                }
            }
        }
        assert_eq!(went, (!fail).then_some(4));
        assert!(!fail || asked > 16, "{asked}: they are sent again and again");
    }
}

/// 500 reads a second earn five probes a second. Of the second path nothing is known, and whatever
/// it is asked it answers with an error.
#[test]
fn a_path_that_fails_probes_leaves_those_of_others_their_share() {
    let table = paths("ooo");
    let mut selector = Selector::new();
    ended(&table[2], OpClass::Read, 300 * US, SECOND);
    let mut asked = [0, 0, 0];
    for now_ns in (0..5000).map(|turn| 2 * SECOND + turn * 2 * MS) {
        ended(&table[0], OpClass::Read, 50 * US, now_ns);
        let choice = selector.select(&parameters(), &table, OpClass::Read, BYTES, now_ns);
        assert_eq!(choice.map(|choice| choice.index), Some(0));
        match selector.take_probe() {
            Some(1) => {
                let charge = start_probe(table[1].load(), BYTES, now_ns);
                finish(charge, table[1].load());
                probe_failed(table[1].load(), charge);
                selector.probe_moved_nothing(BYTES);
                asked[1] += 1;
            }
            Some(2) => {
                probed(&table[2], 300 * US, now_ns);
                asked[2] += 1;
            }
            _ => {}
        }
    }
    std::println!("{asked:?}");
    // Both are looked at seldom in the end: every 80 and 160 ms.
    assert!(asked[1] > 50 && asked[2] > 30, "{asked:?}");
}

#[test]
fn a_path_that_has_rejoined_is_asked_at_once_by_a_probe() {
    let (mut selector, table, mut now_ns) = unused();
    for _ in 0..6 {
        pause(&mut selector, &table, &mut now_ns);
        probed(&table[1], 200 * US, now_ns);
    }
    // How seldom it was looked at before says nothing.
    rejoined(&parameters(), table[1].load());
    assert_eq!(look(&mut selector, &table, now_ns), (0, Some(1)));
}

#[test]
fn what_large_probes_have_overdrawn_does_not_keep_small_ones_from_looking() {
    let table = paths("oo");
    ended(&table[0], OpClass::Read, 50 * US, SECOND);
    let mut selector = Selector::new();
    let mut ask = |bytes, now_ns| {
        selector.select(&parameters(), &table, OpClass::Read, bytes, now_ns);
        selector.take_probe()
    };
    // One per size class, on credit, as nothing is known of the path.
    assert_eq!(ask(16 << 20, SECOND), Some(1));
    assert_eq!(ask(BYTES, SECOND + MS), Some(1));
}

#[test]
fn what_is_no_read_and_no_write_asks_for_no_probe() {
    let (mut selector, table, now_ns) = unused();
    let now_ns = now_ns + 100 * MS;
    let mut asks = |op, bytes| {
        (0..EVERY).any(|_| {
            selector.select(&parameters(), &table, op, bytes, now_ns);
            selector.take_probe().is_some()
        })
    };
    assert!(!asks(OpClass::Other, BYTES), "a compare, say");
    assert!(!asks(OpClass::Write, 0));
    assert!(asks(OpClass::Write, BYTES));
}

/// Whether a write is sent to the second path to see what that does with writes.
fn is_sent(selector: &mut Selector, table: &[Path], now_ns: u64) -> bool {
    let choice = selector.select(&parameters(), table, OpClass::Write, BYTES, now_ns);
    let choice = choice.expect("a path");
    assert_eq!(choice.index == 1, choice.reason == Reason::WriteProbe, "{choice:?}");
    choice.index == 1
}

#[test]
fn a_write_shows_what_a_path_does_with_writes_only_where_a_read_was_just_answered() {
    let (far_ns, near_ns) = (10_000 * US, 50 * US);
    for is_probe in [false, true] {
        let table = paths("oo");
        ended(&table[0], OpClass::Write, near_ns, SECOND);
        ended(&table[1], OpClass::Write, far_ns, SECOND);
        let is_sent = |now_ns| is_sent(&mut Selector::new(), &table, now_ns);
        assert!(!is_sent(SECOND + 40 * MS), "a write was answered, no read");
        let read_ns = SECOND + 100 * MS;
        match is_probe {
            true => probed(&table[1], far_ns, read_ns),
            false => ended(&table[1], OpClass::Read, far_ns, read_ns),
        }
        assert!(is_sent(read_ns + MS));
        assert!(is_sent(read_ns + 50 * MS));
        assert!(!is_sent(read_ns + 51 * MS), "that was long ago");
        ended(&table[1], OpClass::Write, far_ns, read_ns + 10 * MS);
        assert!(!is_sent(read_ns + 20 * MS), "a write has just shown it");
        assert!(is_sent(read_ns + 21 * MS));
    }
}

#[test]
fn a_write_that_looks_costs_eight_times_its_size() {
    let table = paths("oo");
    ended(&table[0], OpClass::Write, 50 * US, SECOND);
    ended(&table[1], OpClass::Write, 10_000 * US, SECOND);
    let mut selector = Selector::new();
    let sent = (0..3000_u64).filter(|turn| {
        let now_ns = SECOND + 100 * MS + turn * 100 * US;
        ended(&table[1], OpClass::Read, 10_000 * US, now_ns);
        is_sent(&mut selector, &table, now_ns)
    });
    // Each write earns one part in 128 of its size.
    let sent: Vec<u64> = sent.collect();
    let pauses: Vec<u64> = sent.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses, [8 * 128; 2], "{sent:?}");
}

/// Reads one after the other, one in `each_ns`, where the first path has a command that hangs, and
/// the second one is farther, or dead: how many go to each.
fn reads_beside_one_that_hangs(each_ns: u64, dead: bool) -> [u32; 2] {
    let table = paths("oo");
    let (latency_ns, mut selector) = ([100 * US, 1000 * US], Selector::new());
    let mut now_ns = SECOND;
    for _ in 0..50 {
        for (path, latency_ns) in table.iter().zip(latency_ns) {
            now_ns += MS;
            ended(path, OpClass::Read, latency_ns, now_ns);
        }
    }
    let begin = |index: usize, now_ns| {
        let path: &Path = &table[index];
        start(&parameters(), path.load(), OpClass::Read, BYTES, now_ns)
    };
    let _hangs = begin(0, now_ns);
    let mut gone = [0; 2];
    for turn in 0..4000 {
        let dead = dead && turn >= 2000;
        now_ns += each_ns;
        let choice = selector.select(&parameters(), &table, OpClass::Read, BYTES, now_ns);
        let index = choice.expect("both are usable").index;
        if let Some(path) = selector.take_probe().filter(|&path| !dead || path == 0) {
            probed(&table[path], latency_ns[path], now_ns);
        }
        let charge = begin(index, now_ns);
        if !dead || index == 0 {
            finish(charge, table[index].load());
            let end_ns = now_ns + latency_ns[index];
            sample(&parameters(), charge, table[index].load(), 2, end_ns);
        }
        if turn >= 2000 {
            gone[index] += 1;
        }
    }
    gone
}

/// A read of a bad sector, say: that nothing else comes from there is for want of others.
#[test]
fn a_sound_path_on_which_one_command_hangs_is_looked_at_and_used() {
    let [near, _] = reads_beside_one_that_hangs(300 * US, false);
    assert!(near > 1900, "{near} of 2000");
    let [near, _] = reads_beside_one_that_hangs(MS, true);
    assert!(near > 1800, "{near} of 2000 when the other one has died");
}

#[test]
fn probes_of_paths_that_nobody_knows_are_sent_on_credit_no_more_than_eight_deep() {
    let (bytes, table) = (1 << 20, paths(&"o".repeat(32)));
    ended(&table[0], OpClass::Read, 50 * US, SECOND);
    let mut selector = Selector::new();
    let asked = (0..1000_u64).filter(|turn| {
        selector.select(&parameters(), &table, OpClass::Read, bytes, SECOND + turn * 10 * US);
        let probed = selector.take_probe();
        let charge = probed.map(|path| start_probe(table[path].load(), bytes, SECOND));
        charge.is_some()
    });
    // Each command earns one part in 128 of its size.
    assert_eq!(asked.count(), 8 + 1000 / 128);
}

/// More than 50 ms after a probe was answered no write goes to see what that path does with writes.
#[test]
fn few_writes_find_a_path_that_has_become_the_better_one() {
    for each_ns in [2 * MS, 7 * MS, 20 * MS, 40 * MS] {
        let table = paths("oo");
        let (latency_ns, mut selector) = ([200 * US, 100 * US], Selector::new());
        let mut now_ns = SECOND;
        for _ in 0..50 {
            for (path, latency_ns) in table.iter().zip([200 * US, 290 * US]) {
                now_ns += 10 * MS;
                ended(path, OpClass::Write, latency_ns, now_ns);
                probed(path, latency_ns, now_ns);
            }
        }
        let mut last = 0;
        for _ in 0..4000 {
            now_ns += each_ns;
            let choice = selector.select(&parameters(), &table, OpClass::Write, BYTES, now_ns);
            last = choice.expect("both are usable").index;
            if let Some(path) = selector.take_probe() {
                probed(&table[path], latency_ns[path], now_ns);
            }
            ended(&table[last], OpClass::Write, latency_ns[last], now_ns);
        }
        assert_eq!(last, 1, "a write each {each_ns} ns");
    }
}

/// Reads and writes at random, and the nearer path dies: whether a write goes there when others
/// have found that out.
fn is_lost_late(random: &mut Random) -> bool {
    let (table, mut selector) = (paths("oo"), Selector::new());
    let mut now_ns = SECOND;
    for _ in 0..50 {
        for (path, latency_ns) in table.iter().zip([100 * US, 1000 * US]) {
            for op in [OpClass::Read, OpClass::Write] {
                now_ns += 2 * MS;
                ended(path, op, latency_ns, now_ns);
            }
        }
    }
    let (dies_ns, mut late) = (now_ns + 500 * MS, false);
    while now_ns < dies_ns + 300 * MS {
        now_ns += (150 + random.below(100) as u64) * US;
        let op = if random.below(2) == 0 { OpClass::Read } else { OpClass::Write };
        let choice = selector.select(&parameters(), &table, op, BYTES, now_ns);
        let index = choice.expect("both are usable").index;
        let answers = |index| now_ns < dies_ns || index == 1;
        match selector.take_probe() {
            Some(probe) if answers(probe) => probed(&table[probe], 1000 * US, now_ns),
            _ => {}
        }
        if answers(index) {
            ended(&table[index], op, [100 * US, 1000 * US][index], now_ns);
        } else {
            let _stuck = start(&parameters(), table[index].load(), op, BYTES, now_ns);
            late |= now_ns > dies_ns + 10 * MS && op == OpClass::Write;
        }
    }
    late
}

#[test]
fn no_write_looks_at_a_path_that_is_overdue() {
    let mut random = Random::seeded();
    let runs = if cfg!(miri) { 2 } else { 100 };
    assert_eq!((0..runs).filter(|_| is_lost_late(&mut random)).count(), 0);
}

#[test]
fn a_dead_path_of_which_nothing_is_known_leaves_probes_to_others() {
    let table = paths("ooo");
    for _ in 0..4 {
        ended(&table[0], OpClass::Read, 100 * US, SECOND);
        ended(&table[1], OpClass::Read, 1000 * US, SECOND);
    }
    let _hangs = start_probe(table[2].load(), BYTES, SECOND);
    let mut selector = Selector::new();
    let asked = (1..5000_u64).filter(|turn| {
        let now_ns = 3 * SECOND + turn * 2 * MS;
        selector.select(&parameters(), &table, OpClass::Read, BYTES, now_ns);
        ended(&table[0], OpClass::Read, 100 * US, now_ns);
        let probe = selector.take_probe();
        if probe == Some(1) {
            probed(&table[1], 1000 * US, now_ns);
        }
        probe == Some(1)
    });
    // Each of 128 reads earns one, for one of two paths in turn.
    assert!(asked.count() >= 5000 / 128 / 2 - 1);
}
