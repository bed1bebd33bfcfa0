//! How a verb of the command line fails: an exit status and one clear sentence.

use std::fmt;

/// Why a verb did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It was tried and failed: exit status 1.
    Failed(String),
    /// The command line or a configuration file asks for something that makes no sense: exit
    /// status 2.
    Usage(String),
}

impl Failure {
    /// It was tried and failed.
    pub fn failed(text: impl Into<String>) -> Failure {
        Failure::Failed(text.into())
    }

    /// What was asked for makes no sense.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure::Usage(text.into())
    }

    /// The exit status of the program.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Failure::Failed(_) => 1,
            Failure::Usage(_) => 2,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed(text) | Failure::Usage(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Failure {}
