//! Random scenarios: valid, the same for everybody, and of every kind that is promised.

use anabranch_lab::cell::Cell;
use anabranch_lab::limit::limits;
use anabranch_lab::scenario::{
    Alteration, Arrival, Distribution, PathState, Scenario, Sizes, file, random,
};

const MIB_S: u64 = 8 << 20;

fn draw(seed: u64) -> Scenario {
    random::scenario(seed).unwrap_or_else(|mistake| panic!("seed {seed}: {mistake}")).scenario
}

#[test]
fn every_seed_gives_a_scenario_that_can_be_kept_as_a_file() {
    for seed in (1..=300).chain([0, u64::MAX]) {
        let drawn = random::scenario(seed).unwrap_or_else(|mistake| panic!("{seed}: {mistake}"));
        assert_eq!(drawn.scenario.name, format!("random-{seed}"));
        assert!(drawn.notices.is_empty(), "{seed}: {:?}", drawn.notices);
        let text = &drawn.texts[0].text;
        let again = file::parse(text, &drawn.texts[0].name).expect("it was read before");
        assert_eq!(again.scenario, drawn.scenario, "seed {seed}");
        for variant in &drawn.scenario.variants {
            let cell = Cell { scenario: &drawn.scenario, variant, seed: 1 };
            assert_eq!(cell.check(), Ok(()), "seed {seed}");
        }
    }
}

/// What was shown with a seed is shown with it on every machine, and tomorrow.
#[test]
fn a_seed_means_the_same_everywhere() {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for seed in 1..=100 {
        let drawn = random::scenario(seed).expect("it is read elsewhere");
        for byte in drawn.texts[0].text.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    assert_eq!(hash, 0x651b_94bf_faf6_2789, "the distribution is another one: {hash:#x}");
}

#[test]
fn runs_are_short_and_loads_settled() {
    for seed in 1..=300 {
        let scenario = draw(seed);
        let cell = Cell { scenario: &scenario, variant: &scenario.variants[0], seed: 1 };
        let all: Vec<u64> = limits(cell).iter().map(|(_, limit)| limit.iops).collect();
        let most = all.iter().copied().max().expect("a limit");
        assert!(all.iter().all(|iops| *iops > 0), "seed {seed}: no path is usable");
        let run = &scenario.run;
        let requests = most * (run.ramp_ns + run.window_ns) / 1_000_000_000;
        assert!(requests <= 350_000, "seed {seed}: {requests} requests");
        assert!(run.window_ns >= 600_000_000 && run.ramp_ns >= 300_000_000, "seed {seed}");
        for job in &scenario.jobs {
            let hosts = u64::from(scenario.hosts.count);
            match job.arrival {
                Arrival::Closed => {
                    let open = u64::from(job.depth) * u64::from(job.clones) * hosts;
                    let fits = open * 1000 <= (all[0] + 1) * 101 || job.depth == 1;
                    assert!(fits, "seed {seed}: {open} open at {} IOPS", all[0]);
                }
                Arrival::Poisson { iops } => {
                    // What is asked for never is beyond what is possible at that time.
                    let asked = iops * hosts * scenario.jobs.len() as u64;
                    assert!(all.iter().all(|limit| *limit == asked), "seed {seed}: {all:?}");
                }
            }
        }
    }
}

#[test]
fn everything_that_is_promised_is_drawn() {
    let all: Vec<Scenario> = (1..=600).map(draw).collect();
    // So many of the 600, at least and at most.
    let share = |what: &str, least: usize, most: usize, has: &dyn Fn(&Scenario) -> bool| {
        let count = all.iter().filter(|scenario| has(scenario)).count();
        assert!((least..=most).contains(&count), "{what}: {count} of 600");
    };
    for paths in 2..=8 {
        share(&format!("{paths} paths"), 10, 280, &|one| one.paths.len() == paths);
    }
    let alike = |one: &Scenario, rate: fn(&anabranch_lab::scenario::Path) -> Option<u64>| {
        one.paths.iter().all(|path| rate(path) == rate(&one.paths[0]))
    };
    share("equal rates", 150, 300, &|one| alike(one, |path| path.shape.rate_out));
    share("asymmetric", 80, 160, &|one| {
        one.paths.iter().any(|path| path.shape.rate_in != path.shape.rate_out)
    });
    share("20:1", 15, 300, &|one| {
        let rates = || one.paths.iter().filter_map(|path| path.shape.rate_out);
        let (low, high) = (rates().min().unwrap_or(1), rates().max().unwrap_or(1));
        assert!(low >= 20 * MIB_S && high <= 2400 * MIB_S && high <= low * 21, "{}", one.name);
        high > low * 15
    });
    let delays = |one: &Scenario| one.paths.iter().map(|path| path.shape.delay).collect::<Vec<_>>();
    share("equal delays", 200, 330, &|one| delays(one).windows(2).all(|two| two[0] == two[1]));
    share("jitter", 60, 180, &|one| one.paths.iter().any(|path| !path.shape.jitter.is_zero()));
    share("by size", 40, 110, &|one| one.paths.iter().any(|path| path.shape.large.is_some()));
    share("brownout", 30, 90, &|one| one.paths.iter().any(|path| path.brownout.is_some()));
    share("many hosts", 50, 130, &|one| one.hosts.count > 1);
    share("exponential", 150, 270, &|one| one.target.distribution == Distribution::Exponential);
    share("shared servers", 120, 240, &|one| one.target.servers.is_some() && !one.target.per_path);
    share("own servers", 120, 240, &|one| one.target.per_path);
    share("open", 100, 200, &|one| one.jobs[0].arrival != Arrival::Closed);
    share("reads", 230, 370, &|one| one.jobs[0].mix.read == 100);
    share("writes", 80, 170, &|one| one.jobs[0].mix.write == 100);
    share("one size", 200, 400, &|one| match &one.jobs[0].sizes.read {
        Sizes::Split(sizes) => sizes.len() == 1,
        Sizes::Range { .. } => false,
    });
    share("changes", 150, 270, &|one| !one.changes.is_empty());
    let happens = |has: fn(&Alteration) -> bool| {
        move |one: &Scenario| one.changes.iter().any(|change| has(&change.what))
    };
    let state = |state| {
        move |one: &Scenario| {
            one.changes.iter().any(|change| change.what == Alteration::State(state))
        }
    };
    share("cut", 10, 60, &state(PathState::Cut));
    share("silent", 8, 60, &state(PathState::Silent));
    share("up", 20, 120, &state(PathState::Up));
    share("ANA", 2, 40, &happens(|what| matches!(what, Alteration::Ana(_))));
    share(
        "congested",
        8,
        60,
        &happens(|what| matches!(what, Alteration::Shape(shape) if shape.on_off.is_some())),
    );
}
