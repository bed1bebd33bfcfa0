//! `top` without a terminal and without a host: what is drawn from fixed looks, at which width, and
//! what the difference of two looks is when things change in between.

use anabranch::daemon::top::{Estimates, TopView};
use anabranch::daemon::view::{ControllerView, HeadView, HostView, PathView, SubsystemView};
use anabranch::top::frame::{Count, Frame};
use anabranch::top::keys::{Key, Keys};
use anabranch::top::screen::{Around, Canvas, HELP, plain, screen};
use anabranch::top::state::{Action, Sort, State};
use anabranch::top::terminal::paint;
use anabranch::top::text::{self, Bars, Line, Look};
use anabranch::top::utf8;
use anabranch_policy::{Histogram, SizeClass};
use serde_json::json;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

/// Positions of so many commands of such a latency.
fn took(latencies: &[(u64, u32)]) -> Vec<(u16, u64)> {
    let mut histogram = Histogram::new();
    for &(ns, count) in latencies {
        (0..count).for_each(|_| histogram.record(ns));
    }
    histogram.positions().collect()
}

fn path(number: u32, commands: u64, bytes: u64) -> PathView {
    PathView {
        name: format!("nvme0c{number}n1"),
        controller: format!("nvme{number}"),
        ana_state: "optimized".into(),
        ana_group: 1,
        usable: true,
        commands: [commands, 0, 0],
        bytes: [bytes, 0],
        ..PathView::default()
    }
}

fn controller(number: u32) -> ControllerView {
    ControllerView {
        name: format!("nvme{number}"),
        traddr: "10.0.0.1".into(),
        trsvcid: (4420 + number).to_string(),
        state: "live".into(),
        ..ControllerView::default()
    }
}

/// A host with one device under this policy.
fn look(at_s: u64, iopolicy: &str, paths: Vec<PathView>) -> TopView {
    let sum = |of: fn(&PathView) -> u64| paths.iter().map(of).sum();
    let head = HeadView {
        name: "nvme0n1".into(),
        nsid: 1,
        blocks: 1 << 18,
        block_bytes: 4096,
        requests: [sum(|path| path.commands[0]), sum(|path| path.commands[1]), 0],
        bytes: [sum(|path| path.bytes[0]), sum(|path| path.bytes[1])],
        in_flight: sum(|path| path.in_flight),
        paths,
        ..HeadView::default()
    };
    let subsystem = SubsystemView {
        name: "nvme-subsys0".into(),
        nqn: "nqn.2026-01.org.example:a".into(),
        iopolicy: iopolicy.into(),
        iopolicy_set_by: "attribute".into(),
        controllers: (0..4).map(controller).collect(),
        heads: vec![head],
        ..SubsystemView::default()
    };
    TopView {
        instance: "a".into(),
        uptime_ns: at_s * SECOND,
        clients: 1,
        host: HostView {
            at_ns: at_s * SECOND,
            data_workers: 2,
            subsystems: vec![subsystem],
            ..HostView::default()
        },
        ..TopView::default()
    }
}

fn head(view: &mut TopView) -> &mut HeadView {
    &mut view.host.subsystems[0].heads[0]
}

