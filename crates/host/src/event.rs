//! What a host tells a log. `Display` gives the line.

use crate::topology::ControllerState;
use crate::user::{IoError, RequestOp};
use alloc::format;
use alloc::string::String;
use anabranch_proto::host_queue::Flaw;
use anabranch_proto::machine::Endpoint;
use anabranch_proto::nvme::ana::AnaState;
use anabranch_proto::nvme::status::Status;
use core::fmt;

/// Something worth telling. Names are the kernel's: `nvme0`, `nvme0n1`, `nvme0c0n1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// A controller has entered a state.
    State {
        /// `nvmeN`.
        controller: String,
        /// The state it left.
        from: ControllerState,
        /// The state it is in now.
        to: ControllerState,
        /// Why, when there is more to say.
        why: Option<String>,
    },
    /// An attempt to connect failed.
    ConnectFailed {
        /// `nvmeN`.
        controller: String,
        /// Address.
        to: String,
        /// Where the next attempt goes.
        next: Endpoint,
        /// Why.
        why: String,
        /// How many attempts have failed in a row.
        attempts: u32,
        /// It will be tried again.
        retry: bool,
        /// It would be, had the controller not said "do not retry".
        forbidden: bool,
        /// It would be, were `ctrl_loss_tmo` not over.
        expired: bool,
        /// How many have failed in a row for this reason before it.
        alike: u32,
    },
    /// A controller was removed although nobody asked for it.
    Removed {
        /// `nvmeN`.
        controller: String,
        /// Why.
        why: String,
    },
    /// `fast_io_fail_tmo` has passed: waiting I/O fails where no other path may come back.
    FastIoFail {
        /// `nvmeN`.
        controller: String,
    },
    /// An ANA group's state as a controller reports it has changed.
    AnaChange {
        /// `nvmeXcYnZ`.
        path: String,
        /// Before.
        from: AnaState,
        /// Now.
        to: AnaState,
    },
    /// A command came back with an ANA status: the path is out until a fresh log was read.
    AnaError {
        /// `nvmeXcYnZ`.
        path: String,
        /// What the command said.
        status: Status,
        /// How often it said so before, since that was last told.
        untold: u32,
    },
    /// A controller has answered a command with success, wrongly: it is tried again. Of several in
    /// a short time one is told.
    Flawed {
        /// `nvmeXcYnZ`.
        path: String,
        /// What was wrong.
        flaw: Flaw,
        /// Commands before it that were not told.
        untold: u32,
    },
    /// What was stuck on a path that has fallen silent goes on elsewhere. Told once in a while.
    Rescued {
        /// `nvmeXcYnZ`.
        path: String,
        /// For how long nothing has come from there, ns.
        silent_ns: u64,
        /// Reads that were sent again on other paths.
        reads: u32,
        /// Commands that had not been sent and went to other paths.
        unsent: u32,
    },
    /// A request ended with an error to its user. Of several in a short time one is told.
    RequestFailed {
        /// `nvmeXnY`.
        head: String,
        /// What it was.
        op: RequestOp,
        /// Why.
        error: IoError,
        /// What makes its status one of ours.
        flaw: Option<Flaw>,
        /// `nvmeN`, if a controller said so, or its answer was wrong.
        controller: Option<String>,
        /// Requests that failed before it and were not told.
        untold: u32,
    },
    /// A write that was to be durable by itself has failed, perhaps because the system behind the
    /// controller has lost something. The flushes to come tell that to every user.
    LossSuspected {
        /// `nvmeXnY`.
        head: String,
        /// How.
        status: Status,
        /// `nvmeN`, while it is there.
        controller: Option<String>,
    },
    /// A device refuses to make zeroes, which it has offered: users have to write them.
    ZeroesRefused {
        /// `nvmeXnY`.
        head: String,
        /// How.
        status: Status,
        /// `nvmeN`, which said so, if it is still there.
        controller: Option<String>,
    },
    /// ANA is not used on a controller.
    AnaDisabled {
        /// `nvmeN`.
        controller: String,
        /// Why.
        why: String,
    },
    /// A group stayed in the change state for longer than twice ANATT.
    AnaTimeout {
        /// `nvmeN`.
        controller: String,
    },
    /// A device has appeared.
    HeadAdded {
        /// `nvmeXnY`.
        head: String,
        /// Bytes.
        bytes: u64,
        /// Of its namespace.
        nsid: u32,
        /// What its namespace says of itself, as the attribute of that name.
        wwid: String,
    },
    /// A device is to appear for a namespace whose NSID another device had.
    HeadReplaced {
        /// `nvmeXnY`, the new one.
        head: String,
        /// `nvmeXnY`, which stays that of the namespace that is not there any more.
        former: String,
        /// Namespace identifier.
        nsid: u32,
    },
    /// A device has another size.
    HeadResized {
        /// `nvmeXnY`.
        head: String,
        /// Bytes before.
        from_bytes: u64,
        /// Bytes now.
        to_bytes: u64,
    },
    /// A device is gone.
    HeadRemoved {
        /// `nvmeXnY`.
        head: String,
    },
    /// A device has no path left but stays for a while (`delayed_removal_secs`).
    HeadOrphaned {
        /// `nvmeXnY`.
        head: String,
        /// How long it stays, in seconds.
        seconds: u64,
    },
    /// None of a device's paths may be chosen, and not for a moment only: their controllers are not
    /// live, or their ANA states give no access.
    HeadStranded {
        /// `nvmeXnY`.
        head: String,
        /// How many paths it has.
        paths: usize,
    },
    /// One of them may again.
    HeadServed {
        /// `nvmeXnY`.
        head: String,
    },
    /// A device has one more path.
    PathAdded {
        /// `nvmeXcYnZ`.
        path: String,
        /// `nvmeXnY`.
        head: String,
    },
    /// A device has lost a path for good.
    PathRemoved {
        /// `nvmeXcYnZ`.
        path: String,
        /// `nvmeXnY`.
        head: String,
    },
    /// A path is out of use: its controller says another size than the device has.
    PathDisagrees {
        /// `nvmeXcYnZ`.
        path: String,
        /// What its controller says, in bytes.
        bytes: u64,
        /// `nvmeXnY`.
        head: String,
        /// The size of that, in bytes.
        head_bytes: u64,
    },
    /// Such a path may be used again: its controller says what the device has.
    PathAgrees {
        /// `nvmeXcYnZ`.
        path: String,
        /// Its size, in bytes.
        bytes: u64,
        /// `nvmeXnY`.
        head: String,
    },
    /// A namespace cannot be used through a controller.
    NamespaceRefused {
        /// `nvmeN`.
        controller: String,
        /// Its NSID there.
        nsid: u32,
        /// Why.
        why: String,
    },
    /// The controller told us something.
    AsyncEvent {
        /// `nvmeN`.
        controller: String,
        /// What.
        what: String,
    },
    /// Somebody has set an attribute to another value.
    AttributeChanged {
        /// `nvme-subsysN`, say.
        object: String,
        /// Its name.
        attribute: &'static str,
        /// Before.
        from: String,
        /// Now.
        to: String,
    },
    /// Anything else about one controller that deserves a line.
    Note {
        /// `nvmeN`.
        controller: String,
        /// The line.
        text: String,
    },
}

