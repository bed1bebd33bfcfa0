//! Who used the CPUs: the hosts' threads, the target's, and how idle the machine was.
//!
//! Read from `/proc`. How long a thread has run is there in nanoseconds (`schedstat`), how much of
//! that was in the kernel only in hundredths of a second (`stat`, `USER_HZ`).

use super::LiveError;
use std::fs;

/// One tick of the kernel's counts.
const TICK_NS: u64 = 10_000_000;
/// Fewer ticks than this say little about how time was split: then all ticks so far do.
const FEW_NS: u64 = 50 * TICK_NS;

/// CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// As `stat` has it: how `run_ns` is split.
    user_ns: u64,
    /// As `stat` has it.
    system_ns: u64,
    /// As `schedstat` has it; 0 on a kernel without it, where the two others are all there is.
    run_ns: u64,
}

impl Used {
    pub(super) fn sum(self) -> u64 {
        if self.run_ns > 0 { self.run_ns } else { self.user_ns + self.system_ns }
    }

    /// In user mode; what is too short to be told apart counts as the kernel's.
    pub(super) fn user_ns(self) -> u64 {
        let ticks = u128::from(self.user_ns) + u128::from(self.system_ns);
        let part = u128::from(self.sum()) * u128::from(self.user_ns);
        u64::try_from(part.checked_div(ticks).unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// In the kernel.
    pub(super) fn system_ns(self) -> u64 {
        self.sum() - self.user_ns()
    }

    fn since(self, earlier: Used) -> Used {
        let user_ns = self.user_ns.saturating_sub(earlier.user_ns);
        let system_ns = self.system_ns.saturating_sub(earlier.system_ns);
        let run_ns = self.run_ns.saturating_sub(earlier.run_ns);
        if run_ns > 0 && user_ns + system_ns < FEW_NS {
            return Used { run_ns, ..self };
        }
        Used { user_ns, system_ns, run_ns }
    }
}

/// Counts at one time, or between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// Of the threads whose names begin like the hosts'.
    pub(super) hosts: Used,
    /// Of those that begin like the target's.
    pub(super) target: Used,
    /// Of all CPUs.
    machine: Machine,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Machine {
    idle: u64,
    all: u64,
}

/// Names of threads begin like this.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) hosts: String,
    pub(super) target: String,
}

impl Reading {
    /// The counts so far.
    pub(super) fn take(names: &Names) -> Result<Reading, LiveError> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            LiveError::failed(format!("read CPU times from {what}"), error)
        };
        let mut reading = Reading::default();
        let tasks = "/proc/self/task";
        for task in fs::read_dir(tasks).map_err(|error| failed(tasks, &error))? {
            let task = task.map_err(|error| failed(tasks, &error))?;
            // A thread that has just ended was none of those that we ask for.
            let Ok(text) = fs::read_to_string(task.path().join("stat")) else { continue };
            let Some((name, mut used)) = thread(&text) else { continue };
            let run = fs::read_to_string(task.path().join("schedstat")).ok();
            used.run_ns = run.and_then(|text| first_number(&text)).unwrap_or(0);
            if name.starts_with(&names.hosts) {
                add(&mut reading.hosts, used);
            } else if name.starts_with(&names.target) {
                add(&mut reading.target, used);
            }
        }
        let stat = "/proc/stat";
        let text = fs::read_to_string(stat).map_err(|error| failed(stat, &error))?;
        reading.machine = machine(&text).ok_or_else(|| failed(stat, &"its first line is odd"))?;
        Ok(reading)
    }

    /// What was used since.
    pub(super) fn since(self, earlier: Reading) -> Reading {
        Reading {
            hosts: self.hosts.since(earlier.hosts),
            target: self.target.since(earlier.target),
            machine: Machine {
                idle: self.machine.idle.saturating_sub(earlier.machine.idle),
                all: self.machine.all.saturating_sub(earlier.machine.all),
            },
        }
    }

    /// The share of all CPUs' time in which they had nothing to do, in millionths.
    pub(super) fn idle_ppm(self) -> u64 {
        let Machine { idle, all } = self.machine;
        let share = (u128::from(idle) * 1_000_000).checked_div(u128::from(all)).unwrap_or(0);
        u64::try_from(share).unwrap_or(0)
    }
}

