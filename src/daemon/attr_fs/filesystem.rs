//! The tree as the kernel's FUSE asks for it.

use super::nodes::Nodes;
use super::opened::{Handles, OpenDir, OpenFile};
use super::source::Source;
use super::tree::{self, Node};
use crate::daemon::crew;
use anabranch_host::attribute::Dir;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// How long the kernel may keep directories that are always there. Of the rest it keeps nothing:
/// the next look sees what is there then.
const FIXED_TTL: Duration = Duration::from_secs(60);
/// What the size of a file in sysfs is said to be, that of the shortest, too.
const PAGE_BYTES: u64 = 4096;
/// Writes that are waited for beside the threads that answer. One that resets a controller ends
/// when that is live again, seconds later.
const WRITERS: usize = 64;

/// The file system.
pub(super) struct AttributeTree<S> {
    source: S,
    /// Owner and group of everything.
    owner: (u32, u32),
    mounted_at: SystemTime,
    nodes: Mutex<Nodes>,
    files: Mutex<Handles<OpenFile>>,
    dirs: Mutex<Handles<OpenDir>>,
    /// Whoever writes holds one.
    writers: Arc<()>,
}

impl<S: Source + Clone> AttributeTree<S> {
    pub(super) fn new(source: S, owner: (u32, u32)) -> AttributeTree<S> {
        AttributeTree {
            source,
            owner,
            mounted_at: SystemTime::now(),
            nodes: Mutex::new(Nodes::new()),
            files: Mutex::new(Handles::new()),
            dirs: Mutex::new(Handles::new()),
            writers: Arc::default(),
        }
    }

    fn node(&self, ino: INodeNo) -> Result<Node, Errno> {
        lock(&self.nodes).get(ino.0)
    }

    fn attr(&self, ino: u64, node: &Node) -> FileAttr {
        let (size, perm, nlink) = match node {
            // As in the kernel: of a file in debugfs nobody knows before it is read, and tools read
            // it to its end.
            Node::File(file) if file.dir == Dir::Debug => (0, file.mode, 1),
            Node::File(file) => (PAGE_BYTES, file.mode, 1),
            Node::Link(to) => (to.len() as u64, 0o777, 1),
            _ => (0, 0o755, 2),
        };
        FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: 0,
            atime: self.mounted_at,
            mtime: self.mounted_at,
            ctime: self.mounted_at,
            crtime: self.mounted_at,
            kind: kind(node),
            perm,
            nlink,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Result<(Duration, FileAttr), Errno> {
        let name = name.to_str().ok_or(Errno::ENOENT)?;
        let node = tree::child(&self.node(parent)?, name, &self.source)?;
        let ino = Nodes::number(parent.0, name);
        let found = (ttl(&node), self.attr(ino, &node));
        lock(&self.nodes).looked_up(ino, node)?;
        Ok(found)
    }

    fn open_file(&self, ino: INodeNo, flags: OpenFlags) -> Result<u64, Errno> {
        let Node::File(file) = self.node(ino)? else { return Err(Errno::EISDIR) };
        let mode = flags.acc_mode();
        let wants = (mode != OpenAccMode::O_WRONLY, mode != OpenAccMode::O_RDONLY);
        lock(&self.files).add(OpenFile::open(file, wants)?)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ttl(node: &Node) -> Duration {
    if matches!(node, Node::Fixed(_)) { FIXED_TTL } else { Duration::ZERO }
}

fn kind(node: &Node) -> FileType {
    match node {
        Node::File(_) => FileType::RegularFile,
        Node::Link(_) => FileType::Symlink,
        _ => FileType::Directory,
    }
}

impl<S: Source + Clone> Filesystem for AttributeTree<S> {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            Ok((ttl, attr)) => reply.entry(&ttl, &attr, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        lock(&self.nodes).forget(ino.0, lookups);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(ino) {
            Ok(node) => reply.attr(&ttl(&node), &self.attr(ino.0, &node)),
            Err(errno) => reply.error(errno),
        }
    }

    /// Truncation and times change nothing, as in sysfs; mode and owner are not the caller's.
    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        match self.node(ino) {
            Ok(node) => reply.attr(&ttl(&node), &self.attr(ino.0, &node)),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.node(ino) {
            Ok(Node::Link(to)) => reply.data(to.as_bytes()),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(ino, flags) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = lock(&self.files).get(handle.0);
        match file.and_then(|file| file.read(offset, size as usize, &self.source)) {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = match lock(&self.files).get(handle.0) {
            Ok(file) => file,
            Err(errno) => return reply.error(errno),
        };
        let writer = Arc::clone(&self.writers);
        let (source, data) = (self.source.clone(), data.to_vec());
        let write = move || {
            match file.write(&data, &source) {
                Ok(count) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
                Err(errno) => reply.error(errno),
            }
            drop(writer);
        };
        if Arc::strong_count(&self.writers) > WRITERS + 1 {
            return write();
        }
        // Where there is no thread to be had, whoever writes gets EIO, from the reply that goes.
        let _ = anabranch_rt::thread::spawn("attr-fs-write", crew::STACK_BYTES, write);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.files).remove(handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.node(ino).map(OpenDir::open);
        match opened.and_then(|opened| lock(&self.dirs).add(opened)) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let opened = lock(&self.dirs).get(handle.0);
        let children = match opened.and_then(|dir| dir.children(offset, &self.source)) {
            Ok(children) => children,
            Err(errno) => return reply.error(errno),
        };
        let dots = [".", ".."].into_iter().map(|name| (ino.0, FileType::Directory, name));
        let entries = dots.chain(children.iter().map(|child| {
            let number = Nodes::number(ino.0, &child.name);
            (number, kind(&child.node), child.name.as_str())
        }));
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (number, kind, name)) in entries.enumerate().skip(start) {
            if reply.add(INodeNo(number), at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        lock(&self.dirs).remove(handle.0);
        reply.ok();
    }

    // Nothing can be made or removed here; the errors are those of sysfs.

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EACCES);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }
}
