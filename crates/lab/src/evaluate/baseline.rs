//! Outcomes on disk.

use super::Outcome;
use crate::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Outcomes of cells that need not run again. A cell that has changed in anything, its length
/// included, is another one; that the simulation or a policy has changed, nobody notices: remove
/// the file then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline(BTreeMap<String, Outcome>);

impl Baseline {
    /// Reads a file; one that is not there is empty.
    ///
    /// # Errors
    /// It cannot be read, or is something else.
    pub fn read(path: &Path) -> io::Result<Baseline> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(Baseline(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Baseline::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(&self.0)?;
        bytes.push(b'\n');
        std::fs::write(path, bytes)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, key: &str) -> Option<&Outcome> {
        self.0.get(key)
    }

    pub(super) fn put(&mut self, key: String, outcome: Outcome) {
        self.0.insert(key, outcome);
    }
}

/// What a cell is called: scenario, variant, seed, and a hash (FNV-1a) of all that is set about it.
/// Parameters of other policies do not count.
pub(super) fn key(cell: Cell<'_>) -> String {
    let (scenario, variant) = (cell.scenario, cell.variant);
    let parameters = &variant.parameters;
    let text = format!(
        "{:?}",
        (
            (&scenario.run, &scenario.hosts, &scenario.target, &scenario.paths),
            (&scenario.changes, &scenario.jobs, &scenario.burners),
            (&variant.weights, variant.io_queues, parameters.policy, parameters.kernel_exact),
            (parameters.scope, &parameters.latency, &parameters.historical),
        )
    );
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{}/{}/{}/{hash:016x}", scenario.name, variant.name, cell.seed)
}
