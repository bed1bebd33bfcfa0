//! What one scrape is made from, and where it comes from.

use super::super::host::{ExportState, Host};
use super::super::rpc::RpcError;
use anabranch_host::verb::HostSnapshot;
use std::sync::Weak;
use std::time::{Duration, Instant, SystemTime};

/// How long the host may take to answer: well below the 10 s after which Prometheus gives a scrape
/// up, so that it is told why.
const PATIENCE: Duration = Duration::from_secs(5);

/// One look at a running host.
#[derive(Clone, Debug)]
pub struct Look {
    /// Subsystems, controllers, heads, paths.
    pub snapshot: Box<HostSnapshot>,
    /// When the host was started.
    pub start_time: SystemTime,
    /// NBD clients.
    pub nbd_clients: usize,
    /// The exports.
    pub exports: Vec<ExportState>,
}

/// Why there is no look now: one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable(pub String);

/// Gives a look when it is asked, in bounded time.
pub trait Source: Send + Sync + 'static {
    /// Everything as it is now.
    ///
    /// # Errors
    /// The host does not answer.
    fn look(&self) -> Result<Look, Unavailable>;
}

/// A client that is still being served does not keep the host.
impl Source for Weak<Host> {
    fn look(&self) -> Result<Look, Unavailable> {
        let host = self.upgrade().ok_or_else(|| Unavailable("the host has ended".to_owned()))?;
        let unavailable = |error: RpcError| Unavailable(error.message);
        let until = Instant::now() + PATIENCE;
        let snapshot = host.watch(PATIENCE).map_err(unavailable)?;
        let left = until.saturating_duration_since(Instant::now());
        let exports = host.export_states(&snapshot, left).map_err(unavailable)?;
        let (start_time, nbd_clients) = (host.start_time(), host.nbd_clients());
        Ok(Look { snapshot, start_time, nbd_clients, exports })
    }
}
