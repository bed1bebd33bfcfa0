//! Work spread over threads; what comes back does not depend on how many there are.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Does `count` pieces of work, on so many threads at a time. What comes back is in the order of
/// the pieces, however many threads there are. After a failure no further piece is begun.
///
/// # Errors
/// The failure of the first piece, in that order, that failed.
pub fn spread<T: Send, E: Send>(
    count: usize,
    threads: usize,
    work: &(dyn Fn(usize) -> Result<T, E> + Sync),
) -> Result<Vec<T>, E> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results: Vec<Mutex<Option<Result<T, E>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(result) = results.get(place) else { return };
                    let found = work(place);
                    failed.fetch_or(found.is_err(), Ordering::Relaxed);
                    *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
                }
            });
        }
    });
    // A thread that panics has passed that on at the end of the scope. Pieces are begun in order:
    // a place is empty only behind one that failed.
    let results = results.into_iter().map(Mutex::into_inner);
    results.filter_map(|slot| slot.unwrap_or_else(PoisonError::into_inner)).collect()
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn results_are_in_order_and_the_first_failure_is_told() {
        for threads in [0, 1, 3, 100] {
            let square = |place: usize| Ok::<_, ()>(place * place);
            let squares = spread(50, threads, &square).expect("no failure");
            assert_eq!(squares, (0..50).map(|place| place * place).collect::<Vec<_>>());
            let fail = |place: usize| if place % 7 == 6 { Err(place) } else { Ok(place) };
            assert_eq!(spread(50, threads, &fail), Err(6));
        }
        assert_eq!(spread(0, 2, &|_| Err::<(), _>(())), Ok(Vec::new()));
    }
}
