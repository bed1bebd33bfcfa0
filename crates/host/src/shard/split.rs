//! What there is for reads and for everything else: a controller may have queue pairs for reads
//! alone. Where it has none, both are the same.

use anabranch_policy::OpClass;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Split<T> {
    pub(super) reads: T,
    pub(super) others: T,
}

impl<T> Split<T> {
    #[inline]
    pub(super) fn of(&self, class: OpClass) -> &T {
        if class == OpClass::Read { &self.reads } else { &self.others }
    }

    pub(super) fn of_mut(&mut self, class: OpClass) -> &mut T {
        if class == OpClass::Read { &mut self.reads } else { &mut self.others }
    }
}
