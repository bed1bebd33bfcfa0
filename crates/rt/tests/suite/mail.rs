//! Mail between workers: nothing is lost, order is kept per sender, nobody waits for ever.

use anabranch_proto::machine::{
    Buffers, ConnId, Gather, Input, Machine, Output, Time, VerbId, WorkerId,
};
use anabranch_rt::{Config, Group};
use std::collections::VecDeque;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Sends numbered mail to all others, a burst per wake-up, and checks what it gets. Answers the
/// verb when everything has come.
struct Storm {
    me: u16,
    workers: u16,
    each: u64,
    burst: u64,
    sent: u64,
    next: Vec<u64>,
    asked: Option<VerbId>,
    outputs: VecDeque<Output<u64, u64, ()>>,
}

impl Storm {
    fn new(me: u16, workers: u16, each: u64, burst: u64) -> Storm {
        let next = vec![0; usize::from(workers)];
        Storm { me, workers, each, burst, sent: 0, next, asked: None, outputs: VecDeque::new() }
    }

    fn send(&mut self) {
        for _ in 0..self.burst.min(self.each - self.sent) {
            for to in (0..self.workers).filter(|to| *to != self.me) {
                self.outputs.push_back(Output::Mail { to: WorkerId(to), mail: self.sent });
            }
            self.sent += 1;
        }
    }

    fn all_came(&self) -> bool {
        let me = usize::from(self.me);
        self.next.iter().enumerate().all(|(from, next)| from == me || *next == self.each)
    }
}

impl Machine for Storm {
    type Mail = u64;
    type Verb = ();
    type Reply = u64;
    type Event = ();

    fn handle(&mut self, _now: Time, input: Input<'_, (), u64>, _bufs: &mut dyn Buffers) {
        match input {
            Input::Mail { from, mail } => {
                let next = &mut self.next[usize::from(from.0)];
                assert_eq!(mail, *next, "worker {} hears {} in order", self.me, from.0);
                *next += 1;
                self.send();
            }
            Input::Verb { id, .. } => {
                self.asked = Some(id);
                self.send();
            }
            _ => {}
        }
        if self.all_came()
            && let Some(id) = self.asked.take()
        {
            self.outputs.push_back(Output::Reply { id, reply: self.next.iter().sum() });
        }
    }

    fn poll_output(&mut self) -> Option<Output<u64, u64, ()>> {
        self.outputs.pop_front()
    }

    fn poll_transmit(&mut self, _: Time, _: ConnId, _: &mut dyn Gather, _: &mut dyn Buffers) {}

    fn poll_timeout(&mut self) -> Option<Time> {
        None
    }
}

/// `each` messages from every worker to every other, sent in bursts, through mailboxes of that
/// size.
fn storm(workers: u16, each: u64, burst: u64, mailbox: usize) {
    let config = Config { mailbox, ..Config::named("storm") };
    let engines = (0..workers).map(|me| Storm::new(me, workers, each, burst)).collect();
    let group = Group::start(config, engines, Box::new(|_, ()| {})).expect("started");
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..workers)
            .map(|w| {
                scope.spawn({
                    let group = &group;
                    move || group.verb(WorkerId(w), (), LIMIT)
                })
            })
            .collect();
        for answer in asked {
            let came = answer.join().expect("no panic").expect("an answer");
            assert_eq!(came, each * u64::from(workers - 1));
        }
    });
    group.stop().expect("an orderly end");
}

#[test]
fn two_workers_with_full_mailboxes() {
    storm(2, 20_000, 300, 4);
}

#[test]
fn many_workers_with_tiny_mailboxes() {
    storm(6, 3000, 50, 1);
}

#[test]
fn all_at_once() {
    storm(3, 50_000, 50_000, 4096);
}

#[test]
fn one_by_one() {
    storm(2, 20_000, 1, 4096);
}
