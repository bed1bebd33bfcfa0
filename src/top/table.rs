//! The table of a head's paths: which columns, and which of them fit.

use super::frame::{Count, Flow, HeadFrame, PathFrame};
use super::state::Sort;
use super::text::{self, Bars, Line, Look, NOTHING, Piece};
use crate::daemon::top::Estimates;
use crate::daemon::view::out_of_use;

/// Narrower than this the columns stand one blank apart, else two.
const ROOMY: usize = 100;
/// Columns of a bar: at least, at most.
const BAR: (usize, usize) = (5, 20);

struct Column {
    title: &'static str,
    /// The column with the highest number goes first when there is no room.
    rank: u8,
    right: bool,
    /// The column that bars are drawn in.
    bar: bool,
    /// It goes when nothing is known for any path; the others stay, so that the table does not
    /// jump.
    optional: bool,
    /// One per path, then one for the whole head.
    cells: Vec<Piece>,
}

impl Column {
    fn new(title: &'static str, rank: u8, cells: impl Iterator<Item = Piece>) -> Column {
        Column { title, rank, right: true, bar: false, optional: false, cells: cells.collect() }
    }

    /// One that says something about paths, and nothing about the whole head.
    fn each(
        paths: &[&PathFrame],
        (title, rank): (&'static str, u8),
        cell: &dyn Fn(&PathFrame) -> Piece,
    ) -> Column {
        let cells = paths.iter().map(|path| if path.left { piece("") } else { cell(path) });
        Column::new(title, rank, cells.chain(std::iter::once(piece(""))))
    }

    fn left(mut self) -> Column {
        self.right = false;
        self
    }

    fn optional(mut self) -> Column {
        self.optional = true;
        self
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.text.chars().count());
        let widest = cells.max().unwrap_or(0).max(self.title.len());
        if self.bar { BAR.0 } else { widest }
    }

    /// Nothing is known for any path.
    fn is_empty(&self) -> bool {
        self.optional && self.cells.iter().all(|cell| cell.text == NOTHING || cell.text.is_empty())
    }
}

fn piece(text: impl Into<String>) -> Piece {
    Piece { text: text.into(), look: Look::Plain }
}

fn known<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> Piece {
    piece(value.map_or_else(|| NOTHING.to_owned(), text))
}

/// The lines of the table: its head, a line per path, and one for the whole head when it has
/// several.
#[must_use]
pub fn lines(head: &HeadFrame, sort: (Sort, bool), width: usize, bars: Bars) -> Vec<Line> {
    let paths = sort.0.sorted(&head.paths, sort.1);
    let mut columns = columns(head, &paths);
    columns.retain(|column| !column.is_empty());
    let gap = if width < ROOMY { 1 } else { 2 };
    let indent = 1;
    let wide = |columns: &[Column]| {
        let cells: usize = columns.iter().map(Column::width).sum();
        indent + cells + gap * columns.len().saturating_sub(1)
    };
    while wide(&columns) > width && columns.len() > 1 {
        let last = (0..columns.len()).max_by_key(|&at| columns[at].rank).unwrap_or(0);
        columns.remove(last);
    }
    let bar_width = (BAR.0 + width.saturating_sub(wide(&columns))).min(BAR.1);
    for column in columns.iter_mut().filter(|column| column.bar) {
        for (cell, path) in column.cells.iter_mut().zip(&paths) {
            cell.text = text::bar(path.share.unwrap_or(0.0), bar_width, bars);
        }
    }
    let widths: Vec<usize> =
        columns.iter().map(|column| if column.bar { bar_width } else { column.width() }).collect();
    let rows = paths.len() + usize::from(paths.len() > 1);
    let title = (0..1).map(|_| {
        let titles = columns.iter().map(|column| Piece { look: Look::Dim, ..piece(column.title) });
        line(titles.zip(&columns).zip(&widths), indent, gap)
    });
    let rows = (0..rows).map(|row| {
        let cells = columns.iter().map(|column| column.cells[row].clone());
        line(cells.zip(&columns).zip(&widths), indent, gap)
    });
    title.chain(rows).collect()
}

fn line<'a>(
    cells: impl Iterator<Item = ((Piece, &'a Column), &'a usize)>,
    indent: usize,
    gap: usize,
) -> Line {
    let mut line = Line::default();
    let mut blanks = indent;
    for ((cell, column), &width) in cells {
        let missing = width.saturating_sub(cell.text.chars().count());
        let (before, after) = if column.right { (missing, 0) } else { (0, missing) };
        line.push(Look::Plain, " ".repeat(blanks + before));
        line.push(cell.look, cell.text);
        blanks = after + gap;
    }
    line
}

