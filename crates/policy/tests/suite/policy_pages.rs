//! The figures in the pages of `docs/policies/` are what the policies really do.

#[path = "../../examples/figure/figures.rs"]
mod figures;

use anabranch_policy::Policy;
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
fn every_policy_has_a_figure_a_page_and_a_place_in_the_guide() {
    let (_, guide) = page("README");
    for policy in Policy::ALL {
        let name = policy.name();
        assert!(figures::ALL.iter().any(|(known, _)| *known == name), "{name} has no figure");
        let link = format!("[`{name}`]({name}.md)");
        assert!(guide.contains(&link), "docs/policies/README.md does not have {link}");
        let (_, text) = page(name);
        for part in [
            "Rule",
            "Formula",
            "State",
            "Parameters",
            "Figure",
            "When to use",
            "When not",
            "Deviations",
            "Source",
        ] {
            assert!(text.contains(&format!("\n## {part}\n")), "{name}.md has no \"{part}\"");
        }
    }
    let default = format!("[`{0}`]({0}.md) (DEFAULT)", Policy::default());
    assert!(guide.contains(&default), "the guide does not say {default}");
}

#[test]
fn pages_have_lines_of_at_most_100_columns_but_for_tables() {
    for name in figures::ALL.iter().map(|(name, _)| *name).chain(["README"]) {
        let (_, text) = page(name);
        for (number, line) in (1..).zip(text.lines()) {
            let short = line.chars().count() <= 100 || line.starts_with('|');
            assert!(short, "docs/policies/{name}.md:{number}");
        }
    }
}
