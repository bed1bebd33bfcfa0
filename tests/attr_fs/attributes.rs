//! Every attribute through its file: what is shown, read, written and refused. The tables of the
//! host say which there are, so one that is added later is covered, or this test fails.

use crate::stand::{OBJECTS, Stand, errno};
use anabranch_host::attribute::{self, Attribute, Dir, ObjectKind};
use rustix::io::Errno;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

/// What may be written to an attribute, and what is refused. What is written is read again.
struct Row {
    object: ObjectKind,
    name: &'static str,
    /// The policy under which it shows something.
    under: &'static str,
    good: &'static [&'static str],
    bad: &'static [(&'static str, Errno)],
}

const fn row(
    object: ObjectKind,
    name: &'static str,
    good: &'static [&'static str],
    bad: &'static [(&'static str, Errno)],
) -> Row {
    Row { object, name, under: "queue-depth", good, bad }
}

const COUNTER: &[(&str, Errno)] = &[
    ("1", Errno::INVAL),
    ("-1", Errno::INVAL),
    ("", Errno::INVAL),
    ("4294967296", Errno::RANGE),
    ("99999999999999999999", Errno::RANGE),
];
const SECONDS: &[(&str, Errno)] = &[
    ("-2s", Errno::INVAL),
    ("soon", Errno::INVAL),
    ("1 s", Errno::INVAL),
    ("99999999999", Errno::INVAL),
];
const NOT_0: &[(&str, Errno)] = &[
    ("0", Errno::INVAL),
    ("-1", Errno::INVAL),
    ("x", Errno::INVAL),
    ("99999999999", Errno::RANGE),
];
const NOT_0_MS: &[(&str, Errno)] = &[
    ("0", Errno::INVAL),
    ("-1", Errno::INVAL),
    ("x", Errno::INVAL),
    ("9999999999999", Errno::RANGE),
];
const BOOL: &[(&str, Errno)] = &[("2", Errno::INVAL), ("-1", Errno::INVAL), ("yes", Errno::INVAL)];

use ObjectKind::{Controller as C, Head as H, Module as M, Path as P, Subsystem as S};

const ROWS: &[Row] = &[
    row(
        M,
        "iopolicy",
        &["numa", "latency", "queue-depth"],
        &[("q", Errno::INVAL), ("numa ", Errno::INVAL)],
    ),
    row(
        S,
        "iopolicy",
        &["numa", "round-robin", "queue-depth", "service-time", "latency"],
        &[("fastest", Errno::INVAL), ("Numa", Errno::INVAL), (" numa", Errno::INVAL)],
    ),
    row(S, "kernel_exact", &["1", "0"], BOOL),
    row(
        S,
        "queue_depth_scope",
        &["namespace", "queue-pair", "worker", "sum", "controller"],
        &[("host", Errno::INVAL)],
    ),
    row(
        S,
        "hst_base_weight",
        &["0", "1023", "972"],
        &[("1024", Errno::INVAL), ("-1", Errno::INVAL), ("4294967296", Errno::RANGE)],
    ),
    row(
        S,
        "hst_threshold_multiplier",
        &["2", "4294967295", "0"],
        &[("-1", Errno::INVAL), ("x", Errno::INVAL), ("4294967296", Errno::RANGE)],
    ),
    row(S, "finish_time_tail", &["1", "0"], BOOL),
    row(S, "finish_time_compete", &["1", "0"], BOOL),
    row(S, "finish_time_probes", &["0", "1"], BOOL),
    row(C, "reconnect_delay", &["2", "0.5", "10"], NOT_0),
    row(C, "ctrl_loss_tmo", &["off", "1", "600"], SECONDS),
    row(C, "fast_io_fail_tmo", &["5", "off"], SECONDS),
    row(C, "io_timeout", &["7000", "30000"], NOT_0_MS),
    row(C, "admin_timeout", &["7000", "60000"], NOT_0_MS),
    row(
        H,
        "delayed_removal_secs",
        &["17", "4294967295", "0"],
        &[("-1", Errno::INVAL), ("1s", Errno::INVAL), ("4294967296", Errno::RANGE)],
    ),
    row(H, "io_requeue_no_usable_path_count", &["0"], COUNTER),
    row(H, "io_fail_no_available_path_count", &["0"], COUNTER),
    row(
        H,
        "latency_ewma_shift",
        &["0", "8", "3"],
        &[("9", Errno::INVAL), ("256", Errno::INVAL), ("4294967296", Errno::RANGE)],
    ),
    row(
        H,
        "latency_batch_timeout",
        &["0", "250ms", "50us", "4294967295", "15"],
        &[("-1", Errno::INVAL), ("1h", Errno::INVAL), ("4294967296", Errno::RANGE)],
    ),
    row(H, "latency_size_buckets", &["1", "0"], BOOL),
    row(H, "latency_per_node", &["1", "0"], BOOL),
    row(H, "latency_ignore_ana", &["1", "0"], BOOL),
    row(
        H,
        "explain_sample",
        &["0", "1", "64"],
        &[("-1", Errno::INVAL), ("all", Errno::INVAL), ("4294967296", Errno::RANGE)],
    ),
    Row {
        object: P,
        name: "relative_throughput",
        under: "service-time",
        good: &["0", "100", "4", "1"],
        bad: &[("101", Errno::INVAL), ("-1", Errno::INVAL), ("4294967296", Errno::RANGE)],
    },
    row(
        P,
        "io_affinity",
        &["3", "2", "1"],
        &[("0", Errno::INVAL), ("0x1", Errno::INVAL), ("80000000", Errno::RANGE)],
    ),
    row(C, "reset_count", &["0"], COUNTER),
    row(C, "reconnect_count", &["0"], COUNTER),
    row(C, "command_error_count", &["0"], COUNTER),
    row(P, "multipath_failover_count", &["0"], COUNTER),
    row(P, "command_error_count", &["0"], COUNTER),
    row(P, "command_retries_count", &["0"], COUNTER),
    row(P, "command_retry_count", &["0"], COUNTER),
];

