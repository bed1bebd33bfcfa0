//! The connect sequence: from a TCP connection to a live controller, one admin command at a time.

use super::controller::Controller;
use super::discovery;
use super::env::{Env, Notice};
use super::facts::Facts;
use super::lifecycle::{ICRESP_LIMIT, Phase, SHARD_GRACE, TCP_LIMIT};
use super::link::{Answer, Payload, Purpose};
use super::queues::{Kinds, Seats};
use super::wire;
use crate::config::ControllerOptions;
use crate::event::HostEvent;
use crate::mail::{OpenQueue, ToShard};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use anabranch_proto::machine::{Buffers, Time};
use anabranch_proto::nvme::sqe::Sqe;
use anabranch_proto::nvme::status::Status;
use core::fmt;
use core::time::Duration;

/// Pause between two looks at CSTS; doubles up to the second one.
const READY_POLL: Duration = Duration::from_millis(1);
const READY_POLL_MAX: Duration = Duration::from_millis(100);

/// Where the connect sequence stands: which command was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Connect,
    Capabilities,
    Version,
    Enable,
    /// Waits for CSTS.RDY; the next look follows after this many milliseconds.
    Ready {
        poll_ms: u16,
        asked: bool,
    },
    Identify,
    NvmLimits,
    /// The subsystem decides whether it takes the controller. No command.
    Admission,
    QueueCount,
    HostBehavior,
    EventConfig,
    AnaLog,
    /// The discovery log is read (and nothing else follows).
    Discovery,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Connect => "Connect",
            Step::Capabilities => "Property Get CAP",
            Step::Version => "Property Get VS",
            Step::Enable => "Property Set CC.EN",
            Step::Ready { .. } => "Property Get CSTS",
            Step::Identify => "Identify Controller",
            Step::NvmLimits => "Identify Controller (NVM command set)",
            Step::Admission => "admission",
            Step::QueueCount => "Set Features (number of queues)",
            Step::HostBehavior => "Set Features (host behavior support)",
            Step::EventConfig => "Set Features (asynchronous event configuration)",
            Step::AnaLog => "Get Log Page (ANA)",
            Step::Discovery => "Get Log Page (discovery)",
        })
    }
}

/// A step failed: why, and whether the controller said "do not retry".
type Failure = (String, bool);

fn failure(text: impl Into<String>) -> Failure {
    (text.into(), false)
}

impl Controller {
    /// After each input on the admin connection: has ICResp arrived?
    pub(super) fn check_opened(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let ready = self.link.as_ref().is_some_and(super::link::Link::is_ready);
        if matches!(self.phase, Phase::Opening { .. }) && ready {
            self.facts = Facts::default();
            let (connect, data) = wire::connect(env, self, None);
            self.step(env, bufs, Step::Connect, (connect.sqe(), Payload::Out(&data[..])));
        }
    }

