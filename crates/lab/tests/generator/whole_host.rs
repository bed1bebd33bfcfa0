//! On a real host engine and a target, in virtual time.

#[path = "../whole_host/setup.rs"]
mod setup;

use crate::fake::MS;
use crate::{mixed, scenario};
use anabranch_host::Worker;
use anabranch_host::config::ControllerOptions;
use anabranch_host::verb::{Reply, Verb};
use anabranch_lab::cell::Cell;
use anabranch_lab::generator::{
    Generator, GeneratorReply, GeneratorVerb, HostFigures, PathSample, Payload, Plan, assemble,
};
use anabranch_lab::scenario::{Arrival, Job, PerOp, Scenario, Sizes};
use anabranch_lab::sim::{LinkTimes, World};
use anabranch_policy::Policy;
use anabranch_proto::machine::Time;
use anabranch_target::Target;
use anabranch_target::config::PortConfig;
use std::time::Duration;

type Pair = World<Worker<Generator>, Target>;

const PATIENCE: Duration = Duration::from_secs(10);

/// Two paths, two data workers with room for 64 requests each, 1 MiB in blocks of 512 bytes.
fn connected() -> Pair {
    let host = setup::host(2, Policy::RoundRobin);
    let workers = Worker::group(&host, |_| Generator::new());
    let ports = (0..2).map(|index| PortConfig::new(setup::port(index))).collect();
    let target = setup::target(ports, vec![setup::namespace(1, 512)]);
    let target = Target::new(target, 1).expect("a valid configuration");
    let mut world = World::new(workers, vec![target], LinkTimes::default(), 1);
    for port in 0..2 {
        let mut connect = setup::connect(port, &ControllerOptions::default());
        connect.keep_trying = false;
        let id = world.host_verb(Verb::Connect(Box::new(connect)));
        let reply = world.host_answer(id, PATIENCE);
        assert!(matches!(reply, Ok(Reply::Connected(..))), "{reply:?}");
    }
    world
}

/// The two paths now.
fn sample(world: &mut Pair) -> Vec<PathSample> {
    let id = world.host_verb(Verb::Snapshot);
    let Ok(Reply::Snapshot(host)) = world.host_answer(id, PATIENCE) else { panic!("a snapshot") };
    let at = world.now();
    let paths = host.subsystems[0].heads[0].paths.iter();
    let sample = |path: &anabranch_host::verb::PathSnapshot| PathSample {
        at,
        commands: path.commands.iter().sum(),
        bytes: path.bytes.iter().sum(),
        latency_ns: path.latency_ns.sum() as u64,
        in_flight: path.in_flight,
    };
    paths.map(sample).collect()
}

/// Runs a scenario's jobs with stamps: when they began, what came of it, samples by path.
fn run(scenario: &Scenario) -> (Time, Box<HostFigures>, Vec<Vec<PathSample>>) {
    let mut world = connected();
    let before = world.host_buffers();
    let begin = world.now().after(Duration::from_millis(10));
    let cell = Cell { scenario, variant: &scenario.variants[0], seed: 1 };
    let plan = Plan { payload: Payload::Stamped, ..Plan::of(cell, 0, "nvme0n1", begin) };
    let id = world.host_verb(Verb::User(GeneratorVerb::Start(Box::new(plan))));
    let reply = world.host_answer(id, PATIENCE);
    assert!(matches!(reply, Ok(Reply::User(GeneratorReply::Started))), "{reply:?}");
    let mut samples = vec![Vec::new(); 2];
    let end = begin.after(Duration::from_nanos(cell.end_ns()));
    while world.now() < end {
        samples.iter_mut().zip(sample(&mut world)).for_each(|(all, new)| all.push(new));
        world.run(Duration::from_millis(5));
    }
    let id = world.host_verb(Verb::User(GeneratorVerb::Collect));
    let reply = world.host_answer(id, PATIENCE);
    let Ok(Reply::User(GeneratorReply::Figures(figures))) = reply else { panic!("{reply:?}") };
    assert_eq!(world.host_buffers(), before, "buffers are given back");
    (begin, figures, samples)
}

#[test]
fn jobs_of_all_kinds_run_on_the_engines() {
    let sizes = PerOp::all(Sizes::Range { min: 512, max: 4096 });
    let closed = Job { sizes, ..mixed(80, 2) };
    let open = Job { arrival: Arrival::Poisson { iops: 3000 }, ..closed.clone() };
    let mut scenario = scenario(2, vec![closed, open]);
    (scenario.run.ramp_ns, scenario.run.window_ns) = (10 * MS, 40 * MS);
    let (begin, figures, samples) = run(&scenario);
    assert_eq!((figures.errors, figures.first_error.as_deref()), (0, None));
    assert_eq!(figures.books.check(), Ok(()));
    let cell = Cell { scenario: &scenario, variant: &scenario.variants[0], seed: 1 };
    let figures = assemble(cell, begin, &[*figures], &[samples], None);
    assert!(figures.requests > 2000, "{}", figures.requests);
    let open: u64 = figures.jobs[1].iter().map(|class| class.requests()).sum();
    assert!(open.abs_diff(120) < 50, "{open}");
    // The host's table is full most of the time.
    assert!(figures.submission.max() > 0 && figures.submission.mean() < figures.latency.mean());
    assert_eq!(figures.books.check(), Ok(()));
    // Each request is one command: both sides count the same, but for when samples were taken.
    let commands: u64 = figures.paths.iter().map(|path| path.commands).sum();
    let tolerance = figures.requests / 5;
    assert!(commands.abs_diff(figures.requests) < tolerance, "{commands}, {}", figures.requests);
    let again = run(&scenario);
    assert_eq!(figures.books.latency_ns, again.1.books.latency_ns, "the same seed, the same run");
}
