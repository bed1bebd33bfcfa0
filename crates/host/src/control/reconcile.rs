//! Namespaces become paths of heads.
//!
//! The rules are those of Linux (`nvme_init_ns_head`), made stricter where a mistake would cost
//! data:
//! * A head is recognised by UUID, NGUID and EUI64, all equal; never by NSID.
//! * A namespace that shares an identifier with a head but differs in another one, or carries the
//!   identifiers of a head under another NSID, is refused as a path. A head whose NSID no live
//!   controller vouches for any more is not told by it: it follows its namespace to another one,
//!   and the paths of controllers that are away stay until they are back and show what they have.
//! * A namespace without any identifier is never merged: the first controller's becomes a head of
//!   its own, one with the same NSID through another controller is refused.
//! * A namespace with an NSID that a head has through *another* controller but with other
//!   identifiers is refused. That controller may have missed the change, and what it is sent would
//!   go to the wrong namespace: its path is out of use until it has been looked at again. Once no
//!   live controller shows the old head there the namespace becomes a new head. With the same
//!   controller it is a new head at once. When one that was away comes back and still shows the old
//!   one, both are used, after all that show either have been asked again.
//! * Several paths need a namespace that says it may be shared (NMIC).
//! * The same identifiers in two subsystems are refused in the second one as long as the first has
//!   them.
//! * Another block size refuses the path; another capacity takes it out until the sizes agree
//!   (M20): see `sizes`.

use super::Control;
use super::controller::Controller;
use super::env::Env;
use super::namespace::{Ids, Namespace};
use super::scan::Scan;
use super::subsystem::{Head, Path, Subsystem};
use crate::Leftovers;
use crate::event::HostEvent;
use crate::topology::{ControllerId, HeadId, PathId};
use crate::write_marks::LeftMark;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Heads of one host; more are refused.
const MAX_HEADS: usize = 65_536;

type Controllers = BTreeMap<ControllerId, Controller>;

/// Namespaces that were refused, or that others show otherwise.
pub(super) type Refusals = BTreeMap<(ControllerId, u32), Refusal>;

/// What keeps a namespace that a controller shows from being like any other.
enum Oddity {
    /// It is no path, for this reason.
    Refused(String),
    /// It is a path, and others show another one under its NSID.
    Contested,
}

pub(super) struct Refusal {
    /// Told once.
    pub(super) why: String,
    /// Since the controller came up, the others were asked whether they show the same.
    asked: bool,
    /// Identifiers that its controller has shown under another NSID at the same time: it is not the
    /// namespace of the device that has them.
    twin: Option<Ids>,
}

impl Control {
    /// Makes heads and paths agree with what the controllers of a subsystem show.
    pub(super) fn reconcile(&mut self, index: usize) {
        self.env.dirty = true;
        self.drop_paths(index);
        self.resize(index);
        self.follow_namespaces(index);
        self.drop_heads(index);
        self.join_all(index);
    }

    fn drop_paths(&mut self, index: usize) {
        let next = &mut self.next_path;
        let subsystem = &mut self.subsystems[index];
        let left = drop_paths(&mut self.env, subsystem, &self.controllers, next);
        self.left_marks.leave(left);
    }

    /// Something that others show may have been refused because of a head or of what a controller
    /// said that has gone: that has a place now.
    pub(super) fn join_refused(&mut self, index: usize) {
        let controllers = &self.subsystems[index].controllers;
        if self.refusals.keys().any(|(controller, _)| controllers.contains(controller)) {
            self.env.dirty = true;
            self.follow_namespaces(index);
            self.join_all(index);
        }
    }

