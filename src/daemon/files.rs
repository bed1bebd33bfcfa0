//! How many files and connections a daemon may have at once.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as it goes without privileges. What shells and service managers give at
/// first (1024) is meant for programs that use `select`, and is soon used up by connections.
pub fn raise() {
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused, what there was has to do.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// How many NBD clients a data worker may have: all of them together take half of the files at
/// most. With the rest paths can come back, and people can still ask what is going on.
#[must_use]
pub(super) fn nbd_clients(workers: u16) -> usize {
    share(getrlimit(Resource::Nofile).current, workers)
}

fn share(limit: Option<u64>, workers: u16) -> usize {
    let each = limit.map_or(u64::MAX, |limit| limit / 2 / u64::from(workers.max(1)));
    usize::try_from(each).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn nbd_clients_take_half_of_the_files_at_most() {
        for workers in 1..=128 {
            for limit in [64, 1024, 524_288] {
                let all = share(Some(limit), workers) as u64 * u64::from(workers);
                assert!(all <= limit / 2, "{all} of {limit}");
                assert!(all + u64::from(workers) > limit / 2, "{all} of {limit}");
            }
        }
        assert_eq!(share(None, 1), usize::MAX);
    }
}
