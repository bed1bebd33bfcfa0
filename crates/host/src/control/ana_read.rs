//! Reading an ANA log, whole and consistent.
//!
//! In one command where one transfer carries all that Identify Controller says the log may take:
//! some targets fail a shorter read. Where it does not, and the controller knows offsets, in parts
//! up to where the log's own counts end, which is often in the first one already. After several,
//! the first one again: when it has changed, from the start. (Not the header alone: its change
//! count is always 0 with some targets, and Linux fails a read that ends before the first group.)
//! One that does not rest is taken as its parts came, if they make a log: while no groups come or
//! go, each state was so when it was read. Everything that the peer says is bounded (C61).

use super::controller::Controller;
use super::env::Env;
use super::link::{Answer, Payload, Purpose};
use super::wire;
use crate::verb::{Reply, VerbError};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use anabranch_proto::digest::crc32c;
use anabranch_proto::machine::{Buffers, Time, VerbId};
use anabranch_proto::nvme::log::Ana;
use anabranch_proto::nvme::sqe::Sqe;
use anabranch_proto::nvme::status::Status;

/// The longest log that is read in parts; some thousand groups and a million namespaces.
const MAX_BYTES: u64 = 8 << 20;

/// How often the log may change while it is read in parts, as long as half of the time for it is
/// left.
const MAX_RESTARTS: u32 = 16;

/// How often it is read again when it makes no sense and does not change.
const NONSENSE_RESTARTS: u32 = 2;

/// How much of the log is read how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogSize {
    /// Bytes that it takes at most.
    whole: u64,
    /// Bytes that one command carries.
    part: u32,
}

/// Why the log could not be read.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) why: String,
    /// It cannot be read in parts, now or later.
    pub(super) hopeless: bool,
}

/// What an answer has brought.
#[derive(Debug)]
pub(super) enum Part {
    /// There is more to read.
    More,
    /// It has changed, or makes no sense: it is read again from its start.
    Again,
    /// A log that was whole at one time.
    Whole(Vec<u8>),
    /// Parts of several logs, of one that did not rest.
    Torn(Vec<u8>),
}

impl Trouble {
    fn hopeless(why: String) -> Trouble {
        Trouble { why, hopeless: true }
    }
}

/// A log that is being read.
#[derive(Debug)]
pub(super) struct LogRead {
    size: LogSize,
    /// For all commands together.
    deadline: Time,
    /// From then on it is not read again from its start.
    restarts_until: Time,
    /// A caller's: what tells us that the log has changed stays for us.
    for_caller: bool,
    bytes: Vec<u8>,
    /// The first part is read once more.
    checking: bool,
    restarts: u32,
    /// It has changed meanwhile.
    moved: bool,
    /// CRC of the last whole reading that made no sense.
    nonsense: Option<u32>,
}

impl LogSize {
    /// For a log of at most `whole` bytes, where a command carries `part`; with `offsets`, logs can
    /// be read in parts.
    pub(super) fn new(whole: u64, part: u32, offsets: bool) -> Result<LogSize, String> {
        if whole <= u64::from(part) || offsets {
            return Ok(LogSize { whole, part: part & !3 });
        }
        Err(format!(
            "its log takes {whole} bytes, one transfer carries at most {part}, and LPA bit 2 says \
             that it cannot be read in parts"
        ))
    }

    /// Begins to read.
    pub(super) fn read(self, now: Time, deadline: Time) -> LogRead {
        LogRead {
            size: self,
            deadline,
            restarts_until: now.after(deadline.since(now) / 2),
            for_caller: false,
            bytes: Vec::new(),
            checking: false,
            restarts: 0,
            moved: false,
            nonsense: None,
        }
    }

    fn in_parts(self) -> bool {
        self.whole > u64::from(self.part)
    }
}

impl LogRead {
    /// The next command.
    pub(super) fn command(&self) -> (Sqe, Payload<'static>) {
        let at = if self.checking { 0 } else { self.bytes.len() as u64 };
        // Not more than `part`, so it fits.
        let bytes = (self.size.whole - at).min(self.size.part.into()) as u32;
        // What changes behind the first part, once that has cleared the event, is another event.
        let retain = self.for_caller || self.checking || at > 0;
        wire::ana_log_part(at, bytes, retain)
    }

    fn in_parts(&self) -> bool {
        self.size.in_parts()
    }

    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    /// Takes an answer in.
    pub(super) fn take(&mut self, now: Time, answer: &Answer) -> Result<Part, Trouble> {
        if !answer.status.is_success() {
            return Err(self.refused(answer));
        }
        if !self.size.in_parts() {
            return Ok(Part::Whole(answer.data.clone()));
        }
        if self.checking {
            return self.check(now, &answer.data);
        }
        self.bytes.extend_from_slice(&answer.data);
        let needed = Ana::bytes_at_least(&self.bytes);
        let endless = self.endless(needed);
        if endless.is_none() && needed > self.bytes.len() as u64 {
            return Ok(Part::More);
        }
        if self.bytes.len() <= answer.data.len() {
            let whole = Part::Whole(core::mem::take(&mut self.bytes));
            return endless.map_or(Ok(whole), |why| Err(Trouble::hopeless(why)));
        }
        self.checking = true;
        Ok(Part::More)
    }

