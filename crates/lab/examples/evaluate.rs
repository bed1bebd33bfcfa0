//! Every policy on many scenarios, light: a page of Markdown on standard output.
//!
//! ```text
//! evaluate [--library] [--seeds A..B] [SCENARIO…]      what runs; A to B, both included
//!          [--candidate POLICY] [--policies A,B]       finish-time; all, others by name
//!                      finish-time/no-spill, finish-time/no-probes, finish-time/neither
//!          [--runs N] [--threads N] [--own-length]     1; all cores; else short without changes
//!          [--baseline FILE] [--json FILE]             outcomes of the others are kept in FILE
//! evaluate --print SEED                                a random scenario as a file
//! ```

use anabranch_lab::evaluate::{
    Baseline, Length, Options, evaluate, library, named, page, random, variants,
};
use anabranch_lab::scenario::random as drawn;
use std::error::Error;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Instant;

type Failure = Box<dyn Error>;

#[derive(Default)]
struct Arguments {
    library: bool,
    seeds: Option<RangeInclusive<u64>>,
    names: Vec<String>,
    candidate: Option<String>,
    policies: Vec<String>,
    runs: Option<u32>,
    threads: Option<usize>,
    own_length: bool,
    baseline: Option<PathBuf>,
    json: Option<PathBuf>,
    print: Option<u64>,
}

fn arguments() -> Result<Arguments, Failure> {
    let mut found = Arguments::default();
    let mut all = std::env::args().skip(1);
    while let Some(word) = all.next() {
        let mut value = || all.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--library" => found.library = true,
            "--own-length" => found.own_length = true,
            "--seeds" => found.seeds = Some(seeds(&value()?)?),
            "--candidate" => found.candidate = Some(value()?),
            "--policies" => found.policies = value()?.split(',').map(str::to_owned).collect(),
            "--runs" => found.runs = Some(value()?.parse()?),
            "--threads" => found.threads = Some(value()?.parse()?),
            "--baseline" => found.baseline = Some(value()?.into()),
            "--json" => found.json = Some(value()?.into()),
            "--print" => found.print = Some(value()?.parse()?),
            _ if word.starts_with("--") => {
                return Err(
                    format!("{word} is no option; the top of this example lists them").into()
                );
            }
            _ => found.names.push(word),
        }
    }
    Ok(found)
}

/// `A..B`, both included, or one.
fn seeds(text: &str) -> Result<RangeInclusive<u64>, Failure> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    Ok(first.parse()?..=last.parse()?)
}

fn main() -> Result<(), Failure> {
    let began = Instant::now();
    let arguments = arguments()?;
    if let Some(seed) = arguments.print {
        print!("{}", drawn::scenario(seed)?.texts[0].text);
        return Ok(());
    }
    let length = if arguments.own_length { Length::Own } else { Length::Short };
    let mut scenarios = if arguments.library { library(length)? } else { Vec::new() };
    scenarios.extend(named(&arguments.names, length)?);
    if let Some(seeds) = arguments.seeds {
        scenarios.extend(random(seeds)?);
    }
    if scenarios.is_empty() {
        return Err("name --library, --seeds A..B, or scenarios".into());
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let options = Options {
        candidate: arguments.candidate.unwrap_or_else(|| "finish-time".to_owned()),
        policies: if arguments.policies == ["all"] { variants() } else { arguments.policies },
        runs: arguments.runs.unwrap_or(1),
        threads: arguments.threads.unwrap_or(cores),
    };
    let mut baseline = match &arguments.baseline {
        Some(path) => Baseline::read(path)?,
        None => Baseline::default(),
    };
    let known = baseline.len();
    let evaluation = evaluate(&scenarios, &options, &mut baseline)?;
    if let Some(path) = arguments.baseline.filter(|_| baseline.len() != known) {
        baseline.write(&path)?;
    }
    if let Some(path) = arguments.json {
        std::fs::write(path, serde_json::to_vec_pretty(&evaluation)?)?;
    }
    print!("{}", page(&evaluation));
    eprintln!("{} rows in {:.1} s", evaluation.rows.len(), began.elapsed().as_secs_f64());
    Ok(())
}
