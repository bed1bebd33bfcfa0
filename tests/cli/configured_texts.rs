//! Texts and times of the configuration: what those hear who write them otherwise.

use crate::configuration::each_is_told;

/// The parser takes them for numbers.
#[test]
fn a_text_without_quotes_is_told_as_that() {
    each_is_told(&[
        (
            "[[subsystem]]\nnqn = nqn.x # it\n",
            "line 2 (nqn)",
            ": text stands in quotes: nqn = \"nqn.x\"",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.2026-01.org.example:a\"\n[[subsystem.path]]\n\
             traddr = 127.0.0.1\n",
            "line 4 (traddr)",
            ": text stands in quotes: traddr = \"127.0.0.1\"",
        ),
        ("iopolicy = numa\n", "line 1 (iopolicy)", "quotes: iopolicy = \"numa\""),
        ("attr_fs = /run/x\n", "line 1 (attr_fs)", "quotes: attr_fs = \"/run/x\""),
        ("workers = \"2\" 3\n", "line 1 (workers)", "unexpected"),
    ]);
}

#[test]
fn a_time_that_is_none_is_told_with_the_word_that_switches_it_off() {
    each_is_told(&[(
        "[[subsystem]]\nnqn = \"nqn.2026-01.org.example:a\"\n[[subsystem.path]]\n\
             traddr = \"::1\"\nctrl_loss_tmo = \"never\"\n",
        "line 5 (ctrl_loss_tmo)",
        "such as 250ms; off or -1 switches it off",
    )]);
}
