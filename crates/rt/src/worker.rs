//! The loop: one input, drain the outputs, the next; then sends, mail, sleep.

use crate::driver::{Driver, Event, Handed, Sleeper, WaitError};
use crate::mailbox::{Delivery, Mailbox};
use crate::memory::Pool;
use crate::stats::Counters;
use crate::{Config, clock};
use anabranch_proto::machine::{Input, Machine, Output, Time, VerbId, WorkerId};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// What a mailbox carries.
pub(crate) enum Post<M: Machine> {
    Mail { from: WorkerId, mail: M::Mail },
    Verb { verb: M::Verb, reply: SyncSender<M::Reply> },
    Handed(Handed),
}

/// A worker that ends takes no mail any more: it sleeps, with its box full, until the system lets
/// go of what it has.
struct Ending;

impl Sleeper for Ending {
    fn is_pending(&self) -> bool {
        false
    }

    fn may_sleep(&self) -> bool {
        true
    }

    fn awake(&self) {}
}

/// What happens to an engine's events.
pub(crate) type EventSink<E> = Box<dyn Fn(WorkerId, E) + Send + Sync>;

/// One worker, as the others and the group see it.
pub(crate) struct Place<M: Machine> {
    pub(crate) mailbox: Mailbox<Post<M>>,
    pub(crate) counters: Arc<Counters>,
    /// Control requests on their way or not answered yet.
    pub(crate) verbs: AtomicUsize,
}

/// What all workers of a group share.
pub(crate) struct Shared<M: Machine> {
    pub(crate) places: Vec<Place<M>>,
    pub(crate) stop: AtomicBool,
    pub(crate) events: EventSink<M::Event>,
}

impl<M: Machine> Shared<M> {
    /// Tells all workers to end.
    pub(crate) fn stop_all(&self) {
        self.stop.store(true, Ordering::Release);
        for place in &self.places {
            place.mailbox.poke();
        }
    }
}

impl<M: Machine> Sleeper for Place<M> {
    fn is_pending(&self) -> bool {
        self.mailbox.is_pending()
    }

    fn may_sleep(&self) -> bool {
        self.mailbox.may_sleep()
    }

    fn awake(&self) {
        self.mailbox.awake();
    }
}

/// An engine, its driver, and what they need.
pub(crate) struct Worker<M: Machine, D> {
    id: usize,
    machine: M,
    driver: D,
    pool: Pool,
    shared: Arc<Shared<M>>,
    spin: Duration,
    now: Time,
    inbox: VecDeque<Post<M>>,
    /// Mail of this turn, and what did not fit into the receivers' mailboxes; one per worker.
    outbox: Vec<VecDeque<Post<M>>>,
    outbox_used: bool,
    verbs: HashMap<VerbId, SyncSender<M::Reply>>,
    last_verb: u64,
    deadline: Option<Time>,
}

impl<M: Machine, D: Driver> Worker<M, D> {
    pub(crate) fn new(
        id: usize,
        machine: M,
        driver: D,
        pool: Pool,
        shared: Arc<Shared<M>>,
        config: &Config,
    ) -> Worker<M, D> {
        let outbox = shared.places.iter().map(|_| VecDeque::new()).collect();
        Worker {
            id,
            machine,
            driver,
            pool,
            shared,
            spin: config.spin,
            now: clock::now(),
            inbox: VecDeque::new(),
            outbox,
            outbox_used: false,
            verbs: HashMap::new(),
            last_verb: 0,
            deadline: None,
        }
    }

    /// Runs until the group stops.
    pub(crate) fn run(&mut self) -> Result<(), WaitError> {
        let shared = self.shared.clone();
        let place = &shared.places[self.id];
        self.give(Input::Start);
        while !shared.stop.load(Ordering::Acquire) {
            self.take_mail(place);
            // That may have taken the wake-up that tells to stop: this turn ends without sleep.
            if shared.stop.load(Ordering::Acquire) {
                place.mailbox.poke();
            }
            if self.deadline.is_some_and(|at| at <= self.now) {
                place.counters.timeouts.add(1);
                self.give(Input::Timeout);
            }
            self.transmit();
            self.flush_mail(place);
            self.deadline = self.machine.poll_timeout();
            let until = [self.deadline, self.pool.tidy(self.now)].into_iter().flatten().min();
            self.driver.wait(until, self.spin, place)?;
            self.now = clock::now();
            self.pool.collect();
            while let Some(event) = self.driver.next_event() {
                self.event(event);
            }
        }
        Ok(())
    }

    /// Ends all connections and operations; returns how many the system still has at `deadline`.
    pub(crate) fn shutdown(&mut self, deadline: Time) -> usize {
        self.driver.shutdown(deadline, &Ending)
    }

