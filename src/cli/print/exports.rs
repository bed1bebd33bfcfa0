//! `export list`.

use crate::columns::columns;
use serde_json::Value;

/// Clients that are named; of further ones there is only the number.
const MAX_USERS: usize = 4;

/// A table of exports.
#[must_use]
pub fn text(answer: &Value) -> String {
    let plain = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows: Vec<Vec<String>> = answer["exports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|export| {
            let uris: Vec<String> =
                export["uris"].as_array().into_iter().flatten().map(plain).collect();
            let absent = if export["present"] == false { " (not there)" } else { "" };
            let mode = if export["read_only"] == true { "ro" } else { "rw" };
            let device = plain(&export["device"]) + absent;
            let clients = export["clients"].as_u64().unwrap_or(0).to_string();
            let users = users_text(&export["used_by"]);
            vec![plain(&export["name"]), device, mode.to_owned(), clients, users, uris.join(" ")]
        })
        .collect();
    columns(&["Export", "Device", "Mode", "Clients", "Used by", "URI"], &rows)
}

/// Each client once, however many connections it has.
fn users_text(users: &Value) -> String {
    let mut shown: Vec<(String, usize)> = Vec::new();
    for user in users.as_array().into_iter().flatten() {
        let name = match (&user["pid"], &user["command"]) {
            (Value::Number(pid), Value::String(command)) => format!("{command}[{pid}]"),
            (Value::Number(pid), _) => format!("process {pid}"),
            _ => user["address"].as_str().unwrap_or_default().to_owned(),
        };
        match shown.iter_mut().find(|(other, _)| *other == name) {
            Some((_, times)) => *times += 1,
            None => shown.push((name, 1)),
        }
    }
    let more = shown.len().saturating_sub(MAX_USERS);
    let named = shown.into_iter().take(MAX_USERS).map(|(name, times)| match times {
        1 => name,
        times => format!("{name} x{times}"),
    });
    let more = (more > 0).then(|| format!("{more} more"));
    named.chain(more).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::text;
    use serde_json::json;

    #[test]
    fn each_client_stands_there_once_and_not_too_many_do() {
        let at = |port: u16| json!({ "address": format!("192.0.2.1:{port}") });
        let guest = json!({ "pid": 7, "command": "qemu-system-x86" });
        let used_by = [guest.clone(), at(1), guest, json!({ "pid": 8, "command": null })];
        let export = |used_by: &[_]| {
            let all = json!({ "exports": [{
                "name": "a", "device": "nvme0n1", "clients": used_by.len(), "used_by": used_by,
                "uris": ["nbd://192.0.2.1:9/a"],
            }] });
            text(&all).lines().last().expect("a line").to_owned()
        };
        let shown = export(&used_by);
        assert!(
            shown.contains("4        qemu-system-x86[7] x2, 192.0.2.1:1, process 8"),
            "{shown}"
        );
        let shown = export(&(1..=9).map(at).collect::<Vec<_>>());
        assert!(shown.contains("192.0.2.1:4, 5 more  nbd://"), "{shown}");
        assert!(export(&[]).contains("0                 nbd://"), "{}", export(&[]));
    }
}