    /// Namespaces may have got other NSIDs, as those of a target that has started anew and made
    /// them in another order: heads that nobody shows under the former one join them there.
    fn follow_namespaces(&mut self, index: usize) {
        let lost = |head: &Head| !head.ids.is_none() && !is_shown(head, &self.controllers);
        let heads = self.subsystems[index].heads.iter().enumerate();
        let lost: Vec<usize> = heads.filter(|(_, head)| lost(head)).map(|(at, _)| at).collect();
        if lost.is_empty() {
            return;
        }
        let unplaced = self.unplaced(index);
        let mut followed = false;
        for at in lost {
            let Some((controller, namespace)) = self.namespace_elsewhere(index, at, &unplaced)
            else {
                continue;
            };
            let head = &mut self.subsystems[index].heads[at];
            let former = core::mem::replace(&mut head.nsid, namespace.nsid);
            // A path there whose namespace could not be read any more comes along.
            if head.path(controller).is_none()
                && self.join(index, at, controller, &namespace).is_err()
            {
                self.subsystems[index].heads[at].nsid = former;
                continue;
            }
            let subsystem = &self.subsystems[index];
            let head = subsystem.head_name(&subsystem.heads[at]);
            let text = format!("{head} has nsid {} there now (it was {former})", namespace.nsid);
            if let Some(controller) = self.controllers.get(&controller).map(Controller::name) {
                self.env.event(HostEvent::Note { controller, text });
            }
            self.drop_paths(index);
            followed = true;
        }
        if followed {
            // Of heads whose other paths are all away, a path that is new may know another size.
            self.resize(index);
        }
    }

    /// What live controllers show that is no path of any head, by controller.
    fn unplaced(&self, index: usize) -> Vec<Vec<(ControllerId, Namespace)>> {
        let subsystem = &self.subsystems[index];
        let paths = subsystem.heads.iter().flat_map(|head| &head.paths);
        let placed: BTreeSet<_> = paths.map(|path| (path.controller, path.nsid)).collect();
        let live = subsystem.controllers.iter().filter_map(|id| {
            self.controllers.get(id).filter(|it| it.vouches()).map(|it| (*id, &it.scan))
        });
        let unplaced = live.map(|(id, scan)| {
            // What cannot be read was there once.
            let read = scan.namespaces().iter().filter(|namespace| !namespace.unread);
            let shown = read.map(|namespace| (id, *namespace));
            shown.filter(|(_, namespace)| !placed.contains(&(id, namespace.nsid))).collect()
        });
        unplaced.filter(|shown: &Vec<_>| !shown.is_empty()).collect()
    }

    /// The namespace of a head, under an NSID that no live controller shows a head under, if it may
    /// be a path there.
    fn namespace_elsewhere(
        &self,
        index: usize,
        at: usize,
        unplaced: &[Vec<(ControllerId, Namespace)>],
    ) -> Option<(ControllerId, Namespace)> {
        let subsystem = &self.subsystems[index];
        let head = &subsystem.heads[at];
        let taken = |nsid| {
            let mut heads = subsystem.heads.iter();
            heads.any(|other| other.nsid == nsid && is_shown(other, &self.controllers))
        };
        unplaced.iter().find_map(|shown| {
            let mut same = shown.iter().filter(|(_, namespace)| namespace.ids == head.ids);
            let found = same.next()?;
            let nsid = found.1.nsid;
            // Under two NSIDs: which of them it is cannot be told.
            let only = nsid != head.nsid && !taken(nsid) && same.next().is_none();
            let only = only && !self.is_twin(subsystem, &found.1);
            (only && fits(subsystem, at, found.0, &found.1).is_ok()).then_some(*found)
        })
    }

    /// The target of a controller calls itself another one, as a Linux target does that has started
    /// anew and was given no serial number: Linux, too, takes what has the same NQN for the same
    /// subsystem. What has no identifiers there may be anything now.
    pub(super) fn drop_paths_without_identifiers(&mut self, index: usize, id: ControllerId) {
        let subsystem = &mut self.subsystems[index];
        let (mut lost, mut left) = (Vec::new(), Vec::new());
        for head in subsystem.heads.iter_mut().filter(|head| head.ids.is_none()) {
            for path in head.paths.extract_if(.., |path| path.controller == id) {
                lost.push((path.controller_instance, head.instance));
                left.push((head.id, id, path.writes));
            }
        }
        self.left_marks.leave(left);
        let number = subsystem.instance;
        for (controller, head) in lost {
            self.env.event(path_removed(number, controller, head));
        }
        self.env.dirty = true;
    }

