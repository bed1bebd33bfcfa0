//! Where the tree comes from: the running host, asked each time.

use super::super::front::{FrontReply, FrontVerb};
use super::super::host::Host;
use anabranch_host::attribute::Attribute;
use anabranch_host::verb::{Object, Reply, Verb, VerbError};
use anabranch_rt::Error;
use fuser::Errno;
use std::sync::Weak;

/// An object and the attributes that it shows.
pub(super) type Description = (Object, Vec<&'static Attribute>);

/// What a tree asks for; errors are what a program sees.
pub(super) trait Source: Send + Sync + 'static {
    /// Every object.
    fn objects(&self) -> Result<Vec<Object>, Errno>;
    /// An object, and which attributes it shows; `ENOENT` when there is none.
    fn describe(&self, object: &str) -> Result<Description, Errno>;
    /// The text of an attribute, without newline.
    fn get(&self, object: &str, attribute: &str) -> Result<String, Errno>;
    /// Writes an attribute.
    fn set(&self, object: &str, attribute: &str, value: &str) -> Result<(), Errno>;
}

/// Files that somebody keeps open do not keep the host.
impl Source for Weak<Host> {
    fn objects(&self) -> Result<Vec<Object>, Errno> {
        match ask(self, Verb::Objects)? {
            Reply::Objects(objects) => Ok(objects),
            other => Err(errno(&other)),
        }
    }

    fn describe(&self, object: &str) -> Result<Description, Errno> {
        match ask(self, Verb::Describe { object: object.to_owned() })? {
            Reply::Description(object, shows) => Ok((object, shows)),
            Reply::Error(VerbError::Invalid(_)) => Err(Errno::ENOENT),
            other => Err(errno(&other)),
        }
    }

    fn get(&self, object: &str, attribute: &str) -> Result<String, Errno> {
        let verb = Verb::Get { object: object.to_owned(), attribute: attribute.to_owned() };
        match ask(self, verb)? {
            Reply::Value(text) => Ok(text),
            // It was there when the file was found: the device has gone meanwhile.
            Reply::Error(VerbError::Invalid(_)) => Err(Errno::ENODEV),
            other => Err(errno(&other)),
        }
    }

    fn set(&self, object: &str, attribute: &str, value: &str) -> Result<(), Errno> {
        let verb = Verb::Set {
            object: object.to_owned(),
            attribute: attribute.to_owned(),
            value: value.to_owned(),
        };
        match ask(self, verb)? {
            // A controller is deleted by a write, too.
            Reply::Done | Reply::Disconnected(_) => Ok(()),
            Reply::Error(VerbError::Invalid(_)) if self.describe(object).is_err() => {
                Err(Errno::ENODEV)
            }
            other => Err(errno(&other)),
        }
    }
}

fn ask(host: &Weak<Host>, verb: Verb<FrontVerb>) -> Result<Reply<FrontReply>, Errno> {
    let host = host.upgrade().ok_or(Errno::ENODEV)?;
    host.look(verb).map_err(|error| match error {
        Error::NoAnswer(_) => Errno::ETIMEDOUT,
        Error::Busy(_) => Errno::EAGAIN,
        _ => Errno::EIO,
    })
}

/// What an answer that does not fit says to a program.
fn errno(reply: &Reply<FrontReply>) -> Errno {
    match reply {
        Reply::Error(VerbError::Invalid(_)) => Errno::EINVAL,
        Reply::Error(VerbError::OutOfRange(_)) => Errno::ERANGE,
        Reply::Error(VerbError::Conflict(_) | VerbError::Connected(_)) => Errno::EBUSY,
        _ => Errno::EIO,
    }
}
