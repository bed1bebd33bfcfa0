//! What was read, in the order in which the report tells it: scenarios, ways to run them, variants.
//! Statistics are those of [`summary`]; beside them stands what only charts need.

use super::Material;
use crate::result::stats::{Merged, ONE_PPM, Paired, median};
use crate::result::summary::{self, Builder, RunFigures, Table, paired};
use crate::result::{CellResult, Counted, Mode};
use crate::scenario::Scenario;
use anabranch_policy::Policy;
use std::collections::BTreeMap;
use std::mem::take;

/// Everything that was measured.
#[derive(Debug, Default)]
pub(super) struct Study {
    /// By name.
    pub(super) subjects: Vec<Subject>,
}

/// One scenario.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) name: String,
    /// What its file says, when that can be read.
    pub(super) scenario: Option<Scenario>,
    /// One for each way in which it was run, in the order of [`Mode`].
    pub(super) fields: Vec<Field>,
}

/// One scenario, run in one way.
#[derive(Debug)]
pub(super) struct Field {
    /// The figures; its rows are in [`Field::rows`].
    pub(super) table: Table,
    /// There is at least one.
    pub(super) rows: Vec<Row>,
}

/// A variant.
#[derive(Debug)]
pub(super) struct Row {
    /// Its figures.
    pub(super) sum: summary::Row,
    /// What its throughput is of, and how much of it counts.
    pub(super) counted: Counted,
    /// Latencies of all requests of all runs.
    pub(super) latency: Merged,
    /// The first run, with its time series.
    pub(super) shown: CellResult,
    /// Mean commands in flight on each path, in thousandths: the median of the runs.
    pub(super) in_flight_milli: Vec<u64>,
    /// Requests of open loops that found no room.
    pub(super) refused: u64,
}

/// What charts need of a variant, while cells are read.
#[derive(Debug, Default)]
struct Extra {
    latency: Merged,
    shown: Option<CellResult>,
    in_flight_milli: Vec<Vec<u64>>,
    refused: u64,
}

impl Extra {
    fn add(&mut self, mut cell: CellResult) {
        self.latency.add(cell.total.requests, &cell.total.latency);
        self.refused = self.refused.saturating_add(cell.books.requests_refused);
        self.in_flight_milli.resize(cell.paths.len().max(self.in_flight_milli.len()), Vec::new());
        for (all, path) in self.in_flight_milli.iter_mut().zip(&cell.paths) {
            all.push(path.in_flight_milli);
        }
        if self.shown.as_ref().is_none_or(|shown| cell.run < shown.run) {
            cell.total.latency.buckets = Vec::new();
            cell.submission.buckets = Vec::new();
            cell.jobs = Vec::new();
            self.shown = Some(cell);
        }
    }
}

impl Study {
    /// Takes the cells out of what was read; what does not fit together becomes
    /// [`Material::unread`].
    pub(super) fn new(material: &mut Material) -> Study {
        let mut builder = Builder::default();
        let mut extras: BTreeMap<(String, Mode, String), Extra> = BTreeMap::new();
        for cell in take(&mut material.cells) {
            if let Err(why) = builder.add(&cell) {
                let CellResult { scenario, mode, variant, run, .. } = &cell;
                material.unread.push(format!("{scenario}, {mode}, {variant}, run {run}: {why}"));
                continue;
            }
            let key = (cell.scenario.clone(), cell.mode, cell.variant.clone());
            extras.entry(key).or_default().add(cell);
        }
        let mut study = Study::default();
        for mut table in builder.finish().tables {
            let join = |sum: summary::Row| {
                let key = (table.scenario.clone(), table.mode, sum.variant.clone());
                let extra = extras.remove(&key)?;
                Some(Row {
                    sum,
                    counted: Counted::of(table.throughput_of, &table.limit),
                    latency: extra.latency,
                    shown: extra.shown?,
                    in_flight_milli: extra.in_flight_milli.iter().map(|all| median(all)).collect(),
                    refused: extra.refused,
                })
            };
            let rows: Vec<Row> = take(&mut table.rows).into_iter().filter_map(join).collect();
            if !rows.is_empty() {
                study.add(Field { table, rows }, material);
            }
        }
        study
    }