    /// What live controllers show becomes heads and paths.
    fn join_all(&mut self, index: usize) {
        let before = self.next_path;
        let contested = contested(&self.subsystems[index], &self.controllers);
        for id in self.subsystems[index].controllers.clone() {
            let live = |it: &&Controller| it.is_live();
            let Some(controller) = self.controllers.get(&id).filter(live) else { continue };
            let namespaces = controller.scan.namespaces().iter();
            // Before a scan is complete, what it has seen so far.
            let read = namespaces.filter(|namespace| controller.has_read(namespace.nsid));
            let is_all = controller.is_verified();
            let settled = |nsid| is_all && controller.scan.is_settled(nsid);
            let namespaces: Vec<(Namespace, bool)> =
                read.map(|namespace| (*namespace, settled(namespace.nsid))).collect();
            self.subsystems[index].make_room(namespaces.len());
            let shows = |nsid| namespaces.binary_search_by_key(&nsid, |(it, _)| it.nsid).is_ok();
            if is_all {
                self.refusals.retain(|&(controller, nsid), _| controller != id || shows(nsid));
            }
            // Looked for once: there may be a thousand heads, and as many namespaces.
            let heads = self.subsystems[index].heads.iter();
            let joined = heads.filter(|head| head.path(id).is_some()).map(|head| head.nsid);
            let joined: BTreeSet<u32> = joined.collect();
            for (namespace, is_settled) in namespaces {
                let nsid = namespace.nsid;
                let placed = if !joined.contains(&nsid) {
                    self.place(index, id, &namespace).map_err(Oddity::Refused)
                } else if contested.contains(&nsid) {
                    Err(Oddity::Contested)
                } else {
                    Ok(())
                };
                match placed {
                    Ok(()) => {
                        self.refusals.remove(&(id, nsid));
                    }
                    // What is not all may look odd that is not, as what has moved: its head has
                    // another NSID until it is certain that it is not there any more.
                    Err(_) if !is_settled => {}
                    Err(oddity) => self.note_oddity(index, id, &namespace, oddity),
                }
            }
        }
        if self.next_path != before {
            // Of heads whose other paths are all away, a path that is new may know another size.
            self.resize(index);
        }
    }

    /// Tells what is odd about a namespace, and has the others asked.
    fn note_oddity(
        &mut self,
        index: usize,
        id: ControllerId,
        namespace: &Namespace,
        oddity: Oddity,
    ) {
        let (nsid, ids) = (namespace.nsid, namespace.ids);
        let shows_it_elsewhere = |head: &Head| {
            let path = head.path(id).filter(|path| !path.unread);
            head.ids == ids && head.nsid != nsid && path.is_some()
        };
        let subsystem = &self.subsystems[index];
        let twin =
            self.is_twin(subsystem, namespace) || subsystem.heads.iter().any(shows_it_elsewhere);
        let asked = self.is_news(id, nsid, oddity).then(|| self.doubt_others(index, id, namespace));
        let Some(refusal) = self.refusals.get_mut(&(id, nsid)) else { return };
        refusal.asked = asked.unwrap_or(refusal.asked);
        let is_new = core::mem::replace(&mut refusal.twin, twin.then_some(ids)).is_none();
        if let Some(controller) = self.controllers.get(&id).filter(|_| twin && is_new) {
            let text = format!(
                "nsid {nsid}: as it was shown beside the namespace of a device, that device does \
                 not move there"
            );
            self.env.event(HostEvent::Note { controller: controller.name(), text });
        }
    }

    /// Whether some controller has shown its identifiers under another NSID beside it. Which of
    /// both is the one that users have is known as long as it is not forgotten.
    fn is_twin(&self, subsystem: &Subsystem, namespace: &Namespace) -> bool {
        let refusals = subsystem.controllers.iter();
        let mut refusals = refusals.filter_map(|id| self.refusals.get(&(*id, namespace.nsid)));
        refusals.any(|refusal| refusal.twin == Some(namespace.ids))
    }

