//! `get OBJECT`: everything that an object shows.

use crate::columns::columns;
use crate::daemon::view::AttributeView;
use serde_json::{Value, json};

/// A table. A text of several lines goes on below itself.
#[must_use]
pub fn text(attributes: &[AttributeView]) -> String {
    let mut rows = Vec::new();
    for attribute in attributes {
        let mode = if attribute.writable { "rw" } else { "ro" };
        let mut lines = attribute.value.lines();
        let first = lines.next().unwrap_or_default();
        rows.push(vec![attribute.name.clone(), mode.to_owned(), first.to_owned()]);
        rows.extend(lines.map(|line| vec![String::new(), String::new(), line.to_owned()]));
    }
    columns(&["Attribute", "Mode", "Value"], &rows)
}

/// An object with the attributes.
#[must_use]
pub fn json(object: &str, attributes: &[AttributeView]) -> Value {
    json!({ "object": object, "attributes": attributes })
}
