//! `finish-time` in scenarios that were made to break it: it does what turns do in each of them.
//! `cargo test -p anabranch-lab --test suite nasty -- --nocapture` prints the
//! table.

use anabranch_lab::evaluate::{Baseline, Length, Options, evaluate, named, page};
use std::path::Path;

const CANDIDATE: &str = "finish-time";
const TURNS: &str = "round-robin";
/// Of what turns do, in thousandths.
const LEAST: u64 = 990;
/// Where it does less, and how much it does at least: twenty hosts of which each sees little of the
/// others' queue.
const LESS: [(&str, u64); 1] = [("strangers", 700)];

fn files() -> Vec<String> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nasty");
    let entries = std::fs::read_dir(all).expect("the scenarios are there");
    let mut files: Vec<String> = entries
        .map(|entry| entry.expect("a readable directory").path())
        .map(|path| path.to_str().expect("UTF-8").to_owned())
        .collect();
    files.sort_unstable();
    files
}

#[test]
fn finish_time_does_what_turns_do_where_all_is_against_it() {
    let scenarios = named(&files(), Length::Own).unwrap_or_else(|mistake| panic!("{mistake}"));
    assert!(scenarios.len() >= 15);
    let options = Options {
        candidate: CANDIDATE.to_owned(),
        policies: [TURNS, "queue-depth", CANDIDATE].map(str::to_owned).to_vec(),
        runs: 1,
        threads: 2,
    };
    let found = evaluate(&scenarios, &options, &mut Baseline::default());
    let found = found.unwrap_or_else(|problem| panic!("{problem}"));
    print!("{}", page(&found));
    let place = |name: &str| found.policies.iter().position(|policy| policy == name);
    let (turns, ours) = place(TURNS).zip(place(CANDIDATE)).expect("both ran");
    for row in &found.rows {
        let [turns, ours] = [turns, ours].map(|place| row.outcomes[place].bytes_s);
        let exception = LESS.iter().find(|(name, _)| *name == row.scenario);
        let least = exception.map_or(LEAST, |(_, least)| *least);
        let name = &row.scenario;
        assert!(turns > 0 && ours * 1000 >= turns * least, "{name}: {ours} against {turns}");
    }
}
