//! On a terminal: looks, draws and follows keys until told to end.

use super::frame::Frame;
use super::keys::Keys;
use super::screen::{Around, Canvas, screen};
use super::state::{Action, State};
use super::terminal::{Terminal, in_background};
use super::text::Bars;
use super::{Watched, check_device, clock};
use crate::daemon::top::TopView;
use crate::failure::Failure;
use anabranch_rt::signal::{TerminalSignal, TerminalSignals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, kill_current_process_group};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

/// The first interval: one does not want to wait for the first figures.
const FIRST: Duration = Duration::from_millis(500);

/// Looks on a thread of its own, so that keys work while a host does not answer.
struct Looker {
    ask: SyncSender<()>,
    answers: Receiver<Result<TopView, Failure>>,
    /// Readable when there is an answer.
    bell: UnixStream,
    /// An answer is owed.
    asked: bool,
}

impl Looker {
    fn start(
        mut look: impl FnMut() -> Result<TopView, Failure> + Send + 'static,
    ) -> io::Result<Looker> {
        let (ask, asked) = sync_channel(1);
        let (answer, answers) = sync_channel(1);
        let (bell, mut button) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        let looks = move || {
            // It ends when nobody asks or listens any more.
            while asked.recv().is_ok() {
                if answer.send(look()).is_err() || button.write_all(&[0]).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("look".to_owned()).spawn(looks)?;
        Ok(Looker { ask, answers, bell, asked: false })
    }

    /// One look at a time: a host that does not keep up is not asked more.
    fn ask(&mut self) {
        if !self.asked {
            self.asked = self.ask.try_send(()).is_ok();
        }
    }

    /// The answer, if there is one.
    ///
    /// # Errors
    /// There will be none any more: the thread has ended before its time.
    fn answer(&mut self) -> Result<Option<Result<TopView, Failure>>, Failure> {
        let mut rings = [0; 16];
        // Nothing to read is no mistake.
        let _ = self.bell.read(&mut rings);
        match self.answers.try_recv() {
            Ok(answer) => {
                self.asked = false;
                Ok(Some(answer))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                Err(Failure::failed("the thread that asks the host has ended unexpectedly"))
            }
        }
    }
}

/// The program on a terminal.
pub(super) struct Watch<'a> {
    watched: &'a Watched,
    state: State,
    before: TopView,
    frame: Frame,
    lost: Option<String>,
    looker: Looker,
    /// When to look next.
    due: Instant,
    frames_left: Option<u64>,
    keys: Keys,
    bars: Bars,
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::failed(format!("cannot {what}: {error}"))
}

/// Runs until the user, a signal or the number of frames ends it.
///
/// # Errors
/// No host is running at the start, or the terminal fails.
pub(super) fn run(watched: &Watched, colours: bool, bars: Bars) -> Result<(), Failure> {
    // Whoever is not there at the start is a mistake of the caller's; later it is waited for. Until
    // there is something to show, signals end the process.
    let first = watched.place.look()?;
    check_device(&first, watched.device.as_deref())?;
    // Before any thread is started.
    let signals = TerminalSignals::install().map_err(failed("take over signals"))?;
    let place = watched.place.clone();
    let looker = Looker::start(move || place.look()).map_err(failed("start a thread"))?;
    let mut watch = Watch {
        state: State::new(watched.delay),
        frame: Frame::of(watched.device.as_deref(), &first, None),
        before: first,
        lost: None,
        looker,
        due: Instant::now() + watched.delay.min(FIRST),
        frames_left: watched.iterations,
        keys: Keys::default(),
        bars,
        watched,
    };
    let terminal = Terminal::take(colours).map_err(failed("take over the terminal"))?;
    let end = watch.follow(&terminal, &signals);
    drop(terminal);
    end
}

impl Watch<'_> {
    fn follow(&mut self, terminal: &Terminal, signals: &TerminalSignals) -> Result<(), Failure> {
        loop {
            self.draw(terminal)?;
            if self.frames_left == Some(0) {
                return Ok(());
            }
            let (typed, signalled) = self.wait(signals).map_err(failed("wait"))?;
            if signalled && signals.next().map_err(failed("read signals"))? == TerminalSignal::End {
                return Ok(());
            }
            if typed && self.typed(terminal)? {
                return Ok(());
            }
            if let Some(answer) = self.looker.answer()? {
                self.looked(answer);
            }
            if !self.state.paused && Instant::now() >= self.due {
                self.looker.ask();
                self.due = Instant::now() + self.state.delay;
            }
        }
    }

