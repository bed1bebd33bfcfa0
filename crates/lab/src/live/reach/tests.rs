use super::*;
use crate::scenario::{file, library};

/// Two paths; the second one is `path`, and `rest` follows.
fn scenario(path: &str, rest: &str) -> Scenario {
    let text = format!(
        "title = \"t\"\n[run]\nwindow = \"90s\"\n{rest}\n[[path]]\nname = \"near\"\n\
         [[path]]\nname = \"odd\"\n{path}\n[[job]]\nrw = \"rw\"\nbs = \"4k\"\n"
    );
    file::parse(&text, "t.toml").unwrap_or_else(|mistake| panic!("{mistake}")).scenario
}

/// The key at fault and the sentence.
fn refused(path: &str, rest: &str) -> (&'static str, String) {
    let problem = check(&scenario(path, rest)).expect_err(path);
    assert!(problem.text.contains("path \"odd\""), "{problem}");
    (problem.key, problem.text)
}

#[test]
fn a_path_that_is_too_slow_is_named_with_its_key_and_the_limit() {
    for (path, rest, key, what) in [
        ("rate = \"1kbit\"", "", "rate", "to connect takes 213.0 s"),
        ("rate_in = \"1kbit\"", "", "rate_in", "a write of 4096 bytes takes 33.3 s"),
        ("rate_out = \"1kbit\"", "", "rate_out", "to connect takes 196.6 s"),
        ("delay = \"11s\"", "", "delay", "Fabrics Connect takes 11.0 s"),
        ("delay = \"9s\"", "", "delay", "to connect takes 108.0 s"),
        (
            "brownout = { percent = 10, delay = \"40s\" }",
            "",
            "brownout",
            "a read of 4096 bytes takes 40.0 s",
        ),
        (
            "large = { size = \"4k\", delay = \"31s\" }",
            "",
            "large",
            "a read of 4096 bytes takes 31.0 s",
        ),
    ] {
        let (found, text) = refused(path, rest);
        assert!(text.contains(what), "{path}: {text}");
        assert_eq!(found, key, "{text}");
    }
    let slow = check(&scenario("", "[target]\nwrite = \"31s\"")).expect_err("on every path");
    assert_eq!(slow.key, "write", "{slow}");
    assert!(slow.text.contains("a write of 4096 bytes takes 31.0 s"), "{slow}");
}

#[test]
fn what_a_change_makes_of_a_path_is_looked_at_too() {
    let change = |what: &str| format!("[[change]]\nat = \"1.5s\"\npath = \"odd\"\n{what}");
    let (key, text) = refused("", &change("delay = \"40s\""));
    assert_eq!(key, "delay");
    assert!(text.contains("after the change at 1.5 s"), "{text}");
    assert!(
        text.contains("Keep Alive is not answered within 30 s (half of its time-out)"),
        "{text}"
    );
    // A path that falls silent sets the limit for all of them.
    let silent =
        "[host]\ndetect = \"1s\"\n[[change]]\nat = \"1s\"\npath = \"near\"\nstate = \"silent\"";
    let (key, text) = refused("delay = \"600ms\"", silent);
    assert_eq!(key, "delay");
    assert!(text.contains("within 0.5 s (half of detect)"), "{text}");
    assert_eq!(check(&scenario("delay = \"600ms\"", "")), Ok(()));
}

#[test]
fn slow_paths_that_hosts_can_use_are_left_alone() {
    for path in ["", "rate = \"10kbit\"", "delay = \"1s\"", "delay = \"6s\"\njitter = \"6s\""] {
        assert_eq!(check(&scenario(path, "")), Ok(()), "{path}");
    }
    for name in library::names() {
        let loaded = file::read_library(name).unwrap_or_else(|mistake| panic!("{mistake}"));
        assert_eq!(check(&loaded.scenario), Ok(()), "{name}");
    }
}

#[test]
fn the_part_of_the_rates_is_named_where_it_is_the_cause() {
    let error = check_scaled(&scenario("rate = \"1kbit\"", ""), "0.1 %").expect_err("too slow");
    let text = error.to_string();
    assert!(text.starts_with("scale: with 0.1 % of the scenario's rates: rate: on path"), "{text}");
}
