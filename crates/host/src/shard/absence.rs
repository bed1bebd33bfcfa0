//! What a command has met on its way, counted in one byte: a host has thousands of commands.

const ABSENT: u8 = 31;
const DOUBT: u8 = ABSENT + 1;

/// How often a command has waited for a path to be looked at (up to 7 times), and how often in a
/// row its namespace was not there (up to 31).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Doubts(u8);

impl Doubts {
    /// The most absences in a row that are told apart.
    pub(super) const ABSENCES_MAX: usize = ABSENT as usize;

    /// How often it has waited because of a doubt.
    pub(super) fn count(self) -> u8 {
        self.0 / DOUBT
    }

    /// It waits because of another one.
    pub(super) fn add(&mut self) {
        self.0 = self.0.checked_add(DOUBT).unwrap_or(self.0);
    }

    /// How often its namespace was not there, in a row.
    pub(super) fn absences(self) -> usize {
        usize::from(self.0 & ABSENT)
    }

    /// Once more.
    pub(super) fn add_absence(&mut self) {
        self.0 += u8::from(self.0 & ABSENT < ABSENT);
    }

    /// They are counted from the start again.
    pub(super) fn forget_absences(&mut self) {
        self.0 &= !ABSENT;
    }
}

#[cfg(test)]
mod tests {
    use super::Doubts;

    #[test]
    fn each_counts_up_to_its_limit_and_leaves_the_other_alone() {
        let mut doubts = Doubts::default();
        for turn in 1..300 {
            doubts.add_absence();
            assert_eq!((doubts.count(), doubts.absences()), (0, turn.min(31)));
        }
        for turn in 1..300 {
            doubts.add();
            assert_eq!((usize::from(doubts.count()), doubts.absences()), (turn.min(7), 31));
        }
        doubts.forget_absences();
        assert_eq!((doubts.count(), doubts.absences()), (7, 0));
    }
}