/// Four times as much on the first path as on the second; two seconds.
fn busy(iopolicy: &str) -> Frame {
    let before = look(3600, iopolicy, vec![path(0, 500, MIB), path(1, 70, MIB)]);
    let mut fast = path(0, 500 + 5420, 161 * MIB);
    (fast.bytes[1], fast.commands[1]) = (40 * MIB, 80);
    (fast.in_flight, fast.in_flight_bytes, fast.queue_depth) = (12, 655_360, 12);
    (fast.relative_throughput, fast.latency_weights) = (4, Some([128, 96, 0]));
    let mut slow = path(1, 70 + 1200, 51 * MIB);
    (slow.in_flight, slow.in_flight_bytes, slow.queue_depth) = (3, 131_072, 3);
    (slow.relative_throughput, slow.latency_weights) = (1, Some([31, 0, 0]));
    (slow.failovers, slow.errors) = (9, 2);
    (slow.probes, slow.probe_bytes) = (17, 17 * 4096);
    slow.ana_state = "non-optimized".into();
    let mut now = look(3602, iopolicy, vec![fast, slow]);
    head(&mut now).requeued_no_usable_path = 5;
    let took = [
        ("nvme0n1", took(&[(800_000, 6000), (14_000_000, 700)])),
        ("nvme0c0n1", took(&[(800_000, 5400), (1_300_000, 100)])),
        ("nvme0c1n1", took(&[(14_000_000, 1200)])),
    ];
    now.latencies = took.map(|(name, took)| (name.to_owned(), took)).into();
    if iopolicy == "finish-time" {
        let mut estimates = Estimates {
            rate_bytes_per_s: 100 * MIB,
            in_flight_bytes: 700_000,
            read_base_ns: vec![0; SizeClass::COUNT],
            write_base_ns: vec![0; SizeClass::COUNT],
            finish_ns: 910_000,
            standing_ns: 120_000,
            ..Estimates::default()
        };
        (estimates.read_base_ns[0], estimates.read_base_ns[5]) = (87_000, 450_000);
        now.estimates.insert("nvme0c0n1".to_owned(), estimates.clone());
        (estimates.read_base_ns[0], estimates.write_base_ns[0]) = (0, 230_000);
        (estimates.read_base_ns[5], estimates.silent_ns) = (0, 70_000_000);
        now.estimates.insert("nvme0c1n1".to_owned(), estimates);
    }
    Frame::new(&now, Some(&before))
}

fn check(got: &str, expected: &str) {
    assert!(got == expected, "got\n{got}\nexpected\n{expected}");
}

fn drawn(frame: &Frame, state: &mut State, width: usize, height: usize) -> Vec<String> {
    let canvas = Canvas { width, height, bars: Bars::Ascii };
    let lines = screen(Some(frame), state, Around::default(), canvas);
    assert_eq!(lines.len(), height);
    for line in &lines {
        assert!(line.width() <= width, "{} columns: {}", line.width(), line.plain());
    }
    lines.iter().map(Line::plain).collect()
}

#[test]
fn eighty_columns_keep_what_matters_most() {
    let expected = include_str!("top_frames/80.txt");
    check(&plain(&busy("service-time"), None, 80, Bars::Ascii), expected);
}

#[test]
fn a_hundred_and_twenty_columns_have_more() {
    let expected = include_str!("top_frames/120.txt");
    check(&plain(&busy("latency"), None, 120, Bars::Ascii), expected);
}

#[test]
fn two_hundred_columns_have_everything() {
    let expected = include_str!("top_frames/200.txt");
    check(&plain(&busy("finish-time"), None, 200, Bars::Blocks), expected);
}

#[test]
fn without_a_look_before_nothing_is_known_about_the_time_between() {
    let frame = Frame::new(&look(10, "queue-depth", vec![path(0, 500, MIB)]), None);
    assert_eq!((frame.interval_ns, frame.restarted), (None, false));
    let flow = &frame.heads[0].paths[0].flow;
    assert_eq!((flow.iops, flow.read_bytes_per_s, flow.p99_ns), (None, None, None));
    assert_eq!(frame.heads[0].paths[0].share, None);
    // Two looks at the same moment are no better.
    let same = look(10, "queue-depth", vec![path(0, 900, MIB)]);
    assert_eq!(Frame::new(&same, Some(&same)).total.iops, None);
}

