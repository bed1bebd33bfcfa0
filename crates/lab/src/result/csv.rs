//! `results.csv`: a line per cell, as RFC 4180 has it. Columns are only ever added at the end.

use super::{CellResult, Flow, JobResult, PathResult};

/// The columns.
const COLUMNS: [&str; 44] = [
    "scenario",
    "mode",
    "variant",
    "policy",
    "run",
    "ramp_ns",
    "window_ns",
    "scale_permille",
    "latency_window_ns",
    "limit_bytes_s",
    "limit_iops",
    "limit_bound",
    "bytes_s",
    "iops",
    "requests",
    "bytes",
    "errors",
    "mean_ns",
    "stdev_ns",
    "min_ns",
    "p50_ns",
    "p99_ns",
    "p999_ns",
    "max_ns",
    "read_bytes",
    "read_requests",
    "write_bytes",
    "write_requests",
    "trim_bytes",
    "trim_requests",
    "submission_mean_ns",
    "submission_p50_ns",
    "submission_p99_ns",
    "submission_p999_ns",
    "submission_max_ns",
    "user_ns",
    "system_ns",
    "idle_ppm",
    "cpu_bound",
    "jain_ppm",
    "adapt_worst_ns",
    "never_adapted",
    "path_share_ppm",
    "hash",
];

/// The first line.
#[must_use]
pub fn head() -> String {
    line(COLUMNS.map(str::to_owned))
}

/// The line of a cell. What a cell does not have is empty.
#[must_use]
pub fn row(cell: &CellResult) -> String {
    let number = |value: u64| value.to_string();
    let some = |value: Option<u64>| value.map(number).unwrap_or_default();
    let sum = |of: fn(&JobResult) -> &Flow, what: fn(&Flow) -> u64| {
        number(cell.jobs.iter().map(|job| what(of(job))).fold(0, u64::saturating_add))
    };
    let (total, latency, submission) = (&cell.total, &cell.total.latency, &cell.submission);
    let submitted = !submission.buckets.is_empty();
    let never = cell.adaptations.iter().filter(|one| one.took_ns.is_none()).count();
    let worst = cell.adaptations.iter().filter_map(|one| one.took_ns).max();
    let share = |path: &PathResult| format!("{}={}", in_a_list(&path.name), path.share_ppm);
    let shares: Vec<String> = cell.paths.iter().map(share).collect();
    line([
        cell.scenario.clone(),
        cell.mode.to_string(),
        cell.variant.clone(),
        cell.policy.clone(),
        number(cell.run),
        number(cell.ramp_ns),
        number(cell.window_ns),
        number(cell.scale_permille.into()),
        some(cell.latency_window_ns),
        number(cell.limit.bytes_s),
        number(cell.limit.iops),
        cell.limit.bound.clone(),
        number(total.bytes_s),
        number(total.iops),
        number(total.requests),
        number(total.bytes),
        number(cell.errors),
        number(latency.mean_ns),
        number(latency.stdev_ns),
        number(latency.min_ns),
        number(latency.p50_ns),
        number(latency.p99_ns),
        number(latency.p999_ns),
        number(latency.max_ns),
        sum(|job| &job.read, |flow| flow.bytes),
        sum(|job| &job.read, |flow| flow.requests),
        sum(|job| &job.write, |flow| flow.bytes),
        sum(|job| &job.write, |flow| flow.requests),
        sum(|job| &job.trim, |flow| flow.bytes),
        sum(|job| &job.trim, |flow| flow.requests),
        some(submitted.then_some(submission.mean_ns)),
        some(submitted.then_some(submission.p50_ns)),
        some(submitted.then_some(submission.p99_ns)),
        some(submitted.then_some(submission.p999_ns)),
        some(submitted.then_some(submission.max_ns)),
        some(cell.cpu.map(|cpu| cpu.user_ns)),
        some(cell.cpu.map(|cpu| cpu.system_ns)),
        some(cell.cpu.map(|cpu| cpu.idle_ppm)),
        cell.cpu_bound.to_string(),
        number(cell.jain_ppm),
        some(worst),
        number(never as u64),
        shares.join(";"),
        cell.hash.clone(),
    ])
}

fn line(fields: [String; COLUMNS.len()]) -> String {
    fields.map(|field| quoted(&field)).join(",") + "\r\n"
}

/// A name in a field that lists several: what parts them is `%` and two digits, as in a slug.
fn in_a_list(name: &str) -> String {
    name.replace('%', "%25").replace(';', "%3B").replace('=', "%3D")
}

/// In quotation marks, where it must be.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\r', '\n']) {
        return format!("\"{}\"", field.replace('"', "\"\""));
    }
    field.to_owned()
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, head, quoted, row};
    use crate::result::tests;

    #[test]
    fn a_line_has_a_field_for_each_column() {
        let mut cell = tests::result(&tests::scenario(), 1);
        cell.variant = "a \"b\", c".to_owned();
        let line = row(&cell);
        assert!(
            line.starts_with("small,light,\"a \"\"b\"\", c\",queue-depth,1,100000000,"),
            "{line}"
        );
        assert!(line.ends_with(&format!(",{}\r\n", cell.hash)));
        let plain = line.replace("\"a \"\"b\"\", c\"", "x");
        assert_eq!(plain.split(',').count(), COLUMNS.len());
        assert_eq!(head().trim_end().split(',').count(), COLUMNS.len());
        let place = COLUMNS.iter().position(|name| *name == "bytes_s").expect("a column");
        assert_eq!(plain.split(',').nth(place), Some(cell.total.bytes_s.to_string().as_str()));
        assert_eq!(quoted("a\nb"), "\"a\nb\"");
    }

    #[test]
    fn a_list_of_paths_can_be_taken_apart_whatever_they_are_called() {
        let mut cell = tests::result(&tests::scenario(), 1);
        cell.paths[0].name = "a;b=1%".to_owned();
        let (first, second) = (cell.paths[0].share_ppm, cell.paths[1].share_ppm);
        let list = format!(",a%3Bb%3D1%25={first};slow={second},");
        assert!(row(&cell).contains(&list), "{list} in {}", row(&cell));
    }
}
