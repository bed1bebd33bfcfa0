//! What becomes of completions that a file system seldom gives: they are told to the driver as if
//! the kernel had given them.

use super::lane::{OWN_THREADS, READS_PER_FILE, THREADS_PER_FILE};
use super::{FILE_THREADS, THREAD_LIMIT, THREAD_PAUSE};
use crate::driver::{Driver, Event, Uring};
use crate::memory::{Pool, Regions};
use crate::{Config, Files};
use anabranch_proto::machine::{BufRef, Buffers, DiskId, DiskOp, FileId, SystemError, Time};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A driver whose operations never reach the kernel, and a file.
struct Still {
    driver: Uring,
    file: FileId,
    _wake: OwnedFd,
}

fn still() -> Still {
    let files = Files::new();
    let file = files.register(File::open("/dev/null").expect("opened"));
    let config = Config { files, ..Config::default() };
    let regions = Arc::new(Regions::new(1, 4 << 20).expect("memory"));
    let wake = eventfd(0, EventfdFlags::CLOEXEC).expect("an event descriptor");
    let driver = Uring::new(&config, regions, Arc::default(), wake.as_fd()).expect("a ring");
    Still { driver, file, _wake: wake }
}

impl Still {
    fn told(&mut self) -> Option<(u64, Result<u32, SystemError>)> {
        self.driver.next_event().map(|event| match event {
            Event::DiskDone { id, result } => (id.0, result),
            other => panic!("{other:?}"),
        })
    }
}

/// They would take every thread that the system has for work on files, also from other files.
#[test]
fn work_on_one_file_that_hangs_leaves_threads_to_others() {
    let mut still = still();
    let other = still.driver.files.register(File::open("/dev/null").expect("opened"));
    let zero = |from: u64| DiskOp::Zero { offset: from << 20, len: 4096, deallocate: false };
    let sync = |from: u64| DiskOp::Sync { offset: from << 20, len: 4096 };
    let with_system = |still: &Still| still.driver.disk.tasks.iter().flatten().count();
    let all = u64::from(THREADS_PER_FILE) + 4;
    for id in 0..all {
        let op = if id % 2 == 0 { zero(id) } else { sync(id) };
        still.driver.disk(DiskId(id), still.file, op);
    }
    assert_eq!(with_system(&still), THREADS_PER_FILE as usize);
    assert!(still.driver.files.is_busy(still.file), "those that wait keep it, too");
    still.driver.disk(DiskId(100), other, zero(0));
    still.driver.disk(DiskId(101), still.file, DiskOp::Flush);
    assert_eq!(with_system(&still), THREADS_PER_FILE as usize + 2, "these do not wait for them");
    let mut told = BTreeSet::new();
    while told.len() < all as usize + 2 {
        let slot = still.driver.disk.tasks.iter().position(Option::is_some).expect("one of them");
        still.driver.disk_step_done(slot as u32, 0);
        assert!(with_system(&still) <= THREADS_PER_FILE as usize + 2);
        while let Some((id, result)) = still.told() {
            assert_eq!(result, Ok(0));
            assert!(told.insert(id), "{id} ends once");
        }
    }
    assert_eq!(with_system(&still), 0);
    still.driver.disk(DiskId(200), still.file, zero(0));
    assert_eq!(with_system(&still), 1, "there is room again");
}

/// Reads of a file that is registered with `still`: how many of some more than may begin the system
/// has, at first and at the most while they end, and how many are told.
fn reads_of(still: &mut Still, file: FileId, buf: BufRef) -> (usize, usize, usize) {
    let with_system = |still: &Still| still.driver.disk.tasks.iter().flatten().count();
    let all = u64::from(READS_PER_FILE) + 4;
    for id in 0..all {
        still.driver.disk(DiskId(id), file, DiskOp::Read { offset: id << 12, buf });
    }
    let (first, mut most) = (with_system(still), 0);
    let mut told = BTreeSet::new();
    while let Some(slot) = still.driver.disk.tasks.iter().position(Option::is_some) {
        still.driver.disk_step_done(slot as u32, 0);
        most = most.max(with_system(still));
        told.extend(core::iter::from_fn(|| still.told()).map(|(id, _)| id));
    }
    (first, most, told.len())
}

/// On a file system that cannot read without waiting each read takes a thread; elsewhere none does,
/// and as many run as are asked for.
#[test]
fn reads_of_one_file_that_hangs_leave_threads_to_others() {
    let mut still = still();
    let buf = Pool::new(still.driver.regions.clone(), 0).alloc(4096).expect("a buffer");
    let most = READS_PER_FILE as usize;
    let waits = still.driver.files.register(File::open("/proc/version").expect("opened"));
    // Twice: the threads of those that have ended are free again.
    for _ in 0..2 {
        assert_eq!(reads_of(&mut still, waits, buf), (most, most, most + 4));
    }
    let device = still.file;
    assert_eq!(reads_of(&mut still, device, buf), (most + 4, most + 3, most + 4));
}

