//! What callers ask for.

use super::attribute::{Act, ObjectKind};
use super::controller::{Controller, Kind, Waiter};
use super::discovery::DiscoveryRead;
use super::env::Env;
use super::link::{Payload, Purpose};
use super::subsystem::{Head, Path};
use super::waits::Stop;
use super::waits::{RemovalWait, StatsFor};
use super::{Control, wire};
use crate::config::{
    ConnectRequest, ControllerOptions, MAX_CONTROLLERS, check_subsystem, check_time,
};
use crate::event::HostEvent;
use crate::mail::Detail;
use crate::topology::ControllerState;
use crate::topology::{ControllerId, HeadId};
use crate::verb::{AsideId, Reply, Selection, Verb, VerbError};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use anabranch_policy::MAX_RELATIVE_THROUGHPUT;
use anabranch_proto::machine::{Buffers, Endpoint, VerbId};
use anabranch_proto::nvme::nqn::Nqn;
use anabranch_proto::nvme::sqe::Sqe;
use core::convert::Infallible;
use core::net::SocketAddr;
use core::time::Duration;

type Answer = Result<(), VerbError>;

/// A controller that is to come, and has its number already.
#[derive(Debug)]
pub(super) struct Aside {
    pub(super) id: AsideId,
    pub(super) number: u32,
    pub(super) nqn: Nqn,
    pub(super) traddr: String,
    pub(super) trsvcid: String,
}

impl Control {
    pub(super) fn verb(&mut self, id: VerbId, verb: Verb<Infallible>, bufs: &mut dyn Buffers) {
        let result = match verb {
            Verb::Connect(request) => self.connect(id, request, None),
            Verb::SetAside { nqn, traddr, trsvcid } => self.set_aside(id, nqn, traddr, trsvcid),
            Verb::GiveUp(aside) => self.give_up(id, aside),
            Verb::ConnectAs(aside, request) => self.connect(id, request, Some(aside)),
            Verb::Move { request, to } => self.move_to(id, *request, to),
            Verb::Disconnect(selection) => self.disconnect(id, &selection),
            Verb::Discover(request) => self.discover(id, request),
            Verb::Snapshot => {
                self.ask_stats(StatsFor::Snapshot(id, Detail::None));
                Ok(())
            }
            Verb::Watch => {
                self.ask_stats(StatsFor::Snapshot(id, Detail::Measured));
                Ok(())
            }
            Verb::Objects => {
                let objects = self.objects();
                self.env.reply(id, Reply::Objects(objects));
                Ok(())
            }
            Verb::Describe { object } => self.describe(&object).map(|(object, shows)| {
                self.env.reply(id, Reply::Description(object, shows));
            }),
            Verb::Attributes { object } => {
                self.ask_stats(StatsFor::Attributes(id, object));
                Ok(())
            }
            Verb::Explain { device } => self.find_head_named(&device).map(|head| {
                self.ask_stats(StatsFor::Explain(id, head));
            }),
            Verb::Get { object, attribute } => self.head_of(&object).and_then(|head| match head {
                Some(head) => {
                    self.ask_stats(StatsFor::Get(id, head, object, attribute));
                    Ok(())
                }
                None => self.get_attribute(&object, &attribute, &[]).map(|text| {
                    self.env.reply(id, Reply::Value(text));
                }),
            }),
            Verb::Set { object, attribute, value } => match self.act_of(&object, &attribute) {
                Some(act) => self.act(id, &object, act, bufs),
                None => self.head_of(&object).and_then(|head| match head {
                    Some(head) => {
                        self.ask_stats(StatsFor::Set(id, head, object, attribute, value));
                        Ok(())
                    }
                    None => self.set_attribute(&object, &attribute, &value, &[]).map(|()| {
                        self.env.reply(id, Reply::Done);
                    }),
                }),
            },
            Verb::AnaLog { controller } => self.raw_ana_log(id, &controller, bufs),
            Verb::IdCtrl { controller } => self
                .find_controller(&controller)
                .and_then(|target| self.raw(id, target, wire::identify_controller(), bufs)),
            Verb::IdNs { device } => self.raw_namespace(id, &device, bufs),
            Verb::Reset { controller } => self.reset(id, &controller),
            Verb::Quiesce { device } => self.stop_head(id, &device, Stop::Quiesce),
            Verb::Unquiesce { device } => self.go_on(id, &device, Stop::Quiesce),
            Verb::Freeze { device } => self.stop_head(id, &device, Stop::Freeze),
            Verb::Unfreeze { device } => self.go_on(id, &device, Stop::Freeze),
            Verb::Shutdown => self.shutdown(id),
            Verb::User(never) => match never {},
        };
        if let Err(error) = result {
            self.env.refuse(id, error);
        }
    }

