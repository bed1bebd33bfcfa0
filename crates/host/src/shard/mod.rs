//! One data worker's half of the host: its queue pairs, its commands, its choices of paths.

mod absence;
mod command;
mod complete;
mod connect_data;
mod crowd;
mod cut;
mod dispatch;
mod doubt;
mod durable;
mod explain;
mod failed;
#[cfg(test)]
mod fixture;
mod head;
mod inputs;
mod issue;
mod measure;
mod picture;
mod probe;
mod queue;
mod quiesce;
mod rescue;
mod shares;
mod split;
mod stats;
mod submit;
mod tally;
mod wire;
mod withdraw;

use crate::by_id::ById;
use crate::config::HostConfig;
use crate::mail::{Mail, ToControl};
use crate::table::{Key, Table};
use crate::topology::{HeadId, Topology};
use crate::user::Done;
use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_proto::machine::{Buffers, ConnId, Gather, Output, Time, WorkerId};
use command::{Command, Request};
use connect_data::ConnectData;
use core::cmp::Reverse;
use core::convert::Infallible;
use head::{ControllerEntry, HeadState, Me};
use queue::Queue;
use rescue::{Watch, left_behind_max};
use shares::Shares;
use stats::StatsTable;

pub(crate) use inputs::{Received, ShardMail};

/// Commands of one head at the least: a flush needs one per path of its head, at once.
const COMMANDS_MIN: u32 = 2048;

/// Outputs that are ready at once grow beyond this only when queue pairs come and go in crowds.
const OUTPUTS_RESERVED: usize = 256;

/// What a shard wants done; it has no verbs and no events of its own.
pub(crate) type ShardOutput = Output<Mail<Infallible>, Infallible, Infallible>;

/// One data worker's half of the host. The functions are those of
/// [`Machine`](anabranch_proto::machine::Machine); `pump` comes after the inputs and the user's
/// submissions, before the outputs are drained.
pub(crate) struct Shard {
    me: Me,
    workers: u16,
    topology: Arc<Topology>,
    controllers: ById<ControllerEntry>,
    heads: ById<HeadState>,
    queues: Vec<Option<Box<Queue>>>,
    connect_data: ConnectData,
    requests: Table<Request>,
    /// Our own commands, what they have left behind, those that we carry for others, and probes.
    commands: Table<Command>,
    own_commands: u32,
    /// Our own commands at once: the rest of the table is for those of others.
    own_limit: u32,
    /// How the heads share the request table.
    request_shares: Shares,
    /// How they share our own part of the command table.
    command_shares: Shares,
    /// Probes in flight; they have a place in the table of their own.
    probes: u32,
    /// Some queue pair is to be given a probe.
    probe_wanted: bool,
    /// When to look for what is stuck.
    watch: Watch,
    /// Heads with requests that commands are to be made for, each once; those whose turn it is
    /// come first.
    issuing: VecDeque<HeadId>,
    /// Commands that wait for their time.
    delayed: BinaryHeap<Reverse<(Time, Key)>>,
    outputs: VecDeque<ShardOutput>,
    dones: VecDeque<Done>,
    stats: StatsTable,
    /// Heads with weights to compute at the next time-out, by index.
    weights_due: Vec<u32>,
    /// No timer is due before this; it may be earlier than any.
    wake: Option<Time>,
    draining: bool,
    drained_reported: bool,
    heads_changed: bool,
    /// Some head of the present picture is frozen or quiesced.
    some_stopped: bool,
    /// Some request was withdrawn, and what waits of it has not ended yet.
    some_withdrawn: bool,
    /// Some path was taken out because its namespace is not there, and what waits for a tag on it
    /// has not left it yet.
    some_suspected: bool,
    /// Some command was answered on a path that was being looked at.
    some_doubted: bool,
}

/// Places for commands: every other shard may carry all of its own through our queue pairs.
fn all_commands(own_limit: u32, data_workers: u16) -> u32 {
    let each = own_limit.saturating_add(probe::PROBES_MAX);
    let all = each.saturating_mul(u32::from(data_workers.max(1)));
    all.saturating_add(left_behind_max(own_limit))
}

impl Shard {
    /// The shard of worker `me`.
    pub(crate) fn new(config: &HostConfig, me: WorkerId) -> Shard {
        let request_shares = Shares::new(config.max_requests);
        let command_shares = Shares::new(config.max_requests.max(COMMANDS_MIN));
        let (requests, own_limit) = (request_shares.places(), command_shares.places());
        let commands = all_commands(own_limit, config.data_workers);
        Shard {
            me: Me { id: me, node: config.node_of(me).min(u32::from(u16::MAX)) as u16 },
            workers: config.data_workers + 1,
            topology: Arc::new(Topology::default()),
            controllers: ById::new(),
            heads: ById::new(),
            queues: Vec::new(),
            connect_data: ConnectData::default(),
            requests: Table::new(requests),
            commands: Table::new(commands),
            own_commands: 0,
            own_limit,
            request_shares,
            command_shares,
            probes: 0,
            probe_wanted: false,
            watch: Watch::default(),
            issuing: VecDeque::new(),
            delayed: BinaryHeap::with_capacity(commands as usize),
            outputs: VecDeque::with_capacity(OUTPUTS_RESERVED),
            dones: VecDeque::with_capacity(requests as usize),
            stats: StatsTable::default(),
            weights_due: Vec::new(),
            wake: None,
            draining: false,
            drained_reported: false,
            heads_changed: false,
            some_stopped: false,
            some_withdrawn: false,
            some_suspected: false,
            some_doubted: false,
        }
    }