#[test]
fn percentiles_are_those_of_the_interval() {
    let mut before = look(10, "numa", vec![path(0, 1_000_000, 0)]);
    let mut now = look(11, "numa", vec![path(0, 1_000_100, 0)]);
    let name = || "nvme0c0n1".to_owned();
    before.latencies.insert(name(), took(&[(100_000, 1_000_000)]));
    now.latencies.insert(name(), took(&[(100_000, 1_000_050), (9_000_000, 50)]));
    let frame = Frame::new(&now, Some(&before));
    let flow = &frame.heads[0].paths[0].flow;
    let close = |got: Option<u64>, ns: u64| got.is_some_and(|got| got.abs_diff(ns) * 33 < ns);
    assert!(close(flow.p50_ns, 100_000) && close(flow.p99_ns, 9_000_000), "{flow:?}");
    // Nothing ended: nothing is known.
    let idle = Frame::new(
        &TopView { host: look(12, "numa", vec![path(0, 1_000_100, 0)]).host, ..now.clone() },
        Some(&now),
    );
    let flow = &idle.heads[0].paths[0].flow;
    assert_eq!((flow.iops, flow.p50_ns, flow.p99_ns), (Some(0.0), None, None));
}

#[test]
fn percentiles_of_all_devices_are_those_of_all_their_requests() {
    let two = |at_s, requests| {
        let mut look = look(at_s, "numa", vec![path(0, requests, 0)]);
        let subsystem = &mut look.host.subsystems[0];
        subsystem.heads.push(HeadView { name: "nvme0n2".into(), ..subsystem.heads[0].clone() });
        look
    };
    let (mut before, mut now) = (two(10, 1000), two(11, 2000));
    before.latencies.insert("nvme0n1".into(), took(&[(5_000_000, 1000)]));
    now.latencies.insert("nvme0n1".into(), took(&[(5_000_000, 1000), (100_000, 990)]));
    now.latencies.insert("nvme0n2".into(), took(&[(9_000_000, 20)]));
    let total = Frame::new(&now, Some(&before)).total;
    let close = |got: Option<u64>, ns: u64| got.is_some_and(|got| got.abs_diff(ns) * 33 < ns);
    assert!(close(total.p50_ns, 100_000) && close(total.p99_ns, 9_000_000), "{total:?}");
    // Of one device: its own, in the line above the table, too.
    let one = Frame::of(Some("nvme0n2"), &now, Some(&before));
    assert_eq!(one.heads.iter().map(|head| head.device.as_str()).collect::<Vec<_>>(), ["nvme0n2"]);
    assert_eq!(one.total, one.heads[0].flow);
    assert!(close(one.total.p50_ns, 9_000_000), "{one:?}");
}

#[test]
fn a_path_that_left_is_named_once() {
    let before = look(10, "round-robin", vec![path(0, 10, MIB), path(1, 10, MIB)]);
    let now = look(11, "round-robin", vec![path(0, 20, 2 * MIB)]);
    let frame = Frame::new(&now, Some(&before));
    let paths = &frame.heads[0].paths;
    assert_eq!(paths.len(), 2);
    assert_eq!((paths[1].path.as_str(), paths[1].left), ("nvme0c1n1", true));
    assert_eq!(paths[0].share, Some(1.0));
    let text = plain(&frame, None, 80, Bars::Ascii);
    assert!(text.contains(" nvme0c1n1 left\n"), "{text}");
    assert!(text.contains("1 device, 1 path "), "{text}");
    assert_eq!(Frame::new(&now, Some(&now)).heads[0].paths.len(), 1);
}

#[test]
fn a_path_that_came_back_counts_from_its_return() {
    let mut before = look(10, "round-robin", vec![path(0, 5000, 50 * MIB)]);
    let mut again = path(0, 100, MIB);
    (again.id, again.retries) = (7, 3);
    let mut now = look(11, "round-robin", vec![again, path(1, 300, 3 * MIB)]);
    let name = || "nvme0c0n1".to_owned();
    before.latencies.insert(name(), took(&[(1_000_000, 5000)]));
    now.latencies.insert(name(), took(&[(1_000_000, 100)]));
    let frame = Frame::new(&now, Some(&before));
    let paths = &frame.heads[0].paths;
    assert_eq!((paths[0].flow.iops, paths[1].flow.iops), (Some(100.0), Some(300.0)));
    assert_eq!(paths[0].flow.retries, Count { total: 3, new: 3 });
    assert_eq!(paths[1].share, Some(0.75));
    assert!(paths[0].flow.p50_ns.is_some());
}

