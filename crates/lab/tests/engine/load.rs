//! Hosts, workers, and the time they have.

use super::rig::*;
use anabranch_lab::adapt::jain_ppm;
use anabranch_lab::cell::Cell;
use anabranch_lab::light::{self, Bound, limit_of_window};
use anabranch_lab::result::{CellResult, Circumstances, Mode};

#[test]
fn hosts_share_a_port_evenly() {
    let text = r#"
[run]
ramp = "100ms"
window = "400ms"
[host]
count = 5
workers = 1
[[path]]
name = "a"
rate = "100MiB/s"
[[path]]
name = "b"
rate = "50MiB/s"
[[job]]
rw = "randread"
bs = "4k"
iodepth = 8
"#;
    let figures = run(&scenario(text), "service-time tuned", 1);
    assert_eq!(figures.hosts.len(), 5);
    assert!(jain_ppm(&figures.hosts) > 990_000, "{:?}", figures.hosts);
    // 150 MiB/s, with 48 bytes of headers for 4096.
    let most = (150 << 20) / 4144 * 4096 / 10 * 4;
    assert!((most * 95 / 100..=most).contains(&figures.bytes), "{} of {most}", figures.bytes);
}

fn one_at_a_time(burner: &str) -> u64 {
    let text = format!(
        r#"
[run]
ramp = "100ms"
window = "1s"
[host]
workers = 1
[target]
read = "100us"
[[path]]
name = "a"
delay = "100us"
[[job]]
rw = "randread"
bs = "4k"
iodepth = 1
{burner}
"#
    );
    run(&scenario(&text), "round-robin", 1).requests
}

#[test]
fn burners_take_time_from_workers() {
    let free = one_at_a_time("");
    // 200 us each and a little travel.
    assert!((4950..=5000).contains(&free), "{free}");
    let burnt = one_at_a_time(
        "[[job]]\nname = \"burn\"\nioengine = \"cpuio\"\ncpuload = 50\ncpuchunks = \"2ms\"\n",
    );
    // Of each 4 ms, 2 are stolen; a request that waits at their end takes its 200 us after it.
    let share = burnt * 100 / free;
    assert!((48..=58).contains(&share), "{burnt} of {free}");
}

#[test]
fn open_loops_and_rates_ask_for_what_they_say() {
    let text = r#"
[run]
ramp = "100ms"
window = "1s"
[[path]]
name = "a"
rate = "100MiB/s"
[[path]]
name = "b"
rate = "100MiB/s"
[[job]]
rw = "randread"
bs = "4k"
poisson_iops = 5000
[[job]]
rw = "randwrite"
bs = "8k"
rate_iops = 1000
iodepth = 4
"#;
    let figures = run(&scenario(text), "queue-depth", 1);
    let [reads, writes, _] = figures.classes.each_ref().map(|class| class.requests());
    // The standard deviation of the open loop is 71.
    assert!((4700..5300).contains(&reads), "{reads}");
    assert!((990..=1010).contains(&writes), "{writes}");
}

/// One entry of a queue always stays free: here, in the light simulation, and in the limit.
#[test]
fn a_queue_pair_carries_one_command_less_than_it_has_entries() {
    let text = r#"
[run]
ramp = "100ms"
window = "1s"
[host]
workers = 1
queue_depth = 16
[target]
read = 0
[[path]]
name = "a"
delay = "10ms"
[[job]]
rw = "randread"
bs = "4k"
iodepth = 64
"#;
    let scenario = scenario(text);
    let cell = Cell { scenario: &scenario, variant: variant(&scenario, "queue-depth"), seed: 1 };
    let limit = limit_of_window(cell);
    assert_eq!((limit.iops, limit.bound), (1500, Bound::Tags));
    let light = light::run(cell).expect("a cell that can be run").requests;
    let engine = run(&scenario, "queue-depth", 1).requests;
    assert_eq!(light, 1500);
    assert!((1480..=1500).contains(&engine), "{engine}");
}

/// A host holds so many requests, and the load what comes on top: it is said of both.
#[test]
fn an_open_loop_beyond_what_a_host_holds_is_told() {
    let notes = |iops: u32, window_ms: u32| {
        let text = format!(
            r#"
[run]
ramp = "10ms"
window = "{window_ms}ms"
[[path]]
name = "a"
rate = "20MiB/s"
[[job]]
rw = "randread"
bs = "4k"
poisson_iops = {iops}
"#
        );
        let scenario = scenario(&text);
        let figures = run(&scenario, "queue-depth", 1);
        let cell =
            Cell { scenario: &scenario, variant: variant(&scenario, "queue-depth"), seed: 1 };
        let how = Circumstances::simulated(Mode::Sim);
        CellResult::new(cell, &figures, &how).notes
    };
    // The path carries 5000 a second. Some 100 more, 5000 more, 75000 more.
    assert_eq!(notes(15_000, 10), [""; 0]);
    let [waited] = &notes(50_000, 100)[..] else { panic!("one note") };
    assert!(waited.contains("waited in the load"), "{waited}");
    let [waited, refused] = &notes(800_000, 90)[..] else { panic!("two notes") };
    assert!(waited.contains("waited in the load"), "{waited}");
    assert!(refused.contains("were not started"), "{refused}");
}

/// Writes, and a path so far away that only probes go there.
const FAR: &str = r#"
[run]
ramp = "200ms"
window = "800ms"
[host]
workers = 2
[[path]]
name = "near"
rate = "200MiB/s"
[[path]]
name = "far"
rate = "200MiB/s"
delay = "60ms"
[[job]]
rw = "randwrite"
bs = "4k"
iodepth = 2
numjobs = 2
[[variant]]
name = "without probes"
policy = "finish-time"
finish_time_probes = false
"#;

#[test]
fn probes_are_in_no_figure() {
    let scenario = scenario(FAR);
    let [with, without] = ["finish-time", "without probes"].map(|name| run(&scenario, name, 1));
    assert_ne!(with.hash(), without.hash(), "they were sent");
    for figures in [&with, &without] {
        assert_eq!(figures.classes[0].requests(), 0, "nobody reads");
        let commands: u64 = figures.paths.iter().map(|path| path.commands).sum();
        assert!(commands.abs_diff(figures.requests) <= 4, "{commands}, {}", figures.requests);
    }
    assert!(with.requests * 100 >= without.requests * 97, "they take a per cent at the most");
}
