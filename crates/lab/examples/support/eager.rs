//! A generator's data worker on a host that answers one request every 250 ns, in virtual time, and
//! moves no data.

use anabranch_host::topology::{HeadId, HeadView, Limits};
use anabranch_host::user::{Done, Refused, Request, Submit, User};
use anabranch_lab::generator::{Generator, GeneratorMail, GeneratorVerb, Payload, Plan};
use anabranch_lab::scenario::Job;
use anabranch_lab::sim::SimBuffers;
use anabranch_proto::machine::{Input, Time, WorkerId};
use std::collections::VecDeque;
use std::sync::Arc;

const ANSWER_NS: u64 = 250;

/// Takes what it has room for.
struct Host {
    heads: Vec<Arc<HeadView>>,
    /// Tags of what was taken.
    taken: VecDeque<u64>,
    room: usize,
}

impl Submit for Host {
    fn submit(&mut self, _now: Time, request: Request) -> Result<(), Refused> {
        if self.taken.len() == self.room {
            return Err(Refused::Full);
        }
        self.taken.push_back(request.tag);
        Ok(())
    }

    fn heads(&self) -> &[Arc<HeadView>] {
        &self.heads
    }

    fn worker(&self) -> WorkerId {
        WorkerId(1)
    }

    fn workers(&self) -> u16 {
        2
    }
}

const HEAD: HeadId = HeadId(0);

fn head() -> HeadView {
    let limits = Limits {
        max_transfer_bytes: 1 << 20,
        max_write_zeroes_blocks: 0,
        max_discard_blocks: 1,
        volatile_write_cache: false,
        compare: false,
        read_only: false,
    };
    HeadView {
        id: HEAD,
        name: "nvme0n1".to_owned(),
        wwid: "uuid.0".to_owned(),
        blocks: 1 << 20,
        block_bytes: 4096,
        limits,
        parameters: Default::default(),
        policy_epoch: 0,
        paths: Vec::new(),
        queue_if_no_path: false,
        gone: false,
        quiesced: 0,
        frozen: 0,
        max_retries: 0,
        explain_sample: 0,
        zeroes_refused: false,
        written: Arc::default(),
        leftovers: Arc::default(),
        failed_flushes: Arc::default(),
    }
}

/// Runs jobs until this time, with so many requests at the host at once; how many were answered.
pub(crate) fn run(jobs: &Arc<[Job]>, payload: Payload, end_ns: u64, room: usize) -> u64 {
    let taken = VecDeque::with_capacity(room);
    let mut host = Host { heads: vec![Arc::new(head())], taken, room };
    let (mut generator, mut bufs) = (Generator::new(), SimBuffers::default());
    let plan = Plan {
        jobs: Arc::clone(jobs),
        device: "nvme0n1".to_owned(),
        host: 0,
        paths: 2,
        seed: 1,
        begin: Time::ZERO,
        ramp_ns: 0,
        window_ns: end_ns,
        clock: None,
        payload,
    };
    let (from, mail) = (WorkerId(0), GeneratorMail::Start(Box::new(plan)));
    generator.handle(Time::ZERO, Input::Mail { from, mail }, &mut host, &mut bufs);
    let (mut answered, mut now) = (0, 0);
    while now < end_ns {
        match host.taken.pop_front() {
            Some(tag) => {
                now += ANSWER_NS;
                answered += 1;
                let done = Done { head: HEAD, tag, result: Ok(()) };
                generator.completed(Time::from_ns(now), done, &mut host, &mut bufs);
            }
            None => {
                let Some(at) = generator.poll_timeout() else { break };
                now = now.max(at.ns());
                let input = Input::<GeneratorVerb, _>::Timeout;
                generator.handle(Time::from_ns(now), input, &mut host, &mut bufs);
            }
        }
    }
    answered
}
