//! `finish-time` where things are nasty: it places everything on paths that may be used, its books
//! balance, probes cost at most a hundredth of the bytes, and it does what `round-robin` does (but
//! for 1 %), unless a scene says that it does not, and why.

use crate::support;

use crate::model::{Answers, Change, HOUR, Line, MS, Mix, Outcome, SECOND, Scene, US, run};
use anabranch_policy::{AnaRank, OpClass, Parameters, Policy};

const READ: OpClass = OpClass::Read;
const WRITE: OpClass = OpClass::Write;

/// Bytes that it does at least, of `round-robin`'s, in percent.
const LEAST_PERCENT: u64 = 99;

const EQUAL: fn() -> [Line; 2] = || [Line::mib_s(400); 2];
const UNEQUAL: fn() -> [Line; 2] = || [Line::mib_s(400), Line::mib_s(100)];
const FAR: fn() -> [Line; 2] = || [Line::mib_s(400), Line::mib_s(400).delay(10 * MS)];

/// Both policies in the same scene, and what comes of it.
fn beside(scene: &Scene) -> (Outcome, Outcome) {
    let turns = run(scene, Parameters::of(Policy::RoundRobin));
    (turns, run(scene, Parameters::of(Policy::FinishTime)))
}

/// It does as much as `round-robin`; gives back what it did.
fn holds(name: &str, scene: &Scene) -> Outcome {
    holds_percent(name, scene, LEAST_PERCENT)
}

/// It does so much of what `round-robin` does.
fn holds_percent(name: &str, scene: &Scene, percent: u64) -> Outcome {
    let (turns, ours) = beside(scene);
    let (probed, asked) = (ours.probe_bytes, ours.asked_bytes);
    println!("{name}: {} of {} bytes, {probed} of {asked} probed", ours.bytes, turns.bytes);
    // Miri has time for a few commands only.
    if !cfg!(miri) {
        assert!(ours.bytes * 100 >= turns.bytes * percent, "{name}: {ours:?} {turns:?}");
    }
    ours
}

/// Probes of the whole run against everything that was asked for, one probe of each path apart.
fn assert_budget(scene: &Scene, outcome: &Outcome, largest: u64) {
    let first = (scene.lines.len() * scene.heads) as u64 * largest;
    let (probed, asked) = (outcome.probe_bytes, outcome.asked_bytes);
    assert!(probed.saturating_sub(first) * 100 <= asked, "{probed} probed, {asked} asked for");
}

/// Whether the clock goes an hour back or forth or a little, once, twice or all the time.
#[test]
fn a_clock_that_jumps() {
    for by_ns in [HOUR, 10 * MS, MS].map(u64::cast_signed).into_iter().flat_map(|by| [by, -by]) {
        for lines in [EQUAL, UNEQUAL, FAR] {
            let scene = Scene { begin_ns: 2 * HOUR, ..Scene::new(&lines()) };
            let jump = |per_mille, by_ns| (per_mille, Change::Clock(by_ns));
            let name = format!("{by_ns} ns");
            holds(&name, &scene.clone().changed(&[jump(100, by_ns)]));
            holds(&name, &scene.clone().changed(&[jump(100, by_ns), jump(300, -by_ns)]));
        }
    }
    let back_and_forth: Vec<_> = (0..20)
        .map(|turn| {
            (40 * turn, Change::Clock(if turn % 2 == 0 { 1 } else { -1 } * 3_600_000_000_000))
        })
        .collect();
    let scene = Scene { begin_ns: 2 * HOUR, ..Scene::new(&UNEQUAL()) };
    holds("back and forth", &scene.changed(&back_and_forth));
}