    /// Waits for a key, a signal, an answer, or the time for the next look; whether the first two
    /// came.
    fn wait(&self, signals: &TerminalSignals) -> io::Result<(bool, bool)> {
        let limit = self.due.saturating_duration_since(Instant::now());
        let limit = Timespec::try_from(limit)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the delay is too long"))?;
        let stdin = io::stdin();
        let mut fds = [
            PollFd::new(&stdin, PollFlags::IN),
            PollFd::new(signals, PollFlags::IN),
            PollFd::new(&self.looker.bell, PollFlags::IN),
        ];
        match poll(&mut fds, (!self.state.paused).then_some(&limit)) {
            Ok(_) => Ok((!fds[0].revents().is_empty(), !fds[1].revents().is_empty())),
            Err(rustix::io::Errno::INTR) => Ok((false, false)),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads keys; whether the user wants to end.
    fn typed(&mut self, terminal: &Terminal) -> Result<bool, Failure> {
        let mut bytes = [0; 256];
        let length = match rustix::io::read(io::stdin(), &mut bytes) {
            // Nobody types any more.
            Ok(0) => return Ok(true),
            Ok(length) => length,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => 0,
            Err(error) => return Err(failed("read the terminal")(error.into())),
        };
        let (width, height) = terminal.size();
        let page = Canvas { width, height, bars: self.bars }.page();
        for key in self.keys.feed(&bytes[..length]) {
            let delay = self.state.delay;
            match self.state.press(key, Some(&self.frame), page) {
                Action::Draw => {}
                Action::Look => self.looker.ask(),
                Action::Quit => return Ok(true),
                Action::Suspend => {
                    terminal.leave();
                    // As the shell's own Control-Z: the whole pipeline stops, and goes on from
                    // here.
                    let stop = kill_current_process_group(Signal::TSTP);
                    stop.map_err(|error| failed("stop")(error.into()))?;
                    if in_background() {
                        let text = "top cannot go on in the background: 'fg', not 'bg'";
                        return Err(Failure::failed(text));
                    }
                    terminal.enter().map_err(failed("take over the terminal"))?;
                }
            }
            if self.state.delay != delay {
                self.due = Instant::now() + self.state.delay;
            }
        }
        Ok(false)
    }

    /// A host that has gone is waited for; the last figures stay.
    fn looked(&mut self, answer: Result<TopView, Failure>) {
        match answer {
            Ok(now) => {
                let device = self.watched.device.as_deref();
                self.frame = Frame::of(device, &now, Some(&self.before));
                self.before = now;
                self.lost = None;
                self.frames_left = self.frames_left.map(|left| left.saturating_sub(1));
            }
            Err(failure) => self.lost = Some(failure.to_string()),
        }
    }

    fn draw(&mut self, terminal: &Terminal) -> Result<(), Failure> {
        let (width, height) = terminal.size();
        let clock = clock();
        let around = Around { clock: Some(&clock), lost: self.lost.as_deref() };
        let canvas = Canvas { width, height, bars: self.bars };
        let lines = screen(Some(&self.frame), &mut self.state, around, canvas);
        terminal.draw(&lines).map_err(failed("draw on the terminal"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the bell rings within ten seconds.
    fn rings(looker: &Looker) -> bool {
        let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
        poll(&mut [PollFd::new(&looker.bell, PollFlags::IN)], Some(&limit)).expect("poll") == 1
    }

    #[test]
    fn an_end_of_the_thread_that_looks_is_told() {
        let mut looks = 0;
        let mut looker = Looker::start(move || {
            looks += 1;
            assert!(looks < 2, "a mistake of ours");
            Err(Failure::failed("no host"))
        })
        .expect("a thread");
        looker.ask();
        assert!(rings(&looker));
        let answer = looker.answer().expect("it lives").expect("an answer");
        assert_eq!(answer.expect_err("as it was told").to_string(), "no host");
        assert!(looker.answer().expect("it lives").is_none());
        looker.ask();
        assert!(rings(&looker));
        let end = looker.answer().expect_err("it has ended").to_string();
        assert!(end.contains("has ended unexpectedly"), "{end}");
    }
}