    /// Tells what is odd about a namespace, if that is new; gives back whether the others are to be
    /// asked.
    fn is_news(&mut self, id: ControllerId, nsid: u32, oddity: Oddity) -> bool {
        let Some(controller) = self.controllers.get(&id).map(Controller::name) else {
            return false;
        };
        let (why, is_refused) = match oddity {
            Oddity::Refused(why) => (why, true),
            Oddity::Contested => {
                (String::from("it is another namespace through other controllers"), false)
            }
        };
        if let Some(known) = self.refusals.get_mut(&(id, nsid)).filter(|known| known.why == why) {
            return !core::mem::replace(&mut known.asked, true);
        }
        self.env.event(match is_refused {
            true => HostEvent::NamespaceRefused { controller, nsid, why: why.clone() },
            false => HostEvent::Note { controller, text: format!("nsid {nsid}: {why}") },
        });
        self.refusals.insert((id, nsid), Refusal { why, asked: true, twin: None });
        true
    }

    /// A controller that comes back may be right this time, and the others may have missed it.
    pub(super) fn ask_again(&mut self, id: ControllerId) {
        let of_it = self.refusals.range_mut((id, 0)..=(id, u32::MAX));
        of_it.for_each(|(_, refusal)| refusal.asked = false);
    }

    /// A command was told that there is no such namespace. By the next one there may be: another
    /// one, under its NSID. Nothing is sent there before it was looked at.
    pub(super) fn doubt_path(&mut self, controller: ControllerId, head: HeadId) {
        self.env.dirty = true;
        let Some(number) = self.controllers.get(&controller).map(|it| it.scan.clock()) else {
            return;
        };
        let heads = self.subsystems.iter_mut().flat_map(|subsystem| &mut subsystem.heads);
        let path = heads.filter(|found| found.id == head).find_map(|it| it.path_mut(controller));
        if let Some(path) = path {
            path.doubt(Some(number));
            path.doubts += 1;
        }
    }

    /// A controller says that namespaces have changed, not yet which. What is in use stays so until
    /// it does. Where the first scan since it has come back goes on (`unused`), that may have read
    /// what has changed since: it puts nothing into use before.
    pub(super) fn await_news(&mut self, id: ControllerId, unused: bool) {
        let Some(index) = self.subsystem_of(id) else { return };
        let heads = self.subsystems[index].heads.iter_mut();
        heads.filter_map(|head| head.path_mut(id)).for_each(|it| it.awaits_news = unused);
    }

    /// A controller says which namespaces have changed: each may be another one by now. Nothing is
    /// sent to them there before the scan that goes on has looked at them.
    pub(super) fn doubt_named(&mut self, id: ControllerId) {
        let Some(index) = self.subsystem_of(id) else { return };
        let Some(controller) = self.controllers.get(&id) else { return };
        for head in &mut self.subsystems[index].heads {
            let Some(path) = head.path_mut(id) else { continue };
            path.doubt(controller.scan.doubted_since(path.nsid));
            path.awaits_news &= controller.scan.has_unheard();
            self.env.dirty = true;
        }
    }

    /// A controller shows another namespace than a head that has the same NSID through others:
    /// they are looked at again, and nothing is sent there before. Private namespaces may differ.
    /// One that shows something else at each look does not keep them from their work: they are
    /// asked at a pace of its own. Gives back whether all were asked.
    fn doubt_others(&mut self, index: usize, from: ControllerId, namespace: &Namespace) -> bool {
        let now = self.env.now;
        let differs = |head: &&mut Head| {
            head.nsid == namespace.nsid
                && head.ids != namespace.ids
                && (head.shared || namespace.shared)
                && head.paths.iter().any(|path| path.controller != from)
        };
        let heads = &mut self.subsystems[index].heads;
        let mut may_ask = true;
        // All of them at once, or each would have the others asked again.
        for head in heads.iter_mut().filter(differs) {
            // Of controllers that have gone nothing is left.
            let contradicted = &mut head.disputes().contradicted;
            contradicted.retain(|_, pace| !pace.is_forgotten(now));
            may_ask &= contradicted.entry(from).or_default().may(now);
        }
        if !may_ask {
            return false;
        }
        for head in heads.iter_mut().filter(differs) {
            head.disputes().contradicted.entry(from).or_default().allows(now);
            for path in head.paths.iter_mut().filter(|path| path.controller != from) {
                let Some(other) = self.controllers.get(&path.controller) else { continue };
                path.doubt(Some(other.scan.clock()));
                self.rescan.push(path.controller);
            }
        }
        true
    }