#[test]
fn completions_in_bursts_of_64() {
    for clients in [1, 8, 64, 128] {
        for hold_ns in [50 * US, 500 * US, 5 * MS] {
            let lines = EQUAL().map(|line| line.in_bursts(64, hold_ns));
            holds("both paths", &Scene { clients, ..Scene::new(&lines) });
            let lines = UNEQUAL().map(|line| line.in_bursts(64, hold_ns));
            // A path with few commands gets none back until its burst times out: it looks far, and
            // is left with few. Turns keep every path supplied.
            let least = if clients == 128 && hold_ns == 5 * MS { 50 } else { 94 };
            holds_percent("unequal paths", &Scene { clients, ..Scene::new(&lines) }, least);
        }
    }
}

#[test]
fn one_path_tells_of_completions_in_bursts_and_one_at_once() {
    for clients in [1, 8, 64, 128] {
        for hold_ns in [50 * US, 500 * US, 5 * MS] {
            let [late, prompt] = EQUAL();
            let scene = Scene { clients, ..Scene::new(&[late.in_bursts(64, hold_ns), prompt]) };
            // As above: turns fill the bursts by chance, and nobody else does.
            let least = if clients < 64 || hold_ns == 50 * US { LEAST_PERCENT } else { 50 };
            holds_percent("one path", &scene, least);
        }
    }
}

#[test]
fn one_path_a_thousand_times_slower() {
    for clients in [1, 8, 64, 128] {
        let fast = Line::mib_s(4000);
        let lines = [fast, Line::mib_s(4).delay(10 * MS)];
        let scene = Scene { clients, end_ns: Scene::new(&lines).at(200), ..Scene::new(&lines) };
        let ours = holds("1000 times slower", &scene);
        let alone = run(
            &Scene { lines: vec![fast], letters: "o".to_owned(), ..scene },
            Parameters::of(Policy::FinishTime),
        );
        if !cfg!(miri) {
            // Not less than the fast path by itself, either.
            assert!(ours.bytes * 1000 >= alone.bytes * 998, "{ours:?} {alone:?}");
        }
    }
}

#[test]
fn a_size_and_an_op_that_were_never_seen_come_after_an_hour_of_small_reads() {
    let mix: Mix = |_, now_ns| {
        let later = if cfg!(miri) { 2 * MS } else { 400 * MS };
        if now_ns < later { (READ, 4096) } else { (WRITE, 1 << 20) }
    };
    for clients in [2, 16] {
        for lines in [EQUAL, UNEQUAL, FAR] {
            let scene = Scene { clients, mix, ..Scene::new(&lines()) };
            let hour = (100, Change::Clock(HOUR.cast_signed()));
            // Before the first large write goes to the far path, a probe has to come back.
            holds_percent("at once", &scene, 96);
            holds_percent("after an hour", &scene.changed(&[hour]), 97);
        }
    }
}

#[test]
fn a_path_that_is_fast_until_it_is_loaded() {
    for (until, factor) in [(2, 10), (2, 100), (8, 10), (8, 100)] {
        let near = Line::mib_s(800).delay(50 * US).lies(until, factor);
        holds("loaded", &Scene::new(&[Line::mib_s(400), near]));
    }
}

#[test]
fn sixty_four_paths() {
    let lines: Vec<Line> = (0..64).map(|path| Line::mib_s(20 + 10 * (path % 7))).collect();
    for clients in [1, 64, 512] {
        let scene = Scene { clients, ..Scene::new(&lines) };
        let ours = holds("64 paths", &Scene { end_ns: scene.at(500), ..scene.clone() });
        assert_budget(&scene, &ours, 4096);
    }
}

/// One more than there are paths: it waits least behind the command that is nearly done.
#[test]
fn a_few_commands_on_paths_that_are_alike() {
    for paths in [2, 4, 8] {
        for workers in [1, 2] {
            let lines = vec![Line::mib_s(330).delay(140 * US); paths];
            let scene = Scene { clients: paths + 1, workers, ..Scene::new(&lines) };
            holds("a few", &Scene { mix: |_, _| (READ, 128 << 10), ..scene });
        }
    }
}

