//! The user that makes the load.

use super::figures::HostFigures;
use super::plan::Plan;
use super::runner::Runner;
use anabranch_host::user::{Done, Submit, User};
use anabranch_proto::machine::{Buffers, ConnId, Gather, Input, Output, Time, VerbId, WorkerId};
use std::collections::VecDeque;
use std::fmt;

/// What can be asked of the generator.
#[derive(Clone, Debug)]
pub enum GeneratorVerb {
    /// Run a plan. Answered `Started` at once.
    Start(Box<Plan>),
    /// Answer with the figures, when the window is over and everything that was submitted has
    /// ended. Then another plan may start.
    Collect,
}

/// The answer.
#[derive(Clone, Debug)]
pub enum GeneratorReply {
    /// The plan is with the workers.
    Started,
    /// The sums of all workers.
    Figures(Box<HostFigures>),
    /// A plan runs already, or none does, or it cannot be run: in words.
    Refused(String),
}

/// What generators of different workers tell each other.
#[derive(Clone, Debug)]
pub enum GeneratorMail {
    /// Control to data: run this.
    Start(Box<Plan>),
    /// Control to data: answer with `Report` at the end.
    Collect,
    /// Data to control: figures, or why the plan could not be run.
    Report(Result<Box<HostFigures>, String>),
}

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GeneratorEvent {
    /// A data worker cannot run the plan: the same words answer `Collect`.
    Rejected(String),
}

impl fmt::Display for GeneratorEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GeneratorEvent::Rejected(words) => write!(f, "load generator: {words}"),
        }
    }
}

type GeneratorOutput = Output<GeneratorMail, GeneratorReply, GeneratorEvent>;

/// A collection under way on the control worker.
struct Collecting {
    verb: VerbId,
    missing: u16,
    sum: Box<HostFigures>,
    rejected: Option<String>,
}

/// The generator on one worker.
#[derive(Default)]
pub struct Generator {
    outputs: VecDeque<GeneratorOutput>,
    /// Control: a plan has been started and not collected.
    started: bool,
    collecting: Option<Collecting>,
    /// Data: the plan at work.
    runner: Option<Box<Runner>>,
    /// Data: a report is owed as soon as the run is over.
    reporting: bool,
}

impl Generator {
    /// A generator that waits for its first verb.
    #[must_use]
    pub fn new() -> Generator {
        Generator::default()
    }

    fn verb(&mut self, id: VerbId, verb: GeneratorVerb, workers: u16) {
        let mail = match verb {
            _ if self.collecting.is_some() => Err("the figures are being collected"),
            GeneratorVerb::Start(_) if self.started => Err("a plan runs already"),
            GeneratorVerb::Start(plan) => Ok(GeneratorMail::Start(plan)),
            GeneratorVerb::Collect if !self.started => Err("no plan runs"),
            GeneratorVerb::Collect => Ok(GeneratorMail::Collect),
        };
        let mail = match mail {
            Ok(mail) => mail,
            Err(words) => {
                let reply = GeneratorReply::Refused(words.to_owned());
                return self.outputs.push_back(Output::Reply { id, reply });
            }
        };
        if let GeneratorMail::Collect = mail {
            let (missing, sum) = (workers - 1, Box::default());
            self.collecting = Some(Collecting { verb: id, missing, sum, rejected: None });
        } else {
            self.started = true;
            self.outputs.push_back(Output::Reply { id, reply: GeneratorReply::Started });
        }
        for worker in 1..workers {
            self.outputs.push_back(Output::Mail { to: WorkerId(worker), mail: mail.clone() });
        }
    }

    fn mail(
        &mut self,
        now: Time,
        mail: GeneratorMail,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    ) {
        match mail {
            GeneratorMail::Start(plan) => {
                self.runner = Some(Box::new(Runner::new(plan, host.worker(), host.workers())));
                self.advance(now, host, bufs);
            }
            GeneratorMail::Collect => {
                self.reporting = true;
                self.advance(now, host, bufs);
            }
            GeneratorMail::Report(report) => self.collected(report),
        }
    }

    fn collected(&mut self, report: Result<Box<HostFigures>, String>) {
        let Some(mut collecting) = self.collecting.take() else { return };
        match report {
            Ok(figures) => collecting.sum.merge(&figures),
            Err(words) => {
                collecting.rejected.get_or_insert(words);
            }
        }
        collecting.missing -= 1;
        if collecting.missing > 0 {
            self.collecting = Some(collecting);
            return;
        }
        self.started = false;
        let reply = match collecting.rejected {
            Some(words) => GeneratorReply::Refused(words),
            None => GeneratorReply::Figures(collecting.sum),
        };
        self.outputs.push_back(Output::Reply { id: collecting.verb, reply });
    }

    /// Keeps the runner busy, and answers an owed report once the run is over.
    fn advance(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        let Some(runner) = &mut self.runner else { return };
        if let Err(words) = runner.advance(now, host, bufs) {
            self.outputs.push_back(Output::Event(GeneratorEvent::Rejected(words)));
        }
        if self.reporting && runner.is_over() {
            self.report(bufs);
        }
    }

    fn report(&mut self, bufs: &mut dyn Buffers) {
        let Some(runner) = self.runner.take() else { return };
        self.reporting = false;
        let mail = GeneratorMail::Report(runner.finish(bufs));
        self.outputs.push_back(Output::Mail { to: WorkerId(0), mail });
    }
}

impl User for Generator {
    type Mail = GeneratorMail;
    type Verb = GeneratorVerb;
    type Reply = GeneratorReply;
    type Event = GeneratorEvent;

    fn handle(
        &mut self,
        now: Time,
        input: Input<'_, GeneratorVerb, GeneratorMail>,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    ) {
        match input {
            Input::Verb { id, verb } => self.verb(id, verb, host.workers()),
            Input::Mail { mail, .. } => self.mail(now, mail, host, bufs),
            Input::Timeout => self.advance(now, host, bufs),
            _ => {}
        }
    }

    fn completed(&mut self, now: Time, done: Done, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        if let Some(runner) = &mut self.runner {
            runner.completed(now, done, bufs);
        }
        self.advance(now, host, bufs);
    }

    fn heads_changed(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        self.advance(now, host, bufs);
    }

    fn poll_output(&mut self) -> Option<GeneratorOutput> {
        self.outputs.pop_front()
    }

    fn poll_transmit(
        &mut self,
        _now: Time,
        _conn: ConnId,
        _batch: &mut dyn Gather,
        _bufs: &mut dyn Buffers,
    ) {
        // A generator has no connections.
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        self.runner.as_ref().and_then(|runner| runner.wake())
    }
}
