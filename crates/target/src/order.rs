//! Who goes first among file operations that overlap.
//!
//! The system lets a read run beside a write of the same blocks, and the reader may see part of
//! each, of one block too. So of two operations that share blocks, one of them writing, the later
//! waits until the earlier has ended: first come, first served, whoever asked for them, also when
//! the earlier one waits itself. All others go at once. What counts is the file: a namespace may
//! have gone, and another have come in its file, while its last operations still run.
//!
//! Each operation is noted in the stripes of the file that it touches, so one that comes looks at
//! its neighbours only. What is too long for that is noted in one place, where all look.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use anabranch_proto::machine::FileId;

/// Bytes of a file that share a line of notes.
const STRIPE: u64 = 64 << 10;
/// An operation that touches more stripes is long. The largest transfer touches 17.
const LONG: u64 = 32;
/// Lines of notes; stripes share them.
const LINES: usize = 4096;
/// Where the long ones are noted.
const LONG_LINE: usize = LINES;
const NONE: u32 = u32::MAX;

/// Blocks of a file that an operation is about: bytes from `start` up to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) file: FileId,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) writes: bool,
}

impl Range {
    fn collides(&self, other: &Range) -> bool {
        self.file == other.file
            && (self.writes || other.writes)
            && self.start < other.end
            && other.start < self.end
    }

    fn stripes(&self) -> core::ops::RangeInclusive<u64> {
        self.start / STRIPE..=self.end.saturating_sub(1).max(self.start) / STRIPE
    }

    fn is_long(&self) -> bool {
        let stripes = self.stripes();
        stripes.end() - stripes.start() >= LONG
    }
}

/// An operation that is here: it runs, or it waits for one that came before it.
#[derive(Clone, Copy, Debug)]
struct Member {
    range: Range,
    /// Whoever came earlier has less.
    number: u64,
    /// Its first note; `NONE` when nobody is at this place.
    notes: u32,
    /// Members that wait for this one, in the order in which they began to.
    first_waiter: u32,
    last_waiter: u32,
    /// The next that waits for the same one.
    next_waiter: u32,
}

/// A member in a line, between one that came later and one that came earlier.
#[derive(Clone, Copy, Debug)]
struct Note {
    member: u32,
    later: u32,
    earlier: u32,
    line: u32,
    /// The member's next note.
    next: u32,
}

/// The operations on all files.
#[derive(Debug, Default)]
pub(crate) struct Order {
    members: Vec<Member>,
    notes: Vec<Note>,
    free: Vec<u32>,
    /// The newest note of each line.
    lines: Vec<u32>,
    /// Members that write: while there are none nobody needs to look.
    writers: usize,
    next_number: u64,
    /// Whose turn has come.
    ready: VecDeque<u32>,
}

/// Where a stripe is noted.
fn line(file: FileId, stripe: u64) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (stripe ^ u64::from(file.0) << 40).wrapping_mul(ODD);
    (mixed >> (u64::BITS - LINES.ilog2())) as usize
}

impl Order {
    /// The operation at `place`, a small number that is free, has come. Whether it may begin now;
    /// else [`Order::poll_ready`] says when.
    pub(crate) fn enter(&mut self, place: u32, range: Range) -> bool {
        let at = place as usize;
        if self.members.len() <= at {
            self.members.resize(at + 1, Member::NOBODY);
        }
        if self.lines.is_empty() {
            self.lines.resize(LINES + 1, NONE);
        }
        let number = self.next_number;
        self.next_number += 1;
        self.members[at] = Member { range, number, ..Member::NOBODY };
        if range.is_long() {
            self.note(place, LONG_LINE);
        } else {
            range.stripes().for_each(|stripe| self.note(place, line(range.file, stripe)));
        }
        self.writers += usize::from(range.writes);
        self.queue(place)
    }

