//! `[[job]]`, `[load]`, `[[published]]`.

use super::super::fio::{self, JobFile, Made, OPTIONS, Words};
use super::super::limits::{MAX_JOBS, MAX_PUBLISHED};
use super::super::mistake::{Mistake, did_you_mean, read_text, shorten};
use super::super::{Arrival, Burner, Hosts, Job, Notice, Published, Target, Variant, library};
use super::table::Table;
use super::{Beside, Text};
use std::path::{Component, Path as FilePath};

/// What a scenario runs.
#[derive(Default)]
pub(super) struct Load {
    pub(super) jobs: Vec<Job>,
    pub(super) burners: Vec<Burner>,
    pub(super) notices: Vec<Notice>,
    /// The job file, if it came from one.
    pub(super) file: Option<Text>,
}

pub(super) fn jobs(
    root: &Table<'_>,
    target: &Target,
    hosts: &Hosts,
    beside: Beside<'_>,
) -> Result<Load, Mistake> {
    if let Some(table) = root.table("load", &["file"])? {
        if root.has("job") {
            return Err(root.fail("load", "excludes [[job]]; leave one of them out"));
        }
        return job_file(&table, target, hosts, beside);
    }
    let mut known = OPTIONS.to_vec();
    known.push("poisson_iops");
    let mut load = Load::default();
    for (index, table) in root.tables("job", &known, MAX_JOBS)?.into_iter().enumerate() {
        let name = table.word("name")?.unwrap_or_else(|| format!("job{}", index + 1));
        match job(&table, &name, &mut load.notices)? {
            Made::Job(job) => {
                table.checked(job.check(target, hosts))?;
                load.jobs.push(*job);
            }
            Made::Burner(burner) => {
                table.checked(burner.check())?;
                load.burners.push(burner);
            }
        }
    }
    if load.jobs.is_empty() {
        let text = "there is none; write [[job]] and rw = \"randread\", or [load] and a file";
        return Err(root.fail("job", text));
    }
    Ok(load)
}

fn job(table: &Table<'_>, name: &str, notices: &mut Vec<Notice>) -> Result<Made, Mistake> {
    let mut words = Words::default();
    // Without a word about an engine, requests are asynchronous.
    words.default_engine("io_uring");
    for key in table.keys() {
        if ["runtime", "timeout", "ramp_time", "time_based"].contains(&key) {
            return Err(table.fail(key, "belongs to [run]: ramp and window"));
        }
        if key == "poisson_iops" {
            let iops = table.must(key, table.number(key)?)?;
            const CLOSED: [&str; 5] = ["iodepth", "numjobs", "rate", "rate_iops", "thinktime"];
            if let Some(word) = CLOSED.iter().find(|word| table.has(word)) {
                let text = format!("is an open loop: {word} does not matter there; leave it out");
                return Err(table.fail(key, text));
            }
            if table.word("ioengine")?.as_deref() == Some("cpuio") {
                return Err(table.fail(key, "belongs to requests, and cpuio makes none"));
            }
            words.set_arrival(Arrival::Poisson { iops });
            continue;
        }
        let value = table.word(key)?;
        match words.set(key, value.as_deref()) {
            Ok(None) => {}
            Ok(Some(text)) => {
                notices.push(table.notice(key, text));
            }
            Err(text) => return Err(table.fail(key, text)),
        }
    }
    let (made, notice) = words.make(name).map_err(|(key, text)| table.fail(key, text))?;
    if let Some(text) = notice {
        notices.push(table.notice("iodepth", text));
    }
    Ok(made)
}