/// However many files hang, the next one is read, written and flushed at once.
#[test]
fn work_on_files_that_hang_leaves_threads_to_the_next() {
    let mut still = still();
    let buf = Pool::new(still.driver.regions.clone(), 0).alloc(4096).expect("a buffer");
    let with_system = |still: &Still| still.driver.disk.tasks.iter().flatten().count() as u32;
    let next =
        |still: &Still| still.driver.files.register(File::open("/proc/version").expect("opened"));
    let mut ids = 0..;
    let mut had = Vec::new();
    for files in 1..=12 {
        let file = next(&still);
        let before = with_system(&still);
        for from in 0..100 {
            let offset = from << 12;
            let sync = DiskOp::Sync { offset, len: 4096 };
            for op in [DiskOp::Read { offset, buf }, sync] {
                still.driver.disk(DiskId(ids.next().expect("one")), file, op);
            }
        }
        had.push(with_system(&still) - before);
        let (lanes, own) = (with_system(&still), files * OWN_THREADS);
        // One of each file's own is for its writes and one for its flushes.
        assert!(lanes <= FILE_THREADS + files, "{lanes} of {files} files");
        assert!(still.driver.file_threads >= FILE_THREADS + own, "{files} files");
    }
    assert_eq!(had, [65, 33, 17, 9, 5, 3, 2, 1, 1, 1, 1, 1]);
    let mut told = BTreeSet::new();
    while let Some(slot) = still.driver.disk.tasks.iter().position(Option::is_some) {
        still.driver.disk_step_done(slot as u32, 0);
        told.extend(core::iter::from_fn(|| still.told()).map(|(id, _)| id));
    }
    assert_eq!(told.len(), 12 * 200);
    let file = next(&still);
    assert_eq!(reads_of(&mut still, file, buf).0, READS_PER_FILE as usize, "all are free again");
}

/// Those that were running when that began do: the system may report to it what they stand for.
#[test]
fn a_flush_that_has_ended_does_not_wait_for_what_begins_in_its_place() {
    let mut still = still();
    let all = u64::from(THREADS_PER_FILE) + 1;
    for id in 0..all {
        let op = DiskOp::Sync { offset: id << 20, len: 4096 };
        still.driver.disk(DiskId(id), still.file, op);
    }
    for slot in 0..THREADS_PER_FILE {
        still.driver.disk_step_done(slot, 0);
    }
    assert_eq!((still.told(), still.told()), (Some((0, Ok(0))), None));
    still.driver.disk_step_done(0, 0);
    let told = core::iter::from_fn(|| still.told().map(|(id, _)| id)).collect::<Vec<_>>();
    assert_eq!(told, (1..all).collect::<Vec<_>>());
}

#[test]
fn work_that_never_finds_a_thread_fails() {
    let mut still = still();
    still.driver.disk(DiskId(1), still.file, DiskOp::Flush);
    let start = Time::from_ns(1);
    let mut now = start;
    while now.since(start) < THREAD_LIMIT {
        still.driver.put_off(0, now);
        assert_eq!(still.told(), None, "after {:?}", now.since(start));
        let at = still.driver.disk.retry_at().expect("it will be tried again");
        assert_eq!(at, now.after(THREAD_PAUSE));
        now = now.after(Duration::from_secs(1));
        still.driver.retry_disk(now);
    }
    still.driver.put_off(0, now);
    assert_eq!(still.told(), Some((1, Err(SystemError::AGAIN))));
    assert_eq!(still.driver.disk.retry_at(), None, "not tried again");
}

/// A file system that says so again and again must not keep the worker from everything else.
#[test]
fn work_that_is_to_be_tried_again_rests_before() {
    for says in [libc::ECANCELED, libc::EAGAIN] {
        let mut still = still();
        still.driver.disk(DiskId(1), still.file, DiskOp::Flush);
        still.driver.disk_step_done(0, -says);
        assert!(still.driver.disk.retry_at().is_some(), "{says}: tried at once");
        assert_eq!(still.told(), None);
    }
}

#[test]
fn work_that_has_found_a_thread_may_wait_for_the_next() {
    let mut still = still();
    still.driver.disk(DiskId(1), still.file, DiskOp::Flush);
    let start = Time::from_ns(1);
    still.driver.put_off(0, start);
    still.driver.retry_disk(start.after(THREAD_PAUSE));
    still.driver.disk_step_done(0, -libc::EINTR);
    still.driver.put_off(0, start.after(THREAD_LIMIT));
    assert_eq!(still.told(), None);
}