/// So many attempts to connect that fail alike are told one by one, and of those that follow each
/// of so many: a path may be away for months.
const ALIKE_FIRST: u32 = 10;
const ALIKE_EVERY: u32 = 60;

/// Whether one of many attempts that fail alike is to be told, after so many.
#[must_use]
pub fn is_news(alike: u32) -> bool {
    alike < ALIKE_FIRST || alike.is_multiple_of(ALIKE_EVERY)
}

impl HostEvent {
    /// Whether a log that has all of the events before should have it, too.
    #[must_use]
    pub fn is_news(&self) -> bool {
        match self {
            HostEvent::ConnectFailed { retry: true, alike, .. } => is_news(*alike),
            _ => true,
        }
    }

    /// What it is one of, when a controller can make it happen as often as it likes: a log should
    /// not write all of them.
    #[must_use]
    pub fn kind(&self) -> Option<String> {
        match self {
            HostEvent::NamespaceRefused { controller, .. } => {
                Some(format!("{controller} namespace refused"))
            }
            HostEvent::AsyncEvent { controller, .. } => Some(format!("{controller} event")),
            HostEvent::Note { controller, .. } => Some(format!("{controller} note")),
            HostEvent::AttributeChanged { object, attribute, .. } => {
                Some(format!("{object} {attribute}"))
            }
            HostEvent::Flawed { path, .. } => Some(format!("{} flawed", without_head(path))),
            HostEvent::Rescued { path, .. } => Some(format!("{} silent", without_head(path))),
            HostEvent::RequestFailed { head, .. } => Some(format!("{} failed", without_head(head))),
            HostEvent::AnaChange { path, .. } => Some(format!("{} ANA state", without_head(path))),
            HostEvent::AnaError { path, .. } => Some(format!("{} ANA status", without_head(path))),
            HostEvent::PathAdded { path, .. } => Some(format!("{} path added", without_head(path))),
            HostEvent::PathRemoved { path, .. } => {
                Some(format!("{} path removed", without_head(path)))
            }
            HostEvent::PathDisagrees { path, .. } => {
                Some(format!("{} of another size", without_head(path)))
            }
            HostEvent::PathAgrees { path, .. } => {
                Some(format!("{} of the same size", without_head(path)))
            }
            HostEvent::HeadAdded { head, .. } => Some(format!("{} added", without_head(head))),
            HostEvent::HeadReplaced { head, .. } => {
                Some(format!("{} replaced", without_head(head)))
            }
            HostEvent::HeadResized { head, .. } => Some(format!("{} resized", without_head(head))),
            HostEvent::HeadRemoved { head } => Some(format!("{} removed", without_head(head))),
            HostEvent::ZeroesRefused { head, .. } => Some(format!("{} zeroes", without_head(head))),
            HostEvent::LossSuspected { head, .. } => Some(format!("{} loss", without_head(head))),
            HostEvent::HeadOrphaned { head, .. } => {
                Some(format!("{} orphaned", without_head(head)))
            }
            HostEvent::HeadStranded { head, .. } => {
                Some(format!("{} stranded", without_head(head)))
            }
            HostEvent::HeadServed { head } => Some(format!("{} served", without_head(head))),
            HostEvent::State { .. }
            | HostEvent::ConnectFailed { .. }
            | HostEvent::Removed { .. }
            | HostEvent::FastIoFail { .. }
            | HostEvent::AnaDisabled { .. }
            | HostEvent::AnaTimeout { .. } => None,
        }
    }
}