    /// The first part has come once more.
    fn check(&mut self, now: Time, first: &[u8]) -> Result<Part, Trouble> {
        let rests = self.bytes.starts_with(first);
        self.moved |= !rests;
        let endless = self.endless(Ana::bytes_at_least(&self.bytes));
        if let Some(why) = endless {
            let bytes = core::mem::take(&mut self.bytes);
            return self.nonsense(now, &bytes, why).map(|()| Part::Again);
        }
        if !rests && self.restart(now) {
            return Ok(Part::Again);
        }
        let bytes = core::mem::take(&mut self.bytes);
        Ok(if rests { Part::Whole(bytes) } else { Part::Torn(bytes) })
    }

    /// What was read to the end makes no sense. Parts of different logs may not, though the first
    /// one is the same: it is read again. When it never changes it is so for good: the controller
    /// may not know offsets.
    pub(super) fn nonsense(&mut self, now: Time, bytes: &[u8], why: String) -> Result<(), Trouble> {
        let crc = crc32c(bytes);
        let former = self.nonsense.replace(crc);
        self.moved |= former.is_some_and(|former| former != crc);
        if self.restart(now) {
            return Ok(());
        }
        Err(match self.in_parts() {
            true if self.moved => {
                let why = format!("{}: {why}", self.restless());
                Trouble { why, hopeless: false }
            }
            // Read once only it may have changed meanwhile.
            in_parts => Trouble { why, hopeless: in_parts && former.is_some() },
        })
    }

    /// Why a log of so many bytes, as the parts say that have come, is not read to its end.
    fn endless(&self, needed: u64) -> Option<String> {
        let whole = self.size.whole;
        if needed > whole {
            return Some(format!(
                "its log goes on for {needed} bytes, NANAGRPID and MNAN allow {whole}"
            ));
        }
        (needed > MAX_BYTES)
            .then(|| format!("its log takes {needed} bytes, at most {MAX_BYTES} are read in parts"))
    }

    /// What is wrong with a log of which only [`Part::Torn`] can be had.
    pub(super) fn restless(&self) -> String {
        let LogSize { whole, part } = self.size;
        format!(
            "its log takes {whole} bytes, one transfer carries at most {part}, and it changes \
             faster than it is read in parts"
        )
    }

    /// Begins anew, unless it is not read in parts, or that was done too often or for too long.
    fn restart(&mut self, now: Time) -> bool {
        let most = if self.moved { MAX_RESTARTS } else { NONSENSE_RESTARTS };
        if !self.in_parts() || self.restarts >= most || now >= self.restarts_until {
            return false;
        }
        self.restarts += 1;
        self.checking = false;
        self.bytes.clear();
        true
    }

    /// A controller that refuses parts for good says so with DNR, or that a field is wrong.
    fn refused(&self, answer: &Answer) -> Trouble {
        let LogSize { whole, part } = self.size;
        let status = answer.status;
        if self.size.in_parts() && (status.dnr() || status.is(Status::INVALID_FIELD)) {
            return Trouble::hopeless(format!(
                "its log takes {whole} bytes, one transfer carries at most {part}, and reading it \
                 in parts is refused: {status}"
            ));
        }
        Trouble { why: answer.says(), hopeless: false }
    }
}

impl Controller {
    /// Reads the log for a caller who wants it raw.
    pub(super) fn read_raw_ana_log(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        id: VerbId,
    ) -> Result<(), VerbError> {
        let Some(size) = self.ana.size() else {
            // What it had when it was last connected, if it ever was, is known of no other time.
            if !self.is_live() {
                return Err(VerbError::Failed(format!("{} is {}", self.name(), self.state)));
            }
            return Err(VerbError::Failed(format!("{} does not use ANA", self.name())));
        };
        let read = LogRead { for_caller: true, ..size.read(env.now, self.admin_deadline(env.now)) };
        self.continue_raw_log(env, bufs, id, read)
    }

    fn continue_raw_log(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        id: VerbId,
        read: LogRead,
    ) -> Result<(), VerbError> {
        let name = self.name();
        let live = self.is_live();
        let Some(link) = self.link.as_mut().filter(|_| live) else {
            return Err(VerbError::Failed(format!("{name} is {}", self.state)));
        };
        link.send(env, bufs, Purpose::Raw(id), read.command(), read.deadline())
            .map_err(|error| VerbError::Failed(format!("{name}: {}", error.text())))?;
        self.ana.raw_reads.push((id, read));
        Ok(())
    }

    /// What a caller asked for raw has come, or a part of it.
    pub(super) fn raw_answered(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        id: VerbId,
        answer: Answer,
    ) {
        let at = self.ana.raw_reads.iter().position(|(of, _)| *of == id);
        let taken = match at.map(|at| self.ana.raw_reads.swap_remove(at).1) {
            None if answer.status.is_success() => Ok(answer.data),
            None => Err(answer.says()),
            Some(mut read) => match read.take(env.now, &answer) {
                Ok(Part::More | Part::Again) => {
                    if let Err(error) = self.continue_raw_log(env, bufs, id, read) {
                        env.refuse(id, error);
                    }
                    return;
                }
                Ok(Part::Whole(data)) => Ok(data),
                Ok(Part::Torn(_)) => Err(read.restless()),
                Err(trouble) => Err(trouble.why),
            },
        };
        match taken {
            Ok(data) => env.reply(id, Reply::Raw(data)),
            Err(why) => env.refuse(id, VerbError::Failed(format!("{}: {why}", self.name()))),
        }
    }
}