/// A job file beside the scenario.
fn job_file(
    table: &Table<'_>,
    target: &Target,
    hosts: &Hosts,
    beside: Beside<'_>,
) -> Result<Load, Mistake> {
    let name = table.must("file", table.word("file")?)?;
    let path = FilePath::new(&name);
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        let text = "must be a relative path below the scenario's directory: \"jobs/mail.fio\"";
        return Err(table.fail("file", text));
    }
    // Slashes, as the library has them.
    let name = path.components().map(|part| part.as_os_str().to_string_lossy());
    let name = name.collect::<Vec<_>>().join("/");
    let (text, shown) = match beside {
        Beside::Nothing => {
            return Err(table.fail("file", "a scenario without a directory cannot name a job file"));
        }
        Beside::Dir(dir) => {
            let path = dir.join(path);
            // At the line that names it: it is no place in the job file.
            let text = read_text(&path).map_err(|mistake| {
                table.fail("file", format!("{} {}", mistake.file, mistake.text))
            })?;
            (text, path.display().to_string())
        }
        Beside::Library => match library::job_file(&name) {
            Some(text) => (text.to_owned(), name.clone()),
            None => return Err(table.fail("file", "is no job file of the library")),
        },
    };
    let file = fio::parse(&text, &shown)?;
    for (job, &line) in file.jobs.iter().zip(&file.lines) {
        job.check(target, hosts).map_err(|problem| {
            let text = format!("[{}] {}", shorten(&job.name), problem.text);
            Mistake { file: shown.clone(), line, key: problem.key.to_owned(), text }
        })?;
    }
    for burner in &file.burners {
        table.checked(burner.check())?;
    }
    let JobFile { jobs, burners, notices, .. } = file;
    Ok(Load { jobs, burners, notices, file: Some(Text { name, text }) })
}

/// One count per path.
fn commands(table: &Table<'_>, paths: usize) -> Result<Vec<u64>, Mistake> {
    let counts = table.numbers("commands")?.unwrap_or_default();
    if !counts.is_empty() && counts.len() != paths {
        let text = format!("lists {} paths of {paths}; list one count per path", counts.len());
        return Err(table.fail("commands", text));
    }
    Ok(counts.into_iter().map(u64::from).collect())
}

/// Why a row has nothing of the lab's own beside it. It may be meant so.
fn alone(row: &Published, hosts: &Hosts, variants: &[Variant]) -> Option<String> {
    let names: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
    let variant = row.variant();
    let why = if !names.contains(&variant) {
        let near = did_you_mean(variant, &names);
        format!("there is no variant {}{near}", shorten(variant))
    } else if row.host().is_some_and(|host| !(1..=hosts.count).contains(&host)) {
        format!("hosts count from 1 to {}", hosts.count)
    } else {
        return None;
    };
    Some(format!("the row stands alone: {why}"))
}

pub(super) fn published(
    root: &Table<'_>,
    paths: usize,
    hosts: &Hosts,
    variants: &[Variant],
    notices: &mut Vec<Notice>,
) -> Result<Vec<Published>, Mistake> {
    let known = [
        "policy",
        "iops",
        "mib_s",
        "read_mib_s",
        "write_mib_s",
        "mean",
        "stdev",
        "min",
        "max",
        "submission_mean",
        "submission_stdev",
        "submission_min",
        "submission_max",
        "commands",
        "cpu_user",
        "cpu_system",
    ];
    let mut rows = Vec::new();
    for table in root.tables("published", &known, MAX_PUBLISHED)? {
        let row = Published {
            policy: table.must("policy", table.word("policy")?)?,
            iops: table.number("iops")?,
            bytes_s: table.mib_s("mib_s")?,
            read_bytes_s: table.mib_s("read_mib_s")?,
            write_bytes_s: table.mib_s("write_mib_s")?,
            mean_ns: table.time("mean")?,
            stdev_ns: table.time("stdev")?,
            min_ns: table.time("min")?,
            max_ns: table.time("max")?,
            submission_mean_ns: table.time("submission_mean")?,
            submission_stdev_ns: table.time("submission_stdev")?,
            submission_min_ns: table.time("submission_min")?,
            submission_max_ns: table.time("submission_max")?,
            commands: commands(&table, paths)?,
            cpu_user_ppm: table.percent("cpu_user")?,
            cpu_system_ppm: table.percent("cpu_system")?,
        };
        notices.extend(alone(&row, hosts, variants).map(|text| table.notice("policy", text)));
        rows.push(row);
    }
    Ok(rows)
}
