//! A load whose client is gone: it must not go on for ever, nor keep others from making one.

use anabranch_export::fuzz::MemoryHost;
use anabranch_host::user::User;
use anabranch_lab::load::{Load, LoadEvent, LoadMail, LoadReply, LoadReport, LoadVerb};
use anabranch_lab::nbd::fuzz::job;
use anabranch_proto::machine::{Input, Output, Time, VerbId, WorkerId};
use anabranch_proto::testing::MemoryBuffers;
use std::time::Duration;

type Out = Output<LoadMail, LoadReply, LoadEvent>;

const LIMIT: Duration = Duration::from_secs(70);

/// The load on the control worker.
struct Control {
    load: Load,
    host: MemoryHost,
    pool: MemoryBuffers,
    now: Time,
}

impl Control {
    fn new() -> Control {
        let pool = MemoryBuffers::with_limit(1 << 20);
        Control { load: Load::new(), host: MemoryHost::new(0), pool, now: Time::ZERO }
    }

    fn input(&mut self, input: Input<'_, LoadVerb, LoadMail>) -> Vec<Out> {
        self.load.handle(self.now, input, &mut self.host, &mut self.pool);
        std::iter::from_fn(|| self.load.poll_output()).collect()
    }

    fn verb(&mut self, verb: LoadVerb) -> Vec<Out> {
        self.input(Input::Verb { id: VerbId(1), verb })
    }

    fn start(&mut self) -> Vec<Out> {
        let job = Box::new(job(50, &[4096], 4, false));
        self.verb(LoadVerb::StartFor(job, LIMIT))
    }

    /// The next time-out comes.
    fn pass_time(&mut self) -> Vec<Out> {
        self.now = self.load.poll_timeout().expect("it waits for something");
        self.input(Input::Timeout)
    }

    /// Every data worker reports.
    fn reports(&mut self) -> Vec<Out> {
        let reports = (1..self.host.workers).map(WorkerId);
        let mail = || LoadMail::Report(Box::<LoadReport>::default());
        reports.flat_map(|from| self.input(Input::Mail { from, mail: mail() })).collect()
    }
}

fn stops(outputs: &[Out]) -> usize {
    let stop =
        |out: &&Out| matches!(out, Output::Mail { mail: LoadMail::Collect { stop: true }, .. });
    outputs.iter().filter(stop).count()
}

fn is_started(outputs: &[Out]) -> bool {
    outputs.iter().any(|out| matches!(out, Output::Reply { reply: LoadReply::Started, .. }))
}

#[test]
fn a_load_that_nobody_stops_stops_by_itself() {
    let mut control = Control::new();
    assert!(is_started(&control.start()));
    let outputs = control.pass_time();
    assert_eq!(control.now, Time::ZERO.after(LIMIT));
    assert_eq!(stops(&outputs), 2, "every data worker is told");
    assert!(outputs.iter().any(|out| matches!(out, Output::Event(LoadEvent::Abandoned))));
    assert!(!is_started(&control.start()), "its last requests are not answered yet");
    assert!(control.reports().is_empty(), "nobody has asked for figures");
    assert_eq!(control.load.poll_timeout(), None);
    assert!(is_started(&control.start()));
}

#[test]
fn a_load_that_was_stopped_in_time_is_not_stopped_again() {
    let mut control = Control::new();
    control.start();
    assert_eq!(stops(&control.verb(LoadVerb::Stop)), 2);
    assert_eq!(control.load.poll_timeout(), None);
    let outputs = control.reports();
    assert!(matches!(outputs[..], [Output::Reply { reply: LoadReply::Report(_), .. }]));
}

#[test]
fn a_report_under_way_does_not_save_a_load_that_nobody_stops() {
    let mut control = Control::new();
    control.start();
    control.verb(LoadVerb::Report);
    assert_eq!(stops(&control.pass_time()), 0, "one thing after the other");
    let outputs = control.reports();
    assert!(matches!(outputs[..], [Output::Reply { reply: LoadReply::Report(_), .. }]));
    assert_eq!(stops(&control.pass_time()), 2);
}
