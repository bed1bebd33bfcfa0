//! Each mistake in a scenario file is one sentence with file, line, key, limit and remedy.

use anabranch_lab::scenario::{Alteration, PathState, file};
use std::fs::File;
use std::time::Duration;

/// Two paths and a job, in six lines; what a test adds begins on line 7.
const GOOD: &str = r#"title = "t"
path = [
  { name = "fast", rate = "1gbit", delay = "1ms" },
  { name = "slow", rate = "100mbit" },
]
job = [{ rw = "randread" }]
"#;

fn sentence(text: &str) -> String {
    match file::parse(text, "x.toml") {
        Ok(loaded) => panic!("{text}\nwas read: {loaded:?}"),
        Err(mistake) => mistake.to_string(),
    }
}

/// What is said about [`GOOD`] with `lines` behind it.
#[track_caller]
fn added(lines: &str, wanted: &str) {
    assert_eq!(sentence(&format!("{GOOD}{lines}\n")), wanted, "{lines}");
}

/// What is said about [`GOOD`] with `from` replaced.
#[track_caller]
fn changed(from: &str, to: &str, wanted: &str) {
    assert!(GOOD.contains(from));
    assert_eq!(sentence(&GOOD.replace(from, to)), wanted, "{to}");
}

#[test]
fn the_good_file_is_good() {
    let scenario = file::parse(GOOD, "dir/x.toml").unwrap().scenario;
    assert_eq!((scenario.name.as_str(), scenario.paths.len()), ("x", 2));
    assert_eq!(scenario.variants.len(), 10, "every policy, and service-time tuned");
}

#[test]
fn keys() {
    added("[run]\nwindwo = \"3s\"", "x.toml:8: windwo: no such key; did you mean window?");
    added("[run]\nx = 1", "x.toml:8: x: no such key; there are ramp, window, runs");
    added("[hosts]\ncount = 1", "x.toml:7: hosts: no such key; did you mean host?");
    changed("delay", "dealy", "x.toml:3: dealy: no such key; did you mean delay?");
    changed("rw = ", "rwmix = 1, rw = ", "x.toml:6: rwmix: no such key; did you mean rwmixread?");
    changed("title = \"t\"", "", "x.toml: title: is missing; say in a line what it is");
    added("[run", "x.toml:7: this is no TOML: unclosed table, expected `]`");
}

#[test]
fn links() {
    let rate = "x.toml:3: rate_in: must lie between 1kbit and 1000gbit";
    changed("\"1gbit\"", "\"0bit\"", &rate.replace("rate_in", "rate"));
    changed("\"1gbit\"", "\"-5mbit\"", "x.toml:3: rate: -5mbit is negative; it must be 0 or more");
    changed(
        "\"1gbit\"",
        "\"fast\"",
        "x.toml:3: rate: fast is no rate; write \"500mbit\", \"10gbit\" or \"60MiB/s\"",
    );
    changed(
        "\"1gbit\"",
        "\"1gbit\", rate_in = \"1gbit\"",
        "x.toml:3: rate_in: rate already means both; leave one of them out",
    );
    changed("\"1ms\"", "\"61s\"", "x.toml:3: delay: must not exceed 60s");
    changed("\"1ms\"", "\"1ms\", jitter = \"2ms\"", "x.toml:3: jitter: must not exceed delay");
    changed(
        "\"1ms\"",
        "\"1 parsec\"",
        "x.toml:3: delay: 1 parsec is no time; write \"250us\", \"30ms\" or \"1.5s\"",
    );
    changed(
        "\"1ms\"",
        "\"1ms\", brownout = { percent = 101, delay = \"1s\" }",
        "x.toml:3: brownout: percent must lie between 1 and 100",
    );
    changed("\"1ms\"", "\"1ms\", onoff = { on = \"50ms\" }", "x.toml:3: off: is missing");
    changed(
        "\"1ms\"",
        "\"1ms\", ana = \"best\"",
        "x.toml:3: ana: best is none of optimized, non-optimized, inaccessible",
    );
    changed("\"1ms\"", "\"1ms\", weight = 101", "x.toml:3: weight: must lie between 0 and 100");
}

#[test]
fn paths() {
    let none = "path: there is none; write [[path]] and a name, once for each path";
    assert_eq!(sentence("title = \"t\"\njob = [{ rw = \"read\" }]"), format!("x.toml: {none}"));
    assert_eq!(sentence("title = \"t\"\npath = []"), format!("x.toml:2: {none}"));
    changed("\"slow\"", "\"fast\"", "x.toml:4: name: a path above is already called fast");
    changed("name = \"slow\", ", "", "x.toml:4: name: is missing");
    let many: String = (0..65).map(|i| format!("[[path]]\nname = \"p{i}\"\n")).collect();
    assert_eq!(sentence(&many), "x.toml:1: path: there are 65; at most 64");
}