    fn check_room(&self) -> Answer {
        if self.shutting_down {
            return Err(VerbError::Conflict(String::from("the host is shutting down")));
        }
        if self.controllers.len() >= MAX_CONTROLLERS {
            let text = format!("there are {MAX_CONTROLLERS} controllers already, the limit");
            return Err(VerbError::Conflict(text));
        }
        Ok(())
    }

    fn set_aside(&mut self, id: VerbId, nqn: Nqn, traddr: String, trsvcid: String) -> Answer {
        self.check_room()?;
        if self.set_aside.len() >= MAX_CONTROLLERS {
            let text = format!("{MAX_CONTROLLERS} numbers are set aside already, the limit");
            return Err(VerbError::Conflict(text));
        }
        let number = self.free_instance();
        let aside = AsideId(self.next_aside);
        self.next_aside += 1;
        self.set_aside.push(Aside { id: aside, number, nqn, traddr, trsvcid });
        self.env.reply(id, Reply::SetAside(number, aside));
        Ok(())
    }

    fn give_up(&mut self, id: VerbId, given_up: AsideId) -> Answer {
        let place = self.set_aside.iter().position(|aside| aside.id == given_up);
        let place = place.ok_or_else(|| {
            VerbError::Invalid(String::from("that number is not set aside, or no longer"))
        })?;
        self.set_aside.remove(place);
        self.env.reply(id, Reply::Done);
        Ok(())
    }

    /// The number of a new controller of a subsystem.
    fn number(&self, aside: Option<AsideId>, nqn: &Nqn) -> Result<u32, VerbError> {
        let Some(id) = aside else { return Ok(self.free_instance()) };
        let found = self.set_aside.iter().find(|aside| aside.id == id && aside.nqn == *nqn);
        found.map(|aside| aside.number).ok_or_else(|| {
            VerbError::Invalid(format!("no number is set aside so for {nqn}, or no longer"))
        })
    }

    fn connect(
        &mut self,
        id: VerbId,
        request: Box<ConnectRequest>,
        aside: Option<AsideId>,
    ) -> Answer {
        self.check_room()?;
        check_options(&request.options, false)?;
        check_subsystem(&request.subsystem_nqn)
            .map_err(|why| VerbError::Invalid(why.to_string()))?;
        // One that nobody wants any more is told so, whoever has its place.
        let instance = self.number(aside, &request.subsystem_nqn)?;
        self.check_free(&request)?;
        self.set_aside.retain(|other| Some(other.id) != aside);
        // Whoever is there has it; others look for another place when they come to it.
        let noted = self.controllers.values_mut().filter(|other| has_noted(other, &request));
        noted.for_each(|other| other.noted = None);
        let number = ControllerId(self.next_controller);
        self.next_controller += 1;
        let keep_trying = request.keep_trying;
        let workers = self.env.config.data_workers;
        let mut controller = Controller::new((number, instance), *request, Kind::Io, workers);
        if keep_trying {
            self.env.reply(id, Reply::Connected(controller.name(), Vec::new()));
        } else {
            controller.waiters.push(Waiter::Connect(id));
        }
        Self::warn(&mut self.env, &controller);
        controller.start(&mut self.env);
        self.controllers.insert(number, controller);
        Ok(())
    }

