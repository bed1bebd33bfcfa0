//! Why a live run did not come about.

use crate::scenario::Problem;
use std::fmt;

/// Why a live run did not come about. Its text names the step or the cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveError {
    /// The caller's: the scenario is out of bounds.
    Scenario(Problem),
    /// The caller's: an option is out of bounds.
    Option {
        /// Which.
        name: &'static str,
        /// What would be right.
        why: String,
    },
    /// The system's or our own: something did not work.
    Failed {
        /// What was tried.
        what: String,
        /// What came of it.
        why: String,
    },
    /// A cell was not completed.
    Cell {
        /// The scenario.
        scenario: String,
        /// The variant.
        variant: String,
        /// The run, from 1.
        run: u64,
        /// What happened.
        why: String,
    },
}

impl LiveError {
    pub(super) fn failed(what: impl Into<String>, why: impl fmt::Display) -> LiveError {
        LiveError::Failed { what: what.into(), why: why.to_string() }
    }
}

impl From<Problem> for LiveError {
    fn from(problem: Problem) -> LiveError {
        LiveError::Scenario(problem)
    }
}

impl fmt::Display for LiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LiveError::Scenario(problem) => problem.fmt(f),
            LiveError::Option { name, why } => write!(f, "{name}: {why}"),
            LiveError::Failed { what, why } => write!(f, "{what}: {why}"),
            LiveError::Cell { scenario, variant, run, why } => {
                write!(f, "{scenario}, {variant}, run {run}: {why}")
            }
        }
    }
}

impl std::error::Error for LiveError {}