#[test]
fn a_path_that_came_back_and_did_more_than_before_counts_from_its_return() {
    let before = look(10, "round-robin", vec![path(0, 40, MIB)]);
    let mut again = path(0, 100, 2 * MIB);
    again.id = 7;
    let frame = Frame::new(&look(11, "round-robin", vec![again]), Some(&before));
    assert_eq!(frame.heads[0].paths.len(), 1);
    assert_eq!(frame.heads[0].paths[0].flow.iops, Some(100.0));
}

#[test]
fn a_host_that_was_restarted_begins_anew() {
    let before = look(1000, "queue-depth", vec![path(0, 5000, 50 * MIB)]);
    let mut now = look(2, "queue-depth", vec![path(0, 9000, 90 * MIB)]);
    now.instance = "b".into();
    let frame = Frame::new(&now, Some(&before));
    assert!(frame.restarted && frame.interval_ns.is_none());
    assert_eq!(frame.heads[0].paths[0].flow.iops, None);
    assert_eq!(frame.heads[0].flow.errors, Count::default());
    let text = plain(&frame, None, 120, Bars::Ascii);
    assert!(text.contains("restarted"), "{text}");
    let mut later = look(3, "queue-depth", vec![path(0, 9500, 95 * MIB)]);
    later.instance = "b".into();
    let frame = Frame::new(&later, Some(&now));
    assert!(!frame.restarted);
    assert_eq!(frame.total.iops, Some(500.0));
}

#[test]
fn states_say_what_is_wrong() {
    let mut down = path(1, 0, 0);
    (down.usable, down.ana_state) = (false, "optimized".into());
    let mut inaccessible = path(2, 0, 0);
    (inaccessible.usable, inaccessible.ana_state) = (false, "inaccessible".into());
    let mut small = path(3, 0, 0);
    (small.usable, small.hindrance) = (false, Some("size-differs".into()));
    let mut now = look(11, "numa", vec![path(0, 0, 0), down, inaccessible, small]);
    now.host.subsystems[0].controllers[1].state = "connecting".into();
    now.host.subsystems[0].heads[0].frozen = 1;
    let frame = Frame::new(&now, None);
    let text = plain(&frame, None, 80, Bars::Ascii);
    for words in [
        "nvme0c0n1 optimized ",
        "nvme0c1n1 connecting ",
        "nvme0c2n1 inaccessible ",
        "nvme0c3n1 size differs ",
        " GiB, frozen",
        "4 paths (3 not usable)",
    ] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
}

#[test]
fn json_is_the_frame() {
    let frame = json!(busy("service-time"));
    assert_eq!(frame["schema"], 1);
    assert_eq!(frame["interval_ns"], 2 * SECOND);
    assert_eq!(frame["total"]["iops"], 3350.0);
    let head = &frame["heads"][0];
    assert_eq!((&head["device"], &head["iops"]), (&json!("nvme0n1"), &json!(3350.0)));
    assert_eq!(head["requeued"], json!({ "total": 5, "new": 5 }));
    let path = &head["paths"][0];
    assert_eq!(path["share"], 0.8);
    assert_eq!(path["read_bytes_per_s"], 80.0 * MIB as f64);
    assert_eq!(path["in_flight_bytes"], 655_360);
    assert_eq!(path["weights"]["relative_throughput"], 4);
    assert_eq!(path["weights"]["queue_depth"], json!(null));
    assert!(path["p99_ns"].is_u64());
}

#[test]
fn no_size_of_a_terminal_is_too_small_or_too_large() {
    let frame = busy("finish-time");
    for width in [1, 2, 10, 39, 79, 80, 99, 100, 200, 500] {
        for height in [1, 2, 3, 4, 24, 200] {
            let mut state = State::new(Duration::from_secs(1));
            state.details = true;
            drawn(&frame, &mut state, width, height);
            state.help = true;
            drawn(&frame, &mut state, width, height);
        }
    }
}