    fn step(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        step: Step,
        command: (Sqe, Payload<'_>),
    ) {
        let deadline = self.admin_deadline(env.now);
        self.step_by(env, bufs, step, command, deadline);
    }

    pub(super) fn step_by(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        step: Step,
        command: (Sqe, Payload<'_>),
        deadline: Time,
    ) {
        self.phase = Phase::Setup { step, until: deadline };
        let Some(link) = &mut self.link else { return };
        if let Err(error) = link.send(env, bufs, Purpose::Setup, command, deadline) {
            self.fail(env, error.text().to_string(), false);
        }
    }

    /// A step was answered: looks at the answer and goes on.
    pub(super) fn setup_answered(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        answer: &Answer,
    ) {
        let Phase::Setup { step, .. } = self.phase else { return };
        if step == Step::AnaLog {
            return self.setup_log_answered(env, bufs, answer);
        }
        let result = if answer.status.is_success() || step.may_fail() {
            self.take_answer(env, step, answer)
        } else {
            let hint = if step == Step::Connect { wire::connect_hint(answer) } else { "" };
            // Linux targets set DNR on this, too, and what keeps them busy is often our own former
            // controller, until its keep-alive time-out.
            let busy = step == Step::Connect && answer.status.is(Status::CONNECT_CONTROLLER_BUSY);
            let for_good = answer.status.dnr() && step.ends_for_good() && !busy;
            Err((format!("{step}: {}{hint}", answer.says()), for_good))
        };
        match result {
            Ok(()) => self.next_step(env, bufs, step, answer.result),
            Err((why, do_not_retry)) => self.fail(env, why, do_not_retry),
        }
    }

    fn take_answer(&mut self, env: &mut Env, step: Step, answer: &Answer) -> Result<(), Failure> {
        let wanted = self.wanted_queues(env).total();
        let discovery = self.is_discovery();
        let facts = &mut self.facts;
        match step {
            Step::Connect => facts.take_connect(answer.result).map_err(failure),
            Step::Capabilities => facts
                .take_capabilities(answer.result, self.request.options.queue_size, discovery)
                .map_err(failure),
            Step::Version => {
                facts.take_version(answer.result);
                Ok(())
            }
            Step::Identify => self.take_identify(env, answer),
            Step::NvmLimits => {
                if answer.status.is_success() {
                    facts.take_nvm_limits(&answer.data);
                }
                Ok(())
            }
            Step::QueueCount => {
                let granted = wire::queues_granted(answer.result).map_err(failure)?;
                facts.io_queues = granted.min(wanted);
                Ok(())
            }
            Step::Enable
            | Step::Ready { .. }
            | Step::Admission
            | Step::HostBehavior
            | Step::EventConfig
            | Step::AnaLog
            | Step::Discovery => Ok(()),
        }
    }

    fn take_identify(&mut self, env: &mut Env, answer: &Answer) -> Result<(), Failure> {
        let discovery = self.is_discovery();
        let kato = self.request.options.keep_alive_tmo;
        let identity = self
            .facts
            .take_identify(&answer.data, &self.request.subsystem_nqn, discovery, kato)
            .map_err(failure)?;
        if let Some(known) = &self.identity
            && **known != identity
        {
            let text = format!(
                "the target calls itself another one since it is back: {}; what is the same \
                 namespace is told by identifiers alone",
                identity.changes_from(known)
            );
            env.event(HostEvent::Note { controller: self.name(), text });
            self.renamed = true;
        }
        if discovery {
            return Ok(());
        }
        self.identity = Some(Arc::new(identity));
        let max = self.facts.max_transfer_bytes.unwrap_or(u32::MAX).min(wire::MAX_LOG_BYTES);
        self.ana.configure(&self.facts, max);
        self.tell_ana_disabled(env);
        Ok(())
    }

    fn next_step(&mut self, env: &mut Env, bufs: &mut dyn Buffers, done: Step, result: u64) {
        match done {
            Step::Connect => {
                self.step(env, bufs, Step::Capabilities, wire::get_cap());
            }
            Step::Capabilities => {
                self.step(env, bufs, Step::Version, wire::get_vs());
            }
            Step::Version => {
                let command = wire::enable(self.facts.configuration);
                self.step(env, bufs, Step::Enable, command);
            }
            Step::Enable => {
                let first = Step::Ready { poll_ms: READY_POLL.as_millis() as u16, asked: true };
                self.facts.ready_by = Some(env.now.after(self.facts.ready_timeout));
                self.step(env, bufs, first, wire::get_csts());
            }
            Step::Ready { poll_ms, .. } => self.ready_answered(env, bufs, poll_ms, result),
            Step::Identify if self.facts.has_nvm_limits() && !self.is_discovery() => {
                self.step(env, bufs, Step::NvmLimits, wire::identify_nvm_controller());
            }
            Step::Identify | Step::NvmLimits => self.await_admission(env, bufs),
            Step::Admission if self.facts.has_retry_delays() => {
                self.step(env, bufs, Step::HostBehavior, wire::set_host_behavior());
            }
            Step::Admission | Step::HostBehavior if self.facts.events_mask == 0 => {
                self.begin_ana_log(env, bufs);
            }
            Step::Admission | Step::HostBehavior => {
                let command = wire::set_event_config(self.facts.events_mask);
                self.step(env, bufs, Step::EventConfig, command);
            }
            Step::EventConfig => self.begin_ana_log(env, bufs),
            Step::QueueCount => self.open_queues(env),
            Step::AnaLog | Step::Discovery => {}
        }
    }

    fn ready_answered(&mut self, env: &mut Env, bufs: &mut dyn Buffers, poll_ms: u16, csts: u64) {
        let csts = wire::csts(csts);
        if csts.fatal() {
            return self.fail(env, String::from("fatal status (CSTS.CFS)"), false);
        }
        if csts.ready() {
            self.begin_keep_alive(env);
            return self.step(env, bufs, Step::Identify, wire::identify_controller());
        }
        if self.facts.ready_by.is_some_and(|by| by <= env.now) {
            return self.fail(env, String::from("not ready within CAP.TO"), false);
        }
        let until = env.now.after(Duration::from_millis(u64::from(poll_ms)));
        let poll_ms = (poll_ms * 2).min(READY_POLL_MAX.as_millis() as u16);
        self.phase = Phase::Setup { step: Step::Ready { poll_ms, asked: false }, until };
    }

    /// The time of a step is over.
    pub(super) fn setup_timeout(&mut self, env: &mut Env, bufs: &mut dyn Buffers, step: Step) {
        match step {
            Step::Ready { poll_ms, asked: false } => {
                let step = Step::Ready { poll_ms, asked: true };
                self.step(env, bufs, step, wire::get_csts());
            }
            Step::Discovery => {
                let seconds = discovery::TIME_LIMIT.as_secs();
                let why = format!("the discovery log could not be read within {seconds} s");
                self.fail(env, why, false);
            }
            _ => self.fail(env, format!("no answer to {step} in time"), false),
        }
    }

    fn await_admission(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        if self.is_discovery() {
            let until = env.now.after(discovery::TIME_LIMIT);
            self.phase = Phase::Setup { step: Step::Discovery, until };
            return self.read_discovery(env, bufs);
        }
        self.phase = Phase::Setup { step: Step::Admission, until: self.admin_deadline(env.now) };
        env.notice(self, Notice::Identified);
    }

    /// The subsystem's answer.
    pub(super) fn admitted(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        verdict: Result<(), String>,
    ) {
        if !matches!(self.phase, Phase::Setup { step: Step::Admission, .. }) {
            return;
        }
        match verdict {
            Ok(()) => {
                self.admitted = Some(self.association);
                self.next_step(env, bufs, Step::Admission, 0);
            }
            Err(why) => self.fail(env, why, false),
        }
    }

    fn wanted_queues(&self, env: &Env) -> Kinds {
        if env.config.shared_queue {
            return Kinds::wanted(&ControllerOptions::default(), 1);
        }
        Kinds::wanted(&self.request.options, env.config.data_workers)
    }

    pub(super) fn ask_queues(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let command = wire::set_queue_count(self.wanted_queues(env).total());
        self.step(env, bufs, Step::QueueCount, command);
    }

    fn open_queues(&mut self, env: &mut Env) {
        let options = self.request.options.clone();
        let kinds = self.wanted_queues(env).granted(self.facts.io_queues);
        let workers = env.config.data_workers;
        let seats = match env.config.shared_queue {
            true => Seats::from_first(workers),
            false => Seats::of(self.id.0, workers),
        };
        for (qid, owner, takes) in kinds.pairs(seats) {
            let entries = self.facts.queue_entries;
            let (connect, data) = wire::connect(env, self, Some((qid, entries)));
            let open = OpenQueue {
                controller: self.id,
                association: self.association,
                to: self.request.to.clone(),
                socket: options.socket.clone(),
                qid,
                takes,
                // One entry of a queue always stays free (Base, "Full Queue").
                queue_size: entries - 1,
                in_capsule_bytes: self.facts.in_capsule_bytes,
                hdr_digest: options.hdr_digest,
                data_digest: options.data_digest,
                connect,
                connect_data: data,
                tcp_limit: TCP_LIMIT,
                icresp_limit: ICRESP_LIMIT,
                timeout: options.admin_timeout,
                io_timeout: options.io_timeout,
            };
            env.mail(owner, ToShard::OpenQueue(Box::new(open)));
        }
        self.queues.ask(kinds, seats);
        let until = self.admin_deadline(env.now).after(SHARD_GRACE);
        self.phase = Phase::Queues { until };
    }

    /// A shard has opened a queue pair.
    pub(super) fn queue_open(&mut self, env: &mut Env, qid: u16, bufs: &mut dyn Buffers) {
        if matches!(self.phase, Phase::Queues { .. }) {
            self.queues.opened(qid);
            if self.queues.all_open() {
                self.go_live(env, bufs);
            }
        }
    }
}

impl Step {
    /// A step whose failure costs a feature, not the connection.
    pub(super) fn may_fail(self) -> bool {
        matches!(self, Step::NvmLimits | Step::HostBehavior | Step::EventConfig)
    }

    /// Whether a refusal with "do not retry" ends the attempts: who refuses Connect or a property
    /// means us. A controller that is about to be reset, or was just told to, may refuse the
    /// commands behind them so, and is another one when it is asked again. (In Linux, too, Identify
    /// and Set Features end no attempts; the ANA log does.) The same goes for Connect on an I/O
    /// queue: the admin queue may have been set up with a node that was fenced meanwhile, and to
    /// the one that has its address now this controller is not known. The next attempt begins with
    /// the admin queue, whose Connect decides.
    fn ends_for_good(self) -> bool {
        use Step::{Capabilities, Connect, Enable, Ready, Version};
        matches!(self, Connect | Capabilities | Version | Enable | Ready { .. })
    }
}