impl HostEvent {
    fn connect_failed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostEvent::ConnectFailed {
            controller,
            to,
            why,
            attempts,
            retry,
            forbidden,
            expired,
            alike,
            next: _,
        } = self
        else {
            return Ok(());
        };
        let next = match (retry, forbidden) {
            (true, _) if alike + 1 == ALIKE_FIRST => {
                "will try again; of more such attempts one in 60 is told"
            }
            (true, _) => "will try again",
            (false, false) if *expired => "giving up: ctrl_loss_tmo is over",
            (false, false) => "giving up",
            (false, true) => {
                "giving up: the controller says \"do not retry\"; connect again when it takes this \
                 host, or name the path in a configuration file, which is tried all the same"
            }
        };
        write!(f, "{controller}: connect to {to} failed: {why} (attempt {attempts}, {next})")
    }

    fn request_failed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostEvent::RequestFailed { head, op, error, flaw, controller, untold } = self else {
            return Ok(());
        };
        write!(f, "{head}: {} failed: {error}", Words(op))?;
        match flaw {
            Some(flaw) => {
                let of = controller.as_deref().unwrap_or("a controller that is gone");
                write!(f, ": {flaw}, though {of} says that it succeeded")?;
            }
            None => controller.iter().try_for_each(|name| write!(f, ", says {name}"))?,
        }
        if *untold > 0 { write!(f, " ({untold} more before)") } else { Ok(()) }
    }

    fn suspected_loss(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostEvent::LossSuspected { head, status, controller } = self else { return Ok(()) };
        write!(f, "{head}: a write with FUA failed: {}", IoError::Status(*status))?;
        controller.iter().try_for_each(|name| write!(f, ", says {name}"))?;
        f.write_str(
            "; what was written before may be lost, so the next flush of each connection fails",
        )
    }

    fn replaced_head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostEvent::HeadReplaced { head, former, nsid } = self else { return Ok(()) };
        write!(
            f,
            "{head}: nsid {nsid} is another namespace than {former} was (it has other \
             identifiers); what was set up for {former}, exports too, waits for that one"
        )
    }

    fn refused_zeroes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostEvent::ZeroesRefused { head, status, controller } = self else { return Ok(()) };
        let status = IoError::Status(*status);
        write!(f, "{head}: it does not make zeroes after all ({status}")?;
        controller.iter().try_for_each(|name| write!(f, ", says {name}"))?;
        f.write_str("): from now on they are written")
    }
}

