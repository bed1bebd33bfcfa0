//! From a frame and what the user has asked for to lines of a given size. Pure: tests draw with it.

use super::frame::{Flow, Frame, HeadFrame, PathFrame};
use super::state::{Sort, State};
use super::table;
use super::text::{self, Bars, Line, Look, tame};
use crate::daemon::view::stopped;
use anabranch_policy::SizeClass;

/// Where things are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canvas {
    /// Columns.
    pub width: usize,
    /// Lines.
    pub height: usize,
    /// How bars are drawn.
    pub bars: Bars,
}

/// Lines above the heads.
const ABOVE: usize = 3;
/// Lines below.
const BELOW: usize = 1;

/// What stands around the frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Around<'a> {
    /// The time of day, when it is to be shown.
    pub clock: Option<&'a str>,
    /// The host does not answer: why.
    pub lost: Option<&'a str>,
}

impl Canvas {
    /// Lines between what stands above and below.
    #[must_use]
    pub fn page(self) -> usize {
        self.height.saturating_sub(ABOVE + BELOW)
    }
}

/// The whole screen: exactly `height` lines, none wider than `width`. `state.scroll` is brought
/// into its range.
#[must_use]
pub fn screen(
    frame: Option<&Frame>,
    state: &mut State,
    around: Around<'_>,
    canvas: Canvas,
) -> Vec<Line> {
    let mut lines = match frame {
        Some(frame) => above(frame, around, Some(state)),
        None => vec![Line::new(Look::Bold, "anabranch top"), Line::default(), Line::default()],
    };
    lines.truncate(canvas.height);
    let (body, selected) = if state.help {
        (help(), 0..1)
    } else {
        frame.map_or((Vec::new(), 0..1), |frame| body(frame, state, canvas))
    };
    let page = canvas.page();
    if state.follow {
        state.follow = false;
        state.scroll = state.scroll.max(selected.end.saturating_sub(page)).min(selected.start);
    }
    let hidden = body.len().saturating_sub(page);
    if !state.help {
        state.scroll = state.scroll.min(hidden);
    }
    let skip = if state.help { 0 } else { state.scroll };
    let more = (skip, body.len().saturating_sub(skip + page));
    lines.extend(body.into_iter().skip(skip).take(page));
    while lines.len() + BELOW < canvas.height {
        lines.push(Line::default());
    }
    if lines.len() < canvas.height {
        lines.push(below(state, around, more));
    }
    lines.into_iter().map(|line| line.clipped(canvas.width)).collect()
}

