//! Runs, their median, and the ratio to the bare exchange.

use crate::columns::columns;
use crate::failure::Failure;
use crate::units::latency_text;
use anabranch_lab::shown::Shown;
use serde_json::{Value, json};

/// Bytes of a MiB.
const MIB: f64 = (1 << 20) as f64;

/// What one run has measured, in short.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// I/Os (exchanges) per second.
    pub iops: f64,
    /// Payload bytes per second.
    pub bytes_per_s: f64,
    /// Mean latency.
    pub mean_ns: u64,
    /// Median latency.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// The columns behind IOPS and MiB/s, by their names in a load's report.
const LATENCIES: [&str; 5] = ["mean", "p50", "p99", "p999", "max"];

impl Figures {
    /// Of a load's report.
    ///
    /// # Errors
    /// I/Os failed, blocks were wrong, the load gave up or nothing was done: then the figures mean
    /// nothing.
    pub fn of(load: &Value) -> Result<Figures, Failure> {
        let number = |key: &str| load[key].as_u64().unwrap_or(0);
        if number("errors") > 0 || number("verify_errors") > 0 {
            let told = load["first_error"].as_str().or(load["mismatches"][0].as_str());
            return Err(Failure::failed(format!(
                "{} I/Os failed, {} blocks were wrong; the first: {}",
                number("errors"),
                number("verify_errors"),
                Shown(told.unwrap_or("not told"))
            )));
        }
        let done = number("reads") + number("writes");
        match load["rejected"].as_str() {
            Some(why) if done > 0 => {
                let text = format!("the load gave up after {done} I/Os: {}", Shown(why));
                return Err(Failure::failed(text));
            }
            None if done > 0 => {}
            why => {
                let why = why.unwrap_or("nothing was answered in time, or the device has gone");
                return Err(Failure::failed(format!("no I/O was done: {}", Shown(why))));
            }
        }
        let latency = |key: &str| load["lat_ns"][key].as_u64().unwrap_or(0);
        Ok(Figures {
            iops: load["iops"].as_f64().unwrap_or(0.0),
            bytes_per_s: load["bytes_per_s"].as_f64().unwrap_or(0.0),
            mean_ns: latency("mean"),
            p50_ns: latency("p50"),
            p99_ns: latency("p99"),
            p999_ns: latency("p999"),
            max_ns: latency("max"),
        })
    }

    fn json(&self) -> Value {
        json!({
            "iops": self.iops.round(),
            "bytes_per_s": self.bytes_per_s.round(),
            "lat_ns": self.latencies(),
        })
    }

    fn latencies(&self) -> Value {
        let ns = [self.mean_ns, self.p50_ns, self.p99_ns, self.p999_ns, self.max_ns];
        LATENCIES.iter().zip(ns).map(|(name, ns)| ((*name).to_owned(), json!(ns))).collect()
    }

    fn row(&self, name: &str) -> Vec<String> {
        row(name, self.iops, self.bytes_per_s, &self.latencies())
    }
}

/// A row of the table for people.
fn row(name: &str, iops: f64, bytes_per_s: f64, latencies_ns: &Value) -> Vec<String> {
    let rates = [name.to_owned(), format!("{iops:.0}"), format!("{:.1}", bytes_per_s / MIB)];
    let latencies = LATENCIES.iter().map(|of| latency_text(latencies_ns[of].as_u64().unwrap_or(0)));
    rates.into_iter().chain(latencies).collect()
}

/// One run, and the bare exchange beside it.
#[derive(Clone, Debug)]
pub struct Run {
    /// The load; nothing when it went wrong.
    pub load: Option<Figures>,
    /// The bare exchange that ran next to it.
    pub bare: Option<Figures>,
    /// The load's whole report.
    pub detail: Value,
}

impl Run {
    fn ratio(&self) -> Option<f64> {
        Some(self.load?.iops / self.bare?.iops.max(1e-9))
    }

