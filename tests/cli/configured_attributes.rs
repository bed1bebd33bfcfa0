//! Attributes that stand in the configuration: what is taken, and what is told of what is not.

use crate::configuration::load;
use anabranch::daemon::config::{ServeConfig, Source};
use anabranch_host::attribute;
use anabranch_host::config::SubsystemSettings;
use anabranch_policy::Policy;
use std::fs;
use std::path::Path;
use std::process::Command;

const SUBSYSTEM: &str = "[[subsystem]]\nnqn = \"nqn.2026-01.org.example:a\"\n";
const PATH: &str = "[[subsystem.path]]\ntraddr = \"::1\"\n";

/// A file with these attributes, the first on line 6.
fn with(attributes: &str) -> String {
    format!("{SUBSYSTEM}{PATH}[subsystem.attributes]\n{attributes}\n")
}

/// What the first subsystem of a file has at first.
fn settings(text: &str) -> SubsystemSettings {
    let config = load(text).expect(text);
    let source = Source::new(Path::new("x.toml"), text.to_owned());
    config.settings(&source).expect(text).remove(0).1
}

/// What a mistake is told with, behind the name of the file.
fn told(text: &str) -> String {
    let told = load(text).expect_err(text).to_string();
    assert!(!told.contains('\n'), "one sentence: {told}");
    told.split_once(".toml, ").expect(&told).1.to_owned()
}

#[test]
fn texts_numbers_and_switches_are_what_set_would_be_given() {
    let mut wanted = SubsystemSettings::new(Some(Policy::Latency), false);
    for (name, value) in [
        ("kernel_exact", "1"),
        ("queue_depth_scope", "sum"),
        ("hst_base_weight", "1023"),
        ("finish_time_probes", "0"),
        ("delayed_removal_secs", "60"),
        ("latency_batch_timeout", "200ms"),
    ] {
        wanted.set(name, value).expect(name);
    }
    let policy = format!("{SUBSYSTEM}iopolicy = \"latency\"\n");
    let values = "kernel_exact = true\nqueue_depth_scope = \"sum\"\nhst_base_weight = 0x3ff\n\
                  finish_time_probes = false\ndelayed_removal_secs = \"0x3c\"\n\
                  latency_batch_timeout = \"200ms\"\n";
    let below = format!("{policy}{PATH}[subsystem.attributes]\n{values}");
    assert_eq!(settings(&below), wanted);
    let values = values.trim_end().replace('\n', ", ");
    let beside = format!("{policy}attributes = {{ {values} }}\n{PATH}");
    assert_eq!(settings(&beside), wanted);
    // Each has its own.
    let other = SUBSYSTEM.replace(":a", ":b");
    let config = load(&format!("{below}{other}{PATH}")).expect("two subsystems");
    let source = Source::new(Path::new("x.toml"), below);
    let all = config.settings(&source).expect("settings");
    assert_eq!(all[1].1, SubsystemSettings::new(None, false));
}

#[test]
fn what_holds_for_all_holds_where_a_subsystem_does_not_say_otherwise() {
    let exact = |attributes: &str| settings(&format!("kernel_exact = true\n{}", with(attributes)));
    assert_eq!(exact(""), SubsystemSettings::new(None, true));
    assert_eq!(exact("kernel_exact = false"), SubsystemSettings::new(None, false));
}