#[test]
fn help_fits_the_smallest_usual_terminal() {
    let lines: Vec<&str> = HELP.lines().collect();
    let canvas = Canvas { width: 80, height: 24, bars: Bars::Ascii };
    assert!(lines.len() <= canvas.page(), "{} lines", lines.len());
    assert!(lines.iter().all(|line| line.len() <= canvas.width));
    let mut state = State::new(Duration::from_secs(1));
    let frame = busy("latency");
    assert_eq!(state.press(Key::Char('?'), Some(&frame), 20), Action::Draw);
    let shown = drawn(&frame, &mut state, 80, 24);
    assert_eq!(shown[3], lines[0]);
    assert_eq!(state.press(Key::Char('q'), Some(&frame), 21), Action::Draw);
    assert!(!state.help);
}

#[test]
fn details_tell_the_rest() {
    let frame = busy("finish-time");
    let mut state = State::new(Duration::from_secs(2));
    state.press(Key::Enter, Some(&frame), 21);
    let shown = drawn(&frame, &mut state, 80, 24).join("\n");
    for words in [
        "nqn.2026-01.org.example:a",
        "through nvme0 10.0.0.1:4420 live, ANA group 1 optimized",
        "since it joined 5920 reads 161 MiB, 80 writes 40 MiB, 0 others, 0 failed,",
        "base latency of a read <=4k 87us, 128k 450us",
        "base latency of a write <=4k 230us",
        "sent 17 probes of 68 KiB",
        "every 2.00s",
    ] {
        assert!(shown.contains(words), "{words} in\n{shown}");
    }
}

/// Ten devices with three paths each.
fn many() -> Frame {
    let mut frame = busy("numa");
    let one = frame.heads[0].clone();
    frame.heads = (1..=10)
        .map(|number| {
            let mut head = one.clone();
            head.device = format!("nvme0n{number}");
            head
        })
        .collect();
    frame
}

#[test]
fn the_selected_device_is_in_view() {
    let frame = many();
    let mut state = State::new(Duration::from_secs(1));
    let mut press = |key| {
        state.press(key, Some(&frame), 21);
        drawn(&frame, &mut state, 80, 24)
    };
    let marked = |shown: &[String]| {
        let mut marked = shown.iter().filter_map(|line| line.strip_prefix('>'));
        marked.next().and_then(|line| line.split(' ').next()).map(str::to_owned)
    };
    assert_eq!(marked(&press(Key::Char('k'))).as_deref(), Some("nvme0n1"));
    assert_eq!(marked(&press(Key::Char('j'))).as_deref(), Some("nvme0n2"));
    let shown = press(Key::End);
    assert_eq!(marked(&shown).as_deref(), Some("nvme0n10"));
    assert!(shown[23].contains("30 lines above, 0 below"), "{}", shown[23]);
    assert_eq!(marked(&press(Key::Up)).as_deref(), Some("nvme0n9"));
    assert_eq!(marked(&press(Key::Home)).as_deref(), Some("nvme0n1"));
    // Scrolling leaves the selection, and stops at the end.
    for _ in 0..5 {
        press(Key::PageDown);
    }
    let shown = press(Key::PageDown);
    assert!(shown[23].contains("0 below") && marked(&shown).is_none(), "{}", shown[23]);
    assert_eq!(marked(&press(Key::Down)).as_deref(), Some("nvme0n2"));
}

#[test]
fn a_device_that_went_leaves_the_selection_to_the_first() {
    let frame = many();
    let mut state = State::new(Duration::from_secs(1));
    state.press(Key::End, Some(&frame), 21);
    assert_eq!(state.selected_in(&frame), 9);
    assert_eq!(state.selected_in(&busy("numa")), 0);
}