    /// Reads and writes of a mixed load, a row each.
    fn directions(&self) -> Vec<Vec<String>> {
        let number = |key: &str| self.detail[key].as_u64().unwrap_or(0) as f64;
        let second = number("elapsed_ns").max(1.0) / 1e9;
        let directions = [
            ("  reads", "reads", "read_bytes", "read_lat_ns"),
            ("  writes", "writes", "written_bytes", "write_lat_ns"),
        ];
        if directions.iter().any(|(_, done, ..)| number(done) == 0.0) {
            return Vec::new();
        }
        let of = |(name, done, bytes, latencies): &(&str, &str, &str, &str)| {
            let (done, bytes) = (number(done) / second, number(bytes) / second);
            row(name, done, bytes, &self.detail[*latencies])
        };
        directions.iter().map(of).collect()
    }

    /// One line about it.
    #[must_use]
    pub fn line(&self) -> String {
        let ratio = self.ratio().map_or(String::new(), |r| format!(", {r:.3} of the bare rate"));
        self.load.map_or_else(
            || "no figures".to_owned(),
            |load| format!("{:.0} IOPS, mean {}{ratio}", load.iops, latency_text(load.mean_ns)),
        )
    }
}

/// All runs.
#[derive(Clone, Debug)]
pub struct BenchReport {
    transport: &'static str,
    words: Value,
    runs: Vec<Run>,
}

impl BenchReport {
    /// `transport` names what the load went through, `words` say what was run.
    #[must_use]
    pub fn new(transport: &'static str, words: Value, runs: Vec<Run>) -> BenchReport {
        BenchReport { transport, words, runs }
    }

    /// Whether there is no run.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The run whose rate is the median (the lower one of two in the middle), and its figures.
    fn median_run(&self, of: impl Fn(&Run) -> Option<Figures>) -> Option<(&Run, Figures)> {
        let with = |run| of(run).map(|figures| (run, figures));
        let mut runs: Vec<(&Run, Figures)> = self.runs.iter().filter_map(with).collect();
        runs.sort_by(|(_, a), (_, b)| a.iops.total_cmp(&b.iops));
        runs.get(runs.len().checked_sub(1)? / 2).copied()
    }

    fn median(&self, of: impl Fn(&Run) -> Option<Figures>) -> Option<Figures> {
        self.median_run(of).map(|(_, figures)| figures)
    }

