use super::{CellResult, Circumstances, Mode, SCHEMA};
use crate::cell::Cell;
use crate::light;
use crate::scenario::{
    Alteration, AnaState, Arrival, BlockSize, Change, Mix, PerOp, Scenario, Sizes, Target, file,
};
use anabranch_target::link::{Large, Shape};
use std::time::Duration;

pub(super) fn scenario() -> Scenario {
    let text = r#"
        title = "Small"
        [run]
        ramp = "100ms"
        window = "300ms"
        [[path]]
        name = "fast"
        rate = "400mbit"
        [[path]]
        name = "slow"
        rate = "100mbit"
        [[job]]
        rw = "randrw"
        bs = "4k"
        iodepth = 16
    "#;
    let mut scenario = file::parse(text, "small.toml").expect("a scenario").scenario;
    let what = Alteration::Ana(AnaState::Inaccessible);
    scenario.changes = vec![Change { at_ns: 100_000_000, path: 1, what }];
    scenario
}

pub(super) fn result(scenario: &Scenario, seed: u64) -> CellResult {
    let cell = Cell { scenario, variant: &scenario.variants[2], seed };
    let figures = light::run(cell).expect("a cell that can be run");
    CellResult::new(cell, &figures, &Circumstances::simulated(Mode::Light))
}

#[test]
fn a_file_says_what_the_figures_say_and_can_be_read_back() {
    let scenario = scenario();
    let result = result(&scenario, 7);
    assert_eq!((result.schema, result.run), (SCHEMA, 7));
    let total = &result.total;
    assert!(total.requests > 100, "{}", total.requests);
    assert_eq!(total.latency.buckets.iter().map(|(_, n)| n).sum::<u64>(), total.requests);
    let job = &result.jobs[0];
    assert_eq!(job.read.bytes + job.write.bytes + job.trim.bytes, total.bytes);
    assert_eq!(result.paths.iter().map(|path| path.bytes).sum::<u64>(), total.bytes);
    assert_eq!(result.series.paths.len(), 2);
    assert_eq!(result.series.requests.len(), 8);
    assert_eq!(result.changes[0].what, "inaccessible");
    assert_eq!(result.adaptations.len(), 1);
    let text = serde_json::to_string(&result).expect("plain data");
    assert_eq!(serde_json::from_str::<CellResult>(&text).expect("its own text"), result);
}

#[test]
fn one_seed_gives_one_text() {
    let scenario = scenario();
    let text = |seed| serde_json::to_string(&result(&scenario, seed)).expect("plain data");
    assert_eq!(text(3), text(3));
    assert_ne!(text(3), text(4));
}

#[test]
fn a_limit_that_may_be_exceeded_while_a_load_catches_up_is_told() {
    let mut scenario = scenario();
    scenario.jobs[0].arrival = Arrival::Poisson { iops: 5_000 };
    let kept_up = result(&scenario, 1);
    assert_eq!(kept_up.notes, [""; 0], "one path carries that, too");
    assert!(kept_up.limit.is_all_asked_for);
    let change = |at_ms: u64, path, ana| Change {
        at_ns: at_ms * 1_000_000,
        path,
        what: Alteration::Ana(ana),
    };
    scenario.changes = vec![
        change(50, 0, AnaState::Inaccessible),
        change(50, 1, AnaState::Inaccessible),
        change(150, 0, AnaState::Optimized),
    ];
    let late = result(&scenario, 1);
    assert!(late.total.bytes_s > late.limit.bytes_s, "nothing is lost but a third of the time");
    assert_eq!(late.notes.len(), 1);
    assert!(late.notes[0].contains("caught up"), "{}", late.notes[0]);
    assert!(!late.limit.is_all_asked_for, "for a while there is no path");
}

#[test]
fn a_limit_that_jobs_of_different_mixes_may_exceed_is_told() {
    let mut scenario = scenario();
    scenario.changes.clear();
    assert_eq!(result(&scenario, 1).notes, [""; 0]);
    scenario.jobs[0].mix = Mix { read: 100, write: 0, trim: 0 };
    scenario.jobs.push(scenario.jobs[0].clone());
    assert_eq!(result(&scenario, 1).notes, [""; 0], "two jobs that ask for the same");
    scenario.jobs[1].mix = Mix { read: 0, write: 100, trim: 0 };
    let both = result(&scenario, 1);
    assert!(both.total.bytes_s > both.limit.bytes_s, "each direction has its links");
    assert_eq!(both.notes.len(), 1);
    assert!(both.notes[0].contains("the jobs"), "{}", both.notes[0]);
    // Each has what it asks for, and there is no more.
    scenario.jobs.iter_mut().for_each(|job| job.rate_iops = PerOp::all(Some(100)));
    assert_eq!(result(&scenario, 1).notes, [""; 0]);
}

