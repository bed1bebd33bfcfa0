//! `lab list`, `lab run`, `lab compare` and `lab report`.

mod cells;
mod compare;
mod list;
mod live;
mod plan;
mod progress;
mod report;
mod run;
mod table;

use super::args::Global;
use super::args::lab::{Lab, LabVerb};
use crate::failure::Failure;
use anabranch_lab::result::store::StoreError;

pub(super) fn run(global: &Global, lab: &Lab) -> Result<(), Failure> {
    match &lab.verb {
        LabVerb::List { places } => list::run(global, places),
        LabVerb::Run(options) => run::run(global, options),
        LabVerb::Compare(options) => compare::run(global, options),
        LabVerb::Report(options) => report::run(global, options),
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        match error {
            // What was asked for does not fit to what is there.
            StoreError::Conflict { .. } | StoreError::Empty(_) | StoreError::Missing(_) => {
                Failure::usage(error.to_string())
            }
            _ => Failure::failed(error.to_string()),
        }
    }
}
