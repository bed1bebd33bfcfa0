//! Paths that fail, fall silent, return and change, without an error to the load.

use super::rig::*;
use anabranch_lab::cell::Cell;
use anabranch_lab::light;

fn text(changes: &str) -> String {
    format!(
        r#"
[run]
ramp = "100ms"
window = "900ms"
[host]
workers = 2
detect = "200ms"
[[path]]
name = "a"
rate = "40MiB/s"
[[path]]
name = "b"
rate = "40MiB/s"
{changes}
[[job]]
rw = "randrw"
bs = "16k"
iodepth = 8
numjobs = 2
size = "32m"
"#
    )
}

/// At a time since the beginning of the window, 100 ms after that of the run.
fn change(at_ms: u64, what: &str) -> String {
    format!("[[change]]\nat = \"{at_ms}ms\"\npath = \"b\"\n{what}\n")
}

#[test]
fn a_cut_path_is_left_at_once_and_used_again_when_it_is_back() {
    let text = text(&(change(200, "state = \"cut\"") + &change(500, "state = \"up\"")));
    for name in ["queue-depth", "round-robin", "latency"] {
        let figures = run(&scenario(&text), name, 1);
        assert!(bytes_between(&figures, 1, 150, 300) > 1 << 20, "{name}: before");
        assert_eq!(bytes_between(&figures, 1, 350, 600), 0, "{name}: while it is cut");
        assert!(bytes_between(&figures, 0, 350, 600) > 9 << 20, "{name}: the other one meanwhile");
        assert!(bytes_between(&figures, 1, 650, 1000) > 1 << 20, "{name}: after");
    }
}

#[test]
fn silence_is_noticed_after_the_time_that_the_scenario_says() {
    let text = text(&(change(200, "state = \"silent\"") + &change(700, "state = \"up\"")));
    let figures = run(&scenario(&text), "round-robin", 1);
    let series = &figures.series;
    let requests = |from_ms: u64, to_ms: u64| -> u64 {
        let windows = (from_ms / 50) as usize..(to_ms / 50) as usize;
        series.requests[windows].iter().sum()
    };
    // Everything is soon on the silent path, until its host gives it up after 200 ms.
    assert!(requests(200, 300) > 200);
    assert_eq!(requests(350, 500), 0, "{:?}", series.requests);
    assert!(requests(500, 550) > 50, "{:?}", series.requests);
    assert!(bytes_between(&figures, 1, 850, 1000) > 1 << 20, "it is back");
}

#[test]
fn silence_that_ends_before_it_is_noticed_loses_nothing() {
    let text = text(&(change(200, "state = \"silent\"") + &change(350, "state = \"up\"")));
    let figures = run(&scenario(&text), "round-robin", 1);
    assert!(bytes_between(&figures, 1, 500, 600) > 1 << 20);
}

#[test]
fn without_any_path_requests_wait_for_one() {
    let both = |at, what: &str| change(at, what) + &change(at, what).replace("\"b\"", "\"a\"");
    let text = text(&(both(200, "state = \"cut\"") + &both(500, "state = \"up\"")));
    let figures = run(&scenario(&text), "queue-depth", 1);
    assert_eq!(bytes_between(&figures, 0, 350, 600), 0);
    assert!(bytes_between(&figures, 0, 650, 1000) > 5 << 20);
}

#[test]
fn ana_states_and_shapes_change_under_way() {
    let text = text(
        &(change(200, "ana = \"inaccessible\"")
            + &change(400, "ana = \"optimized\"")
            + &change(600, "rate = \"4MiB/s\"")),
    );
    let figures = run(&scenario(&text), "queue-depth", 1);
    assert!(bytes_between(&figures, 1, 100, 300) > 6 << 20);
    assert_eq!(bytes_between(&figures, 1, 400, 500), 0);
    assert!(bytes_between(&figures, 1, 550, 700) > 4 << 20);
    // 4 MiB/s in each direction.
    let slow = bytes_between(&figures, 1, 850, 1000);
    assert!((800 << 10..1400 << 10).contains(&slow), "{slow}");
}

#[test]
fn a_path_that_is_congested_for_longer_than_silence_may_last_is_not_given_up() {
    let congested = "[[path]]\nname = \"b\"\nonoff = { on = \"300ms\", off = \"600ms\" }\n";
    let text = text("").replace("[[path]]\nname = \"b\"\n", congested);
    let figures = run(&scenario(&text), "round-robin", 1);
    let windows = figures.series.requests.iter().enumerate();
    let none: Vec<usize> = windows.filter(|(_, ended)| **ended == 0).map(|(at, _)| at).collect();
    // Off from 300 to 900 ms; soon everything waits there.
    assert_eq!(none, (7..18).collect::<Vec<_>>(), "{:?}", figures.series.requests);
}

#[test]
fn numa_keeps_each_worker_on_the_path_of_its_node() {
    let text = r#"
[run]
window = "200ms"
[host]
workers = 3
nodes = [0, 1, 1]
[[path]]
name = "a"
rate = "400MiB/s"
delay = "1ms"
node = 1
[[path]]
name = "b"
rate = "400MiB/s"
delay = "1ms"
[[job]]
rw = "randread"
bs = "4k"
numjobs = 3
size = "32m"
"#;
    let scenario = scenario(text);
    let cell = Cell { scenario: &scenario, variant: variant(&scenario, "numa"), seed: 1 };
    for figures in [run(&scenario, "numa", 1), light::run(cell).expect("it runs")] {
        let [far, near] = [0, 1].map(|path| figures.paths[path].commands);
        assert!(far.abs_diff(2 * near) * 20 < far, "{far} of two workers, {near} of one");
    }
}