fn add(sum: &mut Used, used: Used) {
    sum.user_ns += used.user_ns;
    sum.system_ns += used.system_ns;
    sum.run_ns += used.run_ns;
}

fn first_number(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Name and times of a thread: fields 2, 14 and 15 of its `stat`. The name stands in parentheses
/// and may hold any character.
fn thread(stat: &str) -> Option<(&str, Used)> {
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let name = stat.get(open + 1..close)?;
    let mut fields = stat.get(close + 1..)?.split_ascii_whitespace().skip(11);
    let mut time = || fields.next()?.parse::<u64>().ok()?.checked_mul(TICK_NS);
    Some((name, Used { user_ns: time()?, system_ns: time()?, run_ns: 0 }))
}

/// The first line of `/proc/stat`: user nice system idle iowait irq softirq steal (guest time is
/// in user's).
fn machine(stat: &str) -> Option<Machine> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<u64> =
        line.split_ascii_whitespace().take(8).map_while(|text| text.parse().ok()).collect();
    let idle = times.get(3)? + times.get(4).unwrap_or(&0);
    Some(Machine { idle, all: times.iter().sum() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_and_spaces_are_read_right() {
        let stat = "17 (a) (b 1) S 1 2 3 0 -1 64 5 0 0 0 42 7 0 0 20 0 3 0 99 1 2";
        let used = Used { user_ns: 42 * TICK_NS, system_ns: 7 * TICK_NS, run_ns: 0 };
        assert_eq!(thread(stat), Some(("a) (b 1", used)));
        assert_eq!(thread("17 (short) S 1 2"), None);
    }

    #[test]
    fn the_finer_sum_is_split_like_the_coarse_one() {
        let used = Used { user_ns: 3 * TICK_NS, system_ns: TICK_NS, run_ns: 44_000_000 };
        assert_eq!((used.user_ns(), used.system_ns()), (33_000_000, 11_000_000));
        let short = Used { run_ns: 5, ..Used::default() };
        assert_eq!((short.user_ns(), short.system_ns()), (0, 5));
        // In a short time single ticks would decide: the thread's whole life does.
        let later = Used { user_ns: 9 * TICK_NS, system_ns: 11 * TICK_NS, run_ns: 144_000_000 };
        let between = later.since(used);
        assert_eq!((between.user_ns(), between.system_ns()), (45_000_000, 55_000_000));
        let much = Used { user_ns: 53 * TICK_NS, run_ns: 544_000_000, ..used };
        assert_eq!(much.since(used).user_ns(), 500_000_000);
        let coarse = Used { run_ns: 0, ..used };
        assert_eq!((coarse.user_ns(), coarse.system_ns()), (3 * TICK_NS, TICK_NS));
    }

    #[test]
    fn idle_time_is_a_share_of_all_time() {
        let text = |line: &str| machine(&format!("{line}\ncpu0 1 1 1 1\n")).unwrap();
        let earlier =
            Reading { machine: text("cpu  10 0 10 80 0 0 0 0 5 0"), ..Reading::default() };
        let later =
            Reading { machine: text("cpu  40 0 40 110 10 0 0 0 5 0"), ..Reading::default() };
        assert_eq!(later.since(earlier).idle_ppm(), 400_000);
        assert_eq!(earlier.since(earlier).idle_ppm(), 0, "no time has passed");
        assert_eq!(machine("intr 5"), None);
    }

    #[test]
    fn a_reading_finds_this_process_threads() {
        let names = Names { hosts: "lab-cpu-test".to_owned(), target: "no-such".to_owned() };
        let (tell, ready) = std::sync::mpsc::channel::<()>();
        let busy = std::thread::Builder::new().name("lab-cpu-test-1".to_owned()).spawn(move || {
            let until = std::time::Instant::now() + std::time::Duration::from_millis(60);
            while std::time::Instant::now() < until {}
            tell.send(()).unwrap();
            // Until the reading was taken.
            std::thread::park_timeout(std::time::Duration::from_secs(60));
        });
        let busy = busy.unwrap();
        ready.recv().unwrap();
        let reading = Reading::take(&names).unwrap();
        busy.thread().unpark();
        busy.join().unwrap();
        assert!(reading.hosts.sum() > 0, "60 ms of work are some ticks");
        assert_eq!(reading.target, Used::default());
    }
}