    /// Gives the engine one input and carries out what it wants.
    fn give(&mut self, input: Input<'_, M::Verb, M::Mail>) {
        self.machine.handle(self.now, input, &mut self.pool);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            self.carry_out(output);
        }
    }

    fn carry_out(&mut self, output: Output<M::Mail, M::Reply, M::Event>) {
        match output {
            Output::Connect { conn, to, options } => self.driver.connect(conn, &to, &options),
            Output::Listen { listener, at, options } => {
                self.driver.listen(listener, &at, &options);
            }
            Output::Unlisten { listener } => self.driver.unlisten(listener),
            Output::Transmit { conn } => self.driver.transmit(conn),
            Output::Acknowledge { conn } => self.driver.acknowledge(conn),
            Output::ReceiveInto { conn, buf } => self.driver.receive_into(conn, buf),
            Output::Pause { conn, watch } => self.driver.pause(conn, watch),
            Output::Look { conn } => self.driver.look(conn),
            Output::Resume { conn } => self.driver.resume(conn),
            Output::Close { conn, how } => self.driver.close(conn, how),
            Output::HandOver { conn, listener, to } => {
                self.driver.hand_over(conn, listener, to.0);
            }
            Output::Disk { id, file, op } => self.driver.disk(id, file, op),
            Output::Mail { to, mail } => {
                let from = WorkerId(self.id as u16);
                self.post(to, Post::Mail { from, mail });
            }
            Output::Reply { id, reply } => self.reply(id, reply),
            Output::Event(event) => (self.shared.events)(WorkerId(self.id as u16), event),
        }
    }

    fn reply(&mut self, id: VerbId, reply: M::Reply) {
        if let Some(to) = self.verbs.remove(&id) {
            self.shared.places[self.id].verbs.fetch_sub(1, Ordering::AcqRel);
            // Who asked may have stopped waiting.
            let _ = to.try_send(reply);
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Connected { conn, local, node } => {
                self.give(Input::Connected { conn, local, node });
                self.driver.delivered(conn, None);
            }
            Event::Accepted { listener, conn, peer } => {
                self.give(Input::Accepted { listener, conn, peer });
                // Not if the engine has handed it on, with them, or closed it.
                if let Some(bytes) = self.driver.take_early(conn) {
                    self.give(Input::Received { conn, bytes: &bytes });
                }
                self.driver.delivered(conn, None);
            }
            Event::Received { conn, bytes } => {
                let slice = self.driver.received(bytes);
                let input = Input::Received { conn, bytes: slice };
                self.machine.handle(self.now, input, &mut self.pool);
                self.drain();
                self.driver.delivered(conn, Some(bytes));
            }
            Event::ReceivedInto { conn, len } => {
                self.give(Input::ReceivedInto { conn, len });
                self.driver.delivered(conn, None);
            }
            Event::Listening { listener, at } => self.give(Input::Listening { listener, at }),
            Event::Unlistened { listener, error } => {
                self.give(Input::Unlistened { listener, error });
            }
            Event::Transmitted { conn } => self.give(Input::Transmitted { conn }),
            Event::Looked { conn } => self.give(Input::Looked { conn }),
            Event::Closed { conn, cause } => self.give(Input::Closed { conn, cause }),
            Event::DiskDone { id, result } => self.give(Input::DiskDone { id, result }),
            Event::Leaving { handed, to, .. } => {
                if usize::from(to) == self.id {
                    self.driver.adopt(handed);
                } else {
                    self.post(WorkerId(to), Post::Handed(handed));
                }
            }
        }
    }

    /// Pulls a batch from every connection that wants to send and has no send in flight.
    fn transmit(&mut self) {
        while let Some((conn, mut batch)) = self.driver.next_sender() {
            self.machine.poll_transmit(self.now, conn, &mut *batch, &mut self.pool);
            self.driver.send(conn, batch);
            self.drain();
        }
    }

    // ---- mail ----

    fn post(&mut self, to: WorkerId, post: Post<M>) {
        let workers = self.outbox.len();
        let Some(queue) = self.outbox.get_mut(usize::from(to.0)) else {
            panic!("mail to worker {} of {workers}", to.0);
        };
        assert!(
            queue.len() < Config::MAIL_OVERFLOW,
            "worker {} does not take its mail: {} messages are held back for it by worker {}",
            to.0,
            queue.len(),
            self.id
        );
        queue.push_back(post);
        self.outbox_used = true;
    }

    /// Delivers this turn's mail. What does not fit stays; its receiver wakes us when there is
    /// room.
    fn flush_mail(&mut self, place: &Place<M>) {
        if !self.outbox_used {
            return;
        }
        self.outbox_used = false;
        for (to, queue) in self.outbox.iter_mut().enumerate() {
            if queue.is_empty() {
                continue;
            }
            match self.shared.places[to].mailbox.deliver(queue, self.id) {
                Delivery::Quiet => {}
                Delivery::Woke => {
                    place.counters.wakes_sent.add(1);
                    place.counters.system_calls.add(1);
                }
                Delivery::Closed => queue.clear(),
            }
            self.outbox_used |= !queue.is_empty();
        }
    }

    fn take_mail(&mut self, place: &Place<M>) {
        if !place.mailbox.is_pending() {
            return;
        }
        let mut inbox = std::mem::take(&mut self.inbox);
        place.mailbox.take(&mut inbox, |waiting| {
            if self.shared.places[waiting].mailbox.poke() == Delivery::Woke {
                place.counters.wakes_sent.add(1);
                place.counters.system_calls.add(1);
            }
        });
        for post in inbox.drain(..) {
            match post {
                Post::Mail { from, mail } => {
                    place.counters.mail.add(1);
                    self.give(Input::Mail { from, mail });
                }
                Post::Verb { verb, reply } => {
                    place.counters.verbs.add(1);
                    self.last_verb += 1;
                    let id = VerbId(self.last_verb);
                    self.verbs.insert(id, reply);
                    self.give(Input::Verb { id, verb });
                }
                Post::Handed(handed) => self.driver.adopt(handed),
            }
        }
        self.inbox = inbox;
    }
}
