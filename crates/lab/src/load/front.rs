//! The user that makes the load.

use super::job::{Job, JobError};
use super::report::LoadReport;
use super::runner::Runner;
use anabranch_host::user::{Done, Submit, User};
use anabranch_proto::machine::{Buffers, ConnId, Gather, Input, Output, Time, VerbId, WorkerId};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// When a load that was not stopped in time is stopped, if that has to wait for a report.
const SOON: Duration = Duration::from_millis(100);

/// What can be asked of the load.
#[derive(Clone, Debug)]
pub enum LoadVerb {
    /// Begin. Answered `Started` at once; a worker begins as soon as it knows the device.
    Start(Box<Job>),
    /// The same for somebody who may be gone when it is time to stop: after so long it is stopped
    /// by itself, and nobody gets its figures.
    StartFor(Box<Job>, Duration),
    /// Report the figures so far.
    Report,
    /// Submit nothing more, wait for what is in flight, report.
    Stop,
}

/// The answer.
#[derive(Clone, Debug)]
pub enum LoadReply {
    /// The load runs.
    Started,
    /// Figures of all workers.
    Report(Box<LoadReport>),
    /// Refused: a load runs already, or none does.
    Refused(JobError),
}

/// What loads of different workers tell each other.
#[derive(Clone, Debug)]
pub enum LoadMail {
    /// Control to data: begin.
    Start(Box<Job>),
    /// Control to data: answer with `Report`; when `stop`, end first.
    Collect {
        /// End first.
        stop: bool,
    },
    /// Data to control.
    Report(Box<LoadReport>),
}

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadEvent {
    /// A data worker cannot run the job.
    Rejected(JobError),
    /// Nobody has stopped it in its time.
    Abandoned,
}

impl fmt::Display for LoadEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadEvent::Rejected(error) => write!(f, "load: {error}"),
            LoadEvent::Abandoned => f.write_str("load: nobody stops it, so it is stopped"),
        }
    }
}

type LoadOutput = Output<LoadMail, LoadReply, LoadEvent>;

/// A collection of reports under way on the control worker.
struct Collecting {
    /// Who has asked; `None` when it was time.
    verb: Option<VerbId>,
    missing: u16,
    sum: Box<LoadReport>,
}

/// The load on one worker.
#[derive(Default)]
pub struct Load {
    outputs: VecDeque<LoadOutput>,
    /// Control: a job has been started and not stopped.
    started: bool,
    /// Control: when it is stopped, if nobody has asked for that.
    stop_at: Option<Time>,
    collecting: Option<Collecting>,
    /// Data: the job at work, or waiting for its device.
    runner: Option<Box<Runner>>,
    /// Data: a report is owed as soon as nothing is in flight.
    stopping: bool,
}

impl Load {
    /// A load that waits for its first verb.
    #[must_use]
    pub fn new() -> Load {
        Load::default()
    }

    /// One of our requests has ended; [`Load::room_made`] is to follow.
    pub fn ended(&mut self, now: Time, done: Done, bufs: &mut dyn Buffers) {
        if let Some(runner) = &mut self.runner {
            runner.completed(now, done, bufs);
        }
    }

    /// There may be room in the host, for whosever request has ended: keeps the load at its depth.
    #[inline]
    pub fn room_made(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        if self.runner.is_some() {
            self.advance(now, host, bufs);
        }
    }

    fn verb(&mut self, now: Time, id: VerbId, verb: LoadVerb, workers: u16) {
        let refuse = |text: &str| LoadReply::Refused(JobError(text.into()));
        if self.collecting.is_some() {
            let reply = refuse(match self.started {
                true => "another report is being collected",
                false => "a load is being stopped: its last requests are not answered yet",
            });
            return self.outputs.push_back(Output::Reply { id, reply });
        }
        match verb {
            LoadVerb::Start(_) | LoadVerb::StartFor(..) if self.started => {
                let reply = refuse("a load runs already");
                self.outputs.push_back(Output::Reply { id, reply });
            }
            LoadVerb::Start(job) => self.start(id, job, None, workers),
            LoadVerb::StartFor(job, limit) => self.start(id, job, Some(now.after(limit)), workers),
            _ if !self.started => {
                let reply = refuse("no load runs");
                self.outputs.push_back(Output::Reply { id, reply });
            }
            LoadVerb::Report => self.collect(Some(id), false, workers),
            LoadVerb::Stop => self.collect(Some(id), true, workers),
        }
    }