/// Two wait on slow paths; the third has the fast one, whenever that has nothing to do.
#[test]
fn a_fast_path_is_not_left_idle_for_slow_ones() {
    let slow = [23, 20, 20].map(Line::mib_s);
    let lines = [[Line::mib_s(91)].as_slice(), &slow].concat();
    let scene = Scene { clients: 3, mix: |_, _| (READ, 1 << 20), ..Scene::new(&lines) };
    holds_percent("three large reads", &scene, 120);
}

#[test]
fn one_io_an_hour() {
    let hours = if cfg!(miri) { 5 } else { 1000 };
    for clients in [1, 3] {
        for lines in [EQUAL, FAR] {
            let scene = Scene { clients, think_ns: HOUR, ramp_ns: 0, ..Scene::new(&lines()) };
            let scene = Scene { end_ns: hours * HOUR, ..scene };
            let (turns, ours) = beside(&scene);
            assert_eq!(ours.commands, turns.commands);
            // The user feels nothing of probes, and little of ignorance.
            assert!(ours.mean_ns * 100 <= turns.mean_ns * 101, "{ours:?} {turns:?}");
            assert_budget(&scene, &ours, 4096);
        }
    }
}

/// Few commands, and the first meets the slow path: by the third one all paths are known.
#[test]
fn a_sparse_load_finds_the_fast_paths() {
    let lines = [20, 400, 400].map(Line::mib_s);
    let scene = Scene { clients: 1, think_ns: 100 * MS, ramp_ns: 0, ..Scene::new(&lines) };
    let scene = Scene { end_ns: 2 * SECOND, mix: |_, _| (READ, 1 << 20), ..scene };
    let ours = run(&scene, Parameters::of(Policy::FinishTime));
    println!("sparse: {ours:?}");
    // One or two take 50 ms, all others 2.6 ms.
    assert!(ours.commands > 10 && ours.mean_ns < 10 * MS, "{ours:?}");
    assert_budget(&scene, &ours, 1 << 20);
}

#[test]
fn probes_that_are_answered_with_errors_and_probes_that_are_never_sent() {
    for answers in [Answers::ErrorsToProbes, Answers::NoProbes] {
        for clients in [1, 16, 64] {
            let [good, bad] = EQUAL();
            holds("no answers", &Scene { clients, ..Scene::new(&[good, bad.answers(answers)]) });
        }
    }
}

#[test]
fn a_path_that_falls_silent_and_comes_back() {
    let [good, other] = EQUAL();
    let scene = Scene { clients: 32, ..Scene::new(&[good, other]) };
    let silent = Change::Line(1, other.answers(Answers::Nothing));
    let scene = scene.changed(&[(100, silent), (800, Change::Line(1, other))]);
    let (turns, ours) = beside(&scene);
    if !cfg!(miri) {
        // Turns put every client on the silent path; here most of one path's work goes on.
        assert!(ours.bytes > 2 * turns.bytes, "{ours:?} {turns:?}");
    }
}

#[test]
fn jitter_of_one_path_and_of_all() {
    for clients in [8, 64] {
        let shaky = EQUAL().map(|line| line.jitter(MS));
        holds_percent("all", &Scene { clients, ..Scene::new(&shaky) }, 97);
        let [steady, shaky] = EQUAL();
        holds("one", &Scene { clients, ..Scene::new(&[steady, shaky.jitter(20 * MS)]) });
    }
}

/// A far path takes longer now and then, whatever is in flight: that is no queue, and it is filled.
#[test]
fn a_far_path_that_jitters_is_filled_too() {
    for (rate, delay_ns, clients) in [(150, 400 * US, 24), (300, 400 * US, 48), (400, MS, 128)] {
        let near = Line::mib_s(rate).delay(20 * US);
        let far = Line::mib_s(rate).delay(delay_ns).jitter(delay_ns);
        let scene = Scene { clients, ..Scene::new(&[near, far]) };
        holds_percent("jitters", &scene, 90);
    }
}

