//! Time that workers do not have.

/// When each worker is kept from working.
#[derive(Debug, Default)]
pub(super) struct Stolen {
    workers: Vec<Vec<Theft>>,
}

/// One thief: from `first_ns` on it takes `burst_ns` of every `period_ns`.
#[derive(Clone, Copy, Debug)]
struct Theft {
    first_ns: u64,
    burst_ns: u64,
    period_ns: u64,
}

impl Stolen {
    /// Whether anything is stolen.
    #[inline]
    pub(super) fn any(&self) -> bool {
        !self.workers.is_empty()
    }

    /// When a worker can work at the earliest, from `now` on.
    #[inline]
    pub(super) fn free_at(&self, node: u32, now: u64) -> u64 {
        let Some(thefts) = self.workers.get(node as usize) else { return now };
        let mut at = now;
        loop {
            let before = at;
            for theft in thefts {
                if at >= theft.first_ns {
                    let since = (at - theft.first_ns) % theft.period_ns;
                    if since < theft.burst_ns {
                        at += theft.burst_ns - since;
                    }
                }
            }
            if at == before {
                return at;
            }
        }
    }
}