/// All columns that this policy has, in order.
fn columns(head: &HeadFrame, paths: &[&PathFrame]) -> Vec<Column> {
    let whole = |cell: Piece| std::iter::once(cell);
    let flows = |title, rank, cell: fn(&Flow) -> Piece| {
        let of_path = |path: &&PathFrame| if path.left { piece("") } else { cell(&path.flow) };
        Column::new(title, rank, paths.iter().map(of_path).chain(whole(cell(&head.flow))))
    };
    let each =
        |title, rank, cell: &dyn Fn(&PathFrame) -> Piece| Column::each(paths, (title, rank), cell);
    let names =
        paths.iter().map(|path| Piece { look: Look::Bold, ..piece(text::tame(&path.path)) });
    let states = paths.iter().map(|path| state(path)).chain(whole(piece("")));
    let mut columns = vec![
        Column::new("Path", 0, names.chain(whole(piece("all")))).left(),
        Column::new("State", 1, states).left(),
        flows("Cmds", 8, |flow| piece(flow.in_flight.to_string())),
        each("Bytes", 13, &|path| known(path.in_flight_bytes, text::bytes)).optional(),
        flows("IOPS", 2, |flow| known(flow.iops, text::count)),
        flows("R MiB/s", 6, |flow| known(flow.read_bytes_per_s, text::mib)),
        flows("W MiB/s", 7, |flow| known(flow.written_bytes_per_s, text::mib)),
        each("Share", 3, &|path| known(path.share, |share| format!("{:.1}%", share * 100.0))),
        Column {
            bar: true,
            cells: vec![Piece { look: Look::Bar, ..piece("") }; paths.len() + 1],
            ..each("", 9, &|_| piece("")).left()
        },
        flows("p50", 11, |flow| known(flow.p50_ns, text::time)),
        flows("p99", 4, |flow| known(flow.p99_ns, text::time)),
    ];
    columns.extend(policy_columns(paths).into_iter().map(Column::optional));
    columns.extend([
        flows("Failov", 12, |flow| counted(flow.failovers)),
        flows("Failed", 16, |flow| counted(flow.errors)),
        flows("Retries", 17, |flow| counted(flow.retries)),
        each("Nodes", 19, &|path| piece(nodes(path))).left().optional(),
        each("Controller", 21, &|path| {
            piece(format!("{} {}", text::tame(&path.controller), path.controller_state))
        })
        .left(),
        each("Address", 20, &|path| piece(text::tame(&path.address))).left(),
    ]);
    columns
}

/// What the policy in force weighs paths with.
fn policy_columns(paths: &[&PathFrame]) -> Vec<Column> {
    let each =
        |title, rank, cell: &dyn Fn(&PathFrame) -> Piece| Column::each(paths, (title, rank), cell);
    let finish = |of: fn(&Estimates) -> Option<String>| {
        move |path: &PathFrame| known(path.weights.finish_time.as_ref().and_then(of), |text| text)
    };
    vec![
        each("Qdepth", 5, &|path| known(path.weights.queue_depth, |depth| depth.to_string())),
        each("Weight", 5, &|path| {
            known(path.weights.relative_throughput, |weight| weight.to_string())
        }),
        each("Weight r/w", 5, &|path| {
            known(path.weights.latency, |[read, write, _]| {
                format!("{}/{}", weight(read), weight(write))
            })
        }),
        each("Finish", 5, &finish(|known| some_time(known.finish_ns))),
        each(
            "Rate",
            10,
            &finish(|known| {
                let least = if known.rate_is_least { ">" } else { "" };
                let rate = text::mib(known.rate_bytes_per_s as f64);
                (known.rate_bytes_per_s > 0).then(|| format!("{least}{rate}"))
            }),
        ),
        each("Base", 14, &finish(|known| some_time(small_base(known)))),
        each(
            "Standing",
            15,
            &finish(|known| (known.rate_bytes_per_s > 0).then(|| text::time(known.standing_ns))),
        ),
        each("Probes", 18, &|path| {
            let sent = path.weights.finish_time.as_ref().map(|_| counted(path.probes).text);
            known(sent, |sent| sent)
        }),
    ]
}

fn some_time(ns: u64) -> Option<String> {
    (ns > 0).then(|| text::time(ns))
}

/// Unqueued latency of the smallest reads that are known, else of the smallest writes.
fn small_base(known: &Estimates) -> u64 {
    let mut all = known.read_base_ns.iter().chain(&known.write_base_ns);
    all.find(|ns| **ns > 0).copied().unwrap_or(0)
}

/// A weight under `latency`; 0 is none yet.
fn weight(weight: u32) -> String {
    if weight == 0 { NOTHING.to_owned() } else { weight.to_string() }
}

fn nodes(path: &PathFrame) -> String {
    let nodes: Vec<String> = path.numa_nodes.iter().map(u32::to_string).collect();
    if nodes.is_empty() { NOTHING.to_owned() } else { nodes.join(",") }
}

/// A count, and by how much it grew.
pub(super) fn counted(count: Count) -> Piece {
    match count.new {
        0 => piece(text::count(count.total as f64)),
        new => Piece {
            text: format!(
                "{}+{}",
                text::count((count.total - new) as f64),
                text::count(new as f64)
            ),
            look: Look::Alarm,
        },
    }
}

/// The one word that says most.
fn state(path: &PathFrame) -> Piece {
    let silent = path.weights.finish_time.as_ref().map_or(0, |known| known.silent_ns);
    let alarm = |text: String| Piece { text, look: Look::Alarm };
    if path.left {
        return alarm("left".to_owned());
    }
    if !path.usable || path.controller_state != "live" {
        let word = out_of_use(&path.controller_state, &path.ana_state, path.hindrance.as_deref());
        return alarm(text::tame(&word));
    }
    match silent {
        0 => piece(path.ana_state.as_str()),
        _ => alarm(format!("silent {}", text::time(silent))),
    }
}