fn row_of(attribute: &Attribute) -> &'static Row {
    let is_it = |row: &&Row| row.object == attribute.object && row.name == attribute.name;
    ROWS.iter().find(is_it).unwrap_or_else(|| {
        panic!("{} of {} can be written and has no row in ROWS", attribute.name, attribute.object)
    })
}

/// What `cat` shows of a text.
fn as_file(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

#[test]
fn every_attribute_is_a_file_with_its_text_and_mode_exactly_when_it_is_shown() {
    let Some(stand) = Stand::new() else { return };
    for policy in ["queue-depth", "numa", "service-time", "round-robin", "latency"] {
        stand.write("class/nvme-subsystem/nvme-subsys0/iopolicy", policy).expect("a policy");
        for (kind, object) in OBJECTS {
            let of_kind = attribute::all().filter(|attribute| attribute.object == kind);
            for attribute in of_kind.filter(|attribute| attribute.is_readable()) {
                let (file, name) = (stand.file(object, attribute), attribute.name);
                let Some(text) = stand.get(object, name) else {
                    assert_eq!(errno(fs::symlink_metadata(&file)), Errno::NOENT.raw_os_error());
                    continue;
                };
                let shown = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert_eq!(shown, as_file(&text), "{object} {name} under {policy}");
                let metadata = fs::metadata(&file).expect("it is there");
                let mode = metadata.permissions().mode() & 0o7777;
                let length = if attribute.dir == Dir::Debug { 0 } else { 4096 };
                assert_eq!((mode, metadata.len()), (u32::from(attribute.mode()), length), "{name}");
            }
        }
    }
    stand.finish();
}

#[test]
fn every_attribute_that_can_be_written_takes_what_is_right_and_refuses_the_rest() {
    let Some(stand) = Stand::new() else { return };
    let policy = "class/nvme-subsystem/nvme-subsys0/iopolicy";
    for (kind, object) in OBJECTS {
        let of_kind = attribute::all().filter(|entry| entry.object == kind && entry.is_readable());
        for attribute in of_kind.filter(|entry| entry.is_writable()) {
            let (row, file) = (row_of(attribute), stand.file(object, attribute));
            let of = format!("{object} {}", row.name);
            stand.write(policy, row.under).expect("a policy");
            let mut shown = fs::read_to_string(&file).expect("it reads");
            for value in row.good {
                // As `echo` and `echo -n` do.
                for text in [format!("{value}\n"), (*value).to_owned()] {
                    fs::write(&file, &text).unwrap_or_else(|e| panic!("{of} {text:?}: {e}"));
                    shown = fs::read_to_string(&file).expect("it reads");
                    assert_eq!(shown, format!("{value}\n"), "{of}");
                }
            }
            let refused = |bytes: &[u8], wanted: Errno| {
                let mut opened = OpenOptions::new().write(true).open(&file).expect("it opens");
                if bytes.is_empty() {
                    return;
                }
                let error = errno(opened.write(bytes));
                let text = String::from_utf8_lossy(&bytes[..bytes.len().min(30)]);
                assert_eq!(error, wanted.raw_os_error(), "{of} {text:?}");
                assert_eq!(fs::read_to_string(&file).expect("it reads"), shown, "{of} stays");
            };
            for (value, wanted) in row.bad {
                refused(value.as_bytes(), *wanted);
            }
            refused(b"\xff\xfe", Errno::INVAL);
            refused(b"\n", Errno::INVAL);
            refused(&vec![b'x'; 1 << 20], Errno::INVAL);
        }
    }
    stand.finish();
}

#[test]
fn what_only_reads_is_refused_to_writers_even_if_they_are_root() {
    let Some(stand) = Stand::new() else { return };
    for (kind, object) in OBJECTS {
        let of_kind = attribute::all().filter(|entry| entry.object == kind);
        for attribute in of_kind.filter(|entry| !entry.is_writable()) {
            if stand.get(object, attribute.name).is_none() {
                continue;
            }
            let file = stand.file(object, attribute);
            let opened = OpenOptions::new().write(true).open(&file);
            // Root passes debugfs's modes; the write is refused.
            let (error, wanted) = match opened {
                Ok(mut file) if attribute.dir == Dir::Debug => {
                    (errno(file.write(b"1")), Errno::PERM)
                }
                opened => (errno(opened), Errno::ACCESS),
            };
            assert_eq!(error, wanted.raw_os_error(), "{object} {}", attribute.name);
        }
    }
    stand.finish();
}

#[test]
fn rows_name_attributes_that_exist() {
    for row in ROWS {
        let is_it = |entry: &&Attribute| entry.object == row.object && entry.name == row.name;
        let found = attribute::all().find(is_it);
        assert!(found.is_some_and(Attribute::is_writable), "{} of {}", row.name, row.object);
    }
}
