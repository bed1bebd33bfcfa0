//! What the demo has shown: figures, text, JSON and the verdict.

use super::{HEAD, paths};
use crate::cli::args::Demo;
use crate::columns::columns;
use crate::daemon::view::{HostView, LatencyView};
use crate::units::latency_text;
use anabranch_lab::load::LoadReport;
use serde_json::{Value, json};

/// What happened to the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// Commands in flight on it when it was cut.
    pub in_flight: u64,
    /// It was down until its port came back.
    pub down: bool,
    /// It came back in time.
    pub back: bool,
}

/// Everything that the demo tells.
#[derive(Clone, Debug)]
pub struct DemoReport {
    /// I/O policy.
    pub policy: String,
    /// Seconds of load asked for.
    pub seconds: u32,
    /// Seconds that the load took.
    pub elapsed_s: f64,
    /// Requests completed well.
    pub ios: u64,
    /// Requests that failed.
    pub io_errors: u64,
    /// The first failure in words.
    pub first_error: Option<String>,
    /// Why a part of the load gave up.
    pub rejected: Option<String>,
    /// Blocks that did not hold what they must.
    pub verify_errors: u64,
    /// Blocks read and checked.
    pub blocks_verified: u64,
    /// Commands moved to another path.
    pub failovers: u64,
    /// Controllers back to live.
    pub reconnects: u64,
    /// Writes of unknown outcome that were sent again.
    pub uncertain_writes_resent: u64,
    /// The longest time without any completion, milliseconds.
    pub longest_gap_ms: f64,
    /// What happened to the fast path.
    pub course: Course,
    /// Per path.
    pub paths: Vec<PathReport>,
}

/// One path.
#[derive(Clone, Debug)]
pub struct PathReport {
    /// `nvmeXcYnZ`.
    pub name: String,
    /// `fast` or `slow`.
    pub role: &'static str,
    /// State of its controller.
    pub state: String,
    /// ANA state.
    pub ana_state: String,
    /// Commands completed well.
    pub ios: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Its part of all commands.
    pub share: f64,
    /// Latency.
    pub lat_ns: LatencyView,
    /// Commands that left it.
    pub failovers: u64,
    /// Times that its controller came back.
    pub reconnects: u64,
}

impl DemoReport {
    /// From the load's figures and the host's.
    #[must_use]
    pub fn new(demo: &Demo, load: &LoadReport, view: &HostView, course: Course) -> DemoReport {
        let total: u64 = paths(view).map(|path| path.commands.iter().sum::<u64>()).sum();
        let controllers = || view.subsystems.iter().flat_map(|subsystem| &subsystem.controllers);
        let paths: Vec<PathReport> = paths(view)
            .map(|path| {
                let ios: u64 = path.commands.iter().sum();
                let controller = controllers().find(|c| c.name == path.controller);
                PathReport {
                    name: path.name.clone(),
                    role: if path.controller == super::FAST_CONTROLLER { "fast" } else { "slow" },
                    state: controller.map_or("dead", |c| c.state.as_str()).to_owned(),
                    ana_state: path.ana_state.clone(),
                    ios,
                    bytes: path.bytes.iter().sum(),
                    share: ios as f64 / total.max(1) as f64,
                    lat_ns: path.lat_ns.clone(),
                    failovers: path.failovers,
                    reconnects: controller.map_or(0, |c| c.reconnects),
                }
            })
            .collect();
        DemoReport {
            policy: demo.policy.to_string(),
            seconds: demo.seconds,
            elapsed_s: load.elapsed.as_secs_f64(),
            ios: load.total_requests(),
            io_errors: load.errors,
            first_error: load.first_error.clone(),
            rejected: load.rejected.clone(),
            verify_errors: load.verify_errors,
            blocks_verified: load.blocks_verified,
            failovers: paths.iter().map(|path| path.failovers).sum(),
            reconnects: paths.iter().map(|path| path.reconnects).sum(),
            uncertain_writes_resent: super::paths(view)
                .map(|path| path.uncertain_writes_resent)
                .sum(),
            longest_gap_ms: load.longest_gap.as_secs_f64() * 1e3,
            course,
            paths,
        }
    }

