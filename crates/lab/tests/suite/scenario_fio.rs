//! fio's job files: what options mean, what is refused, and fio's own verdict beside ours.

use anabranch_lab::light;
use anabranch_lab::rng::Rng;
use anabranch_lab::scenario::fio::{self, JobFile};
use anabranch_lab::scenario::{BlockSize, BurnerMode, Mix, Order, Sizes, file};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

fn parse(options: &str) -> Result<JobFile, String> {
    fio::parse(&format!("[a]\n{options}\n"), "x.fio").map_err(|mistake| mistake.to_string())
}

fn split(sizes: &[(u32, u32)]) -> Sizes {
    Sizes::Split(sizes.iter().map(|&(bytes, weight)| BlockSize { bytes, weight }).collect())
}

#[test]
fn words_mean_what_fio_makes_of_them() {
    let text = "; a comment\n[global]\nrw=randrw\nrwmixread=70\nbs=4k,8k # both\n\n[global]\n\
                ioengine=io_uring\n[x]\niodepth=0x20\nnumjobs=4\nrate=1m,2k\n\
                size=1g\noffset=64k\nruntime=2m\nramp_time=500ms\ntime_based\n[y]\nbs=16kb\n\
                thinktime=50\n";
    let file = fio::parse(text, "x.fio").unwrap();
    let [x, y] = &file.jobs[..] else { panic!("{file:?}") };
    assert_eq!((x.name.as_str(), x.order), ("x", Order::Random));
    assert_eq!(x.mix, Mix { read: 70, write: 30, trim: 0 });
    assert_eq!((&x.sizes.read, &x.sizes.write), (&Sizes::fixed(4096), &Sizes::fixed(8192)));
    assert_eq!((x.depth, x.clones, x.thinktime_ns), (32, 4, 0));
    assert_eq!((x.rate_bytes.read, x.rate_bytes.write), (Some(1 << 20), Some(2 << 10)));
    assert_eq!((x.size, x.offset), (Some(1 << 30), 64 << 10));
    assert_eq!((file.runtime_ns, file.ramp_ns), (Some(120_000_000_000), Some(500_000_000)));
    assert_eq!((y.mix.read, y.depth, &y.sizes.trim), (70, 1, &Sizes::fixed(16 << 10)));
    assert_eq!(y.thinktime_ns, 50_000);
}

/// fio quiesces a job before it pauses: "no more than 1 I/O will be queued".
#[test]
fn with_thinktime_a_clone_has_one_request_at_a_time() {
    let file = parse("time_based\nioengine=libaio\niodepth=32\nthinktime=1000").unwrap();
    assert_eq!((file.jobs[0].depth, file.jobs[0].thinktime_ns), (1, 1_000_000));
    let said = "before thinktime fio waits until all have ended: iodepth is 1, not 32";
    assert_eq!(file.notices.iter().map(|n| n.text.as_str()).collect::<Vec<_>>(), [said]);
    let file = parse("time_based\nioengine=libaio\nthinktime=1000").unwrap();
    assert_eq!(file.notices, [], "what was one already");
    let file = parse("time_based\nioengine=libaio\niodepth=32\nthinktime=0").unwrap();
    assert_eq!(file.jobs[0].depth, 32);
}

#[test]
fn block_sizes_are_split_as_fio_splits_them() {
    let read = |value: &str| parse(&format!("bssplit={value}")).unwrap().jobs[0].sizes.clone();
    assert_eq!(read("512/30:4k/70").write, split(&[(512, 30), (4096, 70)]));
    assert_eq!(read("4k/60:8k").read, split(&[(4096, 60), (8192, 40)]), "the rest");
    assert_eq!(read("4k:8k:16k").read, split(&[(4096, 33), (8192, 33), (16384, 34)]));
    let each = read("4k/100,8k/100,16k/100");
    assert_eq!((each.read, each.trim), (split(&[(4096, 100)]), split(&[(16384, 100)])));
    let some = read(",8k/100");
    assert_eq!((some.read, some.trim), (Sizes::fixed(4096), split(&[(8192, 100)])));
}

