//! What stands on the page, in which order.

use serde::Deserialize;

/// The plan of a page, a TOML file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Published ratios count as reproduced within this factor, in hundredths: 125 is up to a
    /// quarter more, or a fifth less.
    pub factor_percent: u32,
    /// Why simulated and live figures differ where they do.
    pub differences: String,
    /// One per table of a mail.
    #[serde(rename = "section")]
    pub sections: Vec<Section>,
}

/// A table, or a group of tables that belong together.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// A heading.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// Names of scenarios.
    pub scenarios: Vec<String>,
    /// One scenario is one cell of a grid: a table with a line each.
    #[serde(default)]
    pub grid: bool,
    /// What the reader should know, and why figures differ where they do.
    pub remark: String,
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// What is wrong with it, with its line.
    pub fn parse(text: &str) -> Result<Plan, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }
}
