//! Data in capsules: it comes unasked.
//!
//! Nobody can be made to wait for memory before such data comes, and to refuse it is an error that
//! few hosts bear for long. So a connection that has brought more than its share of what little is
//! left is not read until it holds less, or there is more; what was on its way already comes in.
//! Not so while data that was asked for is on its way: it stands behind whatever the host sent
//! before it, and might be what everything else waits for.
//!
//! From an eighth on, data is refused all the same where a host has brought more than half of what
//! is left; when the pool is nearly empty, where everybody at its address has: but for one command
//! of each connection. The last of the pool is for one command each of those that are within that,
//! and for those that have not said yet who they are.

use super::Target;
use super::held::Most;
use super::waiting::{
    FIRST, KEPT_FOR_SMALL, NEARLY_EMPTY, RETRY, SMALL, TRIED_AT_ONCE, is_low, share,
};
use crate::conn::{Conn, Role};
use anabranch_proto::machine::{Buffers, Output, Time};

impl Target {
    /// Bytes of a connection: with as much data in capsules as it may bring now.
    pub(super) fn take_bytes(&mut self, place: u32, bytes: &[u8], bufs: &mut dyn Buffers) {
        let most = if is_low(bufs) {
            self.most_capsules(place, bufs)
        } else {
            self.held.forget();
            u16::MAX
        };
        let Some(conn) = self.conns.get_mut(place) else { return };
        let before = conn.queue.capsules();
        conn.queue.limit_capsules(most);
        conn.queue.received(bytes, bufs);
        let after = conn.queue.capsules();
        if after > before {
            self.capsules_came(place, after - before);
        }
    }

    /// With how many commands under way that have brought data a connection may bring no more.
    fn most_capsules(&mut self, place: u32, bufs: &dyn Buffers) -> u16 {
        let (spare, all) = (bufs.spare(), bufs.capacity());
        let role = self.conns.get(place).map_or(Role::New, |conn| conn.role);
        if spare >= all / FIRST || role == Role::New {
            return u16::MAX;
        }
        let each = bufs.cost(self.limits.in_capsule_bytes.max(SMALL));
        let most = usize::try_from(spare / each / 2).unwrap_or(usize::MAX);
        let at_address = spare < all / NEARLY_EMPTY.0;
        let holds_little = self.holds_at_most(place, Most::Capsules(most), at_address);
        match (holds_little, spare >= all / KEPT_FOR_SMALL) {
            (true, true) if matches!(role, Role::Io(_)) => u16::MAX,
            (true, true) => share(bufs) as u16,
            (true, false) | (false, true) => NEARLY_EMPTY.1 as u16,
            (false, false) => 0,
        }
    }

    /// Stops reading a connection that has brought more than its share.
    pub(super) fn choke(&mut self, now: Time, place: u32, bufs: &dyn Buffers) {
        let Some(conn) = self.conns.get_mut(place) else { return };
        if conn.closing || conn.choked || !is_over_share(conn, bufs) {
            return;
        }
        conn.choked = true;
        if !conn.paused {
            self.outputs.push_back(Output::Pause { conn: conn.id, watch: true });
        }
        self.choked.push_back((place, conn.generation));
        self.retry_at = Some(now.after(RETRY));
    }

    /// Reads connections again that hold no more than their share, or when there is enough.
    pub(super) fn unchoke(&mut self, bufs: &dyn Buffers) {
        for _ in 0..self.choked.len().min(TRIED_AT_ONCE) {
            let Some((place, generation)) = self.choked.pop_front() else { return };
            let conn = self.conns.get_mut(place).filter(|conn| conn.generation == generation);
            let Some(conn) = conn.filter(|conn| !conn.closing) else { continue };
            if is_over_share(conn, bufs) {
                self.choked.push_back((place, generation));
                continue;
            }
            conn.choked = false;
            if !conn.paused {
                self.outputs.push_back(Output::Resume { conn: conn.id });
            }
        }
    }
}

/// Whether a connection holds more data from capsules than its share, and nothing that it waits for
/// has to be read first.
fn is_over_share(conn: &Conn, bufs: &dyn Buffers) -> bool {
    let capsules = usize::from(conn.queue.capsules());
    // Asked first, since it is asked whenever something has come.
    capsules > NEARLY_EMPTY.1
        && is_low(bufs)
        && capsules > share(bufs)
        && conn.queue.transfers() == 0
}
