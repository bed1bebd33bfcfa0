//! Makes the reproduction page: `reproduction PLAN SCENARIOS RESULTS… > page.md`.
//!
//! PLAN is docs/reproduction.toml, SCENARIOS the directory of scenario files, RESULTS are
//! directories that `anabranch lab run --out` has filled.

use anabranch_lab::reproduction::{Plan, page, predicted};
use anabranch_lab::result::store::Store;
use anabranch_lab::scenario::file;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [plan, scenarios, results @ ..] = arguments.as_slice() else {
        return Err("usage: reproduction PLAN SCENARIOS RESULTS…".into());
    };
    let plan = Plan::parse(&std::fs::read_to_string(plan)?)?;
    let mut library = Vec::new();
    for entry in std::fs::read_dir(scenarios)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            library.push(file::read(&path)?.scenario);
        }
    }
    for section in &plan.sections {
        if let [first, ..] = section.missing(&library)[..] {
            return Err(format!(
                "{:?} names {first:?}, and there is no such scenario",
                section.title
            )
            .into());
        }
    }
    let mut cells = Vec::new();
    for directory in results {
        let store = Store::open(directory)?;
        for path in store.cells()? {
            cells.push(store.read(&path)?);
        }
    }
    let predicted = predicted(&plan, &library, &cells)?;
    print!("{}", page(&plan, &library, &cells, &predicted));
    Ok(())
}
