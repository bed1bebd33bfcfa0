//! Controllers join and leave subsystems.

use super::Control;
use super::facts::Identity;
use super::subsystem::{Numbers, Subsystem};
use crate::event::HostEvent;
use crate::topology::ControllerId;
use crate::verb::{PolicySource, Reply};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use anabranch_policy::Parameters;
use anabranch_proto::machine::Buffers;
use anabranch_proto::nvme::nqn::Nqn;

/// What the groups of a controller's paths are compared with its ANA log after.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// The log was read.
    Log,
    /// It was looked at.
    Look,
    /// A path of its has come, later than its log.
    Join,
}

impl Control {
    /// A controller has said who it is: it joins its subsystem, or is refused.
    pub(super) fn admit(&mut self, id: ControllerId, bufs: &mut dyn Buffers) {
        let verdict = self.find_subsystem(id);
        if let Some(controller) = self.controllers.get_mut(&id) {
            controller.admitted(&mut self.env, bufs, verdict);
        }
    }

    fn find_subsystem(&mut self, id: ControllerId) -> Result<(), String> {
        let Some(controller) = self.controllers.get_mut(&id) else { return Ok(()) };
        let renamed = core::mem::take(&mut controller.renamed);
        let Some(identity) = controller.identity.clone() else { return Ok(()) };
        let (name, firmware) = (controller.name(), controller.facts.firmware.clone());
        let instance = self.subsystem_instance(id);
        let same = |subsystem: &Subsystem| subsystem.identity.nqn == identity.nqn;
        let found = self.subsystem_of(id).or_else(|| self.subsystems.iter().position(same));
        let Some(index) = found else {
            let (parameters, policy_source) = self.first_parameters(&identity.nqn);
            self.subsystems.push(Subsystem {
                instance,
                identity,
                firmware,
                parameters,
                policy_source,
                policy_epoch: 0,
                controllers: alloc::vec![id],
                heads: Vec::new(),
                numbers: Numbers::default(),
            });
            return Ok(());
        };
        if renamed {
            self.drop_paths_without_identifiers(index, id);
            self.drop_heads(index);
        }
        self.check_others(index, id, &identity)?;
        let subsystem = &mut self.subsystems[index];
        let joins = !subsystem.controllers.contains(&id);
        if joins && !subsystem.controllers.is_empty() && subsystem.identity != identity {
            let text = format!(
                "the target calls itself another one than {} was so far: {}; what is the same \
                 namespace is told by identifiers alone",
                subsystem.name(),
                identity.changes_from(&subsystem.identity)
            );
            self.env.event(HostEvent::Note { controller: name, text });
        }
        if renamed || subsystem.controllers.is_empty() {
            subsystem.identity = identity;
        }
        subsystem.firmware = firmware;
        if joins {
            subsystem.controllers.push(id);
            subsystem.controllers.sort_unstable();
        }
        Ok(())
    }

    /// What may not be in one subsystem with the controllers that are live there, or about to be:
    /// two that connect at the same time would not see each other. Those alone count: after a
    /// restart of the target, old numbers may be given out again.
    fn check_others(
        &self,
        index: usize,
        id: ControllerId,
        identity: &Identity,
    ) -> Result<(), String> {
        let subsystem = &self.subsystems[index];
        let Some(controller) = self.controllers.get(&id) else { return Ok(()) };
        let cntlid = controller.facts.cntlid;
        let others = subsystem.controllers.iter().filter(|&&other| other != id);
        let others = others.filter_map(|other| self.controllers.get(other));
        for other in others.filter(|other| other.is_live() || other.was_admitted()) {
            let differs = other.identity.as_ref().filter(|&other| **other != *identity);
            let another = differs.map_or(String::new(), |differs| {
                format!(
                    "; it calls itself another one: {}; are these two targets with one NQN?",
                    identity.changes_from(differs)
                )
            });
            if other.facts.cntlid == cntlid {
                return Err(format!(
                    "duplicate controller id {cntlid} with {}, subsystem {}{another}",
                    other.name(),
                    identity.nqn
                ));
            }
            if differs.is_some() && !controller.facts.multi_controller {
                return Err(format!(
                    "it says that there is one controller only (CMIC), and {} is in {} already\
                     {another}",
                    other.name(),
                    subsystem.name()
                ));
            }
        }
        Ok(())
    }

