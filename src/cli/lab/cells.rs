//! Where cells go as they end: into a results directory, or into the summary alone.

use super::plan::Planned;
use crate::failure::Failure;
use anabranch_lab::result::environment::Session;
use anabranch_lab::result::store::{Key, Store, StoreError, Terms};
use anabranch_lab::result::summary::{Builder, Summary};
use anabranch_lab::result::{CellResult, Mode, csv, fio};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Takes cells from many threads.
pub(super) struct Cells {
    mode: Mode,
    store: Option<Store>,
    /// Without a directory: what there is so far.
    builder: Mutex<Builder>,
    ran: AtomicU64,
    kept: AtomicU64,
}

impl Cells {
    /// Opens the directory, if there is to be one, and keeps there what is to be run.
    pub(super) fn open(out: Option<&Path>, mode: Mode, all: &[Planned]) -> Result<Cells, Failure> {
        let store = out.map(Store::create).transpose()?;
        if let Some(store) = &store {
            for planned in all {
                let job = planned.job.as_ref().map(|(path, text)| (path.as_path(), text.as_str()));
                store.keep_scenario(&planned.scenario.name, &planned.text, job)?;
            }
            // Names of files may be no text.
            let command = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
            store.add_session(Session::begin(command.collect()))?;
        }
        let builder = Mutex::new(Builder::default());
        Ok(Cells { mode, store, builder, ran: AtomicU64::new(0), kept: AtomicU64::new(0) })
    }

    /// Some cell of the scenario that was run before.
    pub(super) fn any(&self, planned: &Planned) -> Result<Option<CellResult>, Failure> {
        let Some(store) = &self.store else { return Ok(None) };
        Ok(store.any(&planned.scenario.name, self.mode)?)
    }

    /// Refuses terms on which what is there was not run: a table has one kind of cells.
    pub(super) fn agree(&self, planned: &Planned, terms: &Terms) -> Result<(), Failure> {
        match (&self.store, self.any(planned)?) {
            (Some(store), Some(cell)) => Ok(store.agree(&cell, terms)?),
            _ => Ok(()),
        }
    }

    /// The cell, if it was run before.
    pub(super) fn find(
        &self,
        planned: &Planned,
        variant: usize,
        run: u64,
        terms: &Terms,
    ) -> Result<Option<CellResult>, Failure> {
        let Some(store) = &self.store else { return Ok(None) };
        let key = Key {
            scenario: planned.scenario.name.clone(),
            mode: self.mode,
            variant: planned.scenario.variants[variant].name.clone(),
            run,
        };
        Ok(store.find(&key, terms)?)
    }

    /// One that was there.
    pub(super) fn keep(&self) {
        self.kept.fetch_add(1, Ordering::Relaxed);
    }

    /// One that was run.
    pub(super) fn put(&self, cell: &CellResult) -> Result<(), Failure> {
        self.ran.fetch_add(1, Ordering::Relaxed);
        match &self.store {
            Some(store) => Ok(store.put(cell, &fio::text(cell))?),
            None => {
                let mut builder = self.builder.lock().unwrap_or_else(PoisonError::into_inner);
                builder.add(cell).map_err(Failure::failed)
            }
        }
    }

    /// How many were run, how many were there.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.ran.load(Ordering::Relaxed), self.kept.load(Ordering::Relaxed))
    }

    /// Makes `summary.json` and `results.csv` of everything in the directory.
    pub(super) fn finish(self) -> Result<Summary, Failure> {
        let (ran, kept) = self.counts();
        let Some(store) = &self.store else {
            let builder = self.builder.into_inner().unwrap_or_else(PoisonError::into_inner);
            return Ok(builder.finish());
        };
        if let Err(StoreError::Empty(_)) = store.cells() {
            // Every cell failed, and that is told.
            store.end_session(ran, kept)?;
            return Ok(Builder::default().finish());
        }
        let (summary, table) = read(store)?;
        let text = serde_json::to_string_pretty(&summary)
            .map_err(|error| Failure::failed(format!("the summary cannot be written: {error}")))?;
        store.write("summary.json", (text + "\n").as_bytes())?;
        store.write("results.csv", table.as_bytes())?;
        store.end_session(ran, kept)?;
        Ok(summary)
    }
}

/// Reads a directory, a cell at a time.
pub(super) fn read(store: &Store) -> Result<(Summary, String), Failure> {
    let (mut builder, mut table) = (Builder::default(), csv::head());
    for path in store.cells()? {
        let cell = store.read(&path)?;
        table.push_str(&csv::row(&cell));
        builder.add(&cell).map_err(|text| StoreError::Conflict { path, text })?;
    }
    Ok((builder.finish(), table))
}
