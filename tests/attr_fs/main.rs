//! The attributes as files: a real FUSE mount of a host that is connected to an embedded target.

mod attributes;
mod daemon;
mod files;
mod layout;
mod stand;
mod storm;