#[test]
fn namespaces_and_workers_that_share_paths() {
    for clients in [8, 64] {
        for (heads, workers) in [(1, 2), (2, 1), (2, 2), (8, 2)] {
            for lines in [EQUAL, UNEQUAL, FAR] {
                let scene = Scene { clients, heads, workers, ..Scene::new(&lines()) };
                let ours = holds("shared", &scene);
                assert_budget(&scene, &ours, 4096);
            }
        }
    }
}

#[test]
fn probes_stay_within_their_budget_whatever_is_done() {
    let mixes: [Mix; 6] = [
        |_, _| (READ, 4096),
        |_, _| (WRITE, 4096),
        |_, _| (WRITE, 1 << 20),
        |random, _| ([READ, WRITE][random.below(2)], 512 << random.below(12)),
        |random, _| (READ, if random.below(100) == 0 { 1 << 20 } else { 512 }),
        |random, _| ([READ, WRITE, OpClass::Other][random.below(3)], 4096),
    ];
    for mix in mixes {
        for clients in [1, 4, 64] {
            let far = Line::mib_s(400).delay(5 * MS);
            let scene = Scene { clients, mix, ..Scene::new(&[Line::mib_s(400), far, far, far]) };
            let ours = run(&scene, Parameters::of(Policy::FinishTime));
            assert_budget(&scene, &ours, 1 << 20);
        }
    }
}

#[test]
fn without_probes_none_is_asked_for() {
    let mut parameters = Parameters::of(Policy::FinishTime);
    parameters.finish_time.probes = false;
    for clients in [1, 64] {
        for lines in [EQUAL, UNEQUAL, FAR] {
            let scene = Scene { clients, ..Scene::new(&lines()) };
            let turns = run(&scene, Parameters::of(Policy::RoundRobin));
            let ours = run(&scene, parameters);
            assert_eq!(ours.probes, 0);
            if !cfg!(miri) {
                assert!(ours.bytes * 100 >= turns.bytes * LEAST_PERCENT, "{ours:?} {turns:?}");
            }
        }
    }
}

#[test]
fn tails_are_bought_with_throughput_when_asked_for() {
    let mut tail = Parameters::of(Policy::FinishTime);
    tail.finish_time.tail = true;
    let near = Line::mib_s(400);
    let scene = Scene::new(&[near, near.delay(3 * MS)]);
    let (tail, ours) = (run(&scene, tail), run(&scene, Parameters::of(Policy::FinishTime)));
    if !cfg!(miri) {
        assert_eq!(tail.by_path[1], 0, "{tail:?}");
        assert!(ours.by_path[1] > 0 && ours.bytes > tail.bytes, "{ours:?} {tail:?}");
    }
}

/// The model checks every choice and every probe.
#[test]
fn optimized_paths_come_first_unless_all_compete() {
    let slow = Line::mib_s(20).delay(5 * MS);
    let scene =
        Scene { letters: "onno".to_owned(), ..Scene::new(&[slow, Line::mib_s(400), slow, slow]) };
    let usable = |path, usable| Change::Usable(path, usable);
    let scene = scene.changed(&[
        (200, usable(0, false)),
        (300, usable(3, false)),
        (500, Change::Rank(2, AnaRank::Optimized)),
        (600, Change::Rank(2, AnaRank::NonOptimized)),
        (700, usable(0, true)),
        (800, usable(1, false)),
        (850, usable(0, false)),
        (900, usable(2, false)),
        (950, usable(1, true)),
    ]);
    let ours = holds("classes", &scene);
    let mut compete = Parameters::of(Policy::FinishTime);
    compete.finish_time.compete = true;
    let all = run(&scene, compete);
    if !cfg!(miri) {
        assert!(all.bytes > 2 * ours.bytes, "the fast path is not optimized: {all:?} {ours:?}");
        assert!(ours.waited > 0, "for a while there was no path");
    }
}