/// What a job asks for comes first in the limit, and not where it stands behind many others.
#[test]
fn a_limit_that_a_job_with_a_rate_leaves_to_others_is_told() {
    let mut scenario = scenario();
    scenario.changes.clear();
    scenario.target =
        Target { servers: Some(4), read_ns: 300_000, write_ns: 100_000, ..Target::default() };
    let mut reads = scenario.jobs[0].clone();
    (reads.mix, reads.depth, reads.clones) = (Mix { read: 100, write: 0, trim: 0 }, 1, 4);
    reads.rate_iops = PerOp::all(Some(2500));
    let mut writes = reads.clone();
    (writes.mix, writes.depth) = (Mix { read: 0, write: 100, trim: 0 }, 64);
    writes.rate_iops = PerOp::default();
    scenario.jobs = vec![reads, writes];
    scenario.paths.iter_mut().for_each(|path| path.shape = Shape::default());
    let both = result(&scenario, 1);
    assert!(both.total.bytes_s > both.limit.bytes_s, "the reads do not get what they ask for");
    assert!(both.notes.iter().any(|note| note.contains("the jobs")), "{:?}", both.notes);
    // Where nobody stands in line nothing is left to others.
    scenario.target = Target { read_ns: 300_000, write_ns: 100_000, ..Target::default() };
    assert_eq!(result(&scenario, 1).notes, [""; 0]);
}

#[test]
fn a_limit_that_requests_of_different_sizes_may_exceed_is_told() {
    let mut scenario = scenario();
    scenario.changes.clear();
    let job = &mut scenario.jobs[0];
    (job.depth, job.clones) = (2, 1);
    let sizes = [4096, 65_536].map(|bytes| BlockSize { bytes, weight: 50 });
    job.sizes = PerOp::all(Sizes::Split(sizes.to_vec()));
    assert_eq!(result(&scenario, 1).notes, [""; 0], "all are nearest on one path");
    scenario.paths[1].shape = scenario.paths[0].shape.clone();
    scenario.paths[1].shape.delay = Duration::from_millis(1);
    let delay = Duration::from_millis(5);
    scenario.paths[0].shape.large = Some(Large { bytes: 65_536, delay });
    let notes = result(&scenario, 1).notes;
    assert_eq!(notes.len(), 1);
    assert!(notes[0].contains("nearest on one path"), "{}", notes[0]);
}

/// A path of 400 Mbit/s that is near, full and not enough; what takes least of it should have it.
#[test]
fn a_limit_that_requests_of_unlike_room_may_exceed_is_told() {
    let mut scenario = scenario();
    scenario.changes.clear();
    scenario.paths[1].shape.delay = Duration::from_millis(8);
    (scenario.jobs[0].depth, scenario.jobs[0].clones) = (16, 1);
    let notes = |scenario: &Scenario| result(scenario, 1).notes;
    assert_eq!(notes(&scenario), [""; 0], "reads and writes, each way as many bytes");
    let told = |scenario: &Scenario| {
        let notes = notes(scenario);
        notes.len() == 1 && notes[0].contains("take more of the paths than others")
    };
    let both = scenario.clone();
    let sizes = [4096, 65_536].map(|bytes| BlockSize { bytes, weight: 50 });
    (scenario.jobs[0].sizes, scenario.jobs[0].depth) =
        (PerOp::all(Sizes::Split(sizes.to_vec())), 5);
    assert!(told(&scenario), "small ones go there in the time of a large one");
    scenario.jobs[0].depth = 1;
    assert_eq!(notes(&scenario), [""; 0], "one path serves all");
    for mix in [Mix { read: 0, write: 50, trim: 50 }, Mix { read: 80, write: 20, trim: 0 }] {
        scenario = both.clone();
        scenario.jobs[0].mix = mix;
        assert!(told(&scenario), "one way is full, and not all go that way: {mix:?}");
    }
    scenario.jobs[0].mix = Mix { read: 100, write: 0, trim: 0 };
    assert_eq!(notes(&scenario), [""; 0], "all are the same");
}

#[test]
fn a_limit_that_draining_paths_exceed_is_told() {
    let mut scenario = scenario();
    scenario.paths[0].shape.delay = Duration::from_millis(2);
    let change = |at_ms: u64| {
        let even = at_ms.is_multiple_of(20);
        let ana = if even { AnaState::NonOptimized } else { AnaState::Optimized };
        Change { at_ns: at_ms * 1_000_000, path: 0, what: Alteration::Ana(ana) }
    };
    scenario.changes = vec![change(100), change(110)];
    assert_eq!(result(&scenario, 1).notes, [""; 0], "2 ms of 300 do not show");
    scenario.changes = (0..30).map(|index| change(index * 10)).collect();
    let often = result(&scenario, 1).notes;
    assert_eq!(often.len(), 1, "{often:?}");
    assert!(often[0].contains("paths change so often"), "{}", often[0]);
}

#[test]
fn a_run_in_which_many_requests_are_not_answered_once_is_told() {
    let mut scenario = scenario();
    scenario.changes.clear();
    scenario.jobs[0].depth = 256;
    // Some 60 MB/s take 17 s for all of them.
    scenario.jobs[0].sizes = PerOp::all(Sizes::fixed(1 << 22));
    let early = result(&scenario, 1).notes;
    assert_eq!(early.len(), 1);
    assert!(early[0].contains("not answered once"), "{}", early[0]);
    (scenario.run.ramp_ns, scenario.run.window_ns) = (40_000_000_000, 80_000_000_000);
    assert_eq!(result(&scenario, 1).notes, [""; 0]);
}

#[test]
fn thinking_is_not_waiting_for_an_answer() {
    let mut scenario = scenario();
    scenario.changes.clear();
    // As the file is read: a clone that thinks has one request, and none while it does.
    (scenario.jobs[0].depth, scenario.jobs[0].thinktime_ns) = (1, 1_000_000);
    let result = result(&scenario, 1);
    assert!(result.total.latency.mean_ns < 500_000, "most of the time nothing is asked for");
    assert_eq!(result.notes, [""; 0]);
}