    /// Joins a head or makes one.
    fn place(
        &mut self,
        index: usize,
        controller: ControllerId,
        namespace: &Namespace,
    ) -> Result<(), String> {
        if let Some(at) = self.find_head(index, namespace)? {
            return self.join(index, at, controller, namespace);
        }
        let heads: usize = self.subsystems.iter().map(|subsystem| subsystem.heads.len()).sum();
        if heads >= MAX_HEADS {
            return Err(format!("there are {heads} devices already"));
        }
        let id = HeadId(self.next_head);
        self.next_head += 1;
        let twin = self.is_twin(&self.subsystems[index], namespace);
        let subsystem = &mut self.subsystems[index];
        let settings = self.env.config.settings_of(&subsystem.identity.nqn).devices;
        let origin = self.controllers.get(&controller).and_then(|it| it.identity.clone());
        let origin = origin.unwrap_or_else(|| subsystem.identity.clone());
        let Subsystem { heads, numbers, .. } = subsystem;
        let taken = |number| heads.iter().any(|head| head.instance == number);
        let instance = numbers.give((namespace.ids, twin), (namespace.nsid, &origin), taken);
        let mut same_nsid = heads.iter().filter(|head| head.nsid == namespace.nsid);
        let orphan = same_nsid.find(|head| head.visible && !is_shown(head, &self.controllers));
        let orphan = orphan.map(|head| head.instance);
        // A namespace that is back under another NSID has its device: nothing waits for it.
        let present = |head: &Head| !head.paths.is_empty();
        let is_gone =
            |number: &u32| !heads.iter().any(|head| head.instance == *number && present(head));
        let former = numbers.former(namespace.nsid, instance).filter(is_gone).or(orphan);
        subsystem.heads.push(Head {
            id,
            instance,
            nsid: namespace.nsid,
            ids: namespace.ids,
            origin,
            shared: namespace.shared,
            blocks: namespace.blocks,
            disputes: None,
            block_bytes: namespace.block_bytes,
            paths: Vec::new(),
            visible: false,
            stranded: false,
            settings,
            remove_at: None,
            quiesced: 0,
            frozen: 0,
            policy_epoch: 0,
            zeroes_refused: false,
            written: Arc::default(),
            leftovers: Arc::new(Leftovers::new(id, self.leftovers.clone())),
            failed_flushes: Arc::default(),
            requeues_base: 0,
            no_path_base: 0,
            last_limits: None,
        });
        let at = subsystem.heads.len() - 1;
        if let Some(former) = former {
            let name = |number| format!("nvme{}n{number}", subsystem.instance);
            let (head, former, nsid) = (name(instance), name(former), namespace.nsid);
            self.env.event(HostEvent::HeadReplaced { head, former, nsid });
        }
        self.join(index, at, controller, namespace)
    }

    /// The head that a namespace belongs to, `None` for a new one.
    fn find_head(&self, index: usize, namespace: &Namespace) -> Result<Option<usize>, String> {
        let subsystem = &self.subsystems[index];
        let mut same_nsid = subsystem.heads.iter().filter(|head| head.nsid == namespace.nsid);
        if namespace.ids.is_none() {
            return match same_nsid.find(|head| !head.paths.is_empty()) {
                None => Ok(None),
                Some(head) => Err(format!(
                    "it has no identifier, and {} has the same NSID: they cannot be told apart",
                    subsystem.head_name(head)
                )),
            };
        }
        for other in self.subsystems.iter().filter(|other| other.instance != subsystem.instance) {
            if let Some(head) = other.heads.iter().find(|head| head.ids.overlaps(&namespace.ids)) {
                return Err(format!(
                    "duplicate identifiers: {} of {} has {} too",
                    other.head_name(head),
                    other.name(),
                    namespace.ids
                ));
            }
        }
        let mut heads = subsystem.heads.iter();
        if let Some(at) = heads.position(|head| head.ids.overlaps(&namespace.ids)) {
            let head = &subsystem.heads[at];
            if head.ids != namespace.ids {
                return Err(format!(
                    "its identifiers agree only in part: it has {}; {} has {}",
                    namespace.ids.in_full(),
                    subsystem.head_name(head),
                    head.ids.in_full()
                ));
            }
            if head.nsid != namespace.nsid {
                return Err(format!(
                    "duplicate identifiers in the subsystem: {} has them as nsid {}",
                    subsystem.head_name(head),
                    head.nsid
                ));
            }
            return Ok(Some(at));
        }
        match same_nsid.find(|head| is_shown(head, &self.controllers)) {
            None => Ok(None),
            Some(head) => Err(format!(
                "identifiers do not match: it has {}, {} with the same NSID has {}",
                namespace.ids,
                subsystem.head_name(head),
                head.ids
            )),
        }
    }