#[test]
fn the_policy_changes_while_commands_are_in_flight() {
    let mut changes = Vec::new();
    for (place, policy) in Policy::ALL.into_iter().enumerate() {
        let at = 100 * place as u64;
        changes.push((at, Change::Parameters(Parameters::of(policy))));
        changes.push((at + 50, Change::Parameters(Parameters::of(Policy::FinishTime))));
    }
    for clients in [1, 64] {
        let scene = Scene { clients, heads: 2, workers: 2, ..Scene::new(&UNEQUAL()) };
        holds("switched", &scene.changed(&changes));
    }
}

/// Where it does less than turns do, and how much it does at least.
#[test]
fn what_is_known_to_be_weak() {
    // A path that is fast with a few commands and collapses with more: turns stay below that by
    // chance, the prediction learns it by going there, again and again.
    for (until, factor, clients) in [(2, 10, 4), (8, 2, 16), (8, 10, 16), (8, 100, 16)] {
        let near = Line::mib_s(800).delay(50 * US).lies(until, factor);
        let scene = Scene { clients, ..Scene::new(&[Line::mib_s(400), near]) };
        holds_percent("collapses", &scene, 40);
    }
    let rejoins = |scene: Scene| {
        let usable = |usable| Change::Usable(1, usable);
        scene.changed(&[(10, usable(false)), (40, Change::Rejoined(1)), (40, usable(true))])
    };
    // One command alone says little of a path's rate: where no other path has a queue yet, a path
    // that is new stays at few commands.
    for (paths, clients) in [(2, 16), (4, 64)] {
        let scene = Scene { clients, ..Scene::new(&vec![Line::mib_s(400); paths]) };
        holds_percent("rejoins", &rejoins(scene), 75);
    }
    // No probe ever comes through, although commands would.
    for answers in [Answers::ErrorsToProbes, Answers::NoProbes] {
        for clients in [16, 64] {
            let [good, bad] = EQUAL();
            let scene = Scene { clients, ..Scene::new(&[good, bad.answers(answers)]) };
            holds_percent("no probes", &rejoins(scene), 50);
        }
    }
    // A few large writes and far paths: what probes may cost is soon spent.
    let far = Line::mib_s(400).delay(5 * MS);
    for (mix, clients) in [(LARGE, 4), (MIDDLE, 64)] {
        let scene = Scene { clients, mix, ..Scene::new(&[Line::mib_s(400), far, far, far]) };
        holds_percent("writes, far", &scene, 75);
    }
}

const LARGE: Mix = |_, _| (WRITE, 1 << 20);
const MIDDLE: Mix = |_, _| (WRITE, 65_536);

/// Random scenes: nothing is compared, but the model's own checks hold.
#[test]
fn whatever_happens_books_balance_and_choices_are_allowed() {
    let mut random = support::Random::seeded();
    for _ in 0..if cfg!(miri) { 2 } else { 60 } {
        let lines: Vec<Line> = (0..=random.below(5)).map(|_| any_line(&mut random)).collect();
        let letters = (0..lines.len()).map(|_| ['o', 'o', 'n'][random.below(3)]).collect();
        let scene = Scene {
            letters,
            heads: 1 + random.below(3),
            workers: 1 + random.below(2),
            clients: 1 + random.below(100),
            begin_ns: [0, SECOND, u64::MAX - HOUR, u64::MAX][random.below(4)],
            mix: |random, _| (OpClass::ALL[random.below(3)], any_bytes(random)),
            ..Scene::new(&lines)
        };
        let end_ns = scene.at(100);
        let mut changes: Vec<(u64, Change)> =
            (0..random.below(12)).map(|_| any_change(&mut random, &lines)).collect();
        // In the end all is well, so that everything is answered.
        for (path, &line) in lines.iter().enumerate() {
            changes.push((2000, Change::Line(path, line.answers(Answers::Everything))));
            changes.push((2000, Change::Usable(path, true)));
        }
        run(&Scene { end_ns, ..scene.changed(&changes) }, Parameters::of(Policy::FinishTime));
    }
}