    /// Whether the demo has shown what it is for.
    ///
    /// # Errors
    /// One sentence that says what was not right.
    pub fn verdict(&self) -> Result<(), String> {
        if self.verify_errors > 0 {
            return Err(format!("{} blocks did not hold what was written", self.verify_errors));
        }
        if self.io_errors > 0 {
            let first = self.first_error.as_deref().unwrap_or("not told");
            return Err(format!("{} I/Os failed; the first: {first}", self.io_errors));
        }
        if let Some(why) = &self.rejected {
            return Err(format!("the load gave up: {why}"));
        }
        if self.ios == 0 || self.blocks_verified == 0 {
            return Err("the load did no verified I/O".to_owned());
        }
        if !self.course.down {
            return Err("the path that was cut was not seen to be down".to_owned());
        }
        if !self.course.back {
            return Err("the restored path did not come back to live".to_owned());
        }
        Ok(())
    }
}

/// As JSON.
#[must_use]
pub fn json(report: &DemoReport) -> Value {
    let paths: Vec<Value> = report
        .paths
        .iter()
        .map(|path| {
            json!({
                "name": path.name,
                "role": path.role,
                "state": path.state,
                "ana_state": path.ana_state,
                "ios": path.ios,
                "bytes": path.bytes,
                "share": path.share,
                "lat_ns": path.lat_ns,
                "failovers": path.failovers,
                "reconnects": path.reconnects,
            })
        })
        .collect();
    json!({
        "policy": report.policy,
        "seconds": report.seconds,
        "elapsed_s": report.elapsed_s,
        "ios": report.ios,
        "io_errors": report.io_errors,
        "verify_errors": report.verify_errors,
        "blocks_verified": report.blocks_verified,
        "failovers": report.failovers,
        "reconnects": report.reconnects,
        "longest_gap_ms": report.longest_gap_ms,
        "in_flight_at_cut": report.course.in_flight,
        "fence": "fast",
        "uncertain_writes_resent": report.uncertain_writes_resent,
        "paths": paths,
    })
}

/// As a table and what it means.
#[must_use]
pub fn text(report: &DemoReport) -> String {
    let rows: Vec<Vec<String>> = report
        .paths
        .iter()
        .map(|path| {
            vec![
                path.name.clone(),
                path.role.to_owned(),
                path.state.clone(),
                path.ana_state.clone(),
                path.ios.to_string(),
                format!("{:.1}", path.bytes as f64 / report.elapsed_s.max(1e-9) / 1048576.0),
                latency_text(path.lat_ns.mean),
                latency_text(path.lat_ns.p50),
                latency_text(path.lat_ns.p99),
                format!("{:.1} %", path.share * 100.0),
                path.failovers.to_string(),
                path.reconnects.to_string(),
            ]
        })
        .collect();
    let head = [
        "Path",
        "Link",
        "State",
        "ANA",
        "I/Os",
        "MiB/s",
        "mean",
        "p50",
        "p99",
        "Share of I/Os",
        "Failovers",
        "Reconnects",
    ];
    let mut text = format!(
        "{HEAD}: one device, two NVMe/TCP paths, policy {}, {:.1} s of verified load\n\n{}\n",
        report.policy,
        report.elapsed_s,
        columns(&head, &rows)
    );
    text.push_str(&format!(
        "I/Os {}, errors {}; blocks verified {}, wrong {}\n\
         failovers {} (commands moved to another path), reconnects {}, longest pause {:.0} ms\n\
         fence=fast: {} writes of unknown outcome were sent again at once; there is no \
         fencing yet\n",
        report.ios,
        report.io_errors,
        report.blocks_verified,
        report.verify_errors,
        report.failovers,
        report.reconnects,
        report.longest_gap_ms,
        report.uncertain_writes_resent
    ));
    text
}
