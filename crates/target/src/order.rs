//! Who goes first among file operations that overlap.
//!
//! The system lets a read run beside a write of the same blocks, and the reader may see part of
//! each, of one block too. So of two operations that share blocks, one of them writing, the later
//! waits until the earlier has ended: first come, first served, whoever asked for them, also when
//! the earlier one waits itself. All others go at once. What counts is the file: a namespace may
//! have gone, and another have come in its file, while its last operations still run.
//!
//! Each operation is noted in the stripes of the file that it touches, so one that comes looks at
//! its neighbours only. What is too long for that is noted in one place, where all look, and looks
//! at everybody.
//!
//! Whoever could wait for one of very many does not look at them all at once, nor at anybody twice
//! in a line: it waits for the one where it stopped, whatever that is about, and looks on behind it
//! when that one has left. (A host may ask for thousands of operations on one block, and all other
//! hosts would wait until each had looked at each.)

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
/// Where all are noted, the long ones, too.
const ALL_LINE: usize = LINES + 1;
/// Notes that an operation looks at before others have their turn.
const LOOKS: usize = 256;
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
    /// Its first note; `NONE` when nobody is at this place. The last one is that in `ALL_LINE`.
    notes: u32,
    /// The note where it has stopped looking: of the member that it waits for.
    looked: u32,
    /// Its own note in the line that it looks at after this one; `NONE` when this is the last.
    line_after: u32,
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
    /// Whose turn has come.
    ready: VecDeque<u32>,
}

/// Two to the 64th by the golden ratio: stripes near each other lie far apart.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where a stripe is noted: no two of one operation in the same line.
fn line(file: FileId, stripe: u64) -> usize {
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
            self.lines.resize(ALL_LINE + 1, NONE);
        }
        self.members[at] = Member { range, ..Member::NOBODY };
        self.note(place, ALL_LINE);
        let first = if range.is_long() {
            let all = self.members[at].notes;
            self.note(place, LONG_LINE);
            self.notes[all as usize].earlier
        } else {
            range.stripes().for_each(|stripe| self.note(place, line(range.file, stripe)));
            self.members[at].line_after = self.members[at].notes;
            self.lines[LONG_LINE]
        };
        let nobody_writes = !range.writes && self.writers == 0;
        self.writers += usize::from(range.writes);
        nobody_writes || self.queue(place, first)
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
            let member = &mut self.members[waiter as usize];
            let next = core::mem::replace(&mut member.next_waiter, NONE);
            // Its place was given back, and nobody has taken it yet.
            let behind = self.notes[member.looked as usize].earlier;
            if self.queue(waiter, behind) {
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
        room(&mut self.notes, 3 * all);
        room(&mut self.free, 3 * all);
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

    /// Lets a member look on from a note, and wait for one that is in its way; true when nobody is.
    fn queue(&mut self, place: u32, from: u32) -> bool {
        let Some(before) = self.look(place, from) else { return true };
        let before = &mut self.members[before as usize];
        match core::mem::replace(&mut before.last_waiter, place) {
            NONE => before.first_waiter = place,
            last => self.members[last as usize].next_waiter = place,
        }
        false
    }

    /// One that came earlier and shares blocks, the latest of a line: that one is likely to be the
    /// last to end, and whoever waits for it looks seldom. Or the one that is next to be looked at,
    /// after so many looks.
    fn look(&mut self, place: u32, from: u32) -> Option<u32> {
        let Member { range, mut line_after, .. } = self.members[place as usize];
        let (mut at, mut looks) = (from, 0);
        loop {
            while let Some(note) = self.notes.get(at as usize) {
                looks += 1;
                if looks > LOOKS || self.members[note.member as usize].range.collides(&range) {
                    let member = &mut self.members[place as usize];
                    (member.looked, member.line_after) = (at, line_after);
                    return Some(note.member);
                }
                at = note.earlier;
            }
            let own = self.notes.get(line_after as usize)?;
            if own.line as usize == ALL_LINE {
                return None;
            }
            (at, line_after) = (own.earlier, own.next);
        }
    }
}

impl Member {
    const NOBODY: Member = Member {
        range: Range { file: FileId(0), start: 0, end: 0, writes: false },
        notes: NONE,
        looked: NONE,
        line_after: NONE,
        first_waiter: NONE,
        last_waiter: NONE,
        next_waiter: NONE,
    };
}

#[cfg(test)]
mod tests;