/// As fio's `jobname` has it.
#[test]
fn a_section_may_give_its_job_another_name() {
    let text = "[global]\nname=all\nrw=read\n[a]\nname=x\nname= y z\n[b]\n[c]\nioengine=cpuio\n\
                cpuload=5\nname=burner\n";
    let file = fio::parse(text, "x.fio").unwrap();
    let names: Vec<_> = file.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!((names, file.burners[0].name.as_str()), (vec![" y z", "b"], "burner"));
}

/// As often as fio does it: 8072, 7916 and 4012 of 20,000 with `bsrange=4k-10k`.
#[test]
fn the_largest_size_of_a_range_is_drawn_where_it_is_no_multiple() {
    let sizes = &parse("bsrange=4k-10k").unwrap().jobs[0].sizes.read;
    assert_eq!((sizes.largest(), sizes.mean_milli()), (10_240, 6_963_200));
    let mut rng = Rng::new(1);
    let mut counts = BTreeMap::new();
    (0..20_000).for_each(|_| *counts.entry(sizes.draw(&mut rng)).or_insert(0u64) += 1);
    let found: Vec<_> = counts.into_iter().collect();
    let [(4096, small), (8192, middle), (10_240, large)] = found[..] else { panic!("{found:?}") };
    for (count, wanted) in [(small, 8000), (middle, 8000), (large, 4000)] {
        assert!(u64::abs_diff(count, wanted) < 300, "{found:?}");
    }
}

#[test]
fn a_range_of_multiples_has_them_all_equally_often() {
    let sizes = &parse("bsrange=1536-12k").unwrap().jobs[0].sizes.read;
    assert_eq!((sizes.largest(), sizes.mean_milli()), (12_288, 6_912_000));
    let (mut rng, mut steps) = (Rng::new(7), Rng::new(7));
    for place in 0..10_000 {
        let step = u32::try_from(steps.below(8)).unwrap();
        assert_eq!(sizes.draw(&mut rng), 1536 * (step + 1), "draw {place}");
    }
}

#[test]
fn engines_decide_about_depth_and_burners() {
    let file = parse("iodepth=32").unwrap();
    assert_eq!(file.jobs[0].depth, 1);
    let said: Vec<_> = file.notices.iter().map(|n| n.text.as_str()).collect();
    assert!(said.contains(&"psync does one request at a time: iodepth is 1, not 32"), "{said:?}");
    assert_eq!(parse("iodepth=32\nioengine=libaio").unwrap().jobs[0].depth, 32);
    let text = "[d]\nrw=read\n[b]\nioengine=cpuio\ncpuload=85\ncpuchunks=100\ncpumode=qsort\n";
    let burner = &fio::parse(text, "x.fio").unwrap().burners[0];
    assert_eq!((burner.load_percent, burner.chunk_ns), (85, 100_000));
    assert_eq!((burner.mode, burner.clones), (BurnerMode::Qsort, 1));
}

