//! Commands that are measured together.

use super::LatencyParameters;
use crate::OpClass;

/// The size bucket of a command: the seven that the author of the series has tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeBucket(u8);

impl SizeBucket {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// Commands of up to 16 KiB; all commands when sizes are not told apart.
    pub const FIRST: SizeBucket = SizeBucket(0);

    /// The bucket of a command with `bytes` of payload.
    #[inline]
    #[must_use]
    pub const fn of(bytes: u32) -> SizeBucket {
        if bytes <= 16 << 10 {
            return SizeBucket::FIRST;
        }
        // Up to 32 KiB the logarithm of (bytes - 1) is 14.
        let bucket = (bytes - 1).ilog2() - 13;
        SizeBucket(if bucket < 6 { bucket as u8 } else { 6 })
    }

    /// Its number, from 0.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Its name: the largest size in it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            0 => "<=16k",
            1 => "32k",
            2 => "64k",
            3 => "128k",
            4 => "256k",
            5 => "512k",
            _ => ">512k",
        }
    }

    /// Every bucket, the smallest sizes first.
    pub fn all() -> impl Iterator<Item = SizeBucket> {
        (0..SizeBucket::COUNT as u8).map(SizeBucket)
    }
}

/// Commands that are measured together and share weights: an op class, and a size bucket when sizes
/// are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The op class.
    pub op: OpClass,
    /// [`SizeBucket::FIRST`] when sizes are not told apart.
    pub bucket: SizeBucket,
}

/// How many groups there are.
pub(super) const GROUPS: usize = OpClass::ALL.len() * SizeBucket::COUNT;

impl Group {
    /// The group of a command.
    #[inline]
    pub(crate) fn of(parameters: &LatencyParameters, op: OpClass, bytes: u32) -> Group {
        let bucket =
            if parameters.size_buckets { SizeBucket::of(bytes) } else { SizeBucket::FIRST };
        Group { op, bucket }
    }

    /// Its place in the tables. Those of one bucket lie together: without buckets everything in
    /// use is at the front.
    #[inline]
    pub(super) const fn slot(self) -> usize {
        self.bucket.index() * OpClass::ALL.len() + self.op as usize
    }

    /// Every group, by place.
    pub(super) fn all() -> impl Iterator<Item = Group> {
        SizeBucket::all()
            .flat_map(|bucket| OpClass::ALL.into_iter().map(move |op| Group { op, bucket }))
    }
}

/// Where each group's commands stand in the list of paths, for one head on one worker.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    of_groups: [u32; GROUPS],
    /// That of all groups together, kernel-exact.
    of_all: u32,
}

/// The group was not used yet.
const NOWHERE: u32 = u32::MAX;

impl Turns {
    pub(crate) const fn new() -> Self {
        Turns { of_groups: [NOWHERE; GROUPS], of_all: NOWHERE }
    }

    /// The path that the group used last.
    #[inline]
    pub(super) fn get(&self, slot: usize) -> Option<u32> {
        Some(self.of_groups[slot]).filter(|&path| path != NOWHERE)
    }

    #[inline]
    pub(super) fn set(&mut self, slot: usize, path: u32) {
        self.of_groups[slot] = path;
    }

    /// The path that any group used last, kernel-exact.
    #[inline]
    pub(super) fn get_of_all(&self) -> Option<u32> {
        Some(self.of_all).filter(|&path| path != NOWHERE)
    }

    #[inline]
    pub(super) fn set_of_all(&mut self, path: u32) {
        self.of_all = path;
    }

    /// As posted, a path that a command failed over from is not where the next one begins, nor any
    /// path after another policy was in force: the walk begins at the head of the list. (By default
    /// it goes on where it was.)
    pub(crate) fn forget(&mut self, index: usize) {
        if self.of_all as usize == index {
            self.of_all = NOWHERE;
        }
    }

    /// See [`Turns::forget`].
    pub(crate) fn forget_all(&mut self) {
        self.of_all = NOWHERE;
    }

    /// A path joined the list at `index` and those from there on moved down by one.
    pub(crate) fn path_added(&mut self, index: usize) {
        for path in self.of_groups.iter_mut().chain([&mut self.of_all]) {
            *path += u32::from(*path != NOWHERE && *path as usize >= index);
        }
    }

    /// The path at `index` left the list and those behind it moved up by one.
    pub(crate) fn path_removed(&mut self, index: usize) {
        self.forget(index);
        if self.of_all != NOWHERE && self.of_all as usize > index {
            self.of_all -= 1;
        }
        for path in &mut self.of_groups {
            if *path != NOWHERE && *path as usize >= index {
                *path = path.checked_sub(1).unwrap_or(NOWHERE);
            }
        }
    }
}

impl Default for Turns {
    fn default() -> Self {
        Turns::new()
    }
}

/// A set of groups: those whose weights are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups(u32);

const _: () = assert!(GROUPS <= 32);

impl Groups {
    /// No group.
    pub const NONE: Groups = Groups(0);

    /// Adds a group, which may be in the set already.
    #[inline]
    pub fn insert(&mut self, group: Group) {
        self.0 |= 1 << group.slot();
    }

    /// Whether no group is in the set.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Empties the set and gives what was in it.
    pub fn take(&mut self) -> impl Iterator<Item = Group> + use<> {
        let groups = core::mem::take(self).0;
        Group::all().filter(move |group| groups & (1 << group.slot()) != 0)
    }
}