/// The system reports data that it could not write to one of those that ask, and to no other after
/// that: a flush beside it may end well, and earlier, although what it stands for is lost. The
/// engine has to hear of the error first.
#[test]
fn a_flush_that_went_well_is_told_after_those_beside_it() {
    let mut still = still();
    let range = |from: u64| DiskOp::Sync { offset: from << 20, len: 4096 };
    for (id, op) in [DiskOp::Flush, range(1), range(2)].into_iter().enumerate() {
        still.driver.disk(DiskId(id as u64), still.file, op);
    }
    still.driver.disk_step_done(1, 0);
    assert_eq!(still.told(), None, "two run beside it");
    // One that starts later (in the place of that one) has missed nothing of it.
    still.driver.disk(DiskId(3), still.file, range(3));
    still.driver.disk_step_done(2, -libc::EIO);
    assert_eq!(still.told(), Some((2, Err(SystemError::IO))));
    assert_eq!(still.told(), None, "one runs beside it");
    still.driver.disk_step_done(0, 0);
    assert_eq!(still.told(), Some((1, Ok(0))));
    assert_eq!(still.told(), None, "the last one ran beside the first");
    still.driver.disk_step_done(1, 0);
    let last = [still.told(), still.told(), still.told()];
    assert_eq!(last, [Some((0, Ok(0))), Some((3, Ok(0))), None]);
}

/// Whoever comes while the whole file is flushed has written what that flush may not stand for: all
/// of them share the next.
#[test]
fn flushes_of_the_whole_file_run_one_at_a_time() {
    let mut still = still();
    let ids = |ids: std::ops::RangeInclusive<u64>| ids.map(DiskId);
    ids(0..=2).for_each(|id| still.driver.disk(id, still.file, DiskOp::Flush));
    still.driver.disk_step_done(0, 0);
    assert_eq!([still.told(), still.told()], [Some((0, Ok(0))), None]);
    ids(3..=3).for_each(|id| still.driver.disk(id, still.file, DiskOp::Flush));
    still.driver.disk_step_done(0, -libc::EIO);
    let mut failed = [still.told(), still.told()];
    failed.sort_by_key(|told| told.map(|(id, _)| id));
    let error = Err(SystemError::IO);
    assert_eq!(failed, [Some((1, error)), Some((2, error))], "both are told");
    assert_eq!(still.told(), None, "this one runs since");
    still.driver.disk_step_done(0, 0);
    assert_eq!([still.told(), still.told()], [Some((3, Ok(0))), None]);
    // Nobody waits: the next runs at once.
    still.driver.disk(DiskId(4), still.file, DiskOp::Flush);
    still.driver.disk_step_done(0, 0);
    assert_eq!(still.told(), Some((4, Ok(0))));
}

#[test]
fn flushes_of_other_files_do_not_wait() {
    let mut still = still();
    let other = still.driver.files.register(File::open("/dev/null").expect("opened"));
    still.driver.disk(DiskId(0), still.file, DiskOp::Flush);
    still.driver.disk(DiskId(1), other, DiskOp::Flush);
    still.driver.disk_step_done(1, 0);
    assert_eq!(still.told(), Some((1, Ok(0))));
    still.driver.disk_step_done(0, 0);
    assert_eq!(still.told(), Some((0, Ok(0))));
}

/// Somebody else may want it: another target, or the file system its room.
#[test]
fn a_file_that_was_let_go_is_closed_when_its_last_operation_has_ended() {
    let mut still = still();
    let files = still.driver.files.clone();
    let open = files.get(still.file).as_ref().map(Arc::downgrade).expect("it is there");
    still.driver.disk(DiskId(0), still.file, DiskOp::Flush);
    still.driver.disk_step_done(0, 0);
    assert!(!files.is_busy(still.file), "nothing is done to it");
    for id in 1..=2 {
        still.driver.disk(DiskId(id), still.file, DiskOp::Flush);
    }
    assert!(files.is_busy(still.file));
    files.forget(still.file);
    still.driver.disk_step_done(0, 0);
    assert!(open.upgrade().is_some(), "the second flush, which waited for the first");
    still.driver.disk_step_done(0, 0);
    assert!(open.upgrade().is_none());
    let told: Vec<_> = std::iter::from_fn(|| still.told()).collect();
    assert_eq!(told, [(0, Ok(0)), (1, Ok(0)), (2, Ok(0))]);
    still.driver.disk(DiskId(3), still.file, DiskOp::Flush);
    assert_eq!(still.told(), Some((3, Err(SystemError(libc::EBADF)))), "it is gone");
}

#[test]
fn nothing_is_kept_of_files_that_were_let_go() {
    let mut still = still();
    still.driver.disk(DiskId(0), still.file, DiskOp::Flush);
    for id in 1..=9 {
        let file = still.driver.files.register(File::open("/dev/null").expect("opened"));
        still.driver.disk(DiskId(id), file, DiskOp::Flush);
        still.driver.files.forget(file);
        assert!(still.driver.files.get(file).is_none());
        still.driver.disk_step_done(1, 0);
        assert_eq!(still.told(), Some((id, Ok(0))));
    }
    assert!(still.driver.disk.files.len() <= 2, "{:?}", still.driver.disk.files.keys());
    still.driver.files.forget(still.file);
    still.driver.disk_step_done(0, 0);
    assert_eq!(still.told(), Some((0, Ok(0))), "it was kept while something was done to it");
}
