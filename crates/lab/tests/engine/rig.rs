//! What the tests have in common.

use anabranch_lab::cell::Cell;
use anabranch_lab::engine;
use anabranch_lab::figures::Figures;
use anabranch_lab::scenario::{Scenario, Variant, file};

/// A scenario from the text of a file.
pub(crate) fn scenario(text: &str) -> Scenario {
    let text = format!("title = \"t\"\n{text}");
    file::parse(&text, "test.toml").unwrap_or_else(|mistake| panic!("{mistake}")).scenario
}

pub(crate) fn variant<'a>(scenario: &'a Scenario, name: &str) -> &'a Variant {
    let found = scenario.variants.iter().find(|variant| variant.name == name);
    found.unwrap_or_else(|| panic!("no variant {name}"))
}

/// A run that must go well: no request fails, every read brings what it must, the books balance.
pub(crate) fn run(scenario: &Scenario, name: &str, seed: u64) -> Figures {
    let cell = Cell { scenario, variant: variant(scenario, name), seed };
    let figures = engine::run(cell).unwrap_or_else(|problem| panic!("{name}: {problem}"));
    assert_eq!(figures.errors, 0, "{name}");
    figures.books.check().unwrap_or_else(|what| panic!("{name}: {what}"));
    figures
}

/// Payload of a path in the windows from one time to another, both in milliseconds since the
/// beginning of the run.
pub(crate) fn bytes_between(figures: &Figures, path: usize, from_ms: u64, to_ms: u64) -> u64 {
    let windows = (from_ms / 50) as usize..(to_ms / 50) as usize;
    windows.map(|window| figures.series.bytes_of(window)[path]).sum()
}