    /// The operation at `place` is over, or will not begin.
    pub(crate) fn leave(&mut self, place: u32) {
        let Some(member) = self.members.get_mut(place as usize) else { return };
        let gone = core::mem::replace(member, Member::NOBODY);
        let mut at = gone.notes;
        while at != NONE {
            let note = self.notes[at as usize];
            match note.later {
                NONE => self.lines[note.line as usize] = note.earlier,
                later => self.notes[later as usize].earlier = note.earlier,
            }
            if note.earlier != NONE {
                self.notes[note.earlier as usize].later = note.later;
            }
            self.free.push(at);
            at = note.next;
        }
        self.writers -= usize::from(gone.notes != NONE && gone.range.writes);
        let mut waiter = gone.first_waiter;
        while waiter != NONE {
            let next = core::mem::replace(&mut self.members[waiter as usize].next_waiter, NONE);
            if self.queue(waiter) {
                self.ready.push_back(waiter);
            }
            waiter = next;
        }
    }

    /// The place of an operation that waited and may begin now.
    pub(crate) fn poll_ready(&mut self) -> Option<u32> {
        self.ready.pop_front()
    }

    /// Makes room for this many operations of a usual length.
    pub(crate) fn reserve(&mut self, all: usize) {
        fn room<T>(list: &mut Vec<T>, all: usize) {
            list.reserve(all.saturating_sub(list.len()));
        }
        room(&mut self.members, all);
        room(&mut self.notes, 2 * all);
        room(&mut self.free, 2 * all);
        self.ready.reserve(all.saturating_sub(self.ready.len()));
    }

    fn note(&mut self, member: u32, line: usize) {
        let owner = &mut self.members[member as usize];
        let earlier = self.lines[line];
        let note = Note { member, later: NONE, earlier, line: line as u32, next: owner.notes };
        let at = match self.free.pop() {
            Some(at) => {
                self.notes[at as usize] = note;
                at
            }
            None => {
                self.notes.push(note);
                (self.notes.len() - 1) as u32
            }
        };
        owner.notes = at;
        self.lines[line] = at;
        if earlier != NONE {
            self.notes[earlier as usize].later = at;
        }
    }

    /// Lets a member wait for one that is in its way; true when nobody is.
    fn queue(&mut self, place: u32) -> bool {
        let Some(before) = self.in_the_way(place) else { return true };
        let before = &mut self.members[before as usize];
        match core::mem::replace(&mut before.last_waiter, place) {
            NONE => before.first_waiter = place,
            last => self.members[last as usize].next_waiter = place,
        }
        false
    }

    /// One that came earlier and shares blocks, the latest of a line: that one is likely to be the
    /// last to end, and whoever waits for it looks seldom.
    fn in_the_way(&self, place: u32) -> Option<u32> {
        let me = &self.members[place as usize];
        if !me.range.writes && self.writers == 0 {
            return None;
        }
        let blocks = |other: &Member| {
            other.notes != NONE && other.number < me.number && other.range.collides(&me.range)
        };
        if me.range.is_long() {
            return self.members.iter().rposition(blocks).map(|at| at as u32);
        }
        let long = self.lines[LONG_LINE];
        let found = self.walk(long).find(|other| blocks(&self.members[*other as usize]));
        if found.is_some() {
            return found;
        }
        let mut at = me.notes;
        while at != NONE {
            let note = self.notes[at as usize];
            let mut earlier = self.walk(note.earlier);
            let found = earlier.find(|other| blocks(&self.members[*other as usize]));
            if found.is_some() {
                return found;
            }
            at = note.next;
        }
        None
    }

    /// The members of a line, from this note to the earliest.
    fn walk(&self, from: u32) -> impl Iterator<Item = u32> {
        let mut at = from;
        core::iter::from_fn(move || {
            let note = self.notes.get(at as usize)?;
            at = note.earlier;
            Some(note.member)
        })
    }
}

impl Member {
    const NOBODY: Member = Member {
        range: Range { file: FileId(0), start: 0, end: 0, writes: false },
        number: 0,
        notes: NONE,
        first_waiter: NONE,
        last_waiter: NONE,
        next_waiter: NONE,
    };
}

#[cfg(test)]
mod tests;
