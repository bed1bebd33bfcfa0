//! Where io_uring is refused, the error says what to do. A filter cannot be taken back: each test
//! has a thread of its own.

use crate::support::Engine;
use anabranch_rt::{Config, Error, Group};

/// How a group fails to start where this system call ends with this error.
fn refused_with(call: libc::c_long, errno: i32) -> Error {
    let start = move || {
        refuse(call, errno);
        Group::start(Config::named("refused"), vec![Engine::default()], Box::new(|_, _| {}))
            .expect_err("there is no io_uring")
    };
    std::thread::spawn(start).join().expect("an error")
}

/// Makes a system call fail for this thread and the threads it starts.
fn refuse(call: libc::c_long, errno: i32) {
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let errno = libc::SECCOMP_RET_ERRNO | errno as u32;
    let mut filter = [
        // The number of the system call is the first word of what a filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, errno),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: both calls only read their arguments; `program` and `filter` outlive them.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(done, "a filter: {}", std::io::Error::last_os_error());
}

/// The calls that make a ring.
const CALLS: [libc::c_long; 2] = [libc::SYS_io_uring_setup, libc::SYS_io_uring_register];

#[test]
fn the_error_names_the_remedy() {
    // Also where rings may be made and not used.
    for call in CALLS.into_iter().chain([libc::SYS_io_uring_enter]) {
        let error = refused_with(call, libc::EPERM);
        assert!(matches!(error, Error::RingRefused(_)), "{call}: {error:?}");
        let text = error.to_string();
        assert!(text.contains("kernel.io_uring_disabled") && text.contains("seccomp"), "{text}");
    }
}

#[test]
fn a_user_who_may_lock_too_little_memory_is_told_so() {
    for call in CALLS {
        let error = refused_with(call, libc::ENOMEM);
        assert!(matches!(error, Error::RingMemory(_)), "{call}: {error:?}");
        let text = error.to_string();
        assert!(text.contains("ulimit -l") && text.contains("LimitMEMLOCK"), "{text}");
    }
}

#[test]
fn a_system_that_is_too_old_is_named() {
    for call in CALLS {
        let error = refused_with(call, libc::EINVAL);
        assert!(matches!(error, Error::RingTooOld { .. }), "{call}: {error:?}");
        assert!(error.to_string().contains("Linux 6.1"), "{error}");
    }
}
