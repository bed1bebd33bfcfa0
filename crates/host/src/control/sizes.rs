//! How large a device is where its paths say different sizes (M20).
//!
//! * A path upholds the size if it could be used: it is live, was looked at and is accessible. One
//!   that is not may say what it likes: it neither keeps others from use nor takes over.
//! * The device takes a new size when a path that agreed with it reports one, that path is
//!   accessible, and no other upholds the size; it shrinks only when no live path says otherwise
//!   any more. One controller that is mistaken must not cost users their other paths, nor the rest
//!   of their device. All others are asked at once, so a change is taken when the last one has told
//!   it. More paths than uphold the size outvote those, to a larger one. The path that made the
//!   device grow alone and now says less does not make it smaller than others say.
//! * While no path upholds the size, users wait for those that have had it, for as long as they may
//!   need to come back: a path that is lost for a moment does not cost the device its size, nor
//!   anybody an error. Then the largest that a path upholds holds, so that none stands idle, until
//!   one that was lost upholds the former again, or more than there is; a smaller one only while it
//!   would be waited for. Nobody is waited for who is being removed, or for
//!   whom I/O does not wait any more either (`fast_io_fail_tmo`). `ctrl_loss_tmo` would be too
//!   long: after a real change the last one who has not told it may never come back.
//! * Who comes and goes is waited for only as long as it was there in between.

use super::Control;
use super::controller::Controller;
use super::env::Env;
use super::pace::Pace;
use super::publish::Condition;
use super::subsystem::{Head, Path, Subsystem};
use crate::event::HostEvent;
use crate::topology::{ControllerId, ControllerState};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use anabranch_proto::machine::Time;
use core::time::Duration;

type Controllers = BTreeMap<ControllerId, Controller>;

/// A path with the size of its device is waited for so long, at the least, …
const PATIENCE: Duration = Duration::from_secs(10);

/// … and for so many of its controller's attempts to come back.
const ATTEMPTS: u32 = 2;

/// How the size of a device has come about, and how long it is kept.
#[derive(Debug, Default)]
pub(super) struct Sizing {
    /// The size before it took that of other paths because nobody upheld it, in blocks.
    before_loss: Option<u64>,
    /// When that was of paths that have more.
    grown: Time,
    standing: Standing,
    /// Since when, or when that was last counted in.
    since: Time,
    /// For how long nobody has upheld it of late.
    missed: Duration,
    /// How often it comes back.
    returns: Pace,
    /// How often those that have it are asked whether they still do.
    asks: Pace,
    /// When it may be another one.
    due: Option<Time>,
}

/// How it is with the size of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    /// No path can be used, or the size is not what it was.
    #[default]
    Open,
    /// A path upholds it.
    Upheld,
    /// There are paths, and those with this size are waited for.
    Missed,
}

use Standing::{Missed, Open, Upheld};

/// What becomes of the size.
struct Verdict {
    blocks: u64,
    before_loss: Option<u64>,
    standing: Standing,
}

impl Sizing {
    pub(super) fn due(&self) -> Option<Time> {
        let asks = self.asks.owed_at().filter(|_| self.standing == Missed);
        [self.due, asks].into_iter().flatten().min()
    }

    fn count(&mut self, now: Time) {
        let passed = now.since(core::mem::replace(&mut self.since, now));
        self.missed = match self.standing {
            Open => self.missed,
            Upheld => self.missed.saturating_sub(passed),
            Missed => self.missed.saturating_add(passed),
        };
    }

    fn is_at_rest(&self) -> bool {
        self.before_loss.is_none() && self.missed.is_zero() && self.standing != Missed
    }
}

impl Head {
    /// Whether a path has the size that it had before that was lost.
    fn is_awaited(&self) -> bool {
        self.paths.iter().any(|path| self.before_loss() == Some(path.blocks))
    }

    /// Whose paths have its size.
    fn holders(&self) -> impl Iterator<Item = ControllerId> {
        self.paths.iter().filter(|path| self.agrees(path)).map(|path| path.controller)
    }

    fn before_loss(&self) -> Option<u64> {
        self.known_disputes().and_then(|disputes| disputes.sizing.before_loss)
    }
}

impl Control {
    /// Takes in the sizes that were read, and has those asked again who say another one.
    pub(super) fn resize(&mut self, index: usize) {
        let rescan = resize(&mut self.env, &mut self.subsystems[index], &self.controllers);
        self.rescan.extend(rescan);
    }

    /// What paths can be used for may have changed, or they were waited for long enough.
    pub(super) fn settle_sizes(&mut self) {
        for subsystem in &mut self.subsystems {
            for head in &mut subsystem.heads {
                let blocks = head.blocks;
                if settle(&mut self.env, subsystem.instance, head, &self.controllers, blocks) {
                    self.rescan.extend(head.paths.iter().map(|path| path.controller));
                }
            }
        }
        self.rescan.sort_unstable();
        self.rescan.dedup();
    }
}