/// The part of a name that devices and paths of one subsystem, and through one controller, share:
/// `nvmeX` of `nvmeXnY`, `nvmeXcY` of `nvmeXcYnZ`.
fn without_head(name: &str) -> &str {
    name.rsplit_once('n').map_or(name, |(shared, _)| shared)
}

impl fmt::Display for HostEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostEvent::State { controller, from, to, why } => {
                write!(f, "{controller}: {from} -> {to}")?;
                why.iter().try_for_each(|why| write!(f, " ({why})"))
            }
            HostEvent::ConnectFailed { .. } => self.connect_failed(f),
            HostEvent::Removed { controller, why } => write!(f, "{controller}: removed: {why}"),
            HostEvent::FastIoFail { controller } => {
                write!(f, "{controller}: fast_io_fail_tmo has passed")
            }
            HostEvent::AnaChange { path, from, to } => write!(f, "{path}: ANA {from} -> {to}"),
            HostEvent::AnaError { path, status, untold } => {
                write!(f, "{path}: {status}")?;
                if *untold > 0 { write!(f, " ({untold} more before)") } else { Ok(()) }
            }
            HostEvent::Flawed { path, flaw, untold } => {
                write!(f, "{path}: a command has not succeeded though it was answered so: {flaw}")?;
                if *untold > 0 { write!(f, " ({untold} more before)") } else { Ok(()) }
            }
            HostEvent::Rescued { path, silent_ns, reads, unsent } => write!(
                f,
                "{path}: silent for {} ms: {reads} reads sent again on other paths, {unsent} \
                 commands that had not been sent moved there",
                silent_ns / 1_000_000
            ),
            HostEvent::RequestFailed { .. } => self.request_failed(f),
            HostEvent::ZeroesRefused { .. } => self.refused_zeroes(f),
            HostEvent::LossSuspected { .. } => self.suspected_loss(f),
            HostEvent::AnaDisabled { controller, why } => {
                write!(f, "{controller}: ANA is not used: {why}")
            }
            HostEvent::AnaTimeout { controller } => write!(f, "{controller}: ANATT timeout"),
            HostEvent::HeadAdded { head, bytes, nsid, wwid } => {
                write!(f, "{head}: added, {bytes} bytes, nsid {nsid}, {wwid}")
            }
            HostEvent::HeadResized { head, from_bytes, to_bytes } => {
                write!(f, "{head}: capacity change from {from_bytes} to {to_bytes} bytes")
            }
            HostEvent::HeadReplaced { .. } => self.replaced_head(f),
            HostEvent::HeadRemoved { head } => write!(f, "{head}: removed"),
            HostEvent::HeadOrphaned { head, seconds } => {
                write!(f, "{head}: no path left, I/O waits for at most {seconds} s")
            }
            HostEvent::HeadStranded { head, paths } => {
                write!(f, "{head}: no usable path of {paths}")
            }
            HostEvent::HeadServed { head } => write!(f, "{head}: a path is usable again"),
            HostEvent::PathAdded { path, head } => write!(f, "{head}: path {path} added"),
            HostEvent::PathRemoved { path, head } => write!(f, "{head}: path {path} removed"),
            HostEvent::PathDisagrees { path, bytes, head, head_bytes } => {
                write!(f, "{path}: not used while it has {bytes} bytes: {head} has {head_bytes}")
            }
            HostEvent::PathAgrees { path, bytes, head } => {
                write!(f, "{path}: of use again: it has {bytes} bytes, as {head}")
            }
            HostEvent::NamespaceRefused { controller, nsid, why } => {
                write!(f, "{controller}: ignoring nsid {nsid}: {why}")
            }
            HostEvent::AsyncEvent { controller, what } => {
                write!(f, "{controller}: asynchronous event: {what}")
            }
            HostEvent::AttributeChanged { object, attribute, from, to } => match from.as_str() {
                "" => write!(f, "{object}: {attribute} set to {to}"),
                from => write!(f, "{object}: {attribute} changed from {from} to {to}"),
            },
            HostEvent::Note { controller, text } => write!(f, "{controller}: {text}"),
        }
    }
}

