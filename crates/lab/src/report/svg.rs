//! What the charts share: a frame with axes, curves, labels that keep apart.

use super::page::Page;

/// Curves differ by colour and by dashes; there are so many colours.
pub(super) const COLOURS: usize = 8;
/// And so many kinds of dashes, together 72 curves.
const DASHES: [&str; 9] =
    ["", "14 6", "3 5", "14 5 3 5", "24 6", "8 4", "20 5 3 5 3 5", "3 9", "14 4 8 4"];
const STROKES: [&str; COLOURS] = [
    " class=\"c0\"",
    " class=\"c1\"",
    " class=\"c2\"",
    " class=\"c3\"",
    " class=\"c4\"",
    " class=\"c5\"",
    " class=\"c6\"",
    " class=\"c7\"",
];
const FILLS: [&str; COLOURS] = [
    " class=\"t0\"",
    " class=\"t1\"",
    " class=\"t2\"",
    " class=\"t3\"",
    " class=\"t4\"",
    " class=\"t5\"",
    " class=\"t6\"",
    " class=\"t7\"",
];

/// The dashes of a curve.
pub(super) fn dashes(index: usize) -> &'static str {
    DASHES[index % DASHES.len()]
}

/// The attribute with the colour of a curve.
pub(super) fn stroke(index: usize) -> &'static str {
    STROKES[index % COLOURS]
}

/// The attribute with the colour of its label.
pub(super) fn fill(index: usize) -> &'static str {
    FILLS[index % COLOURS]
}

/// A drawing and the part of it between the axes, in its own units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) width: i32,
    pub(super) height: i32,
    pub(super) left: i32,
    pub(super) right: i32,
    pub(super) top: i32,
    pub(super) bottom: i32,
}

impl Frame {
    /// From the part of the way to the right.
    pub(super) fn x(&self, part: f64) -> i32 {
        self.left + (part.clamp(0.0, 1.0) * f64::from(self.inner_width())).round() as i32
    }

    /// From the part of the way up.
    pub(super) fn y(&self, part: f64) -> i32 {
        let inner = f64::from(self.height - self.top - self.bottom);
        self.height - self.bottom - (part.clamp(0.0, 1.0) * inner).round() as i32
    }

    pub(super) fn inner_width(&self) -> i32 {
        self.width - self.left - self.right
    }

    /// Opens a drawing with a title, and a description for those who do not see it.
    pub(super) fn open(&self, page: &mut Page, title: &str, description: &str) {
        let id = page.fresh();
        page.raw("<svg role=\"img\" viewBox=\"0 0 ").text(self.width).raw(" ").text(self.height);
        page.raw("\" aria-labelledby=\"v").text(id).raw("t v").text(id).raw("d\"><title id=\"v");
        page.text(id).raw("t\">").text(title).raw("</title><desc id=\"v").text(id).raw("d\">");
        page.text(description).raw("</desc>\n");
    }

    /// A line across at this part of the way up, and what it stands for.
    pub(super) fn tick_y(&self, page: &mut Page, part: f64, label: &str) {
        let y = self.y(part);
        page.raw("<path class=\"grid\" d=\"M").text(self.left).raw(" ").text(y).raw("h");
        page.text(self.inner_width()).raw("\"/>");
        text(page, self.left - 8, y + 7, "<text class=\"end\"", label);
    }

    /// What a place on the lower axis stands for.
    pub(super) fn tick_x(&self, page: &mut Page, part: f64, label: &str) {
        let (x, y) = (self.x(part), self.y(0.0));
        page.raw("<path class=\"tick\" d=\"M").text(x).raw(" ").text(y).raw("v6\"/>");
        text(page, x, y + 28, "<text class=\"mid\"", label);
    }

    /// A line down through the whole frame.
    pub(super) fn rule_x(&self, page: &mut Page, part: f64) {
        page.raw("<path class=\"rule\" d=\"M").text(self.x(part)).raw(" ").text(self.top).raw("V");
        page.text(self.y(0.0)).raw("\"/>");
    }

    /// A curve through places of the drawing.
    pub(super) fn curve(&self, page: &mut Page, index: usize, pieces: &[Vec<(i32, i32)>]) {
        page.raw("<path").raw(stroke(index));
        if !dashes(index).is_empty() {
            page.raw(" stroke-dasharray=\"").raw(dashes(index)).raw("\"");
        }
        page.raw(" d=\"").text(path(pieces)).raw("\"/>\n");
    }

    /// Names of curves at their right ends, moved up or down until they do not touch.
    pub(super) fn labels(&self, page: &mut Page, labels: &[(usize, i32, String)]) {
        let places: Vec<i32> = labels.iter().map(|(_, y, _)| *y).collect();
        let spread = spread(&places, LABEL_GAP, self.top + 4, self.height - self.bottom);
        let x = self.width - self.right;
        for ((index, from, label), to) in labels.iter().zip(spread) {
            if (from - to).abs() > LABEL_GAP / 2 {
                page.raw("<path class=\"leader\" d=\"M").text(x + 1).raw(" ").text(from).raw("L");
                page.text(x + 11).raw(" ").text(to).raw("\"/>");
            }
            page.raw("<text").raw(fill(*index)).raw(" x=\"").text(x + 14).raw("\" y=\"");
            page.text(to + 7).raw("\">").text(label).raw("</text>\n");
        }
    }
}

