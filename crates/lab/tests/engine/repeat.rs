//! One seed, one result.

use super::rig::*;
use anabranch_lab::cell::Cell;
use anabranch_lab::engine;
use anabranch_lab::scenario::AnaState;

const TEXT: &str = r#"
[run]
ramp = "20ms"
window = "100ms"
[host]
count = 2
workers = 2
[target]
servers = 4
distribution = "exponential"
[[path]]
name = "fast"
rate = "200MiB/s"
delay = "200us"
jitter = "100us"
[[path]]
name = "slow"
rate = "50MiB/s"
brownout = { percent = 2, delay = "5ms" }
[[job]]
rw = "randrw"
bssplit = "4k/60:64k/40"
iodepth = 8
numjobs = 2
size = "16m"
"#;

#[test]
fn the_same_seed_gives_the_same_figures_and_another_one_others() {
    let scenario = scenario(TEXT);
    for name in ["queue-depth", "latency"] {
        let first = run(&scenario, name, 1);
        assert!(first.requests > 200, "{}", first.requests);
        let variant = variant(&scenario, name);
        let again = std::thread::scope(|scope| {
            let thread =
                scope.spawn(|| engine::run(Cell { scenario: &scenario, variant, seed: 1 }));
            thread.join().expect("the run ends").expect("and well")
        });
        assert_eq!(first.hash(), again.hash(), "{name}");
        assert_ne!(first.hash(), run(&scenario, name, 2).hash(), "{name}");
    }
}

#[test]
fn what_real_queue_pairs_cannot_do_is_refused_by_name() {
    for (line, key) in [("queue_depth = 8", "queue_depth"), ("queue_depth = 2000", "queue_depth")] {
        let text = TEXT.replace("workers = 2", &format!("workers = 2\n{line}"));
        let scenario = scenario(&text);
        let cell = Cell { scenario: &scenario, variant: &scenario.variants[0], seed: 1 };
        let problem = engine::run(cell).expect_err(line);
        assert_eq!(problem.key, key);
        assert!(problem.text.contains("16 to 1024"), "{problem}");
    }
}

#[test]
fn a_host_without_any_access_has_no_device_to_run_on() {
    let mut scenario = scenario(TEXT);
    scenario.paths.iter_mut().for_each(|path| path.ana = AnaState::Inaccessible);
    let cell = Cell { scenario: &scenario, variant: &scenario.variants[0], seed: 1 };
    let problem = engine::run(cell).expect_err("no device");
    assert_eq!(problem.key, "ana");
    assert!(problem.text.contains("every path begins inaccessible"), "{problem}");
}