#[test]
fn each_mistake_is_a_sentence_with_its_line() {
    for (options, wanted) in [
        (
            "bssplit=4k/50:8k/51",
            "x.fio:2: bssplit: the percentages of 4k/50:8k/51 add up to 101; \
            they must be 100",
        ),
        (
            "bssplit=4k/40:8k/50",
            "x.fio:2: bssplit: the percentages of 4k/40:8k/50 add up to 90; \
            they must be 100",
        ),
        (
            "rw=read\nverfiy=crc32c",
            "x.fio:3: verfiy: no such option of fio is known here; leave it out",
        ),
        (
            "rw=read\nstonewall",
            "x.fio:3: stonewall: jobs run all at once here; make a file of what waits for others",
        ),
        ("iodeph=4", "x.fio:2: iodeph: no such option of fio is known here; did you mean iodepth?"),
        ("rw=", "x.fio:2: rw: needs a value"),
        (
            "rw=randread:8",
            "x.fio:2: rw: strides and runs (randread:N) are not simulated; write \
            rw=randread",
        ),
        ("iodepth=0", "x.fio:2: iodepth: 0 is out of range; write 1 or more"),
        ("bs=4q", "x.fio:2: bs: 4q is no size; write a whole number with k, m, g or t: 4096, 64k"),
        (
            "runtime=1 week",
            "x.fio:2: runtime: 1 week is no time; write a whole number with us, ms, \
            s, m, h or d",
        ),
        ("rate=-1", "x.fio:2: rate: -1 is no rate; write a number above 0, as 10m"),
        ("rate=1m\nrate_iops=5", "x.fio:1: rate_iops: [a] excludes rate; leave one of them out"),
        ("cpuload=50", "x.fio:1: cpuload: [a] belongs to ioengine=cpuio, which this job is not"),
        ("ioengine=cpuio", "x.fio:1: cpuload: [a] is missing or 0; ioengine=cpuio needs 1 to 100"),
        (
            "ioengine=netsplice",
            "x.fio:2: ioengine: netsplice does no I/O to a block device; write \
            io_uring",
        ),
        ("bs=${BS}", "x.fio:2: bs: variables of the environment are not read; write the value"),
        ("bs=$pagesize", "x.fio:2: bs: fio's keywords are not expanded; write the value"),
        ("include other.fio", "x.fio:2: include: other files are not read; put their lines here"),
        ("size=50%", "x.fio:2: size: percentages of the device are not read; write bytes: 512m"),
        ("cpus_allowed=3-1", "x.fio:2: cpus_allowed: \"3-1\" is no CPU below 4096; write 0-3,6"),
        ("[b\nrw=read", "x.fio:2: [b is no section; write [name]"),
    ] {
        assert_eq!(parse(options).unwrap_err(), wanted, "{options}");
    }
    let read = |text| fio::parse(text, "x.fio").unwrap_err().to_string();
    let none = "x.fio: has no job that does I/O; add a section: [disk] and rw=randread";
    assert_eq!(
        (read(""), read("# only\n"), read("[global]\nbs=4k\n")),
        (none.into(), none.into(), none.into())
    );
    let before = "x.fio:1: rw: stands before the first section; put [global] above it";
    assert_eq!(read("rw=read\n[a]\n"), before);
}

/// Options of one section. `true`: both take them. `false`: fio refuses them, so do we.
const BOTH: &[(&str, bool)] = &[
    ("rw=read", true),
    ("readwrite=randwrite", true),
    ("rw=randtrim", true),
    ("rw=trimwrite", true),
    ("rw=", false),
    ("rw=foo", false),
    ("rw = read", false),
    ("RW=read", false),
    ("rwmixread=70\nrw=randrw", true),
    ("rwmixread=101\nrw=randrw", false),
    ("bs=4k", true),
    ("bs= 4k", true),
    ("bs=4k,8k,16k", true),
    ("bs=4KiB", true),
    ("bs=0x1000", true),
    ("bs=4k # x", true),
    ("bs=0", false),
    ("bs=x", false),
    ("blocksize=64k", true),
    ("bsrange=4k-64k", true),
    ("bsrange=4k-8k,16k-32k", true),
    ("bsrange=4k", false),
    ("bssplit=4k/50:8k/50,,8k/100", true),
    ("bssplit=4k/50:8k", true),
    ("iodepth=4k", true),
    ("iodepth=0", false),
    ("iodepth", false),
    ("numjobs=x", false),
    ("rate=1m,2m", true),
    ("rate_iops=100,200,300", true),
    ("thinktime=1ms", true),
    ("runtime=5m", true),
    ("runtime=x", false),
    ("ramp_time=2s", true),
    ("time_based", true),
    ("time_based=no", false),
    ("group_reporting=1", true),
    ("group_reporting=maybe", false),
    ("norandommap=0", true),
    ("randrepeat=1", true),
    ("randrepeat", false),
    ("randrepeat=x", false),
    ("direct=2", false),
    ("size", false),
    ("filename=", false),
    ("cpus_allowed=0", true),
    ("nosuch=1", false),
    ("ioengine=cpuio\ncpuload=85\ncpumode=foo", false),
    ("cpuload=85", false),
    ("bs=${BS}", false),
];

#[test]
fn ours_is_the_verdict_of_the_table() {
    for (options, good) in BOTH {
        assert_eq!(parse(options).is_ok(), *good, "{options}: {:?}", parse(options));
    }
}

