//! On a terminal: what is drawn, keys, signals, sizes, and that the terminal is given back.

use crate::stand::{PATIENCE, Stand};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// The other screen, and back again.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

/// A program on a terminal of its own.
struct Screen {
    keyboard: File,
    terminal: OwnedFd,
    child: Child,
    drawn: Receiver<Vec<u8>>,
    /// What was drawn since the last wait.
    seen: String,
}

impl Screen {
    fn new(mut command: Command, columns: u16, lines: u16) -> Screen {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).expect("a terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("a terminal");
        let terminal = ioctl_tiocgptpeer(&ours, flags).expect("its other end");
        let keyboard = File::from(ours);
        resize(&keyboard, columns, lines);
        let end = || terminal.try_clone().expect("a descriptor");
        command.stdin(end()).stdout(end()).stderr(end()).process_group(0);
        let child = command.spawn().expect("it runs");
        let (send, drawn) = channel();
        let mut reader = keyboard.try_clone().expect("a descriptor");
        std::thread::spawn(move || {
            let mut bytes = [0; 65536];
            // It ends when the test has ended, or with the last who has the terminal.
            while let Ok(length) = reader.read(&mut bytes) {
                if length == 0 || send.send(bytes[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Screen { keyboard, terminal, child, drawn, seen: String::new() }
    }

    /// Waits until all of these were drawn since the last wait.
    fn await_all(&mut self, words: &[&str]) -> String {
        let until = Instant::now() + PATIENCE;
        while !words.iter().all(|words| self.seen.contains(words)) {
            let left = until.saturating_duration_since(Instant::now());
            match self.drawn.recv_timeout(left) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("in {PATIENCE:?} not all of {words:?} in {:?}", self.seen),
            }
        }
        std::mem::take(&mut self.seen)
    }

    fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).expect("keys");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it runs");
    }

    /// It ends well, and the terminal is as before.
    fn ends(mut self) -> String {
        let last = self.await_all(&[LEAVE]);
        let status = self.child.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "{last:?}");
        let modes = tcgetattr(&self.terminal).expect("settings").local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
        last
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // When a test fails half way; else it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(terminal: &File, columns: u16, lines: u16) {
    let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a size");
}

#[test]
fn keys_are_followed_and_q_gives_the_terminal_back() {
    let stand = Stand::new("keys");
    stand.load();
    let mut screen = Screen::new(stand.top(&["-d", "0.2"]), 80, 24);
    screen.await_all(&[ENTER, "every 200ms", ">nvme0n1", "nvme0c1n1", "%", "h help"]);
    let modes = tcgetattr(&screen.terminal).expect("settings").local_modes;
    assert!(!modes.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
    screen.press(b"?");
    screen.await_all(&["any key leads back", "Paths by:"]);
    screen.press(b" p");
    screen.await_all(&["paused"]);
    screen.press(b"p1");
    screen.await_all(&["since it joined", "through nvme0 127.0.0.1:"]);
    screen.press(b"d0.5");
    screen.await_all(&["new one: 0.5_"]);
    screen.press(b"\r");
    screen.await_all(&["every 500ms"]);
    screen.press(b"q");
    screen.ends();
}

#[test]
fn the_size_of_the_terminal_is_followed() {
    let stand = Stand::new("size");
    // Nothing is drawn by itself: the next look is an hour away.
    let mut screen = Screen::new(stand.top(&["-d", "1h"]), 80, 24);
    let narrow = screen.await_all(&[ENTER, ">nvme0n1", "h help"]);
    assert!(!narrow.contains("Address"), "{narrow:?}");
    resize(&screen.keyboard, 180, 50);
    screen.signal(Signal::WINCH);
    screen.await_all(&["Address", "nvme1 live"]);
    screen.press(b"\x03");
    screen.ends();
}

#[test]
fn signals_give_the_terminal_back() {
    let stand = Stand::new("signals");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let mut screen = Screen::new(stand.top(&[]), 80, 24);
        screen.await_all(&[ENTER, ">nvme0n1"]);
        screen.signal(signal);
        screen.ends();
    }
}

/// As `timeout` starts it in a script. To be stopped there would mean never to end: also not by the
/// signals that `timeout` sends.
#[test]
fn a_job_in_the_background_says_so_and_ends() {
    let stand = Stand::new("background");
    let top = stand.top(&[]);
    let mut shell = Command::new("setsid");
    shell.args(["--ctty", "--wait", "bash", "-c", "set -m; \"$@\" & wait $!; echo status $?", "-"]);
    shell.arg(top.get_program()).args(top.get_args());
    let mut screen = Screen::new(shell, 80, 24);
    let said = screen.await_all(&["job in the background", "status 2"]);
    assert!(!said.contains(ENTER), "{said:?}");
}

#[test]
fn a_host_that_goes_is_waited_for() {
    let mut stand = Stand::new("waits");
    let mut screen = Screen::new(stand.top(&["-d", "0.1"]), 100, 24);
    screen.await_all(&[ENTER, ">nvme0n1"]);
    stand.stop();
    screen.await_all(&["waiting for the host: no host is running", ">nvme0n1"]);
    stand.start();
    screen.await_all(&["the host was restarted: counts began anew"]);
    screen.press(b"q");
    screen.ends();
}

#[test]
fn no_colours_when_they_are_not_wanted() {
    let stand = Stand::new("colours");
    stand.load();
    let bar = "\x1b[36m";
    let mut screen = Screen::new(stand.top(&["-d", "0.1"]), 80, 24);
    screen.await_all(&[bar]);
    screen.press(b"q");
    screen.ends();
    let mut command = stand.top(&["-d", "0.1", "-n", "2"]);
    let mut screen = Screen::new(
        {
            command.env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8");
            command
        },
        80,
        24,
    );
    let drawn = screen.await_all(&["█", LEAVE]);
    assert!(!drawn.contains(bar) && !drawn.contains("\x1b[31m"), "{drawn:?}");
    screen.seen = drawn;
    screen.ends();
}