/// A line of text needs so much.
const LABEL_GAP: i32 = 23;

/// Words at a place; `open` is the beginning of the element.
pub(super) fn text(page: &mut Page, x: i32, y: i32, open: &'static str, words: &str) {
    page.raw(open).raw(" x=\"").text(x).raw("\" y=\"").text(y).raw("\">").text(words);
    page.raw("</text>\n");
}

/// A name of at most so many letters.
pub(super) fn shortened(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    name.chars().take(letters - 1).chain(['…']).collect()
}

/// The shortest description of the pieces: relative, whole numbers, nothing for points on a line.
pub(super) fn path(pieces: &[Vec<(i32, i32)>]) -> String {
    let mut out = String::new();
    for piece in pieces {
        let Some((&first, rest)) = piece.split_first() else { continue };
        out.push_str(&format!("M{} {}", first.0, first.1));
        if rest.is_empty() {
            // A point by itself, as a round cap.
            out.push_str("h0");
        }
        let (mut at, mut pending) = (first, (0, 0));
        for &next in rest {
            let step = (next.0 - at.0, next.1 - at.1);
            if pending != (0, 0) && !goes_on(pending, step) {
                out.push_str(&line(pending));
                pending = (0, 0);
            }
            pending = (pending.0 + step.0, pending.1 + step.1);
            at = next;
        }
        out.push_str(&line(pending));
    }
    out
}

fn line(step: (i32, i32)) -> String {
    match step {
        (0, 0) => String::new(),
        (dx, 0) => format!("h{dx}"),
        (0, dy) => format!("v{dy}"),
        (dx, dy) if dy < 0 => format!("l{dx}{dy}"),
        (dx, dy) => format!("l{dx} {dy}"),
    }
}

/// Whether two steps have one direction.
fn goes_on(before: (i32, i32), step: (i32, i32)) -> bool {
    let level = before.1 == 0 && step.1 == 0 && before.0.signum() == step.0.signum();
    let upright = before.0 == 0 && step.0 == 0 && before.1.signum() == step.1.signum();
    level || upright
}

/// Places at least `gap` apart and near to where they want to be, in the same order, inside the
/// bounds if there is room.
pub(super) fn spread(wanted: &[i32], gap: i32, low: i32, high: i32) -> Vec<i32> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|index| (wanted[*index], *index));
    // Groups of labels that touch: their middle is where it is on average wanted.
    // Of each: the sum of what its members want of the first one, and how many they are.
    let mut groups: Vec<(i64, i64)> = Vec::new();
    let gap = i64::from(gap);
    let start = |(sum, n): (i64, i64)| {
        let room = i64::from(high) - (n - 1) * gap;
        (sum / n).min(room).max(i64::from(low))
    };
    for &index in &order {
        let mut group = (i64::from(wanted[index]), 1);
        while let Some(&before) = groups.last() {
            if start(before) + before.1 * gap <= start(group) {
                break;
            }
            groups.pop();
            group = (before.0 + group.0 - group.1 * before.1 * gap, before.1 + group.1);
        }
        groups.push(group);
    }
    let mut found = vec![0; wanted.len()];
    let mut order = order.into_iter();
    for group in groups {
        for n in 0..group.1 {
            if let Some(index) = order.next() {
                found[index] = i32::try_from(start(group) + n * gap).unwrap_or(high);
            }
        }
    }
    found
}

/// The least of 1, 2, 2.5, 5 times a power of ten that is not below the value.
pub(super) fn round_up(value: f64) -> f64 {
    if !(value.is_finite() && value > 0.0) {
        return 1.0;
    }
    let power = 10f64.powi(value.log10().floor() as i32);
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let found = steps.into_iter().map(|step| step * power).find(|top| *top >= value * 0.999_999);
    found.unwrap_or(10.0 * power)
}

/// A logarithmic axis over times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decades {
    low: f64,
    high: f64,
}

impl Decades {
    /// Around these times; at least one decade.
    pub(super) fn around(low_ns: u64, high_ns: u64) -> Decades {
        let low = (low_ns.max(1) as f64).log10();
        let high = (high_ns.max(1) as f64).log10().max(low);
        let missing = (1.0 - (high - low)).max(0.0) / 2.0;
        Decades { low: (low - missing - 0.05).max(0.0), high: high + missing + 0.05 }
    }

    pub(super) fn part(&self, ns: u64) -> f64 {
        ((ns.max(1) as f64).log10() - self.low) / (self.high - self.low)
    }

    /// Round times inside: one per decade, or also their thirds when there are few decades.
    pub(super) fn ticks(&self) -> Vec<u64> {
        let few = self.high - self.low < 2.5;
        let many = if self.high - self.low > 5.0 { 2 } else { 1 };
        let mut found = Vec::new();
        for power in (0..20).step_by(many) {
            let steps: &[u64] = if few { &[1, 3] } else { &[1] };
            for step in steps {
                let ns = 10u64.checked_pow(power).and_then(|ns| ns.checked_mul(*step));
                let inside = |ns: &u64| (0.0..=1.0).contains(&self.part(*ns));
                found.extend(ns.filter(inside));
            }
        }
        found
    }
}