    /// Whether there is a place for a command that is none of our users', beside those that they
    /// may still need: other workers may know of more heads than we do yet.
    fn has_spare_room(&self) -> bool {
        self.commands.room() > self.own_limit.saturating_sub(self.own_commands)
    }

    pub(crate) fn poll_output(&mut self) -> Option<ShardOutput> {
        self.outputs.pop_front()
    }

    /// The next answer to the user of this worker.
    pub(crate) fn poll_done(&mut self) -> Option<Done> {
        self.dones.pop_front()
    }

    /// Whether heads came, went or changed since the last call.
    pub(crate) fn take_heads_changed(&mut self) -> bool {
        core::mem::take(&mut self.heads_changed)
    }

    pub(crate) fn poll_timeout(&mut self) -> Option<Time> {
        self.wake
    }

    pub(crate) fn poll_transmit(
        &mut self,
        conn: ConnId,
        batch: &mut dyn Gather,
        bufs: &mut dyn Buffers,
    ) {
        let slot = conn.index() as usize;
        if let Some(queue) = self.queues.get_mut(slot).and_then(Option::as_mut) {
            queue.announced = false;
            queue.link.poll_transmit(batch, bufs);
        }
    }

    /// Makes commands of submitted requests, hands commands to queue pairs, announces what is
    /// ready to send and reports what has ended.
    pub(crate) fn pump(&mut self, now: Time, bufs: &mut dyn Buffers) {
        let may_open = !self.draining || self.queues.iter().any(Option::is_some);
        self.connect_data.keep(may_open, bufs);
        if self.connect_data.someone_waits {
            self.connect_waiting(now, bufs);
        }
        if self.some_withdrawn {
            self.end_withdrawn(now, bufs);
        }
        if core::mem::take(&mut self.some_suspected) {
            self.recall_waiting(now, bufs);
            self.sort_waiting();
        }
        self.issue_requests(now, bufs);
        for slot in 0..self.queues.len() {
            self.serve_queue(slot as u16, now);
        }
        self.send_wanted(now);
        self.report_stops();
        if self.draining && !self.drained_reported && self.requests.len() == 0 {
            self.drained_reported = true;
            self.tell_control(ToControl::Drained);
        }
    }

    fn serve_queue(&mut self, slot: u16, now: Time) {
        let Some(queue) = self.queues[usize::from(slot)].as_mut() else { return };
        if queue.is_waited_for() {
            let heads = &self.heads;
            queue.submit_waiting(now, &mut self.commands, slot, |command| {
                dispatch::start(command, heads, now)
            });
        }
        self.announce(slot);
    }

    /// What the queue pair has to send is sent, and its oldest command is watched.
    fn announce(&mut self, slot: u16) {
        let Some(queue) = self.queues[usize::from(slot)].as_mut() else { return };
        if let Some(deadline) = queue.next_deadline(&self.commands) {
            self.wake = Some(self.wake.map_or(deadline, |wake| wake.min(deadline)));
        }
        if !queue.announced && queue.link.has_transmit() {
            queue.announced = true;
            self.outputs.push_back(Output::Transmit { conn: queue.conn });
        }
        if queue.link.awaits_status() && !queue.announced {
            self.outputs.push_back(Output::Acknowledge { conn: queue.conn });
        }
    }

    /// Tells control which heads are at rest here, as it has asked.
    fn report_stops(&mut self) {
        if !self.some_stopped {
            return;
        }
        let epoch = self.topology.epoch;
        for place in 0..self.heads.places() {
            let Some(id) = self.heads.id_at(place) else { continue };
            let Some(head) = self.heads.get_mut(id) else { continue };
            if head.view.quiesced > 0 && head.quiesced_reported != Some(epoch) {
                head.quiesced_reported = Some(epoch);
                let head = head.view.id;
                self.tell_control(ToControl::Quiesced { head, epoch });
            }
            let Some(head) = self.heads.get_mut(id) else { continue };
            // A probe is no request: nobody waits for it.
            let rests = head.active() == 0;
            if head.view.frozen > 0 && rests && head.frozen_reported != Some(epoch) {
                head.frozen_reported = Some(epoch);
                let head = head.view.id;
                self.tell_control(ToControl::Frozen { head, epoch });
            }
        }
    }

    fn tell_control(&mut self, mail: ToControl) {
        self.outputs.push_back(Output::Mail { to: WorkerId(0), mail: Mail::ToControl(mail) });
    }

    fn head(&self, id: HeadId) -> Option<&HeadState> {
        self.heads.get(id.0)
    }

    fn head_mut(&mut self, id: HeadId) -> Option<&mut HeadState> {
        self.heads.get_mut(id.0)
    }

    fn wake_at(&mut self, at: Time) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}