    fn join(
        &mut self,
        index: usize,
        at: usize,
        controller: ControllerId,
        namespace: &Namespace,
    ) -> Result<(), String> {
        let subsystem = &mut self.subsystems[index];
        fits(subsystem, at, controller, namespace)?;
        let head = &subsystem.heads[at];
        let instance = self.controllers.get(&controller).map_or(0, |found| found.instance);
        let (name, path) = (subsystem.head_name(head), subsystem.path_name(head, instance));
        let id = PathId(self.next_path);
        self.next_path += 1;
        let head = &mut subsystem.heads[at];
        let writes = self.left_marks.rejoin(head.id, controller, self.env.now.ns());
        if head.blocks != namespace.blocks && head.paths.is_empty() {
            // It has changed while the head was without a path: nobody says otherwise.
            let from_bytes = head.bytes();
            head.blocks = namespace.blocks;
            let to_bytes = head.bytes();
            self.env.event(HostEvent::HeadResized { head: name.clone(), from_bytes, to_bytes });
        } else if head.blocks != namespace.blocks {
            // Somebody has missed a change of size.
            self.rescan.extend(head.paths.iter().map(|path| path.controller));
        }
        head.remove_at = None;
        // In the order in which they were asked for, whichever answers first: of equally near paths
        // `numa` takes the first.
        let place = head.paths.partition_point(|other| other.controller < controller);
        // Most have few: no room for more than there are.
        head.paths.reserve_exact(1);
        // A head that has gone may have given way to what its controller has doubted since.
        let news = self.controllers.get(&controller).map(|found| &found.scan);
        let joined = Path {
            id,
            controller,
            controller_instance: instance,
            nsid: namespace.nsid,
            blocks: namespace.blocks,
            used_blocks: namespace.used_blocks,
            ana_group: namespace.ana_group,
            write_protected: namespace.write_protected,
            zeroes_may_deallocate: namespace.zeroes_may_deallocate,
            unread: namespace.unread,
            doubted: news.and_then(|scan| scan.doubted_since(namespace.nsid)),
            awaits_news: news.is_some_and(Scan::has_unheard),
            doubts: 0,
            doubted_times: 0,
            load: self.no_load.clone(),
            nodes: Vec::new(),
            writes,
            shown: None,
            disagrees: false,
            io_affinity: None,
            failovers_base: 0,
            errors_base: 0,
            retries_base: 0,
        };
        head.paths.insert(place, joined);
        self.env.event(HostEvent::PathAdded { path, head: name });
        Ok(())
    }

    /// Heads without a path go, at once or after their delay (M19).
    pub(super) fn drop_heads(&mut self, index: usize) {
        let now = self.env.now;
        let subsystem = &mut self.subsystems[index];
        let mut removed = Vec::new();
        for at in 0..subsystem.heads.len() {
            let name = subsystem.head_name(&subsystem.heads[at]);
            let head = &mut subsystem.heads[at];
            if !head.paths.is_empty() {
                head.remove_at = None;
                continue;
            }
            let seconds = u64::from(head.settings.delayed_removal_secs);
            if seconds > 0 && head.remove_at.is_none() {
                let delay = core::time::Duration::from_secs(seconds);
                head.remove_at = Some(now.after(delay));
                self.env.event(HostEvent::HeadOrphaned { head: name.clone(), seconds });
            }
            if head.remove_at.is_none_or(|at| at <= now) {
                removed.push(head.id);
                if head.visible {
                    subsystem.numbers.leave(head.nsid, head.instance);
                    self.env.event(HostEvent::HeadRemoved { head: name });
                }
            }
        }
        if !removed.is_empty() {
            subsystem.heads.retain(|head| !removed.contains(&head.id));
            self.env.dirty = true;
            self.retry_refused = true;
            self.heads_removed(&removed);
        }
    }
}

