//! Runs, their median, and the ratio to the bare exchange.

use crate::columns::columns;
use crate::failure::Failure;
use crate::units::latency_text;
use anabranch_lab::shown::Shown;
use serde_json::{Value, json};

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
}

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
        })
    }

    fn json(&self) -> Value {
        json!({
            "iops": self.iops.round(),
            "bytes_per_s": self.bytes_per_s.round(),
            "lat_ns": { "mean": self.mean_ns, "p50": self.p50_ns, "p99": self.p99_ns },
        })
    }

    fn row(&self, name: &str) -> Vec<String> {
        vec![
            name.to_owned(),
            format!("{:.0}", self.iops),
            format!("{:.1}", self.bytes_per_s / f64::from(1 << 20)),
            latency_text(self.mean_ns),
            latency_text(self.p50_ns),
            latency_text(self.p99_ns),
        ]
    }
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

    /// The figures of the run whose rate is the median (the lower one of two in the middle).
    fn median(&self, of: impl Fn(&Run) -> Option<Figures>) -> Option<Figures> {
        let mut figures: Vec<Figures> = self.runs.iter().filter_map(of).collect();
        figures.sort_by(|a, b| a.iops.total_cmp(&b.iops));
        figures.get(figures.len().checked_sub(1)? / 2).copied()
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
        if let Some(load) = self.median(|run| run.load) {
            rows.push(load.row(self.transport));
        }
        if let Some(bare) = self.median(|run| run.bare) {
            rows.push(bare.row("bare TCP"));
        }
        let head = ["Median", "IOPS", "MiB/s", "mean", "p50", "p99"];
        let mut text = columns(&head, &rows);
        let rates = self.runs.iter().filter_map(|run| run.load).map(|load| load.iops);
        let least = rates.clone().fold(f64::INFINITY, f64::min);
        let greatest = rates.fold(0.0, f64::max);
        let runs = match self.runs.len() {
            1 => "1 run".to_owned(),
            runs => format!("{runs} runs"),
        };
        text.push_str(&format!("{runs}, {least:.0} to {greatest:.0} IOPS\n"));
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
        let figures = |iops| Figures { iops, bytes_per_s: 0.0, mean_ns: 1, p50_ns: 1, p99_ns: 1 };
        Run { load: Some(figures(iops)), bare: Some(figures(bare)), detail: json!({}) }
    }

    #[test]
    fn the_ratio_is_taken_run_by_run_and_its_median_reported() {
        let runs = vec![run(50.0, 100.0), run(90.0, 100.0), run(20.0, 100.0)];
        let report = BenchReport::new("NVMe/TCP", json!({}), runs).json();
        assert_eq!(report["ratio"], json!({ "median": 0.5, "min": 0.2, "max": 0.9 }));
        assert_eq!(report["median"]["iops"], json!(50.0));
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
