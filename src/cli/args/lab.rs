//! Options of `lab`.

use crate::units;
use anabranch_lab::result::Mode as ResultMode;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Compare policies on described links and load.
#[derive(Args, Clone, Debug)]
pub struct Lab {
    /// What to do
    #[command(subcommand)]
    pub verb: LabVerb,
}

/// What `lab` does.
#[derive(Clone, Debug, Subcommand)]
pub enum LabVerb {
    /// List scenarios, and check them
    List {
        /// Those of directories, files, or by name, as of 'lab run' [default: the library, and
        /// ./scenarios if there is one]
        #[arg(value_name = "DIR|SCENARIO")]
        places: Vec<String>,
    },
    /// Run scenarios with every policy, simulated or live
    Run(LabRun),
    /// Compare two results: exit status 1 if anything of B is worse than in A
    Compare(LabCompare),
    /// Tell results in one HTML file that opens without a network
    Report(LabReport),
}

/// Options of `lab run`.
#[derive(Args, Clone, Debug)]
pub struct LabRun {
    /// Scenario files, or names as `lab list` shows them
    #[arg(value_name = "SCENARIO", required = true)]
    pub scenarios: Vec<String>,
    /// Only these variants, comma-separated (a name may hold commas itself); all = all of the
    /// scenario, as by default
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub policies: Vec<String>,
    /// Runs, with the seeds 1 to N [default: as the scenario says]
    #[arg(
        long, value_name = "N",
        value_parser = super::whole::<u32>(1, 1000), allow_negative_numbers = true
    )]
    pub runs: Option<u32>,
    /// How they are run
    #[arg(long, value_enum, default_value = "light")]
    pub mode: Mode,
    /// Time before the window, not counted [default: as the scenario says]
    #[arg(long, value_name = "TIME", value_parser = units::time, allow_negative_numbers = true)]
    pub ramp: Option<Duration>,
    /// Time that is counted [default: as the scenario says]. Changes keep their place in
    /// proportion: half of the window, half of their time
    #[arg(long, value_name = "TIME", value_parser = units::time, allow_negative_numbers = true)]
    pub window: Option<Duration>,
    /// The short form: at most 300 ms before a window of at most 1 s (3 s where the scenario has
    /// changes, which keep their place in proportion; how long hosts take to notice a silent path
    /// stays), 1 run. --ramp, --window and --runs go before it
    #[arg(long)]
    pub short: bool,
    /// Keep results in this directory. What is there already is not run again
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Live only: the part of the scenario's rates and open requests that is used, 0.001 to 1
    /// [default: what this machine can carry]
    #[arg(long, value_name = "PART", value_parser = permille, allow_negative_numbers = true)]
    pub scale: Option<u32>,
    /// Live only: scaled rates leave iodepth and numjobs alone. Otherwise the same part of the open
    /// requests is kept, so that latencies stay what they are, but not fewer than fill the links
    #[arg(long)]
    pub keep_depth: bool,
    /// Live only: links are shaped by the kernel, in network namespaces; needs root
    #[arg(long)]
    pub kernel_shaping: bool,
}

/// Options of `lab report`.
#[derive(Args, Clone, Debug)]
pub struct LabReport {
    /// A results directory
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// The file that is written [default: report.html in DIR]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Options of `lab compare`.
#[derive(Args, Clone, Debug)]
pub struct LabCompare {
    /// What was: a results directory, or its summary.json
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// What is now
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Differences up to this many percent do not count
    #[arg(
        long, value_name = "PERCENT", default_value = "0",
        value_parser = percent_ppm, allow_negative_numbers = true
    )]
    pub tolerance: u64,
}

/// How scenarios are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// The policies' own code on a model of queue pairs and links, in virtual time
    Light,
    /// The whole host, wire and target, in virtual time
    Sim,
    /// Real hosts, sockets and embedded targets with shaped ports, in real time
    Live,
}

impl From<Mode> for ResultMode {
    fn from(mode: Mode) -> ResultMode {
        match mode {
            Mode::Light => ResultMode::Light,
            Mode::Sim => ResultMode::Sim,
            Mode::Live => ResultMode::Live,
        }
    }
}

/// A number with up to `places` decimals, times ten to the power of `places`.
fn decimal(text: &str, places: usize) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && part.is_empty() || !digits(whole) || !digits(part) || part.len() > places
    {
        return None;
    }
    format!("{whole}{part:0<places$}").parse().ok()
}

fn permille(text: &str) -> Result<u32, String> {
    let permille = decimal(text, 3).and_then(|value| u32::try_from(value).ok());
    permille
        .filter(|value| (1..=1000).contains(value))
        .ok_or_else(|| format!("'{text}' is no part: write 0.001 to 1, such as 0.25"))
}

fn percent_ppm(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let ppm = decimal(number, 4).filter(|ppm| *ppm <= 1_000_000);
    ppm.ok_or_else(|| format!("'{text}' is no tolerance: write a percentage from 0 to 100"))
}

#[cfg(test)]
mod tests {
    use super::{percent_ppm, permille};

    #[test]
    fn parts_and_percentages_are_numbers_in_bounds() {
        assert_eq!(["1", "0.25", ".5", "0.001"].map(permille), [1000, 250, 500, 1].map(Ok));
        for wrong in ["0", "1.001", "0.0001", "-1", "", ".", "half", "1e-1"] {
            assert!(permille(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            ["0", "2.5", "100", "3%"].map(percent_ppm),
            [0, 25_000, 1_000_000, 30_000].map(Ok)
        );
        for wrong in ["101", "-1", "%", "", "1,5", "99999999999999999999999"] {
            assert!(percent_ppm(wrong).is_err(), "{wrong}");
        }
    }
}
