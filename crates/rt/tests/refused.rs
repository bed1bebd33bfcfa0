//! Where io_uring is forbidden, the error says what to do. Alone in its process: a filter cannot be
//! taken back.

mod support;

use anabranch_rt::{Config, Error, Group};
use support::Engine;

/// Makes `io_uring_setup` fail with `EPERM` for this thread and the threads it starts.
fn forbid_io_uring() {
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let setup = libc::SYS_io_uring_setup as u32;
    let errno = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut filter = [
        // The number of the system call is the first word of what a filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, setup),
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

#[test]
fn the_error_names_the_remedy() {
    forbid_io_uring();
    let error =
        Group::start(Config::named("refused"), vec![Engine::default()], Box::new(|_, _| {}))
            .expect_err("io_uring is forbidden");
    assert!(matches!(error, Error::RingRefused(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("kernel.io_uring_disabled") && text.contains("seccomp"), "{text}");
}