    fn check_free(&self, request: &ConnectRequest) -> Answer {
        match self.controllers.values().find(|other| is_same(other, request)) {
            Some(other) => {
                let (name, nqn, to) = (other.name(), &request.subsystem_nqn, &request.to);
                let already = other.state.already();
                Err(VerbError::Connected(format!("{already}: {name} is {nqn} at {to}")))
            }
            None => Ok(()),
        }
    }

    /// Linux takes only addresses, and stays with the one that it was given.
    fn move_to(&mut self, id: VerbId, mut request: ConnectRequest, to: Endpoint) -> Answer {
        let mut known = self.controllers.values();
        let found = known.find(|controller| is_same(controller, &request)).map(|found| found.id);
        request.to = to;
        self.check_free(&request)?;
        let mut others = self.controllers.values().filter(|other| Some(other.id) != found);
        if let Some(other) = others.find(|other| has_noted(other, &request)) {
            let (name, nqn, to) = (other.name(), &request.subsystem_nqn, &request.to);
            let text = format!("{name} is going to be {nqn} at {to}");
            return Err(VerbError::Connected(text));
        }
        let Some(controller) = found.and_then(|id| self.controllers.get_mut(&id)) else {
            return Err(VerbError::Invalid(String::from("there is no such controller")));
        };
        if !controller.move_to(&mut self.env, request.to) {
            let (name, state) = (controller.name(), controller.state);
            let text = format!("{name} is {state}: it moves only while it is not connected");
            return Err(VerbError::Conflict(text));
        }
        self.env.reply(id, Reply::Done);
        Ok(())
    }

    /// Tells of combinations that Linux takes with a warning: so do we, however they came to be.
    pub(super) fn warn(env: &mut Env, controller: &Controller) {
        let ControllerOptions { ctrl_loss_tmo, fast_io_fail_tmo, reconnect_delay, .. } =
            controller.request.options;
        let mut note = |text: &str| {
            let text = text.to_string();
            env.event(HostEvent::Note { controller: controller.name(), text });
        };
        if let (Some(loss), Some(fast)) = (ctrl_loss_tmo, fast_io_fail_tmo)
            && fast > loss
        {
            note("fast_io_fail_tmo is longer than ctrl_loss_tmo and will never pass");
        }
        if ctrl_loss_tmo.is_some_and(|loss| !loss.is_zero() && loss < reconnect_delay) {
            note("ctrl_loss_tmo is shorter than reconnect_delay: there will be one attempt");
        }
    }

    fn discover(&mut self, id: VerbId, request: Box<ConnectRequest>) -> Answer {
        self.check_room()?;
        check_options(&request.options, true)?;
        let number = ControllerId(self.next_discovery);
        self.next_discovery = self.next_discovery.wrapping_add(1).max(super::DISCOVERY_IDS);
        let kind = Kind::Discovery(id, DiscoveryRead::default());
        let mut controller = Controller::new((number, self.free_instance()), *request, kind, 0);
        controller.start(&mut self.env);
        self.controllers.insert(number, controller);
        Ok(())
    }

    fn disconnect(&mut self, id: VerbId, selection: &Selection) -> Answer {
        let chosen: Vec<ControllerId> = match selection {
            Selection::Controller(name) => alloc::vec![self.find_controller(name)?],
            Selection::Subsystem(nqn) => {
                // Those that are still to come are not wanted any more, either.
                self.set_aside.retain(|aside| aside.nqn != *nqn);
                let all = self.controllers.values().filter(|c| !c.is_discovery());
                all.filter(|c| c.request.subsystem_nqn == *nqn).map(|c| c.id).collect()
            }
            Selection::All => {
                self.set_aside.clear();
                self.controllers.values().filter(|c| !c.is_discovery()).map(|c| c.id).collect()
            }
        };
        self.remove(id, chosen, None);
        Ok(())
    }

