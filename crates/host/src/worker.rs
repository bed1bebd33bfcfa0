//! One worker of a host: control or a shard, joined with the user that sits on it.

use crate::config::HostConfig;
use crate::control::Control;
use crate::event::HostEvent;
use crate::mail::{Mail, ToControl};
use crate::shard::{Received, Shard, ShardMail};
use crate::topology::HeadView;
use crate::user::{Refused, Request, Submit, User};
use crate::verb::{Reply, Verb};
use alloc::boxed::Box;
use alloc::sync::Arc;
use anabranch_proto::machine::{Buffers, ConnId, Gather, Input, Machine, Output, Time, WorkerId};
use core::convert::Infallible;
use core::fmt;

/// What a worker of a host reports: `E` is the user's own.
#[derive(Debug)]
pub enum Event<E> {
    /// From the host.
    Host(HostEvent),
    /// From the user.
    User(E),
}

impl<E: fmt::Display> fmt::Display for Event<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Host(event) => event.fmt(f),
            Event::User(event) => event.fmt(f),
        }
    }
}

enum Plane {
    Control { control: Box<Control>, seat: ControlSeat },
    Shard(Box<Shard>),
}

/// What a user finds on the control worker: it takes no requests.
struct ControlSeat {
    workers: u16,
}

impl Submit for ControlSeat {
    fn submit(&mut self, _now: Time, _request: Request) -> Result<(), Refused> {
        Err(Refused::NotHere)
    }

    fn heads(&self) -> &[Arc<HeadView>] {
        &[]
    }

    fn worker(&self) -> WorkerId {
        WorkerId(0)
    }

    fn workers(&self) -> u16 {
        self.workers
    }
}

/// One worker of a host. Opened connections are the host's, accepted ones the user's.
pub struct Worker<U: User> {
    plane: Plane,
    user: U,
}

type WorkerOutput<U> =
    Output<Mail<<U as User>::Mail>, Reply<<U as User>::Reply>, Event<<U as User>::Event>>;

impl<U: User> Worker<U> {
    /// The control worker, `WorkerId(0)`.
    pub fn control(config: HostConfig, user: U) -> Worker<U> {
        let seat = ControlSeat { workers: config.data_workers + 1 };
        let control = Box::new(Control::new(config));
        Worker { plane: Plane::Control { control, seat }, user }
    }

    /// A data worker, `WorkerId(1)` and up.
    ///
    /// # Panics
    /// When `me` is the control worker or beyond `data_workers`.
    pub fn data(config: &HostConfig, me: WorkerId, user: U) -> Worker<U> {
        assert!(me.0 >= 1 && me.0 <= config.data_workers, "data workers are 1 to data_workers");
        let shard = Box::new(Shard::new(config, me));
        Worker { plane: Plane::Shard(shard), user }
    }

    /// All workers of a host, in order, with a user for each.
    pub fn group(
        config: &HostConfig,
        mut user: impl FnMut(WorkerId) -> U,
    ) -> alloc::vec::Vec<Self> {
        let control = Worker::control(config.clone(), user(WorkerId(0)));
        let data = (1..=config.data_workers)
            .map(|me| Worker::data(config, WorkerId(me), user(WorkerId(me))));
        core::iter::once(control).chain(data.collect::<alloc::vec::Vec<_>>()).collect()
    }

    /// The user of this worker.
    pub fn user(&self) -> &U {
        &self.user
    }

    /// Lets the user see what has ended or changed, and the shard what the user has submitted,
    /// until neither has anything more to say.
    fn settle(&mut self, now: Time, bufs: &mut dyn Buffers) {
        let Plane::Shard(shard) = &mut self.plane else { return };
        loop {
            shard.pump(now, bufs);
            if shard.take_heads_changed() {
                self.user.heads_changed(now, &mut **shard, bufs);
                continue;
            }
            let Some(done) = shard.poll_done() else { return };
            self.user.completed(now, done, &mut **shard, bufs);
            while let Some(done) = shard.poll_done() {
                self.user.completed(now, done, &mut **shard, bufs);
            }
        }
    }

    fn user_input(
        &mut self,
        now: Time,
        input: Input<'_, U::Verb, U::Mail>,
        bufs: &mut dyn Buffers,
    ) {
        match &mut self.plane {
            Plane::Control { seat, .. } => self.user.handle(now, input, seat, bufs),
            Plane::Shard(shard) => self.user.handle(now, input, &mut **shard, bufs),
        }
    }

    fn mail(&mut self, now: Time, from: WorkerId, mail: Mail<U::Mail>, bufs: &mut dyn Buffers) {
        match (mail, &mut self.plane) {
            (Mail::User(mail), _) => self.user_input(now, Input::Mail { from, mail }, bufs),
            (Mail::ToShard(mail), Plane::Shard(shard)) => {
                shard.mail(now, from, ShardMail::Control(mail), bufs);
            }
            (Mail::Peer(mail), Plane::Shard(shard)) => {
                shard.mail(now, from, ShardMail::Peer(mail), bufs);
            }
            (Mail::ToControl(mail), Plane::Control { control, .. }) => {
                control.handle(now, Input::Mail { from, mail }, bufs);
            }
            (Mail::ToShard(_) | Mail::Peer(_) | Mail::ToControl(_), _) => {
                unreachable!("mail between planes reaches the plane that it is for");
            }
        }
    }

