//! Every request is started once and ends once, or is open; time adds up to the nanosecond.

use crate::fake::{BEGIN, Device, Fake, MS, SECOND, US};
use crate::{mixed, plan, reads, scenario};
use anabranch_lab::generator::{GeneratorReply, GeneratorVerb, Plan};
use anabranch_lab::scenario::{Arrival, Job, PerOp};

#[test]
fn books_balance_for_every_kind_of_job() {
    let jobs = vec![
        mixed(8, 3),
        Job { thinktime_ns: 77 * US, ..mixed(3, 2) },
        Job { rate_iops: PerOp::all(Some(3333)), ..mixed(5, 2) },
        Job { arrival: Arrival::Poisson { iops: 12_345 }, ..mixed(1, 2) },
    ];
    for (latency, room) in [(123 * US, 1 << 20), (45_678, 3), (7 * MS, 16)] {
        let device = Device { room, ..Device::new(latency) };
        // `run` checks the books.
        let figures = Fake::new(2, device).run(plan(&scenario(2, jobs.clone())));
        let books = figures.books;
        assert!(books.requests_open > 0 && books.requests_ended > 1000);
        let classes = figures.jobs.iter().flatten();
        let bytes: u64 = classes.clone().map(|class| class.bytes).sum();
        let requests: u64 = classes.map(|class| class.requests()).sum();
        assert_eq!(figures.bytes, bytes);
        assert_eq!(figures.jobs[0][2].bytes, 0, "trims have no payload");
        assert!(figures.jobs[0][2].requests() > 0);
        // The series holds the ramp too.
        let all: u64 = figures.windows.iter().map(|window| window.requests).sum();
        let ramp: u64 = figures.windows[..2].iter().map(|window| window.requests).sum();
        assert_eq!((figures.windows.len(), all), (20, books.requests_ended));
        assert_eq!(all - ramp, requests);
        let time: u64 = figures.windows.iter().map(|window| window.latency_ns).sum();
        assert_eq!(time, books.latency_ns);
    }
}

#[test]
fn what_is_open_at_the_end_of_the_window_is_waited_for_and_counted_open() {
    let mut fake = Fake::new(1, Device::new(300 * MS));
    let figures = fake.run(plan(&scenario(1, vec![reads(5, 1)])));
    // The last ones began at 900 ms and ended at 1200.
    assert_eq!(fake.now.since(BEGIN).as_nanos() as u64, 1200 * MS);
    let books = figures.books;
    assert_eq!((books.requests_open, books.open_ns), (5, 5 * 100 * MS));
    assert_eq!(books.requests_ended, 15);
    assert_eq!(figures.jobs[0][0].requests(), 15);
}

#[test]
fn failed_requests_are_counted_apart_and_paused_after() {
    let device = Device { broken: 0..u64::MAX, ..Device::new(2 * MS) };
    let mut fake = Fake::new(1, device);
    let figures = fake.run(plan(&scenario(1, vec![reads(2, 1)])));
    // One every 12 ms: those that began at 0 to 996 ms have ended by 998.
    assert_eq!(figures.errors, 2 * 84);
    assert_eq!(figures.first_error.as_deref(), Some("no available path"));
    assert_eq!((figures.jobs[0][0].requests(), figures.bytes), (0, 0));
    assert_eq!((figures.books.requests_ended, figures.books.requests_open), (168, 0));
    assert!(figures.windows.iter().all(|window| window.requests == 0));
}

#[test]
fn plans_follow_each_other() {
    let mut fake = Fake::new(2, Device::new(100 * US));
    let scenario = scenario(2, vec![reads(1, 2)]);
    let first = fake.run(plan(&scenario));
    let begin = fake.now.after(std::time::Duration::from_nanos(SECOND));
    let second = fake.run(Plan { begin, ..plan(&scenario) });
    assert_eq!(first.books, second.books);
}

#[test]
fn a_late_start_is_latency_and_not_less_load() {
    let mut fake = Fake::new(1, Device::new(MS));
    fake.run_until(150 * MS);
    let figures = fake.run(plan(&scenario(1, vec![reads(1, 1)])));
    let latency = &figures.jobs[0][0].latency;
    assert_eq!((latency.count(), latency.max()), (849, 151 * MS));
}

#[test]
fn verbs_at_the_wrong_time_are_refused() {
    let mut fake = Fake::new(1, Device::new(MS));
    let scenario = scenario(1, vec![reads(1, 1)]);
    let refused = |reply: GeneratorReply| match reply {
        GeneratorReply::Refused(words) => words,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(fake.collect()), "no plan runs");
    assert!(matches!(fake.start(plan(&scenario)), GeneratorReply::Started));
    assert_eq!(refused(fake.start(plan(&scenario))), "a plan runs already");
    fake.verb(GeneratorVerb::Collect);
    assert!(fake.take_reply().is_none(), "the window is not over");
    assert_eq!(refused(fake.start(plan(&scenario))), "the figures are being collected");
    fake.run_until(2 * SECOND);
    assert!(matches!(fake.take_reply(), Some(GeneratorReply::Figures(_))));
}
