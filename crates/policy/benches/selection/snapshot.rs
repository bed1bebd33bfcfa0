//! The instruction counts that were agreed on, and what differs from them.

use std::fmt::Write;

/// A count may differ by this much, in percent of the snapshot's, either way.
pub(crate) const TOLERANCE_PERCENT: u64 = 15;

/// A count of few instructions may differ by this many all the same.
const TOLERANCE_LEAST: u64 = 2;

/// Instructions per command of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) name: String,
    pub(crate) paths: usize,
    pub(crate) select: u64,
    pub(crate) command: u64,
}

/// The snapshot: by whom and the counts.
pub(crate) struct Snapshot {
    /// The compiler that built what was counted.
    pub(crate) compiler: String,
    pub(crate) counts: Vec<Count>,
}

impl Snapshot {
    /// One line per case: name, paths, instructions of a selection, of a whole command.
    pub(crate) fn parse(text: &str) -> Result<Snapshot, String> {
        let mut compiler = String::new();
        let mut counts = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if let Some(name) = line.strip_prefix("# compiler: ") {
                name.clone_into(&mut compiler);
            }
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let count = match words[..] {
                [name, paths, select, command] => (|| {
                    Some(Count {
                        name: name.to_owned(),
                        paths: paths.parse().ok()?,
                        select: select.parse().ok()?,
                        command: command.parse().ok()?,
                    })
                })(),
                _ => None,
            };
            counts.push(count.ok_or_else(|| format!("line {}: {line:?}", number + 1))?);
        }
        Ok(Snapshot { compiler, counts })
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::from(
            "# Instructions per selection and per command, counted by callgrind: 1024 reads of \
             4 KiB, every\n# path busy, 8 queue pairs per controller. Refresh deliberately, and \
             say why:\n\
             #   cargo bench -p anabranch-policy --bench selection -- refresh\n",
        );
        let _ = writeln!(text, "# compiler: {}", self.compiler);
        let _ = writeln!(text, "# policy                 paths  select  command");
        for Count { name, paths, select, command } in &self.counts {
            let _ = writeln!(text, "{name:24} {paths:5} {select:7} {command:8}");
        }
        text
    }

    /// What a reader must know before these counts are agreed on.
    pub(crate) fn differences(&self, now: &[Count]) -> Vec<String> {
        let mut differences = Vec::new();
        let same = |a: &Count, b: &Count| (&a.name, a.paths) == (&b.name, b.paths);
        for count in now {
            let Count { name, paths, .. } = count;
            let Some(then) = self.counts.iter().find(|then| same(then, count)) else {
                differences.push(format!("{name}, {paths} paths: not in the snapshot"));
                continue;
            };
            for (what, then, now) in
                [("select", then.select, count.select), ("command", then.command, count.command)]
            {
                let tolerance = (then * TOLERANCE_PERCENT / 100).max(TOLERANCE_LEAST);
                if then.abs_diff(now) > tolerance {
                    let sense = if now > then { "more" } else { "fewer" };
                    differences.push(format!(
                        "{name}, {paths} paths, {what}: {now} instructions, {sense} than {then} \
                         (tolerance {tolerance})"
                    ));
                }
            }
        }
        for then in &self.counts {
            if !now.iter().any(|count| same(then, count)) {
                let Count { name, paths, .. } = then;
                differences.push(format!("{name}, {paths} paths: in the snapshot alone"));
            }
        }
        differences
    }
}