/// Whether the namespace that a controller shows may be a path of the head with its identifiers.
fn fits(
    subsystem: &Subsystem,
    at: usize,
    controller: ControllerId,
    namespace: &Namespace,
) -> Result<(), String> {
    let head = &subsystem.heads[at];
    let name = subsystem.head_name(head);
    let alone = head.paths.iter().all(|path| path.controller == controller);
    if !(alone || head.shared && namespace.shared) {
        return Err(format!("it may not be shared (NMIC), and {name} has a path already"));
    }
    if head.block_bytes != namespace.block_bytes {
        return Err(format!(
            "block size {} differs from {} of {name}",
            namespace.block_bytes, head.block_bytes
        ));
    }
    Ok(())
}

/// Paths whose namespace is no longer there, is another one now, or whose controller is gone; gives
/// back their marks.
fn drop_paths(
    env: &mut Env,
    subsystem: &mut Subsystem,
    controllers: &Controllers,
    next_path: &mut u64,
) -> Vec<LeftMark> {
    let (mut lost, mut left) = (Vec::new(), Vec::new());
    for head in &mut subsystem.heads {
        let (nsid, ids, block_bytes) = (head.nsid, head.ids, head.block_bytes);
        let (id, instance) = (head.id, head.instance);
        head.paths.retain_mut(|path| {
            let mut lose = |path: &Path| {
                lost.push((path.controller_instance, instance));
                left.push((id, path.controller, path.writes.clone()));
            };
            let Some(controller) = controllers.get(&path.controller) else {
                lose(path);
                return false;
            };
            if !controller.vouches_for(nsid) {
                return true;
            }
            match controller.scan.namespace(nsid) {
                Some(now) if now.ids == ids && now.block_bytes == block_bytes => {
                    if path.nsid != nsid {
                        // What was meant for the former one is not to find this one.
                        (path.nsid, path.id) = (nsid, PathId(*next_path));
                        *next_path += 1;
                        path.doubt(controller.scan.doubted_since(nsid));
                        path.awaits_news = controller.scan.has_unheard();
                        (path.failovers_base, path.errors_base, path.retries_base) = (0, 0, 0);
                    }
                    path.ana_group = now.ana_group;
                    path.write_protected = now.write_protected;
                    path.zeroes_may_deallocate = now.zeroes_may_deallocate;
                    path.used_blocks = now.used_blocks;
                    path.unread = now.unread;
                    true
                }
                _ => {
                    lose(path);
                    false
                }
            }
        });
    }
    for (controller, head) in lost {
        env.event(path_removed(subsystem.instance, controller, head));
    }
    left
}

fn path_removed(subsystem: u32, controller: u32, head: u32) -> HostEvent {
    HostEvent::PathRemoved {
        path: format!("nvme{subsystem}c{controller}n{head}"),
        head: format!("nvme{subsystem}n{head}"),
    }
}

/// Some live controller shows it under its NSID.
fn is_shown(head: &Head, controllers: &Controllers) -> bool {
    head.paths.iter().any(|path| {
        let controller = controllers.get(&path.controller);
        let shows = controller.is_some_and(|it| it.vouches_for(path.nsid)) && !path.unread;
        path.nsid == head.nsid && shows
    })
}

/// The NSIDs under which live controllers show different heads: some of them may have missed a
/// change. Private namespaces may differ.
fn contested(subsystem: &Subsystem, controllers: &Controllers) -> BTreeSet<u32> {
    let shown = subsystem.heads.iter().filter(|head| is_shown(head, controllers));
    let mut shown: Vec<_> = shown.map(|head| (head.nsid, head.shared)).collect();
    shown.sort_unstable();
    let pairs = shown.windows(2);
    let contested = pairs.filter(|pair| pair[0].0 == pair[1].0 && (pair[0].1 || pair[1].1));
    contested.map(|pair| pair[1].0).collect()
}
