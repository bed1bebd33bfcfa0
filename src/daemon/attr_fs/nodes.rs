//! Inode numbers: what the kernel knows, for as long as it does.

use super::tree::{Node, ROOT};
use fuser::Errno;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Inodes that the kernel may know at once.
const MAX_NODES: usize = 1 << 20;
/// The root's number.
const ROOT_INO: u64 = fuser::INodeNo::ROOT.0;

/// Inodes by number. A number follows from the parent's and the name, so that the same file has
/// the same number for as long as the daemon lives.
pub(super) struct Nodes {
    known: HashMap<u64, Known>,
}

struct Known {
    node: Node,
    lookups: u64,
}

impl Nodes {
    pub(super) fn new() -> Nodes {
        Nodes { known: HashMap::from([(ROOT_INO, Known { node: ROOT, lookups: 1 })]) }
    }

    /// The number of what has this name in that directory.
    pub(super) fn number(parent: u64, name: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        (parent, name).hash(&mut hasher);
        // 0 is nobody's and 1 the root's.
        hasher.finish().max(2)
    }

    pub(super) fn get(&self, ino: u64) -> Result<Node, Errno> {
        self.known.get(&ino).map(|known| known.node.clone()).ok_or(Errno::ESTALE)
    }

    /// The kernel learns of an inode; what it is may have changed since it was last looked up.
    pub(super) fn looked_up(&mut self, ino: u64, node: Node) -> Result<(), Errno> {
        if self.known.len() >= MAX_NODES && !self.known.contains_key(&ino) {
            return Err(Errno::ENFILE);
        }
        let known = self.known.entry(ino).or_insert(Known { node: ROOT, lookups: 0 });
        known.node = node;
        known.lookups = known.lookups.saturating_add(1);
        Ok(())
    }

    /// The kernel forgets that many look-ups.
    pub(super) fn forget(&mut self, ino: u64, lookups: u64) {
        if ino == ROOT_INO {
            return;
        }
        if let Some(known) = self.known.get_mut(&ino) {
            known.lookups = known.lookups.saturating_sub(lookups);
            if known.lookups == 0 {
                self.known.remove(&ino);
            }
        }
    }
}