#[test]
fn what_workers_know_of_paths() {
    let paths: String = (0..64).map(|i| format!("[[path]]\nname = \"p{i}\"\n")).collect();
    let host = "[host]\ncount = 1000\nworkers = 128\n";
    assert_eq!(
        sentence(&format!("title = \"t\"\njob = [{{ rw = \"read\" }}]\n{host}{paths}")),
        "x.toml:4: count: 8192000 in all (hosts x workers x paths); at most 1048576"
    );
}

#[test]
fn parts() {
    added("[run]\nwindow = \"2h\"", "x.toml:8: window: must not exceed 1h together with ramp");
    added("[run]\nruns = 0", "x.toml:8: runs: 0 is out of range; use 1 to 1000");
    added("[host]\ncount = 1001", "x.toml:8: count: 1001 is out of range; use 1 to 1000");
    added("[host]\nworkers = -1", "x.toml:8: workers: -1 is negative; it must be 0 or more");
    added(
        "[host]\nworkers = 4\nnodes = [0, 1]",
        "x.toml:9: nodes: lists 2 nodes for 4 workers; list one per worker",
    );
    added("[target]\nblock = 1000", "x.toml:8: block: must be 512 or 4096");
    added(
        "[target]\ndistribution = \"normal\"",
        "x.toml:8: distribution: normal is none of constant, exponential",
    );
}

#[test]
fn changes() {
    added(
        "[[change]]\nat = \"3s\"\npath = \"slow\"\nstate = \"cut\"",
        "x.toml:8: at: lies after the end; the window is 3s long",
    );
    added(
        "[[change]]\nat = \"1s\"\npath = \"slwo\"\nstate = \"cut\"",
        "x.toml:9: path: there is no path slwo; did you mean slow?",
    );
    added(
        "[[change]]\nat = \"1s\"\npath = \"slow\"\nstate = \"down\"",
        "x.toml:10: state: down is none of up, cut, silent",
    );
    added(
        "[[change]]\nat = \"1s\"\npath = \"slow\"",
        "x.toml:7: change: changes nothing; name a key of [[path]], or state = \"cut\"",
    );
    added(
        "[[change]]\nat = \"0\"\nrepeat = \"1us\"\npath = \"slow\"\nstate = \"cut\"",
        "x.toml:9: repeat: makes more than 100000 changes; repeat less often",
    );
    added(
        "[[change]]\nat = \"1s\"\npath = \"fast\"\njitter = \"2ms\"",
        "x.toml:10: jitter: must not exceed delay",
    );
}

#[test]
fn a_path_that_is_cut_cannot_fall_silent() {
    let change = |at: u32, state: &str| {
        format!("[[change]]\nat = \"{at}s\"\npath = \"slow\"\nstate = \"{state}\"\n")
    };
    added(
        &(change(2, "silent") + &change(1, "cut")),
        "x.toml:10: state: the path is cut by then and cannot fall silent; let it be up first",
    );
    for between in ["up", "silent"] {
        let first = if between == "up" { "cut" } else { "up" };
        let text = change(0, first) + &change(1, between) + &change(2, "silent");
        file::parse(&format!("{GOOD}{text}"), "x.toml").expect("silent after it was up");
    }
}

