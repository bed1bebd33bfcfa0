//! The figures in the pages of `docs/policies/` are what the policies really do.

#[path = "../examples/figure/figures.rs"]
mod figures;
mod support;

use std::fs;
use std::path::PathBuf;

fn page(name: &str) -> (PathBuf, String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/policies")
        .join(format!("{name}.md"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    (path, text)
}

#[test]
fn every_figure_is_what_the_code_does() {
    let mut wrong = Vec::new();
    for (name, figure) in figures::ALL {
        let (_, text) = page(name);
        let block = format!("```text\n{}```\n", figure());
        if !text.contains(&block) {
            wrong.push(format!(
                "docs/policies/{name}.md has another figure than `cargo run -q -p \
                 anabranch-policy --example figure -- {name}`:\n{block}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_guide_has_every_page() {
    let (_, guide) = page("README");
    for (name, _) in figures::ALL {
        let link = format!("[`{name}`]({name}.md)");
        assert!(guide.contains(&link), "docs/policies/README.md does not have {link}");
    }
}