fn any_bytes(random: &mut support::Random) -> u32 {
    [0, 1, 512, 4096, 65_536, 1 << 20][random.below(6)]
}

fn any_line(random: &mut support::Random) -> Line {
    let line = Line::mib_s([4, 40, 400, 4000][random.below(4)]);
    let line = line.delay([0, 50 * US, 5 * MS][random.below(3)]);
    line.in_bursts([1, 64][random.below(2)], MS).jitter([0, 300 * US][random.below(2)])
}

fn any_change(random: &mut support::Random, lines: &[Line]) -> (u64, Change) {
    let path = random.below(lines.len());
    let all = [Answers::Everything, Answers::ErrorsToProbes, Answers::NoProbes, Answers::Nothing];
    let change = match random.below(7) {
        0 => Change::Usable(path, false),
        1 => Change::Usable(path, true),
        2 => Change::Rejoined(path),
        3 => Change::Rank(path, [AnaRank::Optimized, AnaRank::NonOptimized][random.below(2)]),
        4 => Change::Line(path, any_line(random).answers(all[random.below(4)])),
        5 => {
            let mut parameters = Parameters::of(Policy::FinishTime);
            parameters.finish_time.tail = random.below(2) == 0;
            parameters.finish_time.compete = random.below(2) == 0;
            parameters.finish_time.probes = random.below(2) == 0;
            Change::Parameters(parameters)
        }
        _ => Change::Clock([1, -1][random.below(2)] * HOUR.cast_signed()),
    };
    (random.next() % 100, change)
}

/// One client of large reads earns a probe in a quarter of a second: whichever of the other paths
/// becomes the nearest, it is looked at in its turn.
#[test]
fn every_unused_path_is_looked_at_in_its_turn() {
    for paths in [3, 4, 5, 8] {
        for better in 1..paths {
            let mut lines = vec![Line::mib_s(100).delay(10 * MS); paths];
            lines[0] = Line::mib_s(100).delay(MS);
            let mix: Mix = |_, _| (READ, 128 << 10);
            let scene = Scene { clients: 1, mix, ..Scene::new(&lines) };
            let scene = Scene { end_ns: if cfg!(miri) { MS } else { 20 * SECOND }, ..scene };
            let near = Change::Line(better, Line::mib_s(400).delay(100 * US));
            let ours = run(&scene.changed(&[(100, near)]), Parameters::of(Policy::FinishTime));
            println!(
                "{paths} paths, {better} is better: {:?}, {} probes",
                ours.by_path, ours.probes
            );
            assert!(cfg!(miri) || 2 * ours.by_path[better] > ours.commands, "{ours:?}");
        }
    }
}

/// What a large write has cost on a far path is earned before the next one goes there, also when a
/// small one looks in between.
#[test]
fn small_writes_do_not_pay_the_debts_of_large_ones() {
    let lines = [Line::mib_s(400).delay(MS), Line::mib_s(400).delay(60 * MS)];
    let mix: Mix = |random, _| (WRITE, if random.below(2) == 0 { 4096 } else { 1 << 20 });
    let scene = Scene { clients: 1, mix, ..Scene::new(&lines) };
    let scene = Scene { end_ns: if cfg!(miri) { MS } else { 20 * SECOND }, ..scene };
    let mut parameters = Parameters::of(Policy::FinishTime);
    let ours = run(&scene, parameters);
    parameters.finish_time.probes = false;
    let without = run(&scene, parameters);
    assert!(cfg!(miri) || ours.bytes * 100 >= without.bytes * 90, "{ours:?} {without:?}");
}