/// Takes in the sizes that were read. Gives back who should be asked again.
fn resize(
    env: &mut Env,
    subsystem: &mut Subsystem,
    controllers: &Controllers,
) -> Vec<ControllerId> {
    let mut rescan = Vec::new();
    for head in &mut subsystem.heads {
        let mut blocks = head.blocks;
        let mut changed = Vec::new();
        let (mut doubted, mut moved) = (false, None);
        let before_loss = head.before_loss();
        let mut holders = head.holders().count();
        let say_so =
            |(it, _): &(&Controller, &Path)| it.scan.blocks_of(head.nsid) == Some(head.blocks);
        let said = witnesses(head, controllers).any(|it| say_so(&it));
        let upheld = witnesses(head, controllers)
            .any(|it| say_so(&it) && Condition::of(head, it.1, controllers).serves());
        for path in &mut head.paths {
            let Some(controller) = controllers.get(&path.controller) else { continue };
            let Some(found) = controller.scan.blocks_of(head.nsid) else { continue };
            if path.nsid != head.nsid || !controller.vouches_for(path.nsid) || found == path.blocks
            {
                continue;
            }
            if path.blocks == head.blocks {
                // The last one that has the size may say what that is now, though it is away.
                let may_resize = may_resize(path, controller) || holders == 1;
                holders -= 1;
                let contradicted = if found < head.blocks { said } else { upheld };
                if contradicted || !may_resize {
                    doubted = true;
                } else {
                    blocks = found;
                }
            }
            // Nothing that users have now may be lost by it.
            if let Some(former) = before_loss
                && former == path.blocks
                && (found > former || found > head.blocks)
            {
                moved = Some(found);
            }
            path.blocks = found;
            changed.push(path.controller);
        }
        if blocks < head.blocks {
            // The path that upheld the size takes it back: not to less than others say, those that
            // can be used before the rest.
            let said = |heeded: &dyn Fn(&Controller, &Path) -> bool| {
                let heeded = |(it, path): &(&Controller, &Path)| heeded(it, path);
                witnesses(head, controllers).filter(heeded).map(|(_, path)| path.blocks).max()
            };
            let least = said(&|it, path| may_resize(path, it)).or_else(|| said(&|_, _| true));
            blocks = blocks.max(least.unwrap_or(0));
        }
        if let Some(former) = moved.filter(|_| !head.is_awaited()) {
            head.disputes().sizing.before_loss = Some(former);
        }
        if settle(env, subsystem.instance, head, controllers, blocks) {
            rescan.extend(head.paths.iter().map(|path| path.controller));
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

/// One that cannot be used says nothing about what those can be used for that can. The state of a
/// group that is new is not known yet.
fn may_resize(path: &Path, controller: &Controller) -> bool {
    let state = controller.ana.state_of(path.nsid, path.ana_group).1;
    state.is_none_or(|state| state.is_accessible())
}

/// The live paths whose size has been read since their controller came up.
fn witnesses<'a>(
    head: &'a Head,
    controllers: &'a Controllers,
) -> impl Iterator<Item = (&'a Controller, &'a Path)> {
    head.paths.iter().filter_map(|path| {
        let controller = controllers.get(&path.controller)?;
        let knows = path.nsid == head.nsid && controller.vouches_for(path.nsid) && !path.unread;
        knows.then_some((controller, path))
    })
}

/// Gives a head the size that its paths report, or another one when none of them upholds that.
/// Gives back whether those that have the size are to be asked again: they have begun to be missed,
/// and who is live may not have told a change yet.
fn settle(
    env: &mut Env,
    instance: u32,
    head: &mut Head,
    controllers: &Controllers,
    reported: u64,
) -> bool {
    let agreed = reported == head.blocks && head.paths.iter().all(|path| head.agrees(path));
    if agreed && head.known_disputes().is_none_or(|disputes| disputes.sizing.is_at_rest()) {
        return false;
    }
    let before = head.bytes();
    let sizing = &mut head.disputes().sizing;
    sizing.count(env.now);
    sizing.due = None;
    let verdict = judge(env.now, head, controllers, reported);
    head.blocks = verdict.blocks;
    let sizing = &mut head.disputes().sizing;
    sizing.before_loss = verdict.before_loss;
    let former_standing = core::mem::replace(&mut sizing.standing, verdict.standing);
    let is_missed = sizing.standing == Missed && former_standing != Missed;
    let owed = sizing.asks.take_owed(env.now) && sizing.standing == Missed;
    let asks = (is_missed || owed) && sizing.asks.allows(env.now);
    if head.bytes() != before {
        env.event(HostEvent::HeadResized {
            head: format!("nvme{instance}n{}", head.instance),
            from_bytes: before,
            to_bytes: head.bytes(),
        });
    }
    asks
}

fn judge(now: Time, head: &mut Head, controllers: &Controllers, reported: u64) -> Verdict {
    let serving = head.paths.iter();
    let serving = serving.filter(|path| Condition::of(head, path, controllers).serves());
    let serving: Vec<u64> = serving.map(|path| path.blocks).collect();
    // A new size, or nobody left who might come back with the former one: that is history.
    let unchanged = reported == head.blocks;
    let grown_for = now.since(head.disputes().sizing.grown);
    let said = |blocks| patience(head, controllers, blocks, false);
    let counts = |&blocks: &u64| {
        let heeded = |waits: Duration| blocks > reported || grown_for < waits;
        unchanged && blocks != reported && said(blocks).is_some_and(heeded)
    };
    let former = head.before_loss().filter(counts);
    let (is_said, upheld) = (said(reported).is_some(), serving.contains(&reported));
    // What would be outvoted is not returned to.
    let may_return = |&&it: &&u64| {
        former.is_some_and(|former| match former > reported {
            true => reported < it && it <= former,
            false => it == former && outvotes(&serving, former).is_none(),
        })
    };
    if let (Some(former), Some(&found)) = (former, serving.iter().filter(may_return).max()) {
        // Where that comes and goes, so does the size, but not each time.
        let sizing = &mut head.disputes().sizing;
        if upheld && !sizing.returns.allows(now) {
            sizing.due = sizing.returns.due();
            return Verdict { blocks: reported, before_loss: Some(former), standing: Open };
        }
        let (before_loss, standing) =
            if found == former { (None, Upheld) } else { (Some(former), Open) };
        return Verdict { blocks: found, before_loss, standing };
    }
    if let Some(blocks) = outvotes(&serving, reported) {
        return Verdict { blocks, before_loss: None, standing: Upheld };
    }
    let Some(&largest) = serving.iter().max().filter(|_| !upheld) else {
        let others = if upheld || is_said { None } else { said_by_others(head, controllers) };
        let blocks = others.unwrap_or(reported);
        let standing = if upheld && former.is_none() { Upheld } else { Open };
        return Verdict { blocks, before_loss: former, standing };
    };
    // Growing costs nobody anything: only who is live and says otherwise is waited for.
    let patience = patience(head, controllers, reported, largest > reported).unwrap_or_default();
    let sizing = &mut head.disputes().sizing;
    if let Some(left) = patience.checked_sub(sizing.missed).filter(|left| !left.is_zero()) {
        sizing.due = Some(now.after(left));
        return Verdict { blocks: reported, before_loss: former, standing: Missed };
    }
    sizing.missed = sizing.missed.min(patience.max(PATIENCE));
    if largest > reported {
        sizing.grown = now;
    }
    // The largest of those that were lost: each that is back is used then.
    let before_loss = former.max(is_said.then_some(reported));
    let standing = if before_loss.is_none() { Upheld } else { Open };
    Verdict { blocks: largest, before_loss, standing }
}

/// A larger size than one that is upheld, which more paths uphold.
fn outvotes(serving: &[u64], reported: u64) -> Option<u64> {
    let votes = |blocks: u64| serving.iter().filter(|&&it| it == blocks).count();
    let against = votes(reported);
    let larger = serving.iter().copied().filter(|&blocks| blocks > reported);
    let more = larger.filter(|&blocks| against > 0 && votes(blocks) > against);
    more.max_by_key(|&blocks| (votes(blocks), blocks))
}

/// How long a path with a size is waited for that cannot be used; `None` when there is none that
/// will be again.
fn patience(
    head: &Head,
    controllers: &Controllers,
    blocks: u64,
    live_only: bool,
) -> Option<Duration> {
    let paths = head.paths.iter().filter(|path| path.blocks == blocks);
    // Of one that can just not be read nobody knows that it has less than the others.
    let paths = paths.filter(|path| !live_only || !path.unread);
    let controllers = paths.filter_map(|path| controllers.get(&path.controller));
    // One that is back has yet to be looked at, and one that is live may have to connect again to
    // be of use: it is as much for all.
    let patience = controllers.filter_map(|controller| match controller.state {
        ControllerState::Deleting | ControllerState::Dead => None,
        state if live_only && state != ControllerState::Live => None,
        _ if controller.fast_io_failed => Some(Duration::ZERO),
        _ => {
            let attempts = controller.request.options.reconnect_delay.saturating_mul(ATTEMPTS);
            Some(PATIENCE.max(attempts))
        }
    });
    patience.max()
}

/// The largest size that is said by whoever cannot be used, if nobody says the device's any more:
/// who is live goes before those that are away, and who is being removed says nothing.
fn said_by_others(head: &Head, controllers: &Controllers) -> Option<u64> {
    let live = witnesses(head, controllers).map(|(_, path)| path.blocks);
    let stays = |path: &&Path| {
        let controller = controllers.get(&path.controller);
        controller.is_some_and(|it| {
            !matches!(it.state, ControllerState::Deleting | ControllerState::Dead)
        })
    };
    live.max().or_else(|| head.paths.iter().find(stays).map(|path| path.blocks))
}
