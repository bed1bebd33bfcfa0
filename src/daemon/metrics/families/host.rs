//! The process.

use super::super::exposition::{Labels, Page, of};
use super::super::look::Look;
use std::fmt;
use std::time::SystemTime;

pub(super) fn write(look: &Look, page: &mut Page<'_>) -> fmt::Result {
    let (none, snapshot) = (Labels::default(), &look.snapshot);
    let build = none.with("version", env!("CARGO_PKG_VERSION"));
    page.infos(of("build", "The program."), [build])?;
    let host = none.with("hostnqn", &snapshot.host_nqn).with("hostid", &snapshot.host_id);
    page.infos(of("host", "Who this host is to its targets."), [host])?;
    let since = look.start_time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let start = of("start_time", "When the host was started, since the epoch.");
    page.levels(start.in_unit("seconds"), [(none.clone(), since.as_secs_f64())])?;
    let workers = of("data_workers", "Threads that carry I/O.");
    page.gauges(workers, [(none.clone(), u64::from(snapshot.data_workers))])?;
    let clients = of("nbd_clients", "NBD clients that are connected.");
    page.gauges(clients, [(none.clone(), look.nbd_clients as u64)])?;
    let opened = of("nbd_export_clients", "NBD clients that have opened an export.");
    let all = || look.exports.iter().map(|export| (none.with("export", &export.name), export));
    page.gauges(opened, all().map(|(labels, export)| (labels, export.clients as u64)))?;
    let present = of("nbd_export_present", "Whether the device of an export is there.");
    page.gauges(present, all().map(|(labels, export)| (labels, u64::from(export.present))))
}
