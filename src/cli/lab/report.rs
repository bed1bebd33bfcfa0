//! `lab report`.

use crate::cli::args::Global;
use crate::cli::args::lab::LabReport;
use crate::failure::Failure;
use anabranch_lab::report::{Material, render};
use anabranch_lab::result::whole;
use serde_json::json;

pub(super) fn run(global: &Global, options: &LabReport) -> Result<(), Failure> {
    let material = Material::read(&options.dir)?;
    let path = options.output.clone().unwrap_or_else(|| options.dir.join("report.html"));
    let page = render(material);
    whole::deliver(&path, page.as_bytes()).map_err(|error| {
        let path = path.display();
        Failure::failed(format!("{path}: cannot write: {error}; give another --output"))
    })?;
    let text = || format!("{}: {} KiB\n", path.display(), page.len().div_ceil(1024));
    // A path that is no text is shown as far as it is one.
    let json = || json!({"report": path.to_string_lossy(), "bytes": page.len()});
    crate::cli::print(global, text, json)
}