    /// An input about a connection that the host opened.
    fn host_input(&mut self, now: Time, input: ConnInput<'_>, bufs: &mut dyn Buffers) {
        match (&mut self.plane, input) {
            (Plane::Control { control, .. }, input) => control.handle(now, input, bufs),
            (Plane::Shard(shard), input) => match input {
                Input::Connected { conn, .. } => shard.connected(now, conn),
                Input::Received { conn, bytes } => {
                    shard.received(now, conn, Received::Bytes(bytes), bufs);
                }
                Input::ReceivedInto { conn, len } => {
                    shard.received(now, conn, Received::Into(len), bufs);
                }
                Input::Transmitted { conn } => shard.transmitted(now, conn, bufs),
                Input::Closed { conn, cause } => shard.closed(now, conn, cause, bufs),
                _ => unreachable!("only connection inputs come here"),
            },
        }
    }
}

/// Inputs about connections carry neither verbs nor mail of the user.
type ConnInput<'a> = Input<'a, Verb<Infallible>, ToControl>;

impl<U: User> Machine for Worker<U> {
    type Mail = Mail<U::Mail>;
    type Verb = Verb<U::Verb>;
    type Reply = Reply<U::Reply>;
    type Event = Event<U::Event>;

    fn handle(
        &mut self,
        now: Time,
        input: Input<'_, Self::Verb, Self::Mail>,
        bufs: &mut dyn Buffers,
    ) {
        match input {
            Input::Start => {
                if let Plane::Control { control, .. } = &mut self.plane {
                    control.handle(now, Input::Start, bufs);
                }
                self.user_input(now, Input::Start, bufs);
            }
            Input::Timeout => {
                match &mut self.plane {
                    Plane::Control { control, .. } => control.handle(now, Input::Timeout, bufs),
                    Plane::Shard(shard) => shard.timeout(now, bufs),
                }
                if self.user.poll_timeout().is_some_and(|at| at <= now) {
                    self.user_input(now, Input::Timeout, bufs);
                }
            }
            Input::Mail { from, mail } => self.mail(now, from, mail, bufs),
            Input::Verb { id, verb: Verb::User(verb) } => {
                self.user_input(now, Input::Verb { id, verb }, bufs);
            }
            Input::Verb { id, verb } => {
                if let (Plane::Control { control, .. }, Some(verb)) =
                    (&mut self.plane, verb.for_control())
                {
                    control.handle(now, Input::Verb { id, verb }, bufs);
                }
            }
            Input::Connected { conn, local, node } => {
                self.host_input(now, Input::Connected { conn, local, node }, bufs);
            }
            Input::Accepted { listener, conn, peer } => {
                self.user_input(now, Input::Accepted { listener, conn, peer }, bufs);
            }
            Input::Listening { listener, at } => {
                self.user_input(now, Input::Listening { listener, at }, bufs);
            }
            Input::Unlistened { listener, error } => {
                self.user_input(now, Input::Unlistened { listener, error }, bufs);
            }
            Input::Received { conn, bytes } if conn.is_accepted() => {
                self.user_input(now, Input::Received { conn, bytes }, bufs);
            }
            Input::Received { conn, bytes } => {
                self.host_input(now, Input::Received { conn, bytes }, bufs);
            }
            Input::ReceivedInto { conn, len } if conn.is_accepted() => {
                self.user_input(now, Input::ReceivedInto { conn, len }, bufs);
            }
            Input::ReceivedInto { conn, len } => {
                self.host_input(now, Input::ReceivedInto { conn, len }, bufs);
            }
            Input::Transmitted { conn } if conn.is_accepted() => {
                self.user_input(now, Input::Transmitted { conn }, bufs);
            }
            Input::Transmitted { conn } => self.host_input(now, Input::Transmitted { conn }, bufs),
            // Only of clients is it asked.
            Input::Looked { conn } => self.user_input(now, Input::Looked { conn }, bufs),
            Input::Closed { conn, cause } if conn.is_accepted() => {
                self.user_input(now, Input::Closed { conn, cause }, bufs);
            }
            Input::Closed { conn, cause } => {
                self.host_input(now, Input::Closed { conn, cause }, bufs);
            }
            Input::DiskDone { id, result } => {
                self.user_input(now, Input::DiskDone { id, result }, bufs);
            }
        }
        self.settle(now, bufs);
    }

    fn poll_output(&mut self) -> Option<WorkerOutput<U>> {
        let output = match &mut self.plane {
            Plane::Control { control, .. } => control
                .poll_output()
                .map(|output| output.map(Mail::ToShard, Reply::from_control, Event::Host)),
            Plane::Shard(shard) => shard.poll_output().map(|output| {
                output.map(Mail::from_shard, |never| match never {}, |never| match never {})
            }),
        };
        output.or_else(|| {
            self.user.poll_output().map(|output| {
                debug_assert!(
                    !matches!(output, Output::Connect { .. }),
                    "opened connections are the host's"
                );
                output.map(Mail::User, Reply::User, Event::User)
            })
        })
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        conn: ConnId,
        batch: &mut dyn Gather,
        bufs: &mut dyn Buffers,
    ) {
        match &mut self.plane {
            _ if conn.is_accepted() => self.user.poll_transmit(now, conn, batch, bufs),
            Plane::Control { control, .. } => control.poll_transmit(now, conn, batch, bufs),
            Plane::Shard(shard) => shard.poll_transmit(conn, batch, bufs),
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        let plane = match &mut self.plane {
            Plane::Control { control, .. } => control.poll_timeout(),
            Plane::Shard(shard) => shard.poll_timeout(),
        };
        match (plane, self.user.poll_timeout()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
