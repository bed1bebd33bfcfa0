//! The page of the attributes has them all, as `anabranch get` and the tree of files do.

use anabranch_host::attribute::{self, Attribute, ObjectKind};

const HEAD: &str = "| of | attribute | set | what |\n| --- | --- | --- | --- |\n";

/// In this order, and what is the same of devices and paths once.
const OBJECTS: [(ObjectKind, &str); 5] = [
    (ObjectKind::Module, "host"),
    (ObjectKind::Subsystem, "subsystem"),
    (ObjectKind::Controller, "controller"),
    (ObjectKind::Head, "device"),
    (ObjectKind::Path, "path"),
];

fn row(entry: &Attribute, word: &str) -> Option<String> {
    let same = |object| {
        let is_it = |other: &&Attribute| other.name == entry.name && other.help == entry.help;
        attribute::all().filter(is_it).any(|other| other.object == object)
    };
    let of = match entry.object {
        ObjectKind::Head if same(ObjectKind::Path) => "device, path",
        ObjectKind::Path if same(ObjectKind::Head) => return None,
        _ => word,
    };
    let set = match (entry.is_readable(), entry.is_writable()) {
        (true, false) => "",
        (true, true) => "yes",
        (false, _) => "only",
    };
    Some(format!("| {of} | `{}` | {set} | {} |\n", entry.name, entry.help.replace('|', "\\|")))
}

#[test]
fn every_attribute_stands_on_the_page() {
    let page = std::fs::read_to_string("../../docs/ATTRIBUTES.md").expect("the page");
    let mut table = String::from(HEAD);
    for (object, word) in OBJECTS {
        let of_it = attribute::all().filter(|entry| entry.object == object);
        table.extend(of_it.filter_map(|entry| row(entry, word)));
    }
    assert!(table.lines().count() > 50, "{table}");
    let begun = page.find(HEAD).map_or("", |at| &page[at..]);
    let there = begun.split("\n\n").next().unwrap_or_default();
    assert!(there == table.trim_end(), "the page should have this table:\n{table}");
}
