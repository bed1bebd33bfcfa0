//! How many files and connections a daemon may have at once.

use super::path::PathSpec;
use anabranch_host::config::ControllerOptions;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as it goes without privileges. What shells and service managers give at
/// first (1024) is meant for programs that use `select`, and is soon used up by connections.
pub fn raise() {
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused, what there was has to do.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// For whoever asks what is going on, for name services, and for the attribute tree.
const SPARE: u64 = 8;

/// What is open where the system does not show it: standard streams, signals, the control socket.
const USUALLY_OPEN: u64 = 8;

/// Files that a controller has: a connection for each queue pair, and one for its admin queue.
#[must_use]
pub(super) fn of_path(path: &PathSpec, workers: u16, shared_queue: bool) -> usize {
    if shared_queue {
        return 2;
    }
    let options = ControllerOptions {
        nr_io_queues: path.nr_io_queues,
        nr_write_queues: path.nr_write_queues.unwrap_or(0),
        ..ControllerOptions::default()
    };
    let (reads, others) = options.io_queues(workers);
    1 + usize::from(reads) + usize::from(others)
}

/// Files that an export has, beside its clients: where it listens, and a lock.
pub(super) const OF_EXPORT: usize = 2;

/// How many NBD clients a data worker may have: all of them together take half of the files at
/// most, and leave what is open now, what the workers open and what is `planned`: those of paths
/// must be there when they come back.
#[must_use]
pub(super) fn nbd_clients(workers: u16, planned: usize) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").map_or(USUALLY_OPEN, |all| all.count() as u64);
    share(getrlimit(Resource::Nofile).current, workers, open + planned as u64)
}

fn share(limit: Option<u64>, workers: u16, taken: u64) -> usize {
    // Each worker has a ring and a mailbox, the control worker, too.
    let taken = taken + SPARE + 2 * (u64::from(workers) + 1);
    let each = limit.map_or(u64::MAX, |limit| {
        limit.saturating_sub(taken).min(limit / 2) / u64::from(workers.max(1))
    });
    usize::try_from(each).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nbd_clients_take_half_of_the_files_at_most() {
        for workers in 1..=128 {
            for limit in [1024, 524_288] {
                let all = share(Some(limit), workers, 8) as u64 * u64::from(workers);
                assert!(all <= limit / 2, "{all} of {limit}");
                assert!(all + u64::from(workers) > limit / 2, "{all} of {limit}");
            }
        }
        assert_eq!(share(None, 1, 8), usize::MAX);
    }

    fn path(nr_io_queues: Option<u16>, nr_write_queues: Option<u16>) -> PathSpec {
        PathSpec { nr_io_queues, nr_write_queues, ..PathSpec::default() }
    }

    #[test]
    fn a_path_has_a_connection_for_each_queue_pair() {
        let of = |io, writes, shared| of_path(&path(io, writes), 4, shared);
        assert_eq!((of(None, None, false), of(Some(9), None, false)), (5, 5));
        assert_eq!((of(Some(2), None, false), of(Some(2), Some(1), false)), (3, 4));
        assert_eq!((of(None, Some(9), false), of(None, Some(9), true)), (9, 2));
    }

    #[test]
    fn nbd_clients_leave_what_paths_need() {
        for workers in 1..=128 {
            for paths in [1, 2, 64] {
                let planned = (paths * of_path(&path(None, None), workers, false)) as u64;
                for limit in [24, 64, 256, 1024] {
                    let clients = share(Some(limit), workers, planned) as u64 * u64::from(workers);
                    assert!(clients == 0 || clients + planned + SPARE <= limit, "{limit}");
                }
            }
        }
        assert_eq!(share(Some(32), 1, 14), 6);
    }
}
