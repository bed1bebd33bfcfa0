//! What the user has asked for, and what a key changes.

use super::frame::{Frame, PathFrame};
use super::keys::Key;
use std::time::Duration;

/// The shortest and the longest time between two looks.
pub const DELAYS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3600);

/// Characters that a new delay may have.
const PROMPT_MAX: usize = 16;

/// What paths are ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// As the head has them.
    #[default]
    List,
    /// Share.
    Share,
    /// I/Os per second.
    Iops,
    /// Bytes per second.
    Bandwidth,
    /// 99th percentile of latency.
    Latency,
    /// Commands in flight.
    InFlight,
}

impl Sort {
    /// How the screen names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Sort::List => "list",
            Sort::Share => "share",
            Sort::Iops => "IOPS",
            Sort::Bandwidth => "MiB/s",
            Sort::Latency => "p99",
            Sort::InFlight => "in flight",
        }
    }

    fn of(key: char) -> Option<Sort> {
        Some(match key {
            'N' => Sort::List,
            'S' => Sort::Share,
            'I' => Sort::Iops,
            'B' => Sort::Bandwidth,
            'L' => Sort::Latency,
            'F' => Sort::InFlight,
            _ => return None,
        })
    }

    /// The paths in this order: the largest first, equal ones as the head has them.
    #[must_use]
    pub fn sorted(self, paths: &[PathFrame], reverse: bool) -> Vec<&PathFrame> {
        let value = |path: &PathFrame| -> f64 {
            let value = match self {
                Sort::List => Some(0.0),
                Sort::Share => path.share,
                Sort::Iops => path.flow.iops,
                Sort::Bandwidth => path.flow.bytes_per_s(),
                Sort::Latency => path.flow.p99_ns.map(|ns| ns as f64),
                Sort::InFlight => Some(path.flow.in_flight as f64),
            };
            value.unwrap_or(-1.0)
        };
        let mut sorted: Vec<&PathFrame> = paths.iter().collect();
        sorted.sort_by(|a, b| value(b).total_cmp(&value(a)));
        if reverse {
            sorted.reverse();
        }
        sorted
    }
}

/// What the program does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Draw again.
    Draw,
    /// Look again now.
    Look,
    /// Leave to the shell; go on when it says so.
    Suspend,
    /// End.
    Quit,
}

/// What the user has asked for.
#[derive(Clone, Debug)]
pub struct State {
    /// Time between two looks.
    pub delay: Duration,
    /// No looks but those asked for.
    pub paused: bool,
    /// What paths are ordered by.
    pub sort: Sort,
    /// The other way round.
    pub reverse: bool,
    /// Everything about the selected head.
    pub details: bool,
    /// The keys are explained.
    pub help: bool,
    /// The device that is selected; the first when it is not there.
    pub selected: Option<String>,
    /// Lines that have moved out at the top.
    pub scroll: usize,
    /// A new delay, as far as it was typed.
    pub prompt: Option<String>,
    /// What was wrong with it.
    pub complaint: Option<String>,
    /// The selection has moved: it is to be brought into view.
    pub follow: bool,
}

impl State {
    /// At the start.
    #[must_use]
    pub fn new(delay: Duration) -> State {
        State {
            delay,
            paused: false,
            sort: Sort::List,
            reverse: false,
            details: false,
            help: false,
            selected: None,
            scroll: 0,
            prompt: None,
            complaint: None,
            follow: false,
        }
    }

    /// The place of the selected head.
    #[must_use]
    pub fn selected_in(&self, frame: &Frame) -> usize {
        let wanted = self.selected.as_deref();
        frame.heads.iter().position(|head| Some(&*head.device) == wanted).unwrap_or(0)
    }

    /// A key was pressed; `page` is how many lines the body has.
    pub fn press(&mut self, key: Key, frame: Option<&Frame>, page: usize) -> Action {
        self.complaint = None;
        if let Key::Interrupt = key {
            return Action::Quit;
        }
        if self.prompt.is_some() {
            self.type_delay(key);
            return Action::Draw;
        }
        if self.help {
            // Any key leads back; q is no exception, or a second q too many ends the program.
            self.help = false;
            return Action::Draw;
        }
        let page = page.max(1);
        match key {
            Key::Char('q') => return Action::Quit,
            Key::Suspend => return Action::Suspend,
            Key::Char(' ') => return Action::Look,
            Key::Char('h' | '?') => self.help = true,
            Key::Char('d' | 's') => self.prompt = Some(String::new()),
            Key::Char('p') => self.paused = !self.paused,
            Key::Char('1') | Key::Enter => {
                self.details = !self.details;
                self.follow = true;
            }
            Key::Char('R') => self.reverse = !self.reverse,
            Key::Char('k') | Key::Up => self.select(frame, |at, _| at.saturating_sub(1)),
            Key::Char('j') | Key::Down => self.select(frame, |at, last| (at + 1).min(last)),
            Key::Home => self.select(frame, |_, _| 0),
            Key::End => self.select(frame, |_, last| last),
            Key::PageUp => self.scroll = self.scroll.saturating_sub(page),
            // The screen knows where the end is.
            Key::PageDown => self.scroll = self.scroll.saturating_add(page),
            Key::Char(other) => {
                if let Some(sort) = Sort::of(other) {
                    self.sort = sort;
                }
            }
            Key::Escape | Key::Backspace | Key::Interrupt | Key::Other => {}
        }
        Action::Draw
    }

    fn select(&mut self, frame: Option<&Frame>, to: impl Fn(usize, usize) -> usize) {
        let Some(frame) = frame.filter(|frame| !frame.heads.is_empty()) else { return };
        let at = to(self.selected_in(frame), frame.heads.len() - 1);
        self.selected = Some(frame.heads[at].device.clone());
        self.follow = true;
    }

    fn type_delay(&mut self, key: Key) {
        let Some(typed) = &mut self.prompt else { return };
        match key {
            Key::Char(c) if c.is_ascii_graphic() && typed.len() < PROMPT_MAX => typed.push(c),
            Key::Backspace => {
                typed.pop();
            }
            Key::Escape => self.prompt = None,
            Key::Enter => {
                let typed = self.prompt.take().unwrap_or_default();
                if typed.is_empty() {
                    return;
                }
                match delay(&typed) {
                    Ok(delay) => self.delay = delay,
                    Err(complaint) => self.complaint = Some(complaint),
                }
            }
            _ => {}
        }
    }
}

/// Parses the time between two looks: seconds, or with a unit.
///
/// # Errors
/// One sentence.
pub fn delay(text: &str) -> Result<Duration, String> {
    let time = crate::units::time(text)?;
    if DELAYS.contains(&time) { Ok(time) } else { Err("use 100ms to 1h".to_owned()) }
}