#[test]
fn keys_sort_paths() {
    let frame = busy("service-time");
    let order = |sort: Sort, reverse| -> Vec<&str> {
        let sorted = sort.sorted(&frame.heads[0].paths, reverse);
        sorted.iter().map(|path| path.path.as_str()).collect()
    };
    let (fast, slow) = ("nvme0c0n1", "nvme0c1n1");
    for sort in [Sort::List, Sort::Share, Sort::Iops, Sort::Bandwidth, Sort::InFlight] {
        assert_eq!(order(sort, false), [fast, slow], "{sort:?}");
        assert_eq!(order(sort, true), [slow, fast], "{sort:?}");
    }
    assert_eq!(order(Sort::Latency, false), [slow, fast]);
    let mut state = State::new(Duration::from_secs(1));
    for (key, sort) in [('S', Sort::Share), ('L', Sort::Latency), ('N', Sort::List)] {
        state.press(Key::Char(key), Some(&frame), 21);
        assert_eq!(state.sort, sort);
    }
}

#[test]
fn keys_change_delay_pause_and_end() {
    let mut state = State::new(Duration::from_secs(1));
    let mut press = |keys: &[Key]| {
        let actions = keys.iter().map(|key| state.press(*key, None, 21));
        let last = actions.last().expect("a key");
        (last, state.delay, state.paused, state.complaint.clone())
    };
    let delay = Duration::from_millis;
    let typed = [Key::Char('d'), Key::Char('0'), Key::Char('.'), Key::Char('5'), Key::Enter];
    assert_eq!(press(&typed), (Action::Draw, delay(500), false, None));
    let given_up = [Key::Char('s'), Key::Char('9'), Key::Backspace, Key::Char('7'), Key::Escape];
    assert_eq!(press(&given_up), (Action::Draw, delay(500), false, None));
    let (_, kept, _, complaint) = press(&[Key::Char('d'), Key::Char('0'), Key::Enter]);
    assert_eq!((kept, complaint.as_deref()), (delay(500), Some("use 100ms to 1h")));
    assert_eq!(press(&[Key::Char('p')]), (Action::Draw, delay(500), true, None));
    assert_eq!(press(&[Key::Char(' ')]).0, Action::Look);
    assert_eq!(press(&[Key::Suspend]).0, Action::Suspend);
    assert_eq!(press(&[Key::Char('q')]).0, Action::Quit);
    // Control-C ends it from anywhere.
    assert_eq!(press(&[Key::Char('d'), Key::Interrupt]).0, Action::Quit);
}

#[test]
fn bytes_of_a_terminal_are_keys() {
    let mut keys = Keys::default();
    assert_eq!(keys.feed(b"q \r"), [Key::Char('q'), Key::Char(' '), Key::Enter]);
    assert_eq!(
        keys.feed(b"\x1b[A\x1bOB\x1b[5~\x1b[6~"),
        [Key::Up, Key::Down, Key::PageUp, Key::PageDown]
    );
    assert_eq!(keys.feed(b"\x1b"), [Key::Escape]);
    // In pieces.
    assert_eq!(keys.feed(b"\x1b[1"), []);
    assert_eq!(keys.feed(b"~j"), [Key::Home, Key::Char('j')]);
    assert_eq!(keys.feed("\u{e4}".as_bytes()), [Key::Other, Key::Other]);
    // What never ends is no key, and nothing is kept for ever.
    assert_eq!(keys.feed(&[b"\x1b[".as_slice(), &[b'1'; 1000]].concat()), [Key::Other]);
    assert_eq!(keys.feed(b"q"), [Key::Char('q')]);
}

#[test]
fn colours_only_when_wanted() {
    let mut line = Line::new(Look::Alarm, "down");
    line.push(Look::Plain, " up");
    assert_eq!(paint(&[line.clone()], true), "\x1b[H\x1b[J\x1b[31mdown\x1b[0m up");
    assert_eq!(paint(&[line], false), "\x1b[H\x1b[J\x1b[1mdown\x1b[0m up");
}

