//! Options of `lab`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Compare policies on described links and load.
#[derive(Args, Clone, Debug)]
pub struct Lab {
    /// What to do
    #[command(subcommand)]
    pub verb: LabVerb,
}

/// What `lab` does.
#[derive(Clone, Debug, Subcommand)]
pub enum LabVerb {
    /// List the scenarios of a directory, and check them
    List {
        /// Where they are
        #[arg(value_name = "DIR", default_value = "scenarios")]
        dir: PathBuf,
    },
    /// Simulate scenarios with the policies' own code on a model of queue pairs and links
    Run {
        /// Scenario files
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// Only these variants, comma-separated; all = all of the scenario, as by default
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        policies: Vec<String>,
        /// Runs, with the seeds 1 to N [default: as the scenario says]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
        runs: Option<u32>,
        /// How they are run
        #[arg(long, value_enum, default_value = "light")]
        mode: Mode,
    },
}

/// How scenarios are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// The policies' own code on a model of queue pairs and links, in virtual time
    Light,
}
