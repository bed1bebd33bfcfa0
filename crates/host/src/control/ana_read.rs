//! Reading an ANA log, whole and consistent.
//!
//! In one command where one transfer carries all that Identify Controller says the log may take:
//! some targets fail a shorter read. Where it does not, and the controller knows offsets, in parts
//! up to where the log's own counts end, which is often in the first one already. After several,
//! the first one again: when it has changed, from the start. (Not the header alone: its change
//! count is always 0 with some targets, and Linux fails a read that ends before the first group.)
//! Everything that the peer says is bounded (C61).

use super::controller::Controller;
use super::env::Env;
use super::link::{Answer, Payload, Purpose};
use super::wire;
use crate::verb::{Reply, VerbError};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use anabranch_proto::machine::{Buffers, Time, VerbId};
use anabranch_proto::nvme::log::Ana;
use anabranch_proto::nvme::sqe::Sqe;
use anabranch_proto::nvme::status::Status;

/// The longest log that is read in parts; some thousand groups and a million namespaces.
const MAX_BYTES: u64 = 8 << 20;

/// How often the log may change while it is read in parts.
const MAX_RESTARTS: u32 = 16;

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
    /// The controller said "do not retry".
    pub(super) dnr: bool,
    /// It cannot be read in parts, now or later.
    pub(super) hopeless: bool,
}

impl Trouble {
    /// What was read makes no sense. In parts: perhaps the controller does not know offsets.
    pub(super) fn nonsense(why: String, in_parts: bool) -> Trouble {
        Trouble { why, dnr: false, hopeless: in_parts }
    }

    fn hopeless(why: String) -> Trouble {
        Trouble { why, dnr: false, hopeless: true }
    }
}

/// A log that is being read.
#[derive(Debug)]
pub(super) struct LogRead {
    size: LogSize,
    /// For all commands together.
    deadline: Time,
    /// A caller's: what tells us that the log has changed stays for us.
    for_caller: bool,
    bytes: Vec<u8>,
    /// The first part is read once more.
    checking: bool,
    restarts: u32,
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
    pub(super) fn read(self, deadline: Time) -> LogRead {
        let (bytes, for_caller) = (Vec::new(), false);
        LogRead { size: self, deadline, for_caller, bytes, checking: false, restarts: 0 }
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

    pub(super) fn in_parts(&self) -> bool {
        self.size.in_parts()
    }

    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    /// Takes an answer in. `None`: there is more to read.
    pub(super) fn take(&mut self, answer: &Answer) -> Result<Option<Vec<u8>>, Trouble> {
        if !answer.status.is_success() {
            return Err(self.refused(answer.status));
        }
        if !self.size.in_parts() {
            return Ok(Some(answer.data.clone()));
        }
        if self.checking {
            return self.check(&answer.data);
        }
        self.bytes.extend_from_slice(&answer.data);
        let (whole, needed) = (self.size.whole, Ana::bytes_at_least(&self.bytes));
        // Parts of different logs: it has changed between them.
        let torn = needed > whole.min(MAX_BYTES) && self.bytes.len() > answer.data.len();
        if torn && self.restart() {
            return Ok(None);
        }
        if needed > whole {
            return Err(Trouble::hopeless(format!(
                "its log goes on for {needed} bytes, NANAGRPID and MNAN allow {whole}"
            )));
        }
        if needed > MAX_BYTES {
            return Err(Trouble::hopeless(format!(
                "its log takes {needed} bytes, at most {MAX_BYTES} are read in parts"
            )));
        }
        let is_whole = needed <= self.bytes.len() as u64;
        if is_whole && self.bytes.len() <= answer.data.len() {
            return Ok(Some(core::mem::take(&mut self.bytes)));
        }
        self.checking = is_whole;
        Ok(None)
    }

    fn check(&mut self, first: &[u8]) -> Result<Option<Vec<u8>>, Trouble> {
        if self.bytes.starts_with(first) {
            return Ok(Some(core::mem::take(&mut self.bytes)));
        }
        if !self.restart() {
            let LogSize { whole, part } = self.size;
            return Err(Trouble::hopeless(format!(
                "its log takes {whole} bytes, one transfer carries at most {part}, and it changes \
                 faster than it is read in parts"
            )));
        }
        Ok(None)
    }

    /// Begins anew, unless it has changed too often.
    fn restart(&mut self) -> bool {
        if self.restarts >= MAX_RESTARTS {
            return false;
        }
        self.restarts += 1;
        self.checking = false;
        self.bytes.clear();
        true
    }

    /// A controller that refuses parts for good says so with DNR, or that a field is wrong.
    fn refused(&self, status: Status) -> Trouble {
        let LogSize { whole, part } = self.size;
        if self.size.in_parts() && (status.dnr() || status.is(Status::INVALID_FIELD)) {
            return Trouble::hopeless(format!(
                "its log takes {whole} bytes, one transfer carries at most {part}, and reading it \
                 in parts is refused: {status}"
            ));
        }
        Trouble { why: status.to_string(), dnr: status.dnr(), hopeless: false }
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
            return Err(VerbError::Failed(format!("{} does not use ANA", self.name())));
        };
        let read = LogRead { for_caller: true, ..size.read(self.admin_deadline(env.now)) };
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
            None if answer.status.is_success() => Ok(Some(answer.data)),
            None => Err(answer.status.to_string()),
            Some(mut read) => match read.take(&answer) {
                Ok(None) => {
                    if let Err(error) = self.continue_raw_log(env, bufs, id, read) {
                        env.refuse(id, error);
                    }
                    return;
                }
                taken => taken.map_err(|trouble| trouble.why),
            },
        };
        match taken {
            Ok(data) => env.reply(id, Reply::Raw(data.unwrap_or_default())),
            Err(why) => env.refuse(id, VerbError::Failed(format!("{}: {why}", self.name()))),
        }
    }
}