/// Behind a line that is full the cursor stands on its last character: what is erased from there on
/// takes that along.
#[test]
fn a_line_as_wide_as_the_terminal_keeps_its_last_character() {
    let lines = ["12345678", "abcdefgh", "ABCDEFGH"].map(|text| Line::new(Look::Plain, text));
    let drawn = paint(&lines, true);
    assert_eq!(drawn, "\x1b[H\x1b[K12345678\r\n\x1b[Kabcdefgh\r\n\x1b[JABCDEFGH");
}

#[test]
fn bars_follow_the_locale() {
    assert_eq!(text::bar(0.5, 5, Bars::Blocks), "██▌  ");
    assert_eq!(text::bar(0.5, 4, Bars::Ascii), "##  ");
    assert_eq!(text::bar(0.001, 4, Bars::Ascii), "#   ");
    assert_eq!(text::bar(0.0, 4, Bars::Blocks), "    ");
    assert_eq!(text::bar(7.0, 2, Bars::Blocks), "██");
    let locale = |variables: &[(&str, &str)]| {
        let of = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        utf8(&of)
    };
    assert!(locale(&[("LANG", "en_GB.UTF-8")]));
    assert!(locale(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8"), ("LANG", "C")]));
    assert!(!locale(&[("LC_ALL", "C"), ("LANG", "en_GB.UTF-8")]));
    assert!(!locale(&[]));
}

#[test]
fn numbers_stay_short() {
    assert_eq!(
        [0.0, 99_999.0, 123_456.0, 4_560_000.0].map(text::count),
        ["0", "99999", "123k", "4.56M"]
    );
    assert_eq!(
        [0, 512, 65_536, 1_600_000, 1 << 40].map(text::bytes),
        ["0", "512", "64k", "1.5M", "1T"]
    );
    assert_eq!([1 << 30, 100, 3 << 29].map(text::size), ["1 GiB", "100 B", "1.5 GiB"]);
    assert_eq!(
        [0, 999, 8_700, 87_000, 1_420_000, 12_000_000_000].map(text::time),
        ["0ns", "999ns", "8.7us", "87us", "1.42ms", "12.0s"]
    );
    assert_eq!(text::uptime(252 * SECOND), "0:04:12");
    assert_eq!(text::uptime(274_209 * SECOND), "3 d 04:10:09");
    assert_eq!(text::mib(1.5 * MIB as f64), "1.5");
}

#[test]
fn nothing_of_others_making_controls_the_terminal() {
    let mut now = look(11, "numa", vec![path(0, 0, 0)]);
    now.host.subsystems[0].controllers[0].last_error = Some("\x1b]0;owned\x07 \u{202e}x".into());
    now.host.subsystems[0].nqn = "nqn.2026-01.x:\u{9b}2J\n".into();
    let mut state = State::new(Duration::from_secs(1));
    state.details = true;
    let shown = drawn(&Frame::new(&now, None), &mut state, 80, 24);
    let shown = shown.join("");
    assert!(shown.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{shown:?}");
    assert!(shown.contains("?]0;owned? ?x"), "{shown}");
}

#[test]
fn a_rate_may_be_the_least_and_what_is_not_known_is_no_zero() {
    let before = look(10, "finish-time", vec![path(0, 0, 0), path(1, 0, 0)]);
    let mut now = look(11, "finish-time", vec![path(0, 0, 0), path(1, 100, 100 * 4096)]);
    let idle =
        Estimates { rate_bytes_per_s: 400 << 10, rate_is_least: true, ..Estimates::default() };
    now.estimates.insert("nvme0c0n1".to_owned(), Estimates::default());
    now.estimates.insert("nvme0c1n1".to_owned(), idle);
    let text = plain(&Frame::new(&now, Some(&before)), None, 200, Bars::Ascii);
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("n1  optimized")).collect();
    assert!(!rows[0].contains("0ns") && rows[1].contains("0ns"), "{text}");
    assert!(rows[1].contains(" >0.4 "), "{text}");
}