    /// What a subsystem has at first. The default is copied: a later change of it is for subsystems
    /// that come later, as in the kernel.
    pub(super) fn first_parameters(&self, nqn: &Nqn) -> (Parameters, PolicySource) {
        let config = &self.env.config;
        let own = config.settings_of(nqn);
        let (policy, source) = match own.policy {
            Some(policy) => (policy, PolicySource::Configuration),
            None => (config.default_policy, PolicySource::Default),
        };
        (Parameters { policy, ..own.parameters }, source)
    }

    /// A subsystem bears the number of the first controller that was asked to connect to it, as in
    /// Linux, whichever of several that connect at the same time is there first, and whether or not
    /// that one can be connected yet.
    fn subsystem_instance(&self, id: ControllerId) -> u32 {
        let Some(controller) = self.controllers.get(&id) else { return 0 };
        let own = controller.instance;
        let first = self.first_number(&controller.request.subsystem_nqn).unwrap_or(own);
        let taken = self.subsystems.iter().any(|subsystem| subsystem.instance == first);
        if taken { own } else { first }
    }

    /// The lowest number that a controller of a subsystem has, or is to have.
    pub(super) fn first_number(&self, nqn: &Nqn) -> Option<u32> {
        let all = self.controllers.values();
        let same = all.filter(|it| it.request.subsystem_nqn == *nqn && !it.is_discovery());
        let to_come = self.set_aside.iter().filter(|aside| aside.nqn == *nqn);
        same.map(|it| it.instance).chain(to_come.map(|aside| aside.number)).min()
    }

    /// The lowest number that neither a controller nor a subsystem has or is to have.
    pub(super) fn free_instance(&self) -> u32 {
        let of_controllers = self.controllers.values().map(|controller| controller.instance);
        let of_subsystems = self.subsystems.iter().map(|subsystem| subsystem.instance);
        let aside = self.set_aside.iter().map(|aside| aside.number);
        let mut taken: Vec<u32> = of_controllers.chain(of_subsystems).chain(aside).collect();
        taken.sort_unstable();
        taken.dedup();
        let gap = (0..).zip(&taken).find(|(number, taken)| number != *taken);
        gap.map_or(taken.len() as u32, |(number, _)| number)
    }

    pub(super) fn subsystem_of(&self, id: ControllerId) -> Option<usize> {
        self.subsystems.iter().position(|subsystem| subsystem.controllers.contains(&id))
    }

    /// A namespace list is complete.
    pub(super) fn scanned(&mut self, id: ControllerId, bufs: &mut dyn Buffers) {
        let before = self.next_head;
        if let Some(index) = self.subsystem_of(id) {
            let joined = self.joined_by(index, |control| control.reconcile(index));
            // Whoever looked has looked, whether a path came of it or not.
            self.check_groups(id, self.after_look(id, &joined), bufs);
            joined.into_iter().filter(|&it| it != id).for_each(|it| {
                self.check_groups(it, After::Join, bufs);
            });
        }
        let made = self.next_head - before;
        let awaited = self.controllers.get(&id).filter(|it| it.is_awaited());
        let ignored = awaited.map_or(Vec::new(), |it| self.ignored(it));
        if let Some(controller) = self.controllers.get_mut(&id) {
            controller.scan.has_made(made, self.env.now);
            controller.verified(&mut self.env, &ignored);
        }
    }

    /// Of this controller, and maybe of others of its subsystem, namespaces whose users wait for a
    /// look were seen to be what they were.
    pub(super) fn look_at_seen(&mut self, id: ControllerId, bufs: &mut dyn Buffers) {
        let Some(index) = self.subsystem_of(id) else {
            self.seen.remove(&id);
            return;
        };
        let before = self.next_head;
        let of_it = &self.subsystems[index].controllers;
        let seen: BTreeSet<_> = self.seen.extract_if(.., |id| of_it.contains(id)).collect();
        let joined = self.joined_by(index, |control| control.reconcile(index));
        joined.difference(&seen).for_each(|it| self.check_groups(*it, After::Join, bufs));
        let made = self.next_head - before;
        for id in seen {
            self.check_groups(id, self.after_look(id, &joined), bufs);
            if let Some(controller) = self.controllers.get_mut(&id) {
                controller.scan.has_made(made, self.env.now);
                controller.proven(&mut self.env);
            }
        }
    }

    /// Whose paths have come of what was done to a subsystem: also others than of the controller
    /// that was looked at, when a head that was in their way goes.
    fn joined_by(
        &mut self,
        index: usize,
        done: impl FnOnce(&mut Control),
    ) -> BTreeSet<ControllerId> {
        let before = self.next_path;
        done(self);
        let paths = self.subsystems[index].heads.iter().flat_map(|head| &head.paths);
        paths.filter(|path| path.id.0 >= before).map(|path| path.controller).collect()
    }

