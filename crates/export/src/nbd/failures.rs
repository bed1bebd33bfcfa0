//! What one client knows of flushes of its device that have failed.

use super::exports::Device;
use super::request::Op;
use anabranch_host::user::{RequestOp, Submit};
use anabranch_host::{FailedFlushes, Mark, Standing};
use std::sync::Arc;

/// It is told once of each, and in the place of one that has left of those which that one was not
/// told of, as it may be the same. When it leaves without good-bye it is to be told as it comes
/// back: of what failed after it came, unless it has heard of it.
pub(super) struct Failures {
    /// Those of the device.
    all: Option<Arc<FailedFlushes>>,
    /// Of so many it was told, or has not to be …
    known: u64,
    /// … of those, the ones of which the answer has left …
    left: u64,
    /// … and the ones of which it has got that.
    heard: u64,
    /// It stands in for those that had left when it came, until it has heard of any.
    standing: Option<Standing>,
    /// How the client goes on.
    depth: Depth,
    /// It has asked for something to be changed or made durable.
    asked: bool,
    /// It has said good-bye, or what it is to be told was left behind.
    settled: bool,
}

/// How many requests the client has had under way.
#[derive(Clone, Copy, Default)]
struct Depth {
    /// Requests that came, and answers that have left.
    arrived: u64,
    answered: u64,
    /// The most that it had under way, as far as it is known: what came without an answer that has
    /// left.
    deepest: u64,
    /// How many answers had left with the last that told of something.
    told_at: u64,
}

impl Failures {
    /// A client that opens a device. One that may not write has nothing that could be lost, and
    /// was not one that had. Where nobody may any more it may have been one: it is told, and so is
    /// who comes when all may again.
    pub(super) fn new(host: &dyn Submit, device: &Device) -> Failures {
        let head = host.heads().iter().find(|view| view.id == device.head);
        let all = head.map(|view| Arc::clone(&view.failed_flushes));
        let joined = all.as_ref().map(|all| all.join());
        let standing = joined.filter(|_| !device.read_only);
        let may_be_owed = !device.read_only || head.is_some_and(|view| view.limits.read_only);
        let known =
            joined.map_or(0, |joined| if may_be_owed { joined.known } else { joined.count });
        Failures {
            known,
            left: known,
            heard: known,
            all,
            standing,
            depth: Depth::default(),
            asked: false,
            settled: device.read_only,
        }
    }

    /// A request of its was let in; one that is refused has no operation.
    pub(super) fn asks(&mut self, op: Option<Op>) {
        self.depth.arrived += 1;
        let under_way = self.depth.arrived - self.depth.answered;
        self.depth.deepest = self.depth.deepest.max(under_way);
        self.asked |= op.is_some_and(|op| op.changes() || op == Op::Flush);
    }

    /// A request to the host begins.
    pub(super) fn begin(&self, op: &RequestOp) -> Option<Mark> {
        let all = self.all.as_ref().filter(|_| op.makes_durable())?;
        Some(all.begin())
    }

    /// It has ended, and was a flush that succeeded or anything else.
    pub(super) fn end(&self, mark: Option<Mark>, flushed: bool) {
        if let (Some(all), Some(mark)) = (&self.all, mark) {
            all.end(mark, flushed);
        }
    }

    /// Of how many its flush that has ended is to tell, if it does not know of all.
    pub(super) fn news(&mut self) -> Option<u64> {
        let count = self.all.as_ref().map_or(0, |all| all.count());
        (std::mem::replace(&mut self.known, count) != count).then_some(count)
    }

    /// An answer has left that tells of so many.
    pub(super) fn told(&mut self, count: u64) {
        self.depth.answered += 1;
        if self.left < count {
            self.left = count;
            self.depth.told_at = self.depth.answered;
        }
    }

    /// A request comes in after all answers so far had left. It may have been sent before they
    /// came, unless the client would have more under way then than it ever had.
    pub(super) fn goes_on(&mut self) {
        let Depth { arrived, deepest, told_at, .. } = self.depth;
        if arrived + 2 > told_at + deepest {
            self.hears();
        }
    }

    /// It has got the answers that have left.
    pub(super) fn hears(&mut self) {
        if self.left == self.heard {
            return;
        }
        self.heard = self.left;
        if let (Some(all), Some(standing)) = (&self.all, self.standing.take()) {
            all.told(standing, self.heard);
        }
    }

    /// It leaves and will not ask again.
    pub(super) fn bids_farewell(&mut self) {
        self.settled = true;
    }

    /// It leaves and may come back.
    pub(super) fn leave(&mut self) {
        if std::mem::replace(&mut self.settled, true) || !self.asked {
            return;
        }
        match (&self.all, &self.standing) {
            (Some(all), Some(standing)) => all.leave_unheard(standing),
            (Some(all), None) => all.leave(self.heard),
            (None, _) => {}
        }
    }
}
