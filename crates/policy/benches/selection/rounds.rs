//! How times are taken: all cases in turn, round after round.
//!
//! Other load on a machine only ever adds. So a round takes the fastest of several short blocks,
//! and what is shown is the median over the rounds with the least and the greatest.

use std::time::Instant;

/// How often every case has its turn.
pub(crate) const ROUNDS: usize = 15;

/// Blocks of one case in one round.
pub(crate) const BLOCKS: usize = 8;

/// Blocks of two workers in one round; many, because both must be on a processor at once.
pub(crate) const BLOCKS_OF_TWO: usize = 32;

/// Commands in a block: well below a time slice of the scheduler.
pub(crate) const COMMANDS: u32 = 1000;

/// Nanoseconds per command, one number per round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times(Vec<f64>);

impl Times {
    pub(crate) fn push(&mut self, ns: f64) {
        self.0.push(ns);
    }

    /// One round of `body`, which runs [`COMMANDS`] commands.
    pub(crate) fn round(&mut self, body: impl FnMut()) {
        self.round_of(COMMANDS, body);
    }

    /// One round of `body`, which runs so many.
    pub(crate) fn round_of(&mut self, commands: u32, mut body: impl FnMut()) {
        let blocks = (0..BLOCKS).map(|_| {
            let begin = Instant::now();
            body();
            begin.elapsed().as_nanos() as f64 / f64::from(commands)
        });
        self.0.push(blocks.fold(f64::INFINITY, f64::min));
    }

    /// The median, and the least and the greatest; `None` when there was no valid round.
    pub(crate) fn summary(&self) -> Option<Summary> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let (least, greatest) = (*sorted.first()?, *sorted.last()?);
        Some(Summary { median: sorted[sorted.len() / 2], least, greatest })
    }
}

/// What a row of a table says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Precision stands for itself: nanoseconds have one digit, hundreds of them none.
        let digits = usize::from(self.median < 100.0);
        let Summary { median, least, greatest } = self;
        write!(f, "{median:.digits$} [{least:.digits$} {greatest:.digits$}]")
    }
}