#[test]
fn mistakes_name_line_and_attribute() {
    for (attributes, why) in [
        ("finish_time_tail = 2", "line 6 (finish_time_tail): \"2\" is neither 0 nor 1"),
        ("\nexplain_sample = -1", "line 7 (explain_sample): \"-1\" is no whole number"),
        ("explain_sample = 4294967296", "line 6 (explain_sample): 4294967296 does not fit 32 bits"),
        (
            "hst_base_weight = 1024",
            "line 6 (hst_base_weight): no base weight: use 0 (no history) to 1023",
        ),
        (
            "kernel_exact = 1.5",
            "line 6 (kernel_exact): takes a string, a whole number, or true or false",
        ),
        (
            "kernel_exact = [1]",
            "line 6 (kernel_exact): takes a string, a whole number, or true or false",
        ),
        ("kernel_exact = \"a\\nb\"", "line 6 (kernel_exact): more than one line"),
        (
            "iopolicy = \"numa\"",
            "line 6 (iopolicy): stands beside these, as a key of the subsystem itself",
        ),
        ("colour = 1", "line 6 (colour): is no attribute; what a subsystem and its devices can"),
        ("\"a\\nb\" = 1", "line 6 (a\\nb): is no attribute; what a subsystem and its devices can"),
        ("'model' = 'x'", "line 6 (model): is read-only; what a subsystem and its devices can"),
        ("command_error_count = 0", "line 6 (command_error_count): is an attribute of a contr"),
        (
            "io_requeue_no_usable_path_count = 0",
            "line 6 (io_requeue_no_usable_path_count): is a counter; what a subsystem and its",
        ),
        (
            "relative_throughput = 4",
            "line 6 (relative_throughput): is an attribute of a path (nvmeXcYnZ); what a subs",
        ),
        ("kernel_exact = 1\nkernel_exact = 1", "line 7 (kernel_exact): duplicate key"),
    ] {
        let told = told(&with(attributes));
        assert!(told.starts_with(why), "{attributes:?}: {told}");
    }
    let inline = format!(
        "{SUBSYSTEM}attributes = {{ kernel_exact = 1, finish_time_tail = \"on\" }}\n{PATH}"
    );
    assert_eq!(told(&inline), "line 3 (finish_time_tail): \"on\" is neither 0 nor 1");
    let long = told(&with(&format!("explain_sample = \"{}\"", "x".repeat(100_000))));
    assert!(long.chars().count() < 1000, "{} characters", long.len());
}

#[test]
fn the_table_stands_below_its_subsystem_and_there_is_one() {
    let alone = told("[subsystem.attributes]\nkernel_exact = 1\n");
    let why = "line 1 ([subsystem.attributes]): this belongs to a [[subsystem]], which must stand \
               before it";
    assert_eq!(alone, why);
    let several = told(&with("").replace("[subsystem.attributes]", "[[subsystem.attributes]]"));
    assert!(several.starts_with("line 5 ([[subsystem.attributes]]): "), "{several}");
    assert!(several.ends_with("expected a table"), "{several}");
    let number = told(&format!("{SUBSYSTEM}attributes = 1\n{PATH}"));
    assert!(number.starts_with("line 3 (attributes): "), "{number}");
    assert!(number.ends_with("expected a table"), "{number}");
}

#[test]
fn a_subsystem_that_stands_there_twice_says_the_same_of_itself() {
    let twice = |second: &str| {
        let first = with("explain_sample = 1");
        format!("{first}{SUBSYSTEM}[[subsystem.path]]\ntraddr = \"::2\"\n{second}")
    };
    for second in ["", "[subsystem.attributes]\nexplain_sample = 2\n"] {
        let why = "line 2 (nqn): this subsystem stands here twice, with different attributes";
        assert_eq!(told(&twice(second)), why);
    }
    load(&twice("attributes.explain_sample = \"0x1\"\n")).expect_err("of the path");
    load(&twice("[subsystem.attributes]\nexplain_sample = \"0x1\"\n")).expect("in other words");
    let policies = format!("{SUBSYSTEM}{PATH}{SUBSYSTEM}iopolicy = \"numa\"\n{PATH}");
    let why = "line 2 (nqn): this subsystem stands here twice, with different policies";
    assert_eq!(told(&policies), why);
}

/// Before it listens anywhere: here, where it cannot.
#[test]
fn serve_starts_nothing_with_an_attribute_that_makes_no_sense() {
    let file = std::env::temp_dir().join(format!("anabranch-given-{}.toml", std::process::id()));
    fs::write(&file, with("latency_ewma_shift = 9")).expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["serve", "--socket", "/proc/none/x", "--config"])
        .arg(&file)
        .output()
        .expect("the binary runs");
    fs::remove_file(&file).expect("removed");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("line 6 (latency_ewma_shift): "), "{told}");
}

#[test]
fn the_page_names_every_attribute_that_can_stand_there() {
    let page = include_str!("../../docs/CONFIGURATION.md");
    for entry in attribute::all().filter(|entry| entry.is_setting()) {
        assert!(page.contains(&format!("`{}`", entry.name)), "{} is not on the page", entry.name);
    }
    let begin = page.find("# serve.toml\n").expect("the host's file");
    let text = &page[begin..];
    let source =
        Source::new(Path::new("serve.toml"), text[..text.find("```").expect("its end")].to_owned());
    let config: ServeConfig = source.parse().expect("the host's file");
    let settings = config.settings(&source).expect("its attributes");
    assert_ne!(settings[0].1, SubsystemSettings::new(config.subsystems[0].iopolicy, false));
}