    fn remove(&mut self, id: VerbId, chosen: Vec<ControllerId>, unanswered: Option<u64>) {
        let count = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
        if chosen.is_empty() {
            let reply = match unanswered {
                Some(unanswered) => Reply::ShutDown { unanswered },
                None => Reply::Disconnected(0),
            };
            return self.env.reply(id, reply);
        }
        // A shutdown has waited for what is in flight already.
        let patience = match unanswered {
            Some(1..) => Duration::ZERO,
            _ => self.env.config.shutdown_timeout,
        };
        let waiting = chosen.clone();
        self.waits.removals.push(RemovalWait { id, count, waiting, unanswered });
        for controller in chosen {
            if let Some(controller) = self.controllers.get_mut(&controller) {
                controller.delete(&mut self.env, patience);
            }
        }
    }

    /// Second part of `Shutdown`.
    pub(super) fn remove_all(&mut self, id: VerbId, unanswered: u64) {
        let all = self.controllers.keys().copied().collect();
        self.remove(id, all, Some(unanswered));
    }

    fn shutdown(&mut self, id: VerbId) -> Answer {
        if core::mem::replace(&mut self.shutting_down, true) {
            return Err(VerbError::Conflict(String::from("the host is shutting down already")));
        }
        self.begin_drain(id);
        Ok(())
    }

    /// As the verb of that name; a new look at the namespaces is answered when it has begun.
    fn act(&mut self, id: VerbId, name: &str, act: Act, bufs: &mut dyn Buffers) -> Answer {
        match act {
            Act::Reset => self.reset(id, name),
            Act::Delete => self.disconnect(id, &Selection::Controller(name.to_string())),
            Act::Rescan => {
                let target = self.find_controller(name)?;
                self.check_live(target, name, "rescanned")?;
                if let Some(controller) = self.controllers.get_mut(&target) {
                    controller.request_scan(&mut self.env, bufs);
                }
                self.env.reply(id, Reply::Done);
                Ok(())
            }
        }
    }

    /// Nothing is done to a controller that is not live, and whoever asks for it is told so.
    fn check_live(&self, target: ControllerId, name: &str, what_is_done: &str) -> Answer {
        match self.controllers.get(&target) {
            Some(controller) if !controller.is_live() => {
                let state = controller.state;
                let text = format!("{name} is {state}, only a live controller is {what_is_done}");
                Err(VerbError::Conflict(text))
            }
            _ => Ok(()),
        }
    }

    fn reset(&mut self, id: VerbId, name: &str) -> Answer {
        let target = self.find_controller(name)?;
        self.check_live(target, name, "reset")?;
        let Some(controller) = self.controllers.get_mut(&target) else { return Ok(()) };
        controller.waiters.push(Waiter::Reset(id));
        controller.reset(&mut self.env);
        Ok(())
    }

    fn go_on(&mut self, id: VerbId, device: &str, stop: Stop) -> Answer {
        let head = self.find_head_named(device)?;
        let before = self.rests(head);
        let left = self.head_mut(head).and_then(|head| {
            let count = stop.count(head);
            *count = count.checked_sub(1)?;
            Some(*count)
        });
        let Some(left) = left else {
            let text = format!("{device} is not quiesced or frozen that often");
            return Err(VerbError::Invalid(text));
        };
        self.take_back_stops(head, stop, left);
        self.tell_rest(head, before);
        self.env.dirty = true;
        self.env.reply(id, Reply::Done);
        Ok(())
    }

