//! What reads bring.

use super::rig::*;
use anabranch_lab::cell::Cell;
use anabranch_lab::engine::Engine;
use anabranch_target::TargetVerb;

/// Everything between capsule data, data that is asked for and requests that are split; the same
/// few blocks again and again.
const TEXT: &str = r#"
[run]
ramp = "20ms"
window = "180ms"
[host]
workers = 2
[target]
block = 512
size = "64m"
[[path]]
name = "a"
rate = "400MiB/s"
[[path]]
name = "b"
rate = "100MiB/s"
delay = "1ms"
jitter = "1ms"
[[job]]
rw = "randrw"
bssplit = "512/30:4k/30:24k/20:256k/15:3m/5"
iodepth = 16
numjobs = 2
size = "8m"
"#;

#[test]
fn every_read_brings_the_last_acknowledged_write_under_every_policy() {
    let scenario = scenario(TEXT);
    for variant in &scenario.variants {
        let figures = run(&scenario, &variant.name, 3);
        assert!(figures.classes.iter().take(2).all(|class| class.requests() > 50));
    }
}

#[test]
fn blocks_that_are_trimmed_beside_reads_and_writes_are_no_mistake() {
    let text = TEXT.replace("bssplit = \"512/30:4k/30:24k/20:256k/15:3m/5\"", "bs = \"8k\"");
    let trims = "[[job]]\nname = \"trim\"\nrw = \"randtrim\"\nbs = \"16k\"\nsize = \"8m\"\n";
    let figures = run(&scenario(&(text + trims)), "round-robin", 1);
    assert!(figures.classes.iter().all(|class| class.requests() > 50));
}

#[test]
fn a_damaged_block_is_noticed() {
    let text = TEXT.replace("randrw", "randread").replace("size = \"8m\"", "size = \"3m\"");
    let scenario = scenario(&text);
    let cell = Cell { scenario: &scenario, variant: variant(&scenario, "round-robin"), seed: 1 };
    let mut engine = Engine::new(cell).expect("a good cell");
    let subsystem = "nqn.2026-01.org.anabranch:lab".parse().expect("a valid NQN");
    engine.target(TargetVerb::Corrupt { subsystem, nsid: 1, lba: 5 }).expect("it is damaged");
    let figures = engine.run().expect("the run itself goes well");
    let reads = figures.books.requests_ended;
    assert!(figures.errors > 0 && figures.errors < reads, "{} of {reads}", figures.errors);
}
