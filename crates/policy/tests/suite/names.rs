//! Policy names are the kernel's, whole words; a wrong one is told which exist.

use anabranch_policy::{Policy, UnknownPolicy};

#[test]
fn every_name_parses_back() {
    let names: Vec<String> = Policy::ALL.iter().map(Policy::to_string).collect();
    assert_eq!(
        names,
        [
            "numa",
            "round-robin",
            "queue-depth",
            "service-time",
            "latency",
            "queue-length",
            "historical-service-time",
            "io-affinity",
            "finish-time",
        ]
    );
    for policy in Policy::ALL {
        assert_eq!(policy.name().parse(), Ok(policy));
        assert_eq!(format!("{policy}\n").parse(), Ok(policy), "as echo writes it");
    }
    assert_eq!(format!("[{:>12}]", Policy::Numa), "[        numa]");
}

#[test]
fn anything_else_is_refused() {
    let wrong = ["", "\n", "num", "numa ", " numa", "numa\n\n", "NUMA", "round_robin", "numa,x"];
    for text in wrong {
        assert!(text.parse::<Policy>().is_err(), "{text:?}");
    }
}

#[test]
fn the_error_says_what_was_asked_and_what_exists() {
    let error = "fastest".parse::<Policy>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown I/O policy \"fastest\": use numa, round-robin, queue-depth, service-time, \
         latency, queue-length, historical-service-time, io-affinity or finish-time"
    );
    assert_eq!(error.name(), "fastest");
}

#[test]
fn the_first_name_of_latency_is_told_the_present_one() {
    let error = "adaptive".parse::<Policy>().unwrap_err();
    assert!(error.to_string().ends_with(" (adaptive is now called latency)"), "{error}");
    let error = "adaptive ".parse::<Policy>().unwrap_err();
    assert!(!error.to_string().contains("now called"), "{error}");
}

#[test]
fn a_long_or_binary_name_is_repeated_cut_and_escaped() {
    let error: UnknownPolicy = "ä".repeat(40).parse::<Policy>().unwrap_err();
    assert_eq!(error.name(), "ä".repeat(16));
    assert!(error.to_string().contains("ä…\""));
    let error = "a\u{1b}[2J\0b".parse::<Policy>().unwrap_err();
    assert!(!error.to_string().contains(|c: char| c.is_control()));
}
