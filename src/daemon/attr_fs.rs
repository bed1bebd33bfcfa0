//! The attributes as a tree of files, laid out as the kernel lays out `/sys` and debugfs, so that
//! scripts and nvme-cli find what they know.
//!
//! Its threads are ordinary blocking threads. They ask the host through the same bounded mailbox
//! as everyone, with a time limit; a program that reads slowly, or not at all, holds up nothing
//! but itself.

mod filesystem;
mod mount;
mod nodes;
mod opened;
mod source;
mod tree;

pub use mount::AttrFs;