/// A frame as plain text, for those without a terminal.
#[must_use]
pub fn plain(frame: &Frame, clock: Option<&str>, width: usize, bars: Bars) -> String {
    let mut lines = above(frame, Around { clock, lost: None }, None);
    for head in &frame.heads {
        lines.push(Line::new(Look::Bold, title(head)));
        lines.extend(table::lines(head, (Sort::List, false), width, bars));
    }
    let lines = lines.into_iter().map(|line| line.clipped(width).plain() + "\n");
    lines.collect()
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// About the host as a whole.
fn above(frame: &Frame, around: Around<'_>, state: Option<&State>) -> Vec<Line> {
    let mut first = Line::new(Look::Bold, "anabranch top");
    let mut facts = String::from("  ");
    if let Some(clock) = around.clock {
        facts.push_str(&format!("{clock}, "));
    }
    facts.push_str(&format!(
        "up {}, {}, {}",
        text::uptime(frame.uptime_ns),
        plural(frame.data_workers.into(), "worker"),
        plural(frame.clients, "client"),
    ));
    if let Some(state) = state {
        facts.push_str(&format!(", every {}", delay(state)));
    } else if let Some(interval) = frame.interval_ns {
        facts.push_str(&format!(", over {}", text::time(interval)));
    }
    first.push(Look::Plain, facts);
    let paths = frame.heads.iter().flat_map(|head| &head.paths).filter(|path| !path.left);
    let unusable = paths.clone().filter(|path| !path.usable).count();
    let mut second = Line::default();
    second.push(
        Look::Plain,
        format!("{}, {}", plural(frame.heads.len(), "device"), plural(paths.count(), "path")),
    );
    if unusable > 0 {
        second.push(Look::Alarm, format!(" ({unusable} not usable)"));
    }
    let rate = |value: Option<f64>, text: fn(f64) -> String| {
        value.map_or_else(|| text::NOTHING.to_owned(), text)
    };
    let total = &frame.total;
    second.push(
        Look::Plain,
        format!(
            "  {} in flight, {} IOPS, {} + {} MiB/s",
            total.in_flight,
            rate(total.iops, text::count),
            rate(total.read_bytes_per_s, text::mib),
            rate(total.written_bytes_per_s, text::mib),
        ),
    );
    let third = if frame.restarted {
        Line::new(Look::Alarm, "the host was restarted: counts began anew")
    } else {
        trouble(total)
    };
    vec![first, second, third]
}

/// What went wrong since the host started, and what of it is new.
fn trouble(total: &Flow) -> Line {
    let mut line = Line::default();
    for (what, count) in [
        ("failovers", total.failovers),
        ("retries", total.retries),
        ("requeued", total.requeued),
        ("failed for want of a path", total.failed),
        ("errors", total.errors),
    ] {
        let comma = if line.0.is_empty() { "" } else { ", " };
        line.push(Look::Plain, comma);
        let counted = table::counted(count);
        line.push(counted.look, format!("{} {what}", counted.text));
    }
    line
}

fn delay(state: &State) -> String {
    text::time(u64::try_from(state.delay.as_nanos()).unwrap_or(u64::MAX))
}

/// All heads, and the lines of the selected one.
fn body(frame: &Frame, state: &State, canvas: Canvas) -> (Vec<Line>, std::ops::Range<usize>) {
    if frame.heads.is_empty() {
        let text = "no device yet: 'anabranch connect' adds a path";
        return (vec![Line::default(), Line::new(Look::Plain, text)], 0..1);
    }
    let selected = state.selected_in(frame);
    let mut lines = Vec::new();
    let mut range = 0..1;
    for (at, head) in frame.heads.iter().enumerate() {
        let start = lines.len();
        let (mark, look) = if at == selected { ('>', Look::Selected) } else { (' ', Look::Bold) };
        let title = format!("{mark}{}", title(head));
        let blanks = canvas.width.saturating_sub(title.chars().count());
        lines.push(Line::new(look, title + &" ".repeat(blanks)));
        let sort = (state.sort, state.reverse);
        lines.extend(table::lines(head, sort, canvas.width, canvas.bars));
        if at == selected {
            if state.details {
                lines.extend(details(head, canvas.width));
            }
            range = start..lines.len();
        }
    }
    (lines, range)
}

/// About a head as a whole.
fn title(head: &HeadFrame) -> String {
    let set_by = match head.iopolicy_set_by.as_str() {
        "default" | "" => String::new(),
        by => format!(" (set by {by})"),
    };
    let stopped = stopped(head.quiesced, head.frozen);
    let stopped = stopped.map_or_else(String::new, |word| format!(", {word}"));
    format!(
        "{}  {}, {}{set_by}, nsid {}, {}{stopped}",
        tame(&head.device),
        tame(&head.subsystem),
        tame(&head.iopolicy),
        head.nsid,
        text::size(head.size_bytes)
    )
}

/// Everything else about a head's paths.
fn details(head: &HeadFrame, width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    wrap(&mut lines, "   subsystem", &[tame(&head.nqn)], width);
    for path in head.paths.iter().filter(|path| !path.left) {
        lines.push(Line::new(Look::Bold, format!("   {}", tame(&path.path))));
        path_details(&mut lines, path, width);
    }
    lines
}

fn path_details(lines: &mut Vec<Line>, path: &PathFrame, width: usize) {
    let group = match path.ana_group {
        0 => "no ANA".to_owned(),
        group => format!("ANA group {group} {}", tame(&path.ana_state)),
    };
    let controller =
        format!("{} {} {}", tame(&path.controller), tame(&path.address), path.controller_state);
    wrap(lines, "     through", &[controller, group], width);
    if let Some(error) = path.last_error.as_deref() {
        wrap(lines, "     last lost:", &[tame(error)], width);
    }
    let ([reads, writes, others], [read, written]) = path.since_joined;
    let flow = &path.flow;
    let joined = [
        format!("{reads} reads {}", text::size(read)),
        format!("{writes} writes {}", text::size(written)),
        format!("{others} others"),
        format!("{} failed", flow.errors.total),
        format!("{} retries", flow.retries.total),
        format!("{} failovers", flow.failovers.total),
        format!("{} uncertain writes sent again", path.uncertain_writes_resent),
    ];
    wrap(lines, "     since it joined", &joined, width);
    let Some(known) = &path.weights.finish_time else { return };
    for (what, base) in [("read", &known.read_base_ns), ("write", &known.write_base_ns)] {
        let by_size = SizeClass::all().zip(base).filter(|(_, ns)| **ns > 0);
        let by_size: Vec<String> =
            by_size.map(|(size, ns)| format!("{} {}", size.name(), text::time(*ns))).collect();
        if !by_size.is_empty() {
            wrap(lines, &format!("     base latency of a {what}"), &by_size, width);
        }
    }
    let sent = [
        format!("{} probes of {}", path.probes.total, text::size(path.probe_bytes)),
        format!("{} stuck reads again elsewhere", path.rescued),
    ];
    wrap(lines, "     sent", &sent, width);
}

/// Items behind a word, separated by commas, on as many lines as they take.
fn wrap(lines: &mut Vec<Line>, word: &str, items: &[String], width: usize) {
    let indent = word.len() - word.trim_start().len() + 2;
    let mut text = word.to_owned();
    let mut first = true;
    for (at, item) in items.iter().enumerate() {
        let comma = if at + 1 < items.len() { "," } else { "" };
        if !first && text.chars().count() + 1 + item.chars().count() + comma.len() > width {
            lines.push(Line::new(Look::Plain, std::mem::take(&mut text)));
            text.push_str(&" ".repeat(indent));
            text.push_str(item);
        } else {
            text.push(' ');
            text.push_str(item);
        }
        text.push_str(comma);
        first = false;
    }
    lines.push(Line::new(Look::Plain, text));
}

/// The line at the bottom.
fn below(state: &State, around: Around<'_>, (above, below): (usize, usize)) -> Line {
    if let Some(typed) = &state.prompt {
        return Line::new(Look::Bold, format!("Delay {}, new one: {typed}_", delay(state)));
    }
    if let Some(complaint) = &state.complaint {
        return Line::new(Look::Alarm, complaint.clone());
    }
    if let Some(lost) = around.lost {
        return Line::new(Look::Alarm, format!("waiting for the host: {}", tame(lost)));
    }
    if state.help {
        return Line::new(Look::Dim, "any key leads back");
    }
    let mut line = Line::default();
    if state.paused {
        line.push(Look::Alarm, "paused  ");
    }
    let order = if state.reverse { ", reversed" } else { "" };
    let mut text = format!("h help  q quit  by {}{order}", state.sort.name());
    if above + below > 0 {
        text.push_str(&format!("  {above} lines above, {below} below"));
    }
    line.push(Look::Dim, text);
    line
}

/// What keys and columns mean.
pub const HELP: &str = "\
\x20q quit   space look now   p pause   d delay   enter details   h this help
 arrows, j, k: other device   PgUp, PgDn: scroll   Home, End: first, last
 Paths by: N list  S share  I IOPS  B MiB/s  L p99  F in flight   R reversed

 State    of the controller unless it is live, else the ANA state
 Cmds     commands in flight; 'all': requests of the device
 Share    of the device's bytes in the interval (of commands if none moved)
 p50 p99  latency of what ended well in the interval
 Failov   left for another path; Failed: failed there; 7+2: two of nine are new
 Bytes    in flight: service-time per controller, finish-time per path
 Qdepth   queue-depth: commands that it compares
 Weight   service-time: as set; latency: as measured, reads/writes
 Finish   finish-time: when a read of 4 KiB would be done
 Rate     finish-time: MiB/s, with > at least so much; Base: latency without
          queue; Standing: queue that never empties
 - is not known. Rates and percentiles are those between two looks.

 In a narrow window these go, the first first: Controller, Address, Nodes,
 Probes, Retries, Failed, Standing, Base, Bytes, Failov, p50, Rate, bars,
 Cmds, W, R, what the policy weighs, p99, Share, IOPS";

fn help() -> Vec<Line> {
    HELP.lines().map(|line| Line::new(Look::Plain, line)).collect()
}