/// A request in words.
struct Words<'a>(&'a RequestOp);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, lba, blocks) = match *self.0 {
            RequestOp::Read { lba, blocks, .. } => ("read", lba, u64::from(blocks)),
            RequestOp::Write { lba, blocks, .. } => ("write", lba, u64::from(blocks)),
            RequestOp::Compare { lba, blocks, .. } => ("compare", lba, u64::from(blocks)),
            RequestOp::WriteZeroes { lba, blocks, .. } => ("write-zeroes", lba, blocks),
            RequestOp::Discard { lba, blocks } => ("discard", lba, blocks),
            RequestOp::Flush => return f.write_str("flush"),
        };
        write!(f, "{what} of {blocks} blocks at {lba}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn what_a_controller_can_say_for_every_namespace_at_once_is_of_one_kind() {
        let added = |path: &str| {
            HostEvent::PathAdded { path: path.to_string(), head: "nvme0n1".to_string() }.kind()
        };
        assert_eq!(added("nvme0c1n1").as_deref(), Some("nvme0c1 path added"));
        assert_eq!(added("nvme0c1n1023"), added("nvme0c1n1"));
        assert_ne!(added("nvme0c2n1"), added("nvme0c1n1"), "another controller speaks for itself");

        let (path, head) = (|| "nvme0c1n7".to_string(), || "nvme0n7".to_string());
        let status = Status::SUCCESS;
        let (from, to) = (AnaState::Optimized, AnaState::Change);
        let many = [
            HostEvent::AnaChange { path: path(), from, to },
            HostEvent::AnaError { path: path(), status, untold: 0 },
            HostEvent::PathAdded { path: path(), head: head() },
            HostEvent::PathRemoved { path: path(), head: head() },
            HostEvent::PathDisagrees { path: path(), bytes: 1, head: head(), head_bytes: 2 },
            HostEvent::PathAgrees { path: path(), bytes: 1, head: head() },
            HostEvent::HeadAdded { head: head(), bytes: 1, nsid: 1, wwid: String::new() },
            HostEvent::HeadReplaced { head: head(), former: head(), nsid: 1 },
            HostEvent::HeadResized { head: head(), from_bytes: 1, to_bytes: 2 },
            HostEvent::HeadRemoved { head: head() },
            HostEvent::HeadOrphaned { head: head(), seconds: 1 },
            HostEvent::HeadStranded { head: head(), paths: 2 },
            HostEvent::HeadServed { head: head() },
        ];
        let kinds: alloc::collections::BTreeSet<_> = many.iter().map(HostEvent::kind).collect();
        assert_eq!(kinds.len(), many.len(), "one kind does not hide another");
        assert!(kinds.iter().flatten().all(|kind| !kind.contains("n7")));
    }
}
