//! How much memory workers may have for payload: what the control group of this process leaves.

use std::fs;
use std::path::{Component, Path};

/// Payload memory of a worker where nothing limits it, bytes.
const USUAL: u64 = 256 << 20;

/// As little is needed so that devices without a path leave some to each other one.
const LEAST: u64 = 64 << 20;

/// Payload memory of each of so many workers, bytes: of what the process may have at most half
/// altogether. The system counts what sockets hold as well, and the rest is for everything else.
pub(super) fn of_each(workers: u16) -> usize {
    within(limit(Path::new("/")), workers)
}

/// What to tell about a limit that leaves less than usual, or not even the least.
pub(crate) fn wording(workers: u16) -> Option<String> {
    told(limit(Path::new("/"))?, workers)
}

fn told(limit: u64, workers: u16) -> Option<String> {
    const MIB: u64 = 1 << 20;
    let each = within(Some(limit), workers) as u64;
    let all = each * u64::from(workers);
    let (limit_mib, each_mib) = (limit / MIB, each / MIB);
    let mut text =
        format!("the control group allows {limit_mib} MiB of memory: {each_mib} MiB of payload");
    if workers > 1 {
        text += &format!(" for each of {workers} workers");
    }
    if all > limit / 2 {
        let fewer = if workers > 1 { "use fewer workers, or " } else { "" };
        text += &format!(", more than half of it: {fewer}allow {} MiB", 2 * all / MIB);
    }
    (each < USUAL).then_some(text)
}

fn within(limit: Option<u64>, workers: u16) -> usize {
    let share = limit.map_or(USUAL, |limit| limit / 2 / u64::from(workers.max(1)));
    share.clamp(LEAST, USUAL) as usize
}

/// The least limit of the control group of this process and those above it, in bytes, as the tree
/// below `root` says (`/` live, a fixture in tests): cgroups(7), both versions.
fn limit(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let (top, files): (_, &[_]) = match controllers {
            // Beyond the second it is not killed, but held up.
            "" => ("sys/fs/cgroup", &["memory.max", "memory.high"]),
            _ if controllers.split(',').any(|one| one == "memory") => {
                ("sys/fs/cgroup/memory", &["memory.limit_in_bytes"])
            }
            _ => return None,
        };
        let group = Path::new(path.trim_start_matches('/'));
        files.iter().filter_map(|file| least(&root.join(top), group, file)).min()
    });
    limits.min()
}

fn least(top: &Path, group: &Path, file: &str) -> Option<u64> {
    // A group outside of those that are shown here starts with "..".
    let inside = group.components().all(|part| matches!(part, Component::Normal(_)));
    let group = if inside { group } else { Path::new("") };
    let read = |at: &Path| fs::read_to_string(top.join(at).join(file)).ok()?.trim().parse().ok();
    group.ancestors().filter_map(read).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const MIB: u64 = 1 << 20;

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Tree {
            let root =
                std::env::temp_dir().join(format!("anabranch-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().expect("a file")).expect("made");
                fs::write(path, text).expect("written");
            }
            Tree(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_least_limit_up_the_tree_counts() {
        let both = Tree::new(
            "memory-both",
            &[
                ("proc/self/cgroup", "5:cpu:/x\n4:memory,hugetlb:/a/b\n0::/c/d\n"),
                ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"),
                ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "3000000\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("sys/fs/cgroup/c/d/memory.max", "max\n"),
                ("sys/fs/cgroup/c/memory.max", "4000000\n"),
                ("sys/fs/cgroup/c/d/memory.high", "max\n"),
            ],
        );
        assert_eq!(limit(&both.0), Some(3_000_000));
        // In a container, whose own group is the uppermost that it sees.
        for group in ["0::/\n", "0::/../other\n"] {
            let name = format!("memory-{}", group.len());
            let files = [("proc/self/cgroup", group), ("sys/fs/cgroup/memory.max", "5000000\n")];
            assert_eq!(limit(&Tree::new(&name, &files).0), Some(5_000_000), "{group}");
        }
        let high = [
            ("proc/self/cgroup", "0::/c\n"),
            ("sys/fs/cgroup/c/memory.max", "max\n"),
            ("sys/fs/cgroup/c/memory.high", "6000000\n"),
        ];
        assert_eq!(limit(&Tree::new("memory-high", &high).0), Some(6_000_000));
        let none = [("proc/self/cgroup", "0::/c\n"), ("sys/fs/cgroup/c/memory.max", "max\n")];
        assert_eq!(limit(&Tree::new("memory-none", &none).0), None);
        assert_eq!(limit(Path::new("/nowhere")), None);
    }

    #[test]
    fn payload_takes_half_of_what_there_is_at_most_and_no_less_than_it_needs() {
        let mib = |limit: Option<u64>, workers| within(limit.map(|it| it * MIB), workers) >> 20;
        assert_eq!(mib(None, 128), 256);
        assert_eq!(mib(Some(100_000), 8), 256);
        assert_eq!(mib(Some(1024), 2), 256);
        assert_eq!(mib(Some(1024), 4), 128);
        assert_eq!(mib(Some(512), 8), 64);
        assert_eq!(mib(Some(64), 8), 64, "less would be of no use");
    }

    #[test]
    fn a_limit_that_leaves_less_than_usual_is_told() {
        let text = |limit: u64, workers| told(limit * MIB, workers);
        assert_eq!(text(1024, 2), None);
        let enough = "the control group allows 256 MiB of memory: 128 MiB of payload";
        assert_eq!(text(256, 1).as_deref(), Some(enough));
        let little = "the control group allows 64 MiB of memory: 64 MiB of payload, more than half \
                      of it: allow 128 MiB";
        assert_eq!(text(64, 1).as_deref(), Some(little));
        let of_many = "the control group allows 200 MiB of memory: 64 MiB of payload for each of 2 \
                       workers, more than half of it: use fewer workers, or allow 256 MiB";
        assert_eq!(text(200, 2).as_deref(), Some(of_many));
    }
}
