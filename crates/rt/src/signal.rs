//! Waiting for the signals that end a program or concern its terminal, on an ordinary thread.

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};

/// SIGINT, SIGTERM and SIGHUP (unless it is ignored, as under `nohup`), taken away from their
/// default action and waited for instead. SIGXFSZ does nothing any more: a file that may not grow
/// so far (`ulimit -f`) is an error of whoever wanted it, and must not end the program.
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
        // A blocked signal is delivered here even if its action is "ignore".
        let set = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
        let set = if is_ignored(libc::SIGHUP)? { &set[..2] } else { &set[..] };
        block(&[libc::SIGXFSZ])?;
        take_over(set).map(|signals| Termination { signals })
    }

    /// Waits for one of the signals.
    ///
    /// # Errors
    /// The system's answer.
    pub fn wait(&self) -> io::Result<()> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        (&self.signals).read_exact(&mut info)
    }

    /// Waits for one of the signals, or until `other` is readable. Whether a signal came.
    ///
    /// # Errors
    /// The system's answer.
    pub fn wait_or(&self, other: BorrowedFd<'_>) -> io::Result<bool> {
        use rustix::event::{PollFd, PollFlags, poll};
        loop {
            let mut fds = [
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::from_borrowed_fd(other, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
            if !fds[1].revents().is_empty() {
                return Ok(false);
            }
            if !fds[0].revents().is_empty() {
                return self.wait().map(|()| true);
            }
        }
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

/// What a program that draws on a terminal has to notice, taken away from its default action:
/// SIGINT, SIGTERM, SIGHUP and SIGQUIT, so that it can leave the terminal as it was; SIGWINCH, so
/// that it can follow its size.
#[derive(Debug)]
pub struct TerminalSignals {
    signals: File,
}

/// Which of them came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalSignal {
    /// The program is to end.
    End,
    /// The terminal has another size.
    Resize,
}

impl TerminalSignals {
    /// Takes the signals over. To be called before any thread is started: threads inherit it.
    ///
    /// # Errors
    /// The system's answer.
    pub fn install() -> io::Result<TerminalSignals> {
        let set = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGWINCH];
        take_over(&set).map(|signals| TerminalSignals { signals })
    }

    /// Waits for one of the signals; at once when the descriptor is readable.
    ///
    /// # Errors
    /// The system's answer.
    pub fn next(&self) -> io::Result<TerminalSignal> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        (&self.signals).read_exact(&mut info)?;
        // The number stands first in the structure.
        let number = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
        let resize = number == libc::SIGWINCH.unsigned_abs();
        Ok(if resize { TerminalSignal::Resize } else { TerminalSignal::End })
    }
}

impl AsFd for TerminalSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

/// Whether whoever started us wants a signal to be ignored.
fn is_ignored(signal: libc::c_int) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: with no new action sigaction only fills in the old one, which has room for it; it is
    // read only when the call says that it did.
    unsafe {
        if libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(action.assume_init().sa_sigaction == libc::SIG_IGN)
    }
}

/// Blocks the signals; gives back the set of them.
fn block(signals: &[libc::c_int]) -> io::Result<libc::sigset_t> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that the other calls then read and change; all
    // pointers are to that set or null where the interface allows it.
    unsafe {
        if libc::sigemptyset(set.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        for &signal in signals {
            if libc::sigaddset(set.as_mut_ptr(), signal) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let error = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(set.assume_init())
    }
}

/// Blocks the signals and opens a descriptor that they can be read from.
fn take_over(signals: &[libc::c_int]) -> io::Result<File> {
    let set = block(signals)?;
    // SAFETY: the set is initialised, and signalfd only reads it.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: signalfd gave us this descriptor, and nobody else knows it.
    Ok(unsafe { File::from_raw_fd(fd) })
}
