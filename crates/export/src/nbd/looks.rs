//! Who has left and was not heard of yet.
//!
//! A client that gives up its connection and opens another one may be served there before the end
//! of the first has been read, on another worker: what it was not answered would still be sent, and
//! could undo what it is answered now. So who is to get an export has every worker look first, also
//! its own. The end of the former connection is on its socket by then, as the client has ended it
//! before it asked. A worker answers when each of its connections to the head has been found in
//! use, or is closed: what was left behind there is counted then.

use anabranch_host::topology::HeadId;
use anabranch_proto::machine::{ConnId, WorkerId};
use std::collections::VecDeque;

/// A client: its key, and the serial number of that.
type Client = (u32, u32);

/// What one worker has asked for, and what it was asked. Bounded by the options of the clients of
/// all workers, and of those that have left while a connection takes to close.
#[derive(Default)]
pub(super) struct Looks {
    /// Clients for which nobody has been asked yet.
    wanted: VecDeque<(Client, HeadId)>,
    asked: Vec<Asked>,
    rounds: u64,
    /// Those for which everybody has looked.
    known: VecDeque<Client>,
    owed: Vec<Owed>,
}

struct Asked {
    round: u64,
    client: Client,
    /// Workers that have not answered.
    missing: u16,
}

struct Owed {
    to: WorkerId,
    round: u64,
    /// Those of which nothing has been heard since.
    conns: Vec<ConnId>,
}

impl Looks {
    pub(super) fn want(&mut self, client: Client, head: HeadId) {
        self.wanted.push_back((client, head));
    }

    /// Begins a round: what to ask all data workers for.
    pub(super) fn ask(&mut self, workers: u16) -> Option<(u64, HeadId)> {
        let (client, head) = self.wanted.pop_front()?;
        self.rounds += 1;
        let missing = workers.saturating_sub(1).max(1);
        self.asked.push(Asked { round: self.rounds, client, missing });
        Some((self.rounds, head))
    }

    /// A worker has answered.
    pub(super) fn answered(&mut self, round: u64) {
        let Some(at) = self.asked.iter().position(|it| it.round == round) else { return };
        self.asked[at].missing = self.asked[at].missing.saturating_sub(1);
        if self.asked[at].missing == 0 {
            self.known.push_back(self.asked.swap_remove(at).client);
        }
    }

    pub(super) fn known(&mut self) -> Option<Client> {
        self.known.pop_front()
    }

    /// A worker wants to know of these connections.
    pub(super) fn owe(&mut self, to: WorkerId, round: u64, conns: Vec<ConnId>) {
        self.owed.push(Owed { to, round, conns });
    }

    /// A connection was found in use, by the first look at it that was not answered.
    pub(super) fn seen(&mut self, conn: ConnId) {
        for owed in &mut self.owed {
            if let Some(at) = owed.conns.iter().position(|it| *it == conn) {
                owed.conns.swap_remove(at);
                return;
            }
        }
    }

    /// A connection is closed.
    pub(super) fn gone(&mut self, conn: ConnId) {
        self.owed.iter_mut().for_each(|owed| owed.conns.retain(|it| *it != conn));
    }

    /// Whom to tell that all has been heard of that it has asked for.
    pub(super) fn settled(&mut self) -> Option<(WorkerId, u64)> {
        let at = self.owed.iter().position(|it| it.conns.is_empty())?;
        let Owed { to, round, .. } = self.owed.remove(at);
        Some((to, round))
    }
}