#[test]
fn loads() {
    changed(
        "{ rw = \"randread\" }",
        "",
        "x.toml:6: job: there is none; write [[job]] and rw = \
        \"randread\", or [load] and a file",
    );
    changed(
        "\"randread\"",
        "\"randread\", bssplit = \"4k/50:8k/51\"",
        "x.toml:6: bssplit: the percentages of 4k/50:8k/51 add up to 101; they must be 100",
    );
    changed(
        "\"randread\"",
        "\"randread\", bs = 1000",
        "x.toml:6: bs: a block size of 1000 bytes is impossible here; use a multiple of the \
         namespace's 4096, up to 16m",
    );
    changed(
        "\"randread\"",
        "\"randread\", bs = \"4k\", bsrange = \"4k-9k\"",
        "x.toml:6: bsrange: a block size of 9216 bytes is impossible here; use a multiple of the \
         namespace's 4096, up to 16m",
    );
    changed(
        "\"randread\"",
        "\"randread\", iodepth = 65536, numjobs = 16",
        "x.toml:6: iodepth: 1048576 requests at once (iodepth x numjobs x hosts); at most 1000000",
    );
    changed(
        "\"randread\"",
        "\"randread\", iodepth = 8, poisson_iops = 100",
        "x.toml:6: poisson_iops: is an open loop: iodepth does not matter there; leave it out",
    );
    for word in ["numjobs = 2", "rate = \"1m\"", "rate_iops = 10", "thinktime = 50"] {
        let name = word.split(' ').next().unwrap_or_default();
        changed(
            "\"randread\"",
            &format!("\"randread\", {word}, poisson_iops = 100"),
            &format!(
                "x.toml:6: poisson_iops: is an open loop: {name} does not matter there; leave it \
                 out"
            ),
        );
    }
    changed(
        "\"randread\"",
        "\"randread\" }, { ioengine = \"cpuio\", cpuload = 5, poisson_iops = 100",
        "x.toml:6: poisson_iops: belongs to requests, and cpuio makes none",
    );
    changed(
        "\"randread\"",
        "\"randread\", runtime = 10",
        "x.toml:6: runtime: belongs to [run]: ramp and window",
    );
    changed(
        "\"randread\"",
        "\"randread\", size = \"2g\"",
        "x.toml:6: size: reaches past the end of the namespace, 1073741824 bytes",
    );
    changed(
        "\"randread\"",
        "\"randread\", cpus_allowed = \"0,4\"",
        "x.toml:6: cpus_allowed: CPU 4: each host has 4 workers, counted from 0",
    );
    let load = GOOD.replace("job = [{ rw = \"randread\" }]", "load = { file = \"../x.fio\" }");
    assert_eq!(
        sentence(&load),
        "x.toml:6: file: must be a relative path below the scenario's directory: \"jobs/mail.fio\""
    );
}

/// A number that is none is told its range: that of the key in its section.
#[test]
fn numbers() {
    for (lines, wanted) in [
        ("[run]\nruns = \"x\"", "8: runs: x is no whole number from 1 to 1000 (in run)"),
        ("[host]\ncount = 1.5", "8: count: 1.5 is no whole number from 1 to 1000 (in host)"),
        (
            "[target]\nservers = \"x\"",
            "8: servers: x is no whole number from 0 to 65536 (in target)",
        ),
        ("[target]\nblock = \"x\"", "8: block: x is no whole number in range (in target)"),
        (
            "[[variant]]\nname = \"a\"\npolicy = \"numa\"\nio_queues = \"x\"",
            "10: io_queues: x is no whole number from 0 to 128 (in variant)",
        ),
    ] {
        added(lines, &format!("x.toml:{wanted}"));
    }
    changed(
        "\"100mbit\"",
        "\"100mbit\", node = \"x\"",
        "x.toml:4: node: x is no whole number from 0 to 63 (in path)",
    );
    // A path that is called like a key of another section.
    let named = GOOD.replace("\"slow\"", "\"runs\"");
    let variant =
        "[[variant]]\nname = \"a\"\npolicy = \"service-time\"\nweights = { runs = \"x\" }\n";
    assert_eq!(
        sentence(&format!("{named}{variant}")),
        "x.toml:10: runs: x is no whole number from 0 to 100 (in weights)"
    );
}

#[test]
fn variants() {
    added("[[variant]]\nname = \"a\"", "x.toml:7: policy: is missing");
    added(
        "[[variant]]\nname = \"numa\"\npolicy = \"numa\"",
        "x.toml:8: name: there is already a variant numa",
    );
    added(
        "[[variant]]\nname = \"a\"\npolicy = \"service-time\"\nweights = { fsat = 4 }",
        "x.toml:10: fsat: there is no path fsat; did you mean fast?",
    );
    added(
        "[[variant]]\nname = \"a\"\npolicy = \"service-time\"\nweights = { fast = 101 }",
        "x.toml:10: fast: a weight lies between 0 and 100",
    );
    added(
        "[[variant]]\nname = \"a\"\npolicy = \"queue-depth\"\nlatency_compete = true",
        "x.toml:10: latency_compete: sets latency, and this variant is queue-depth",
    );
    added(
        "[[variant]]\nname = \"a\"\npolicy = \"numa\"\nweights = { fast = 4 }",
        "x.toml:10: weights: sets service-time, and this variant is numa",
    );
}