    /// The log was read just before the first look of a connection.
    fn after_look(&self, id: ControllerId, joined: &BTreeSet<ControllerId>) -> After {
        let looked_before = self.controllers.get(&id).is_some_and(|it| !it.scan.is_first());
        if looked_before && joined.contains(&id) { After::Join } else { After::Look }
    }

    /// Asks for the ANA log again when a path's group is not in it (M17), when a namespace that was
    /// looked at is not in the group that it has it in, and when a path is new: its group may have
    /// changed its state together with its coming, and no event says so then.
    fn check_groups(&mut self, id: ControllerId, after: After, bufs: &mut dyn Buffers) {
        let Some(index) = self.subsystem_of(id) else { return };
        let Some(controller) = self.controllers.get_mut(&id) else { return };
        let (mut unknown, mut moved) = (None, false);
        for head in &self.subsystems[index].heads {
            let Some(path) = head.path(id) else { continue };
            let (group, state) = controller.ana.state_of(path.nsid, path.ana_group);
            unknown = unknown.or(state.is_none().then_some((path.nsid, group)));
            moved |= controller.ana.lists_elsewhere(path.nsid, path.ana_group);
        }
        if unknown.is_none() {
            controller.ana.groups_known();
        }
        if after != After::Log && moved {
            controller.read_ana_log(&mut self.env, bufs);
        } else if let Some(which) = unknown {
            controller.ana_group_unknown(&mut self.env, bufs, which, after != After::Log);
        } else if after == After::Join {
            controller.read_ana_log(&mut self.env, bufs);
        }
    }

    /// An ANA log was processed.
    pub(super) fn ana_read(&mut self, id: ControllerId, bufs: &mut dyn Buffers) {
        self.check_groups(id, After::Log, bufs);
    }

    /// A head has gone: what was refused because of it, in whichever subsystem, has a place now.
    /// Nobody else would look again before something else changes there.
    pub(super) fn place_refused(&mut self, bufs: &mut dyn Buffers) {
        for index in 0..self.subsystems.len() {
            let joined = self.joined_by(index, |control| control.join_refused(index));
            joined.into_iter().for_each(|it| self.check_groups(it, After::Join, bufs));
        }
    }

    /// A controller is live no more: it is no witness any longer for the sizes of its heads, nor
    /// for what stood against what others show.
    pub(super) fn witness_lost(&mut self, id: ControllerId, bufs: &mut dyn Buffers) {
        self.ask_again(id);
        let Some(index) = self.subsystem_of(id) else { return };
        self.resize(index);
        let joined = self.joined_by(index, |control| control.join_refused(index));
        joined.into_iter().for_each(|it| self.check_groups(it, After::Join, bufs));
    }

    /// A controller is no more.
    pub(super) fn gone(&mut self, id: ControllerId, bufs: &mut dyn Buffers) {
        if self.controllers.remove(&id).is_none() {
            return;
        }
        self.env.dirty = true;
        self.refusals.retain(|&(controller, _), _| controller != id);
        if let Some(index) = self.subsystem_of(id) {
            let joined = self.joined_by(index, |control| control.reconcile(index));
            joined.into_iter().for_each(|it| self.check_groups(it, After::Join, bufs));
            self.subsystems[index].controllers.retain(|&controller| controller != id);
            self.drop_empty_subsystems();
        }
        self.controller_gone(id);
    }

    /// A subsystem goes with its last controller and head.
    pub(super) fn drop_empty_subsystems(&mut self) {
        self.subsystems
            .retain(|subsystem| !subsystem.controllers.is_empty() || !subsystem.heads.is_empty());
    }

    /// Somebody waits for controllers to go: is that all of them?
    fn controller_gone(&mut self, id: ControllerId) {
        for wait in &mut self.waits.removals {
            wait.waiting.retain(|&waiting| waiting != id);
        }
        let (done, rest): (Vec<_>, Vec<_>) = core::mem::take(&mut self.waits.removals)
            .into_iter()
            .partition(|wait| wait.waiting.is_empty());
        self.waits.removals = rest;
        for wait in done {
            let reply = match wait.unanswered {
                Some(unanswered) => Reply::ShutDown { unanswered },
                None => Reply::Disconnected(wait.count),
            };
            self.env.reply(wait.id, reply);
        }
    }
}