    fn add(&mut self, field: Field, material: &Material) {
        let name = &field.table.scenario;
        match self.subjects.iter_mut().find(|subject| subject.name == *name) {
            Some(subject) => subject.fields.push(field),
            None => self.subjects.push(Subject {
                name: name.clone(),
                scenario: material.scenario(name).cloned(),
                fields: vec![field],
            }),
        }
    }

    /// The ways in which anything was run.
    pub(super) fn modes(&self) -> Vec<Mode> {
        let all = [Mode::Light, Mode::Sim, Mode::Live];
        all.into_iter().filter(|mode| self.fields(*mode).next().is_some()).collect()
    }

    /// Every scenario that was run in this way.
    pub(super) fn fields(&self, mode: Mode) -> impl Iterator<Item = (&Subject, &Field)> {
        self.subjects.iter().filter_map(move |one| Some((one, one.field(mode)?)))
    }

    /// Every field.
    pub(super) fn all_fields(&self) -> impl Iterator<Item = (&Subject, &Field)> {
        self.subjects.iter().flat_map(|one| one.fields.iter().map(move |field| (one, field)))
    }

    /// Every row.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.all_fields().flat_map(|(_, field)| &field.rows)
    }

    /// The names of all variants of a mode, with the number of scenarios that have them: policies
    /// as they come first, in their own order, then the others by name.
    pub(super) fn variants(&self, mode: Mode) -> Vec<(&str, usize)> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, field) in self.fields(mode) {
            for row in &field.rows {
                *counts.entry(row.name()).or_default() += 1;
            }
        }
        let place = |name: &str| Policy::ALL.iter().position(|policy| policy.name() == name);
        let mut all: Vec<_> = counts.into_iter().collect();
        all.sort_by_key(|(name, _)| place(name).unwrap_or(usize::MAX));
        all
    }
}

impl Subject {
    pub(super) fn field(&self, mode: Mode) -> Option<&Field> {
        self.fields.iter().find(|field| field.table.mode == mode)
    }

    /// One line; the name when there is none.
    pub(super) fn title(&self) -> &str {
        self.scenario.as_ref().map_or(&self.name, |scenario| &scenario.title)
    }

    /// Whether the variant was told which path is worth how much.
    pub(super) fn has_weights(&self, variant: &str) -> bool {
        let all = self.scenario.iter().flat_map(|scenario| &scenario.variants);
        all.filter(|one| one.name == variant)
            .any(|one| one.weights.iter().any(|weight| *weight != one.weights[0]))
    }
}

impl Field {
    pub(super) fn row(&self, variant: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name() == variant)
    }

    /// The rows by throughput, best first; what is equal stays in order.
    pub(super) fn ranked(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.throughput()));
        rows
    }

    /// Any one cell: what does not depend on the variant.
    pub(super) fn any(&self) -> &CellResult {
        &self.rows[0].shown
    }

    /// The name of a path.
    pub(super) fn path(&self, index: usize) -> String {
        let named = self.any().paths.get(index).map(|path| path.name.clone());
        named.unwrap_or_else(|| format!("path {}", index + 1))
    }

    /// The fewest and the most runs of a variant.
    pub(super) fn runs(&self) -> (usize, usize) {
        let counts = || self.rows.iter().map(|row| row.sum.runs.len());
        (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
    }
}

impl Row {
    pub(super) fn name(&self) -> &str {
        &self.sum.variant
    }

    /// What rows are ranked by.
    pub(super) fn throughput(&self) -> u64 {
        self.counted.of_row(&self.sum)
    }

    /// Of what is possible; not a number when nothing is, or where the machine was the limit.
    pub(super) fn of_limit(&self) -> f64 {
        // A limit below a byte per second is none.
        if self.sum.cpu_bound || self.counted.measure.of_limit(&self.shown.limit) == 0 {
            return f64::NAN;
        }
        self.sum.of_limit_ppm as f64 / ONE_PPM as f64
    }

    /// Of the best row.
    pub(super) fn of_best(&self) -> f64 {
        self.sum.of_best_ppm as f64 / ONE_PPM as f64
    }

    /// Run by run against another row.
    pub(super) fn against(&self, other: &Row, of: impl Fn(&RunFigures) -> u64) -> Paired {
        paired(&self.sum, &other.sum, of)
    }
}
