//! Reading a discovery log, whole and consistent.
//!
//! Header, entries in pieces, then the header again: when the generation counter has moved, from
//! the start (NVMe-oF "Discovery Log Page"). So it is when entries are refused that there were when
//! the header was read: SPDK says so of what is behind a log that has become shorter. Everything
//! that the peer says is bounded (C65).

use super::controller::{Controller, Kind};
use super::env::Env;
use super::lifecycle::Phase;
use super::link::{Answer, Purpose};
use super::setup::Step;
use super::wire;
use crate::verb::Reply;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use anabranch_proto::machine::Buffers;
use anabranch_proto::nvme::log::DiscoveryEntry;
use anabranch_proto::nvme::status::Status;
use core::convert::Infallible;
use core::time::Duration;

/// Entries of one log; a log that says to have more is refused.
pub(super) const MAX_ENTRIES: u64 = 10_000;

/// Entries that one command reads, where the controller transfers so much at once (MDTS).
const ENTRIES_PER_READ: u64 = 15;

/// How often the log may change while it is read.
const MAX_RESTARTS: u32 = 10;

/// Skipped entries that are told one by one.
const MAX_SKIPPED_TOLD: usize = 8;

/// Time for the whole log.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Header,
    Entries {
        next: u64,
        count: u32,
    },
    Check,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct DiscoveryRead {
    part: Part,
    generation: u64,
    count: u64,
    restarts: u32,
    entries: Vec<DiscoveryEntry>,
    /// Entries that make no sense: how many, and what is wrong with the first ones.
    skipped: usize,
    skipped_why: Vec<String>,
    /// Everything was read.
    whole: bool,
    /// Entries that there should be were refused: there are fewer by now, or that is what is wrong.
    refused: Option<Status>,
}

impl DiscoveryRead {
    /// What was read, if that is all.
    pub(super) fn take_log(&mut self) -> Option<Reply<Infallible>> {
        if !self.whole {
            return None;
        }
        let more = self.skipped.saturating_sub(MAX_SKIPPED_TOLD);
        if more > 0 {
            self.skipped_why.push(format!("{more} more entries of the discovery log are skipped"));
        }
        let entries = core::mem::take(&mut self.entries);
        let skipped = core::mem::take(&mut self.skipped_why);
        Some(Reply::Discovered { generation: self.generation, entries, skipped })
    }

    fn restart(&mut self) {
        let restarts = self.restarts + 1;
        *self = DiscoveryRead { restarts, ..DiscoveryRead::default() };
    }

    /// Takes in what was read; the next command may read `most` entries. `true` when the log is
    /// whole.
    fn take(&mut self, data: &[u8], most: u64) -> Result<bool, String> {
        match self.part {
            Part::Header => {
                let header = wire::parse_discovery_header(data, MAX_ENTRIES)?;
                self.generation = header.generation;
                self.count = header.entries;
                self.go_on(0, most);
                Ok(self.count == 0)
            }
            Part::Entries { next, count } => {
                for (entry, number) in wire::parse_discovery_entries(data).zip(next..) {
                    match entry {
                        Ok(entry) => self.entries.push(entry),
                        Err(why) => self.skip(number, &why),
                    }
                }
                self.go_on(next + u64::from(count), most);
                Ok(false)
            }
            Part::Check => {
                let header = wire::parse_discovery_header(data, MAX_ENTRIES)?;
                if header.generation == self.generation {
                    return self.refused.map_or(Ok(true), |status| Err(status.to_string()));
                }
                if self.restarts >= MAX_RESTARTS {
                    return Err(String::from("the discovery log changes faster than it is read"));
                }
                self.restart();
                Ok(false)
            }
        }
    }

    fn skip(&mut self, number: u64, why: &str) {
        self.skipped += 1;
        if self.skipped <= MAX_SKIPPED_TOLD {
            self.skipped_why.push(format!("entry {number} of the discovery log is skipped: {why}"));
        }
    }

    fn go_on(&mut self, next: u64, most: u64) {
        // At most a handful: fits any integer.
        let count = (self.count - next).min(most) as u32;
        self.part = if count == 0 { Part::Check } else { Part::Entries { next, count } };
    }
}

impl Controller {
    /// Sends the next command.
    pub(super) fn read_discovery(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let deadline = self.admin_deadline(env.now);
        let (Kind::Discovery(_, read), Some(link)) = (&self.kind, &mut self.link) else { return };
        let command = match read.part {
            Part::Header | Part::Check => wire::discovery_header(),
            Part::Entries { next, count } => wire::discovery_entries(next, count),
        };
        if let Err(error) = link.send(env, bufs, Purpose::Discovery, command, deadline) {
            self.fail(env, String::from(error.text()), false);
        }
    }

    pub(super) fn discovery_answered(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        answer: &Answer,
    ) {
        if !matches!(self.phase, Phase::Setup { step: Step::Discovery, .. }) {
            return;
        }
        if let (Kind::Discovery(_, read), false) = (&mut self.kind, answer.status.is_success())
            && matches!(read.part, Part::Entries { .. })
        {
            (read.refused, read.part) = (Some(answer.status), Part::Check);
            return self.read_discovery(env, bufs);
        }
        if !answer.status.is_success() {
            return self.fail(
                env,
                format!("discovery log: {}", answer.says()),
                answer.status.dnr(),
            );
        }
        let transfer = u64::from(self.facts.max_transfer_bytes.unwrap_or(u32::MAX));
        let most = (transfer / DiscoveryEntry::BYTES as u64).min(ENTRIES_PER_READ);
        let Kind::Discovery(_, read) = &mut self.kind else { return };
        match read.take(&answer.data, most) {
            Ok(false) => self.read_discovery(env, bufs),
            Ok(true) => {
                // It is told when the controller is gone: whoever connects next has its number.
                read.whole = true;
                self.shut_down(env, bufs);
            }
            Err(why) => self.fail(env, format!("discovery log: {why}"), false),
        }
    }
}