    /// Median, least and greatest of the paired ratios.
    fn ratio(&self) -> Option<(f64, f64, f64)> {
        let mut ratios: Vec<f64> = self.runs.iter().filter_map(Run::ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let (least, greatest) = (*ratios.first()?, *ratios.last()?);
        Some((ratios[(ratios.len() - 1) / 2], least, greatest))
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut rows = Vec::new();
        if let Some((run, load)) = self.median_run(|run| run.load) {
            rows.push(load.row(self.transport));
            rows.extend(run.directions());
        }
        if let Some(bare) = self.median(|run| run.bare) {
            rows.push(bare.row("bare TCP"));
        }
        let head = ["Median", "IOPS", "MiB/s", "mean", "p50", "p99", "p99.9", "max"];
        let mut text = columns(&head, &rows);
        let rates = self.runs.iter().filter_map(|run| run.load).map(|load| load.iops);
        let least = rates.clone().fold(f64::INFINITY, f64::min);
        let greatest = rates.fold(0.0, f64::max);
        let runs = match self.runs.len() {
            1 => "1 run".to_owned(),
            runs => format!("{runs} runs"),
        };
        let gaps = self.runs.iter().filter_map(|run| run.detail["longest_gap_ns"].as_u64());
        let gap = latency_text(gaps.max().unwrap_or(0));
        text.push_str(&format!("{runs}, {least:.0} to {greatest:.0} IOPS, longest pause {gap}\n"));
        if self.words["verify"] == true {
            let of = |run: &Run| run.detail["blocks_verified"].as_u64().unwrap_or(0);
            let blocks: u64 = self.runs.iter().map(of).sum();
            text.push_str(&match blocks {
                0 => "blocks verified: 0, for no run has read what it had written\n".to_owned(),
                blocks => format!("blocks verified: {blocks}, none of them wrong\n"),
            });
        }
        if let Some((median, least, greatest)) = self.ratio() {
            text.push_str(&format!(
                "ratio to the bare exchange: {median:.3} [{least:.3} {greatest:.3}]\n"
            ));
        }
        text
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let runs: Vec<Value> = self
            .runs
            .iter()
            .map(|run| {
                json!({
                    "load": run.detail,
                    "bare": run.bare.map(|bare| bare.json()),
                    "ratio": run.ratio(),
                })
            })
            .collect();
        json!({
            "job": self.words,
            "median": self.median(|run| run.load).map(|load| load.json()),
            "bare_median": self.median(|run| run.bare).map(|bare| bare.json()),
            "ratio": self.ratio().map(|(median, least, greatest)| {
                json!({ "median": median, "min": least, "max": greatest })
            }),
            "runs": runs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(iops: f64, bare: f64) -> Run {
        let figures = |iops| Figures {
            iops,
            bytes_per_s: 0.0,
            mean_ns: 1,
            p50_ns: 1,
            p99_ns: 1,
            p999_ns: 1,
            max_ns: 1,
        };
        Run { load: Some(figures(iops)), bare: Some(figures(bare)), detail: json!({}) }
    }

    #[test]
    fn the_ratio_is_taken_run_by_run_and_its_median_reported() {
        let runs = vec![run(50.0, 100.0), run(90.0, 100.0), run(20.0, 100.0)];
        let report = BenchReport::new("NVMe/TCP", json!({}), runs).json();
        assert_eq!(report["ratio"], json!({ "median": 0.5, "min": 0.2, "max": 0.9 }));
        assert_eq!(report["median"]["iops"], json!(50.0));
    }

    /// Reads and writes of a mix differ, and a mean of both hides which of them is slow.
    #[test]
    fn people_see_both_ways_of_a_mix_and_the_longest_of_all() {
        let latencies =
            |p99| json!({ "mean": 100, "p50": 100, "p99": p99, "p999": p99, "max": p99 });
        let mix = json!({
            "reads": 600, "writes": 400, "read_bytes": 600 << 20, "written_bytes": 400 << 20,
            "elapsed_ns": 2_000_000_000_u64, "iops": 500.0, "bytes_per_s": 5e8,
            "lat_ns": latencies(7_000_000), "read_lat_ns": latencies(3_000),
            "write_lat_ns": latencies(7_000_000), "longest_gap_ns": 90_000_000,
        });
        let text = |detail: &Value| {
            let load = Figures::of(detail).ok();
            let run = Run { load, bare: None, detail: detail.clone() };
            BenchReport::new("NVMe/TCP", json!({}), vec![run]).text()
        };
        let shown = text(&mix);
        let row = |name: &str| -> Vec<String> {
            let line = shown.lines().find(|line| line.trim_start().starts_with(name));
            line.unwrap_or("").split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(row("reads")[1..3], ["300", "300.0"], "{shown}");
        assert_eq!(row("writes")[1..3], ["200", "200.0"], "{shown}");
        assert_eq!(row("NVMe/TCP").last_chunk(), Some(&["7.00".to_owned(), "ms".to_owned()]));
        assert!(shown.contains("longest pause 90.00 ms"), "{shown}");
        let mut reads = mix;
        reads["writes"] = json!(0);
        assert!(!text(&reads).contains("writes"), "there is one way only");
    }

    #[test]
    fn figures_with_errors_are_refused() {
        let load = json!({ "reads": 5, "errors": 1, "first_error": "no available path" });
        let refused = Figures::of(&load).expect_err("an error makes the figures void");
        assert!(refused.to_string().contains("no available path"), "{refused}");
        assert!(Figures::of(&json!({})).is_err(), "nothing was done");
        let load = json!({ "reads": 5, "errors": 0, "rejected": "nvme0n1: out of range" });
        let refused = Figures::of(&load).expect_err("they are of a part of the run");
        assert!(refused.to_string().contains("after 5 I/Os: nvme0n1: out of range"), "{refused}");
    }
}
