//! How large heads are (M20).
//!
//! A path whose controller says another size than its head has is out of use until they agree.
//! * The device takes a new size when a path that agreed with it reports one; it shrinks only when
//!   no live path says otherwise any more: one controller that is mistaken must not cost users the
//!   rest of their device. When no live path upholds the size, the largest that one of them says
//!   holds, so that none stands idle, until a path that was lost is back with the former (when none
//!   gives access, none of them could serve: nothing changes). The same goes for the path that made
//!   the device grow alone and now says less.
//! * While a live path gives access (ANA), those that give none have no say in this: their
//!   controllers may know a size from before, and nothing is sent there (NVM Express Base
//!   Specification, 8.1.1, has hosts ask controllers that give access). Who has just got access is
//!   asked once more before it has a say, and so is who gives access and says otherwise when one
//!   loses it that upholds the size: with access it was asked while the other one knew better.

use super::Control;
use super::controller::Controller;
use super::env::Env;
use super::reconcile::Controllers;
use super::subsystem::{Head, Path, Subsystem};
use crate::event::HostEvent;
use crate::topology::ControllerId;
use alloc::format;
use alloc::vec::Vec;
use anabranch_proto::nvme::ana::AnaState;

impl Control {
    /// Takes in the sizes that were read, and has those asked again who say another one.
    pub(super) fn resize(&mut self, index: usize) {
        let rescan = resize(&mut self.env, &mut self.subsystems[index], &self.controllers);
        self.rescan.extend(rescan);
    }

    /// A controller has said to what it gives access: others may have a say in how large heads are.
    /// Gives back who is to be asked for sizes before: they may know them from before.
    pub(super) fn access_changed(&mut self, index: usize, id: ControllerId) -> Vec<ControllerId> {
        for head in &mut self.subsystems[index].heads {
            note_change(head, id, &self.controllers);
        }
        self.resize(index);
        let heads = self.subsystems[index].heads.iter().filter(|head| head.path(id).is_some());
        let differing = heads.flat_map(|head| head.paths.iter().filter(|path| !head.agrees(path)));
        let doubtful = differing.filter(|path| {
            let controller = self.controllers.get(&path.controller);
            controller.is_some_and(|it| has_access(it, path) && !was_read_with_access(it, path))
        });
        let mut ask: Vec<_> = doubtful.map(|path| path.controller).collect();
        ask.sort_unstable();
        ask.dedup();
        ask
    }
}

/// A controller has said to what it gives access. What was read of a path before it got access
/// does not count; nor does, when one loses it that has upheld the size, what others have said.
fn note_change(head: &mut Head, id: ControllerId, controllers: &Controllers) {
    let (Some(path), Some(controller)) = (head.path(id), controllers.get(&id)) else { return };
    let (before, now) = (path.access_since.is_some(), has_access(controller, path));
    let witness_lost = before && !now && head.agrees(path);
    let blocks = head.blocks;
    for path in &mut head.paths {
        let Some(controller) = controllers.get(&path.controller) else { continue };
        let doubted = witness_lost && path.access_since.is_some() && path.blocks != blocks;
        if doubted || path.controller == id && now && !before {
            path.access_since = Some(controller.scan.clock());
        }
    }
}

/// Takes in the sizes that were read. Gives back who should be asked again.
fn resize(
    env: &mut Env,
    subsystem: &mut Subsystem,
    controllers: &Controllers,
) -> Vec<ControllerId> {
    let mut rescan = Vec::new();
    let instance = subsystem.instance;
    for head in &mut subsystem.heads {
        let before = head.bytes();
        note_access(head, controllers);
        let some_have_access = some_have_access(head, controllers);
        let mut blocks = head.blocks;
        let mut changed = Vec::new();
        let mut doubted = false;
        let upheld = witnesses(head, controllers)
            .any(|(it, _)| it.scan.blocks_of(head.nsid) == Some(head.blocks));
        for path in &mut head.paths {
            let Some(controller) = controllers.get(&path.controller) else { continue };
            let Some(found) = controller.scan.blocks_of(head.nsid) else { continue };
            if path.nsid != head.nsid || !controller.vouches_for(path.nsid) || found == path.blocks
            {
                continue;
            }
            if path.blocks == head.blocks {
                let counts = !some_have_access || was_read_with_access(controller, path);
                if !counts || found < head.blocks && upheld {
                    doubted = true;
                } else {
                    blocks = found;
                }
            }
            path.blocks = found;
            changed.push(path.controller);
        }
        if blocks < head.blocks {
            // The path that upheld the size takes it back: not to less than others say.
            let said = witnesses(head, controllers).map(|(_, path)| path.blocks);
            blocks = blocks.max(said.max().unwrap_or(0));
        }
        settle_size(head, controllers, blocks);
        if head.bytes() != before {
            env.dirty = true;
            env.event(HostEvent::HeadResized {
                head: format!("nvme{instance}n{}", head.instance),
                from_bytes: before,
                to_bytes: head.bytes(),
            });
        }
        // Whoever has just been asked is not asked again: it may say something else each time.
        let others = head.paths.iter().filter(|path| doubted || path.blocks != head.blocks);
        let others = others.map(|path| path.controller).filter(|it| !changed.contains(it));
        rescan.extend(others.filter(|_| !changed.is_empty()));
    }
    rescan.sort_unstable();
    rescan.dedup();
    rescan
}