    /// Stops a head; answered when every shard has.
    fn stop_head(&mut self, id: VerbId, device: &str, stop: Stop) -> Answer {
        let head = self.find_head_named(device)?;
        if !self.may_wait() {
            return Err(VerbError::Conflict(String::from(
                "too many callers wait for a device to rest",
            )));
        }
        let before = self.rests(head);
        if let Some(head) = self.head_mut(head) {
            let count = stop.count(head);
            *count = count.saturating_add(1);
        }
        self.tell_rest(head, before);
        self.env.dirty = true;
        self.await_stop(id, head, stop);
        Ok(())
    }

    /// Whether a head is quiesced, and whether it is frozen.
    pub(super) fn rests(&mut self, head: HeadId) -> (bool, bool) {
        self.head_mut(head).map_or((false, false), |head| (head.quiesced > 0, head.frozen > 0))
    }

    /// I/O stands still without any fault, for as long as somebody wants: the log says so.
    pub(super) fn tell_rest(&mut self, head: HeadId, before: (bool, bool)) {
        let after = self.rests(head);
        let name = self.subsystems.iter().find_map(|subsystem| {
            let head = subsystem.heads.iter().find(|found| found.id == head)?;
            Some(subsystem.head_name(head))
        });
        let Some(name) = name else { return };
        let mut tell = |text: &str| {
            let (controller, text) = (name.clone(), String::from(text));
            self.env.event(HostEvent::Note { controller, text });
        };
        match (before.0, after.0) {
            (false, true) => tell("quiesced: I/O waits until it is unquiesced"),
            (true, false) => tell("unquiesced"),
            _ => {}
        }
        match (before.1, after.1) {
            (false, true) => tell("frozen: no I/O is taken in until it is unfrozen"),
            (true, false) => tell("unfrozen"),
            _ => {}
        }
    }

    fn raw_ana_log(&mut self, id: VerbId, name: &str, bufs: &mut dyn Buffers) -> Answer {
        let target = self.find_controller(name)?;
        let Some(controller) = self.controllers.get_mut(&target) else { return Ok(()) };
        controller.read_raw_ana_log(&mut self.env, bufs, id)
    }

    fn raw_namespace(&mut self, id: VerbId, device: &str, bufs: &mut dyn Buffers) -> Answer {
        let id_of = self.find_head_named(device)?;
        let mut heads = self.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
        let Some(head) = heads.find(|head| head.id == id_of) else { return Ok(()) };
        let shows = |path: &&Path| {
            let controller = self.controllers.get(&path.controller);
            controller.is_some_and(|controller| controller.vouches_for(path.nsid))
        };
        match head.paths.iter().find(shows).map(|path| (path.controller, path.nsid)) {
            Some((target, nsid)) => self.raw(id, target, wire::identify_namespace(nsid), bufs),
            None => Err(VerbError::Failed(format!("{device} has no path that is live"))),
        }
    }