    fn start(&mut self, id: VerbId, job: Box<Job>, stop_at: Option<Time>, workers: u16) {
        (self.started, self.stop_at) = (true, stop_at);
        self.outputs.push_back(Output::Reply { id, reply: LoadReply::Started });
        self.tell_all(&LoadMail::Start(job), workers);
    }

    fn collect(&mut self, verb: Option<VerbId>, stop: bool, workers: u16) {
        if stop {
            (self.started, self.stop_at) = (false, None);
        }
        self.collecting = Some(Collecting { verb, missing: workers - 1, sum: Box::default() });
        self.tell_all(&LoadMail::Collect { stop }, workers);
    }

    fn tell_all(&mut self, mail: &LoadMail, workers: u16) {
        for worker in 1..workers {
            self.outputs.push_back(Output::Mail { to: WorkerId(worker), mail: mail.clone() });
        }
    }

    /// Stops a load whose time is over: whoever started it has gone without a word.
    fn stop_abandoned(&mut self, now: Time, workers: u16) {
        if self.stop_at.is_none_or(|at| now < at) {
            return;
        }
        if self.collecting.is_some() {
            self.stop_at = Some(now.after(SOON));
            return;
        }
        self.outputs.push_back(Output::Event(LoadEvent::Abandoned));
        self.collect(None, true, workers);
    }

    fn mail(&mut self, now: Time, mail: LoadMail, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        match mail {
            LoadMail::Start(job) => {
                self.runner = Some(Box::new(Runner::new(*job, host.worker(), host.workers())));
                self.advance(now, host, bufs);
            }
            LoadMail::Collect { stop: true } => {
                self.stopping = true;
                if let Some(runner) = &mut self.runner {
                    runner.stop();
                }
                self.advance(now, host, bufs);
            }
            LoadMail::Collect { stop: false } => {
                let report =
                    self.runner.as_ref().map(|runner| runner.report(now)).unwrap_or_default();
                self.report(report);
            }
            LoadMail::Report(report) => self.collected(&report),
        }
    }

    fn collected(&mut self, report: &LoadReport) {
        let Some(collecting) = &mut self.collecting else { return };
        collecting.sum.merge(report);
        collecting.missing -= 1;
        if collecting.missing == 0
            && let Some(collecting) = self.collecting.take()
        {
            let reply = LoadReply::Report(collecting.sum);
            let reply = collecting.verb.map(|id| Output::Reply { id, reply });
            self.outputs.extend(reply);
        }
    }

    fn report(&mut self, report: LoadReport) {
        let mail = LoadMail::Report(Box::new(report));
        self.outputs.push_back(Output::Mail { to: WorkerId(0), mail });
    }

    /// Keeps the runner busy, and answers an owed report once nothing is in flight.
    fn advance(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        if let Some(runner) = &mut self.runner
            && let Err(error) = runner.advance(now, host, bufs)
        {
            self.outputs.push_back(Output::Event(LoadEvent::Rejected(error)));
        }
        if self.stopping && self.runner.as_ref().is_none_or(|runner| runner.is_idle()) {
            self.stopping = false;
            let report = match self.runner.take() {
                Some(mut runner) => runner.finish(bufs),
                None => LoadReport::default(),
            };
            self.report(report);
        }
    }
}

impl User for Load {
    type Mail = LoadMail;
    type Verb = LoadVerb;
    type Reply = LoadReply;
    type Event = LoadEvent;

    fn handle(
        &mut self,
        now: Time,
        input: Input<'_, LoadVerb, LoadMail>,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    ) {
        match input {
            Input::Verb { id, verb } => self.verb(now, id, verb, host.workers()),
            Input::Mail { mail, .. } => self.mail(now, mail, host, bufs),
            Input::Timeout => {
                self.stop_abandoned(now, host.workers());
                self.advance(now, host, bufs);
            }
            _ => {}
        }
    }

    fn completed(&mut self, now: Time, done: Done, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        self.ended(now, done, bufs);
        self.advance(now, host, bufs);
    }

    fn heads_changed(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        self.advance(now, host, bufs);
    }

    fn poll_output(&mut self) -> Option<LoadOutput> {
        self.outputs.pop_front()
    }

    fn poll_transmit(
        &mut self,
        _now: Time,
        _conn: ConnId,
        _batch: &mut dyn Gather,
        _bufs: &mut dyn Buffers,
    ) {
        // A load has no connections.
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        let wake = self.runner.as_ref().and_then(|runner| runner.wake());
        wake.into_iter().chain(self.stop_at).min()
    }
}
