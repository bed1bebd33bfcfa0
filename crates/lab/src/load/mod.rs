//! Load on a head, measured and, if asked for, verified block by block.
//!
//! A [`Load`] sits on every worker as a [`host::User`](anabranch_host::user::User). The one on the
//! control worker takes verbs; the ones on data workers submit.

mod check;
mod front;
mod job;
mod report;
mod runner;
mod stamp;
mod work;

pub use check::{Extent, Mismatch};
pub use front::{Load, LoadEvent, LoadMail, LoadReply, LoadVerb};
pub use job::{BlockSize, Device, Job, JobError};
pub use report::{LatencySummary, LoadReport};
pub use stamp::{Stamp, StampError};
pub(crate) use work::{Drawn, Share, Work};