#[test]
fn what_a_job_file_asks_of_its_scenario_is_a_mistake_in_the_job_file() {
    let name = format!("anabranch-job-file-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&dir).unwrap();
    let scenario = dir.join("s.toml");
    let load = GOOD.replace("job = [{ rw = \"randread\" }]", "load = { file = \"jobs.fio\" }");
    std::fs::write(&scenario, load).unwrap();
    let job_file = dir.join("jobs.fio");
    std::fs::write(&job_file, "[good]\nrw=read\n\n[small]\nrw=read\nbs=512\n").unwrap();
    let mistake = file::read(&scenario).unwrap_err().to_string();
    let wanted = format!("{}:4: bs: [small] a block size of 512 bytes", job_file.display());
    assert!(mistake.starts_with(&wanted), "{mistake}");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A source may have rows of what the lab does not run; a mistake in a name looks the same.
#[test]
fn a_published_row_that_has_nothing_beside_it_is_told() {
    let rows = ["latency", "latncy", "latency, host 2", "by hand"];
    let rows = rows.map(|policy| format!("[[published]]\npolicy = \"{policy}\"\niops = 1\n"));
    let loaded = file::parse(&format!("{GOOD}{}", rows.concat()), "x.toml").expect("no mistake");
    let told: Vec<String> = loaded.notices.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "x.toml:11: policy: the row stands alone: there is no variant latncy; did you mean \
             latency?",
            "x.toml:14: policy: the row stands alone: hosts count from 1 to 1",
            "x.toml:17: policy: the row stands alone: there is no variant by hand",
        ]
    );
}

#[test]
fn a_large_file_is_refused_before_it_is_read() {
    let dir = std::env::temp_dir().join(format!("anabranch-scenario-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("large.toml");
    // Sparse: 10 GB that take no room.
    File::create(&path).unwrap().set_len(10_000_000_000).unwrap();
    let name = path.display();
    let wanted =
        format!("{name}: has 10000000000 bytes, at most 1048576 are read; is it the right file?");
    assert_eq!(file::read(&path).unwrap_err().to_string(), wanted);
    assert_eq!(anabranch_lab::scenario::fio::read(&path).unwrap_err().to_string(), wanted);
    assert_eq!(file::read(&dir).unwrap_err().text, "is no regular file; name one");
    let small = dir.join("small.toml");
    let load = GOOD.replace("job = [{ rw = \"randread\" }]", "load = { file = \"large.toml\" }");
    std::fs::write(&small, load).unwrap();
    let wanted = format!("{}:6: file: {}", small.display(), wanted.replacen(": has", " has", 1));
    assert_eq!(file::read(&small).unwrap_err().to_string(), wanted, "as a job file");
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(file::read(&path).unwrap_err().text.starts_with("cannot be read: "));
}

#[test]
fn changes_are_written_out_in_the_order_of_time() {
    let text = format!(
        "{GOOD}[run]\nwindow = \"1s\"\n\
         [[change]]\nat = \"700ms\"\npath = \"fast\"\ndelay = \"5ms\"\n\
         [[change]]\nat = \"300ms\"\nrepeat = \"400ms\"\npath = \"slow\"\nstate = \"cut\"\n\
         [[change]]\nat = \"100ms\"\npath = \"fast\"\nrate_out = \"10mbit\"\n\
         ana = \"inaccessible\"\n"
    );
    let scenario = file::parse(&text, "x.toml").unwrap().scenario;
    let at: Vec<_> = scenario.changes.iter().map(|c| (c.at_ns / 1_000_000, c.path)).collect();
    assert_eq!(at, [(100, 0), (100, 0), (300, 1), (700, 0), (700, 1)]);
    let Alteration::Shape(shape) = &scenario.changes[3].what else { panic!() };
    assert_eq!(shape.delay, Duration::from_millis(5));
    assert_eq!(shape.rate_out, Some(10_000_000), "what an earlier change set stays");
    assert_eq!(shape.rate_in, Some(1_000_000_000), "what nobody changed stays");
    assert_eq!(scenario.changes[4].what, Alteration::State(PathState::Cut));
}

#[test]
fn queue_pairs_are_at_most_the_workers() {
    added("[host]\nio_queues = 5", "x.toml:8: io_queues: 5 is out of range; use 1 to 4");
    added(
        "[[variant]]\nname = \"a\"\npolicy = \"numa\"\nio_queues = 5",
        "x.toml:10: io_queues: each host has 4 workers; use 0 to 4",
    );
    let text = format!(
        "{GOOD}[host]\nio_queues = 1\n[[variant]]\nname = \"a\"\npolicy = \"numa\"\nio_queues = 0\n"
    );
    let scenario = file::parse(&text, "x.toml").unwrap().scenario;
    let queues = |name: &str| {
        let variant = scenario.variants.iter().find(|variant| variant.name == name).unwrap();
        variant.queues(&scenario.hosts)
    };
    assert_eq!((queues("numa"), queues("a")), (1, 4), "0 is one per worker, said or not");
}
