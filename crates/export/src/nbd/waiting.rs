//! Clients that wait for what they share with others.
//!
//! Each waits in the line of what it wants, and only those in front of it there keep it waiting: a
//! device without a path fills its share of the host, perhaps for ever, and the clients of other
//! devices pass by.

use anabranch_host::topology::HeadId;
use std::collections::VecDeque;

/// What a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Payload memory of the worker.
    Memory,
    /// A part of it: its device has as much as it may.
    Share(HeadId),
    /// Room in the host for requests to a device.
    Room(HeadId),
}

struct Line {
    want: Want,
    /// Keys of clients, longest waiting first.
    clients: VecDeque<u32>,
}

/// The lines. One that is empty serves for another want, so there are no more of them than were in
/// use at once.
#[derive(Default)]
pub(super) struct Waiting {
    lines: Vec<Line>,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.clients.is_empty())
    }

    /// Somebody waits for it.
    pub(super) fn is_wanted(&self, want: Want) -> bool {
        self.lines.iter().any(|line| line.want == want && !line.clients.is_empty())
    }

    /// How many lines there are; some may be empty.
    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// How many clients wait in a line.
    pub(super) fn len(&self, line: usize) -> usize {
        self.lines[line].clients.len()
    }

    /// Takes the first client out of a line, and says what it waited for.
    pub(super) fn pop(&mut self, line: usize) -> Option<(u32, Want)> {
        let line = &mut self.lines[line];
        Some((line.clients.pop_front()?, line.want))
    }

    /// Puts a client at the end of its line.
    pub(super) fn push(&mut self, want: Want, key: u32) {
        self.line(want).push_back(key);
    }

    /// The client that was put at the end of its line just now was the first there before.
    pub(super) fn is_first_again(&mut self, want: Want) {
        let clients = self.line(want);
        if let Some(key) = clients.pop_back() {
            clients.push_front(key);
        }
    }

    /// Takes a client out of its line.
    pub(super) fn remove(&mut self, want: Want, key: u32) {
        self.line(want).retain(|&waiting| waiting != key);
    }

    fn line(&mut self, want: Want) -> &mut VecDeque<u32> {
        let known = self.lines.iter().position(|line| line.want == want);
        let at = known.or_else(|| self.lines.iter().position(|line| line.clients.is_empty()));
        let at = at.unwrap_or_else(|| {
            self.lines.push(Line { want, clients: VecDeque::new() });
            self.lines.len() - 1
        });
        self.lines[at].want = want;
        &mut self.lines[at].clients
    }
}
