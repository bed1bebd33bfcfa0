//! `top`: what flows over which path, live; the place where one watches a policy.
//!
//! Each look is one request to the running host, answered with figures that only grow; what
//! happened in between is the difference of two looks ([`frame`]). What is drawn is a pure function
//! of that and of what the user has asked for ([`screen`]); [`terminal`] knows the device.

pub mod frame;
pub mod keys;
pub mod screen;
pub mod state;
pub mod table;
pub mod terminal;
pub mod text;

mod watch;

use crate::cli::args::{Global, Top};
use crate::cli::client::Client;
use crate::cli::{shown, write_or_closed};
use crate::daemon::socket::Role;
use crate::daemon::top::TopView;
use crate::failure::Failure;
use frame::Frame;
use serde_json::json;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use text::Bars;

/// Where the running host is.
#[derive(Clone, Debug)]
struct Place {
    socket: Option<PathBuf>,
    /// Its answers become JSON again, not a picture.
    json: bool,
}

impl Place {
    /// One request. A connection for each: it finds a host that was started anew, and the control
    /// socket does not wait for silent clients.
    fn look(&self) -> Result<TopView, Failure> {
        let client = Client::connect(Role::Host, self.socket.as_deref())?;
        let mut answer = client.call("top", json!({}))?;
        if !self.json {
            shown::tame(&mut answer);
        }
        serde_json::from_value(answer).map_err(|error| {
            Failure::failed(format!(
                "the host's answer is not understood ({error}): is it as new as this?"
            ))
        })
    }
}

/// What is watched, and how often.
#[derive(Debug)]
struct Watched {
    place: Place,
    device: Option<String>,
    delay: Duration,
    iterations: Option<u64>,
}

/// `top`.
///
/// # Errors
/// No host is running (in batch mode: or it went), there is no such device, or there is no
/// terminal.
pub fn run(global: &Global, args: &Top) -> Result<(), Failure> {
    let watched = Watched {
        place: Place { socket: global.socket.clone(), json: global.json() },
        device: args.device.clone(),
        delay: args.delay,
        iterations: args.iterations,
    };
    let bars = if utf8(&|name| std::env::var(name).ok()) { Bars::Blocks } else { Bars::Ascii };
    if args.batch || global.json() {
        return batch(&watched, global.json(), bars);
    }
    let dumb = std::env::var("TERM").is_ok_and(|terminal| terminal == "dumb");
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() || dumb {
        let text = "top draws on a terminal, and this is none: --batch prints without one";
        return Err(Failure::usage(text));
    }
    if terminal::in_background() {
        let text = "top draws on a terminal, and this is a job in the background of one: --batch \
                    prints without one (and 'timeout' has --foreground)";
        return Err(Failure::usage(text));
    }
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    watch::run(&watched, colours, bars)
}

/// Whether the environment's locale has UTF-8.
#[must_use]
pub fn utf8(variable: &dyn Fn(&str) -> Option<String>) -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let value = names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()));
    value.is_some_and(|value| {
        let value = value.to_ascii_lowercase();
        value.contains("utf-8") || value.contains("utf8")
    })
}

/// One frame per interval to standard output.
fn batch(watched: &Watched, json: bool, bars: Bars) -> Result<(), Failure> {
    let device = watched.device.as_deref();
    // Without a terminal there is no width to keep to, unless the caller says so.
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let width = columns.filter(|width| *width > 0).unwrap_or(usize::MAX);
    let mut before = watched.place.look()?;
    check_device(&before, device)?;
    let mut due = Instant::now() + watched.delay;
    let mut count = 0;
    while watched.iterations.is_none_or(|limit| count < limit) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        // Keeps step, but does not make up for what was missed.
        due = (due + watched.delay).max(Instant::now());
        let now = watched.place.look()?;
        let frame = Frame::of(device, &now, Some(&before));
        before = now;
        let text = if json {
            shown::json(&format!("{}\n", json!(frame)))
        } else {
            let gap = if count > 0 { "\n" } else { "" };
            format!("{gap}{}", screen::plain(&frame, Some(&clock()), width, bars))
        };
        if !write_or_closed(&text)? {
            return Ok(());
        }
        count += 1;
    }
    Ok(())
}

/// A device that is not there is a mistake at the start only: later it may come and go.
fn check_device(view: &TopView, device: Option<&str>) -> Result<(), Failure> {
    let Some(device) = device else { return Ok(()) };
    let mut heads = view.host.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
    if heads.any(|head| head.name == device) {
        return Ok(());
    }
    Err(Failure::failed(view.host.no_device(device)))
}

/// The time of day, UTC.
fn clock() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("{:02}:{:02}:{:02} UTC", now / 3600 % 24, now / 60 % 60, now % 60)
}