/// Whether the log of its controller says that a path can be used.
fn has_access(controller: &Controller, path: &Path) -> bool {
    let (_, state) = controller.ana.state_of(path.nsid, path.ana_group);
    state.is_some_and(AnaState::is_accessible)
}

/// Whether the size of a path was read while its controller gave access to it.
fn was_read_with_access(controller: &Controller, path: &Path) -> bool {
    let newer = |tick| controller.scan.is_newer_than(tick, path.nsid);
    path.access_since.is_some_and(newer)
}

/// Notes which paths give no access. Who comes back, or moves to another group, with access has
/// been looked at since.
fn note_access(head: &mut Head, controllers: &Controllers) {
    for path in &mut head.paths {
        let Some(controller) = controllers.get(&path.controller) else { continue };
        let since = path.access_since.unwrap_or(0);
        path.access_since = has_access(controller, path).then_some(since);
    }
}

/// The live paths whose size has been read since their controller came up.
fn known<'a>(
    head: &'a Head,
    controllers: &'a Controllers,
) -> impl Iterator<Item = (&'a Controller, &'a Path)> {
    head.paths.iter().filter_map(|path| {
        let controller = controllers.get(&path.controller)?;
        let knows = path.nsid == head.nsid && controller.vouches_for(path.nsid) && !path.unread;
        knows.then_some((controller, path))
    })
}

fn some_have_access(head: &Head, controllers: &Controllers) -> bool {
    known(head, controllers).any(|(controller, path)| was_read_with_access(controller, path))
}

/// Who has a say in how large a head is: of the live paths those with access, if there are any.
fn witnesses<'a>(
    head: &'a Head,
    controllers: &'a Controllers,
) -> impl Iterator<Item = (&'a Controller, &'a Path)> {
    let all = !some_have_access(head, controllers);
    known(head, controllers).filter(move |(it, path)| all || was_read_with_access(it, path))
}

/// Gives a head the size that its paths report, or another one when no live path upholds that.
fn settle_size(head: &mut Head, controllers: &Controllers, reported: u64) {
    let said = |blocks: u64| head.paths.iter().any(|path| path.blocks == blocks);
    let upheld = |blocks: u64| witnesses(head, controllers).any(|(_, path)| path.blocks == blocks);
    let is_known = |blocks: u64| known(head, controllers).any(|(_, path)| path.blocks == blocks);
    let is_away = |blocks: u64| said(blocks) && !is_known(blocks);
    // A new size, or nobody left who might come back with the former one: that is history.
    let unchanged = reported == head.blocks;
    let before_loss = head.blocks_before_loss.filter(|&blocks| unchanged && said(blocks));
    let (blocks, before_loss) = match before_loss {
        Some(former) if upheld(former) => (former, None),
        // Mostly by the first path: nobody else has to be asked.
        _ if upheld(reported) => (reported, before_loss),
        // Nobody would be served by a smaller one.
        _ if is_away(reported) && !some_have_access(head, controllers) => (reported, before_loss),
        _ => match witnesses(head, controllers).map(|(_, path)| path.blocks).max() {
            Some(largest) => {
                let was_larger = head.visible && said(reported) && largest < reported;
                let is_former = is_away(reported) || was_larger;
                let former = before_loss.or_else(|| is_former.then_some(reported));
                (largest, former)
            }
            None if !said(reported) => {
                (head.paths.first().map_or(reported, |path| path.blocks), before_loss)
            }
            None => (reported, before_loss),
        },
    };
    (head.blocks, head.blocks_before_loss) = (blocks, before_loss);
}