    fn raw(
        &mut self,
        id: VerbId,
        target: ControllerId,
        command: (Sqe, Payload<'_>),
        bufs: &mut dyn Buffers,
    ) -> Answer {
        let Some(controller) = self.controllers.get_mut(&target) else { return Ok(()) };
        let name = controller.name();
        let deadline = controller.admin_deadline(self.env.now);
        let live = controller.is_live();
        let Some(link) = controller.link.as_mut().filter(|_| live) else {
            return Err(VerbError::Failed(format!("{name} is {}", controller.state)));
        };
        link.send(&mut self.env, bufs, Purpose::Raw(id), command, deadline)
            .map_err(|error| VerbError::Failed(format!("{name}: {}", error.text())))
    }

    pub(super) fn find_controller(&self, name: &str) -> Result<ControllerId, VerbError> {
        let mut known = self.controllers.values();
        known
            .find(|controller| !controller.is_discovery() && controller.name() == name)
            .map(|controller| controller.id)
            .ok_or_else(|| self.no_such(ObjectKind::Controller, name))
    }

    pub(super) fn find_head_named(&self, name: &str) -> Result<HeadId, VerbError> {
        self.subsystems
            .iter()
            .flat_map(|subsystem| subsystem.heads.iter().map(move |head| (subsystem, head)))
            .find(|(subsystem, head)| head.visible && subsystem.head_name(head) == name)
            .map(|(_, head)| head.id)
            .ok_or_else(|| self.no_such(ObjectKind::Head, name))
    }

    pub(super) fn head_mut(&mut self, id: HeadId) -> Option<&mut Head> {
        let heads = self.subsystems.iter_mut().flat_map(|subsystem| &mut subsystem.heads);
        heads.into_iter().find(|head| head.id == id)
    }
}

/// The same subsystem through the same addresses (DESIGN: such a second connect is refused).
fn is_same(other: &Controller, request: &ConnectRequest) -> bool {
    other.request.to == request.to && is_of(other, request)
}

/// The same, where its next attempt goes.
fn has_noted(other: &Controller, request: &ConnectRequest) -> bool {
    other.noted.as_ref() == Some(&request.to) && is_of(other, request)
}

/// The same subsystem through the same side of ours.
fn is_of(other: &Controller, request: &ConnectRequest) -> bool {
    let (mine, theirs) = (&request.options.socket, &other.request.options.socket);
    // One that is being removed is none any more, as in Linux: whoever asks gets another one.
    !other.is_discovery()
        && other.state != ControllerState::Deleting
        && other.request.subsystem_nqn == request.subsystem_nqn
        && mine.source == theirs.source
        && mine.interface == theirs.interface
}

/// Ranges of Linux fabrics (B1).
fn check_options(options: &ControllerOptions, discovery: bool) -> Answer {
    let invalid = |text: &str| Err(VerbError::Invalid(text.to_string()));
    if !(16..=1024).contains(&options.queue_size) {
        return invalid("queue_size must lie between 16 and 1024");
    }
    if options.nr_io_queues == Some(0) {
        return invalid("nr_io_queues must be at least 1");
    }
    if options.keep_alive_tmo.is_zero() && !discovery {
        return invalid("keep_alive_tmo 0 is for discovery controllers only");
    }
    if options.relative_throughput > MAX_RELATIVE_THROUGHPUT {
        return invalid("relative_throughput must lie between 0 and 100");
    }
    if u32::try_from(options.keep_alive_tmo.as_millis()).is_err() {
        return invalid("keep_alive_tmo must not exceed 4294967 s (32 bits of milliseconds)");
    }
    for (name, time) in [
        ("reconnect_delay", options.reconnect_delay),
        ("io_timeout", options.io_timeout),
        ("admin_timeout", options.admin_timeout),
        ("keep_alive_tmo", options.keep_alive_tmo),
    ] {
        if time.is_zero() && name == "keep_alive_tmo" {
            continue;
        }
        check_time(time).map_err(|why| VerbError::Invalid(format!("{name} {why}")))?;
    }
    Ok(())
}

/// An endpoint as `traddr` and `trsvcid`.
pub(super) fn address(to: &Endpoint) -> (String, String) {
    match to {
        // Two that differ in the interface alone are two.
        Endpoint::Tcp(SocketAddr::V6(at)) if at.scope_id() != 0 => {
            (format!("{}%{}", at.ip(), at.scope_id()), at.port().to_string())
        }
        Endpoint::Tcp(at) => (at.ip().to_string(), at.port().to_string()),
        Endpoint::Unix(path) => (path.clone(), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::address;
    use anabranch_proto::machine::Endpoint;

    #[test]
    fn an_address_of_a_link_is_shown_with_its_interface() {
        let shown = |at: &str| address(&Endpoint::Tcp(at.parse().expect(at))).0;
        assert_eq!(shown("[fe80::1%7]:4420"), "fe80::1%7");
        assert_eq!(shown("[2001:db8::1]:4420"), "2001:db8::1");
        assert_eq!(shown("192.0.2.1:4420"), "192.0.2.1");
    }
}
