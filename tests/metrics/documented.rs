//! docs/METRICS.md has every family, and no other; so do the rules and queries in it.

use crate::looks::{With, look};
use crate::text::parse;
use anabranch::daemon::metrics::{Format, exposition};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Every family under any policy, with its type.
fn families() -> BTreeMap<String, String> {
    let policies = ["numa", "service-time", "latency", "finish-time"];
    let texts = policies.map(|policy| {
        let look = look(&With { policy, text: "x" });
        exposition(&look.into(), Format::Plain).expect("text")
    });
    let all = texts.iter().flat_map(|text| parse(text, Format::Plain).0);
    all.map(|(name, family)| (name, family.kind)).collect()
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

#[test]
fn a_device_that_rests_and_an_export_without_one_are_seen() {
    let look = look(&With { policy: "numa", text: "x" });
    let found = parse(&exposition(&look.into(), Format::Plain).expect("text"), Format::Plain);
    let of = ["quiesced", "frozen"].map(|word| format!("anabranch_device_{word}"));
    assert_eq!(of.map(|name| found.value(&name, &[])), [2.0, 1.0]);
    assert_eq!(found.value("anabranch_nbd_export_clients", &[("export", "disk")]), 1.0);
    assert_eq!(found.value("anabranch_nbd_export_present", &[("export", "disk")]), 0.0);
}

#[test]
fn a_path_without_an_address_is_counted_beside_the_controllers() {
    let look = look(&With { policy: "numa", text: "x" });
    let found = parse(&exposition(&look.into(), Format::Plain).expect("text"), Format::Plain);
    for name in ["paths", "paths_without_address"] {
        assert_eq!(found.value(&format!("anabranch_subsystem_{name}"), &[]), 1.0, "{name}");
    }
}

#[test]
fn the_tables_have_every_family_with_its_type() {
    let text = read("docs/METRICS.md");
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `anabranch_")?.split(" | ");
        let name = cells.next()?.split('`').next()?;
        Some((format!("anabranch_{name}"), cells.next()?.to_owned()))
    });
    let rows: BTreeMap<String, String> = rows.collect();
    let info = |(name, kind): (String, String)| {
        let kind = if name.ends_with("_info") { "info".to_owned() } else { kind };
        (name, kind)
    };
    assert_eq!(rows, families().into_iter().map(info).collect());
}

#[test]
fn queries_and_rules_name_what_there_is() {
    let known: BTreeSet<String> = families()
        .into_iter()
        .flat_map(|(name, kind)| match kind.as_str() {
            "histogram" => ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")).to_vec(),
            _ => vec![name],
        })
        .collect();
    for file in ["docs/METRICS.md", "contrib/prometheus/anabranch.rules.yml"] {
        let text = read(file);
        let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let named =
            text.match_indices("anabranch_").filter(|(at, _)| !text[..*at].ends_with(in_name));
        for (at, _) in named {
            let name: String = text[at..].chars().take_while(|c| in_name(*c)).collect();
            let whole = families().contains_key(&name) || known.contains(&name);
            assert!(whole || name.ends_with('_'), "{file}: {name}");
        }
    }
}
