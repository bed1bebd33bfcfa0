//! Waiting for the signals that end a program, on an ordinary thread.

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};

/// SIGINT and SIGTERM, taken away from their default action and waited for instead.
#[derive(Debug)]
pub struct Termination {
    signals: File,
}

impl Termination {
    /// Takes the signals over. To be called before any thread is started: threads inherit it.
    ///
    /// # Errors
    /// The system's answer.
    pub fn install() -> io::Result<Termination> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set that the other calls then read and change; all
        // pointers are to that set or null where the interface allows it.
        let fd = unsafe {
            if libc::sigemptyset(set.as_mut_ptr()) != 0
                || libc::sigaddset(set.as_mut_ptr(), libc::SIGINT) != 0
                || libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM) != 0
            {
                return Err(io::Error::last_os_error());
            }
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: signalfd gave us this descriptor, and nobody else knows it.
        Ok(Termination { signals: unsafe { File::from_raw_fd(fd) } })
    }

    /// Waits for one of the signals.
    ///
    /// # Errors
    /// The system's answer.
    pub fn wait(&self) -> io::Result<()> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        (&self.signals).read_exact(&mut info)
    }

    /// Waits for one of the signals, at most so long. Whether one came.
    ///
    /// # Errors
    /// The system's answer.
    pub fn wait_for(&self, limit: std::time::Duration) -> io::Result<bool> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let limit = Timespec::try_from(limit)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the limit is too long"))?;
        let mut fds = [PollFd::new(&self.signals, PollFlags::IN)];
        match poll(&mut fds, Some(&limit)) {
            Ok(0) => Ok(false),
            Ok(_) => self.wait().map(|()| true),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Termination {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}
