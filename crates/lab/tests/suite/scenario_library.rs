//! Every scenario and job file of the repository is read, and says what it is.

use anabranch_lab::light;
use anabranch_lab::scenario::{Scenario, file, fio};
use anabranch_policy::OpClass;
use std::path::{Path, PathBuf};

fn files(below: &str, ending: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(below);
    let entries = std::fs::read_dir(&dir).expect("the library is there");
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the library is readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == ending))
        .collect();
    found.sort();
    found
}

#[test]
fn every_scenario_is_read_and_keeps_its_own_checks() {
    let all = files("", "toml");
    assert!(all.len() >= 40, "only {} scenarios", all.len());
    for path in all {
        let loaded = file::read(&path).unwrap_or_else(|mistake| panic!("{mistake}"));
        let scenario = loaded.scenario;
        assert_eq!(scenario.check(), Ok(()), "{}", path.display());
        for variant in &scenario.variants {
            let cell = light::Cell { scenario: &scenario, variant, seed: 1 };
            assert_eq!(cell.check(), Ok(()), "{}: {}", path.display(), variant.name);
        }
        assert!(!scenario.title.is_empty() && !scenario.source.is_empty(), "{}", path.display());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{}: says in a comment what it shows", path.display());
        for row in &scenario.published {
            let some = [row.iops, row.bytes_s, row.read_bytes_s, row.write_bytes_s];
            let any = some.iter().any(Option::is_some) || !row.commands.is_empty();
            let known = scenario.variants.iter().any(|variant| variant.name == row.variant());
            assert!(known, "{}: no variant {}", path.display(), row.variant());
            assert!(row.host().is_none_or(|host| (1..=scenario.hosts.count).contains(&host)));
            assert!(any, "{}: {row:?}", path.display());
        }
    }
}

#[test]
fn every_job_file_is_read() {
    let all = files("jobs", "fio");
    assert!(all.len() >= 10, "only {} job files", all.len());
    for path in all {
        fio::read(&path).unwrap_or_else(|mistake| panic!("{mistake}"));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{}: says where it is from", path.display());
    }
}

#[test]
fn the_mail_s_second_test_has_the_mail_s_figures() {
    let all = files("", "toml");
    let path = all.iter().find(|path| path.ends_with("service-time-mixed.toml")).unwrap();
    let scenario = file::read(path).unwrap().scenario;
    assert_eq!(scenario.name, "service-time-mixed");
    let rates: Vec<_> = scenario.paths.iter().map(|path| path.shape.rate_out).collect();
    assert_eq!(rates, [Some(237 << 23), Some(56 << 23)]);
    let tuned = scenario.variants.iter().find(|v| v.name == "service-time tuned").unwrap();
    assert_eq!(tuned.weights, [4, 1]);
    let job = &scenario.jobs[0];
    assert_eq!((job.depth, job.clones, job.mix.read), (64, 4, 100));
    assert_eq!(job.sizes.of(OpClass::Read).mean_milli(), (66 << 10) * 1000);
    let row = scenario.published.iter().find(|row| row.policy == "queue-depth").unwrap();
    assert_eq!((row.iops, row.bytes_s), (Some(7642), Some(276 << 20)));
    assert_eq!((row.mean_ns, row.stdev_ns), (Some(33_429_000), Some(45_868_000)));
}

#[test]
fn a_mail_s_job_file_has_a_disk_job_and_a_burner() {
    let all = files("jobs", "fio");
    let path = all.iter().find(|path| path.ends_with("two-hosts-rw.fio")).unwrap();
    let file = fio::read(path).unwrap();
    let [job] = &file.jobs[..] else { panic!("{:?}", file.jobs) };
    assert_eq!((job.depth, job.clones, job.mix.read, job.mix.write), (32, 32, 50, 50));
    let [burner] = &file.burners[..] else { panic!("{:?}", file.burners) };
    assert_eq!((burner.load_percent, burner.clones), (85, 32));
    assert_eq!(file.runtime_ns, Some(120_000_000_000));
    assert_eq!(file.ramp_ns, Some(120_000_000_000));
    let keys: Vec<_> = file.notices.iter().map(|notice| notice.key.as_str()).collect();
    assert_eq!(keys, ["filename", "ramp-time"]);
}

#[test]
fn a_run_s_length_decides_about_latency_s_window() {
    let all = files("", "toml");
    let read = |name: &str| file::read(all.iter().find(|path| path.ends_with(name)).unwrap());
    let windows = |scenario: &Scenario| -> Vec<String> {
        let latency = scenario.variants.iter().filter(|v| v.name.starts_with("latency"));
        latency.map(|v| v.parameters.latency.batch_timeout.to_string()).collect()
    };
    let mut scenario = read("biased-rw.toml").unwrap().scenario;
    let (short, mut long) = (scenario.run, scenario.run);
    assert_eq!(windows(&scenario), ["200ms"; 4], "the standard one, and the file's own");
    long.window_ns = 60_000_000_000;
    scenario.set_run(long);
    assert_eq!(windows(&scenario), ["15"; 4]);
    scenario.set_run(short);
    assert_eq!(scenario, read("biased-rw.toml").unwrap().scenario);
    let named = r#"title = "t"
path = [{ name = "a" }]
job = [{ rw = "randread" }]
variant = [{ name = "latency named", policy = "latency", latency_batch_timeout = "200ms" }]
"#;
    let mut named = file::parse(named, "named.toml").unwrap().scenario;
    named.set_run(long);
    assert_eq!(windows(&named), ["15", "200ms"], "what the file says stays");
    for path in &all {
        let scenario = file::read(path).unwrap().scenario;
        let full = path.file_stem().unwrap().to_string_lossy().ends_with("-full");
        let run = scenario.run;
        assert_eq!(full, run.ramp_ns + run.window_ns >= 180_000_000_000, "{}", path.display());
        assert!(!full || run.runs == 1, "{}: once is enough", path.display());
    }
}
