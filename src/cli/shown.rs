//! What a daemon answers, fit for a terminal.

use anabranch_lab::shown::{Shown, obeyed, shown_lines};
use serde_json::Value;

/// Escapes all texts of an answer, keys included. A name that holds a line's end cannot pass for
/// another line.
pub(crate) fn tame(answer: &mut Value) {
    each(answer, &|text| *text = Shown(text).to_string());
}

/// As [`tame`], for attributes: the values of some have several lines.
pub(super) fn tame_lines(answer: &mut Value) {
    each(answer, &|text| *text = shown_lines(text));
}

fn each(value: &mut Value, change: &dyn Fn(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(all) => all.iter_mut().for_each(|one| each(one, change)),
        Value::Object(map) => {
            let entries = std::mem::take(map).into_iter().map(|(mut key, mut value)| {
                change(&mut key);
                each(&mut value, change);
                (key, value)
            });
            *map = entries.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// JSON that a terminal can show, too: a reader of it gets the same. What the writer leaves as it
/// is stands within texts only.
pub(crate) fn json(written: &str) -> String {
    let mut text = String::with_capacity(written.len());
    for c in written.chars() {
        if obeyed(c) && c != '\n' {
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
    }
    text
}
