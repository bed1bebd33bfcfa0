//! Whatever a target says of itself, the text can be read, and shown on a terminal.

use crate::looks::{With, look};
use crate::stand::Stand;
use crate::text::parse;
use anabranch::daemon::metrics::{Format, exposition};
use anabranch_lab::shown::obeyed;

const FORMATS: [Format; 2] = [Format::OpenMetrics, Format::Plain];

#[test]
fn a_model_with_quotes_backslashes_and_lines_stays_one_label() {
    let plain = "a\"} 7\\ \\n,\"{model=\"b\" é";
    for format in FORMATS {
        let look = look(&With { policy: "numa", text: plain });
        let found = parse(&exposition(&look.into(), format).expect("text"), format);
        let [info] = found.samples("anabranch_subsystem_info")[..] else { panic!("one subsystem") };
        assert_eq!((info.labels["model"].as_str(), info.value), (plain, 1.0));
    }
}

#[test]
fn nothing_in_a_text_controls_a_terminal() {
    let evil = "x\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\r\nanabranch_forged 1\t\u{7f}";
    for format in FORMATS {
        let look = look(&With { policy: "numa", text: evil });
        let text = exposition(&look.into(), format).expect("text");
        let bad = text.chars().find(|c| obeyed(*c) && *c != '\n');
        assert!(bad.is_none(), "{bad:?} in {text:?}");
        let found = parse(&text, format);
        let [info] = found.samples("anabranch_subsystem_info")[..] else { panic!("one subsystem") };
        assert!(info.labels["model"].starts_with(r"x\u{1b}]0;owned"), "{info:?}");
        assert_eq!(found.samples("anabranch_forged").len(), 0);
    }
}

/// What is not printable ASCII in Identify never comes this far (C60).
#[test]
fn what_a_target_sends_arrives_as_one_label() {
    let model = "a\"} 7\\n,{model=\"b\"";
    let stand = Stand::of_model(model);
    let found = stand.scrape();
    let [info] = found.samples("anabranch_subsystem_info")[..] else { panic!("one subsystem") };
    assert_eq!(info.labels["model"], model);
}