/// fio's verdict about a file, or `None` where there is no fio 3.33.
fn verdict_of_fio(text: &str) -> Option<bool> {
    let version = Command::new("fio").arg("--version").output().ok()?;
    if version.stdout.trim_ascii() != b"fio-3.33" {
        return None;
    }
    let dir = std::env::temp_dir().join(format!("anabranch-fio-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("x.fio");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("fio");
    command.arg("--parse-only").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.env_remove("BS").status().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    Some(status.success())
}

#[test]
fn fio_s_is_the_same_where_fio_is_there() {
    for (options, good) in BOTH {
        match verdict_of_fio(&format!("[a]\nsize=1m\n{options}\n")) {
            None => return,
            Some(verdict) => assert_eq!(verdict, *good, "{options}"),
        }
    }
    assert_eq!(verdict_of_fio("rw=read\n[a]\nsize=1m\n"), Some(false));
}

/// Where Debian's package `fio-examples` has them.
const EXAMPLES: &str = "/usr/share/doc/fio/examples";

#[test]
fn fio_s_own_examples_run_unchanged_where_they_are() {
    let dir = std::env::temp_dir().join(format!("anabranch-examples-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("jobs")).unwrap();
    for (name, block) in [
        ("fio-rand-read", 4096),
        ("fio-rand-write", 4096),
        ("fio-rand-RW", 4096),
        ("fio-seq-read", 4096),
        ("fio-seq-write", 4096),
        ("fio-seq-RW", 4096),
        ("iometer-file-access-server", 512),
    ] {
        let example = Path::new(EXAMPLES).join(format!("{name}.fio"));
        if !example.exists() {
            println!("NOT RUN: no {}: it is in fio-examples", example.display());
            continue;
        }
        std::fs::copy(&example, dir.join(format!("jobs/{name}.fio"))).unwrap();
        let text = format!(
            "title = \"{name}\"\n[run]\nramp = \"10ms\"\nwindow = \"50ms\"\n\
             [target]\nsize = \"10g\"\nblock = {block}\n\
             [[path]]\nname = \"a\"\nrate = \"1gbit\"\n[load]\nfile = \"jobs/{name}.fio\"\n"
        );
        let file = dir.join(format!("{name}.toml"));
        std::fs::write(&file, text).unwrap();
        let loaded = file::read(&file).unwrap_or_else(|mistake| panic!("{mistake}"));
        assert_eq!(loaded.texts[1].text, std::fs::read_to_string(&example).unwrap());
        let scenario = loaded.scenario;
        assert_eq!(scenario.jobs.len(), 1, "{name}");
        let cell = light::Cell { scenario: &scenario, variant: &scenario.variants[0], seed: 1 };
        assert!(light::run(cell).unwrap().requests > 0, "{name}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn every_example_of_fio_is_read_or_refused_with_a_line() {
    let Ok(entries) = std::fs::read_dir(EXAMPLES) else {
        println!("NOT RUN: no {EXAMPLES}: it is in fio-examples");
        return;
    };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.extension().is_none_or(|ending| ending != "fio") {
            continue;
        }
        if let Err(mistake) = fio::read(&path) {
            let whole = mistake.text.starts_with("has no job that does I/O");
            assert!(mistake.line > 0 || whole, "{mistake}");
        }
    }
}

#[test]
fn what_examples_ask_for_is_what_they_say() {
    // In other words, for machines without that package.
    let text = "[global]\nname=r\nfilename=r\nrw=randread\nbs=4K\ndirect=0\nnumjobs=1\ntime_based\n\
                runtime=900\n[file1]\nsize=10G\nioengine=libaio\niodepth=16\n";
    assert_eq!(fio::parse(text, "r.fio").unwrap().jobs[0].size, Some(10 << 30));
    let text = "[global]\ndescription=a file server\n[i]\nrw=randrw\nrwmixread=80\ndirect=1\n\
                bssplit=512/10:1k/5:2k/5:4k/60:8k/2:16k/4:32k/4:64k/10\nsize=4g\n\
                ioengine=libaio\niodepth=64\n";
    assert_eq!(fio::parse(text, "i.fio").unwrap().jobs[0].depth, 64);
}
