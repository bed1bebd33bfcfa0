//! Making sockets: options, addresses, and socket files that are private from their first moment.

use crate::SocketLock;
use anabranch_proto::machine::{Endpoint, Peer, SocketAccess, SocketOptions, SystemError};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags};
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Connections that may wait for `accept`.
const BACKLOG: i32 = 1024;
/// How often, and how far apart, an address is tried that is in use.
const BIND_TRIES: u32 = 50;
const BIND_PAUSE: Duration = Duration::from_millis(2);

/// The error number, never zero.
pub(crate) fn system_error(error: &io::Error) -> SystemError {
    match error.raw_os_error() {
        Some(code) if code != 0 => SystemError(code),
        _ => SystemError(libc::EINVAL),
    }
}

/// A socket on which to connect to `to`, bound as asked, and the address as the kernel takes it.
pub(crate) fn for_connect(
    to: &Endpoint,
    options: &SocketOptions,
) -> io::Result<(OwnedFd, SockAddr)> {
    let (socket, addr) = match to {
        Endpoint::Tcp(addr) => {
            let socket =
                Socket::new(Domain::for_address(*addr), Type::STREAM, Some(Protocol::TCP))?;
            prepare(&socket, *addr, options)?;
            // Whoever ends the connection, us being killed included: what the kernel still has to
            // send dies with it. Otherwise a write that was given up here, and sent elsewhere,
            // could still leave when the network heals. An orderly end, after all was
            // acknowledged, stays one.
            set_reset_on_close(socket.as_fd());
            if let Some(interface) = &options.interface {
                socket.bind_device(Some(interface.as_bytes()))?;
            }
            if let Some(source) = options.source {
                // The port is chosen at connect time, so that a source address does not limit the
                // number of connections to the number of ports.
                bind_without_port(&socket)?;
                socket.bind(&from(source, *addr).into())?;
            }
            (socket, SockAddr::from(*addr))
        }
        Endpoint::Unix(path) => {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            set_buffers(&socket, options)?;
            (socket, SockAddr::unix(path)?)
        }
    };
    Ok((socket.into(), addr))
}

/// Our own address, without a port. One of a link is an address on the interface of the peer's.
fn from(source: IpAddr, to: SocketAddr) -> SocketAddr {
    match (source, to) {
        (IpAddr::V6(ip), SocketAddr::V6(to)) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, 0, 0, to.scope_id()).into()
        }
        _ => SocketAddr::new(source, 0),
    }
}

/// Sets `IP_BIND_ADDRESS_NO_PORT` (which holds for IPv6 sockets too).
fn bind_without_port(socket: &Socket) -> io::Result<()> {
    let on: libc::c_int = 1;
    let (value, len) = (&raw const on, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the descriptor is open, and `value` points to `len` bytes that outlive the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            value.cast(),
            len,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set_buffers(socket: &Socket, options: &SocketOptions) -> io::Result<()> {
    if let Some(bytes) = options.buffer_bytes {
        socket.set_send_buffer_size(bytes as usize)?;
        socket.set_recv_buffer_size(bytes as usize)?;
    }
    Ok(())
}

fn prepare(socket: &Socket, addr: SocketAddr, options: &SocketOptions) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    set_buffers(socket, options)?;
    if let Some(tos) = options.tos {
        match addr {
            SocketAddr::V4(_) => socket.set_tos_v4(u32::from(tos))?,
            SocketAddr::V6(_) => socket.set_tclass_v6(u32::from(tos))?,
        }
    }
    Ok(())
}

/// A socket file that we made, and the lock that keeps its path ours.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Given back after the file is gone.
    _lock: SocketLock,
}

impl SocketFile {
    /// Removes the file, unless somebody else's lies there by now.
    fn remove(&self) {
        if let Ok(meta) = std::fs::symlink_metadata(&self.path)
            && meta.dev() == self.device
            && meta.ino() == self.inode
        {
            // Nothing depends on it: a file left behind is recognised as stale.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A listening socket, where it listens, and its file if it is a Unix socket. Accepted connections
/// inherit the options.
pub(crate) fn listening(
    at: &Endpoint,
    options: &SocketOptions,
) -> io::Result<(OwnedFd, Endpoint, Option<SocketFile>)> {
    match at {
        Endpoint::Tcp(addr) => {
            let socket =
                Socket::new(Domain::for_address(*addr), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            prepare(&socket, *addr, options)?;
            if let Some(interface) = &options.interface {
                socket.bind_device(Some(interface.as_bytes()))?;
            }
            bind_in_a_moment(&socket, &SockAddr::from(*addr))?;
            socket.listen(BACKLOG)?;
            let bound = socket.local_addr()?.as_socket().unwrap_or(*addr);
            Ok((socket.into(), Endpoint::Tcp(bound), None))
        }
        Endpoint::Unix(path) => {
            let (socket, file) = listening_unix(Path::new(path), options)?;
            Ok((socket, at.clone(), Some(file)))
        }
    }
}

/// Binds to an address that whoever had it may just be letting go of: the kernel still has the
/// listening socket of a process that was killed for some milliseconds, as the ring is taken apart
/// behind its back.
fn bind_in_a_moment(socket: &Socket, addr: &SockAddr) -> io::Result<()> {
    for _ in 0..BIND_TRIES {
        match socket.bind(addr) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                std::thread::sleep(BIND_PAUSE);
            }
            done => return done,
        }
    }
    socket.bind(addr)
}

fn listening_unix(path: &Path, options: &SocketOptions) -> io::Result<(OwnedFd, SocketFile)> {
    let addr = SockAddr::unix(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    set_buffers(&socket, options)?;
    // On Linux the socket's own mode becomes the file's mode: there is no moment at which others
    // could connect, and the process's umask is left alone.
    rustix::fs::fchmod(socket.as_fd(), Mode::RUSR | Mode::WUSR)?;
    let in_use = || io::Error::from_raw_os_error(libc::EADDRINUSE);
    let lock = SocketLock::take(path)?.ok_or_else(in_use)?;
    if remove_stale(path, &addr)? == Found::Live {
        return Err(in_use());
    }
    socket.bind(&addr)?;
    let meta = std::fs::symlink_metadata(path)?;
    let file =
        SocketFile { path: path.to_owned(), device: meta.dev(), inode: meta.ino(), _lock: lock };
    grant(path, options.access)?;
    socket.listen(BACKLOG)?;
    Ok((socket.into(), file))
}

/// Lets others connect, before anybody can. The mode that a socket has when it is bound goes
/// through the umask, so the file is given it afterwards.
fn grant(path: &Path, access: SocketAccess) -> io::Result<()> {
    if access == SocketAccess::default() {
        return Ok(());
    }
    // Where others may write in the directory the name may lead elsewhere by now: what is changed
    // is a socket, and no link.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
    }
    if let Some(group) = access.group {
        let group = Some(Gid::from_raw(group));
        rustix::fs::chownat(&file, "", None, group, AtFlags::EMPTY_PATH)?;
    }
    // A descriptor that stands for a path only has no mode to be set by itself before Linux 6.6.
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::chmod(name, Mode::from_raw_mode(access.mode.into()))?)
}

#[derive(PartialEq, Eq)]
enum Found {
    Nothing,
    Live,
}

/// Removes the socket file of a server that is gone; the lock of its path is ours. A server that
/// lives (it may be another program, that knows no lock), and a file that is no socket, are left
/// alone.
fn remove_stale(path: &Path, addr: &SockAddr) -> io::Result<Found> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
        Ok(meta) if !meta.file_type().is_socket() => return Ok(Found::Live),
        Ok(_) => {}
    }
    for _ in 0..BIND_TRIES {
        let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        probe.set_nonblocking(true)?;
        match probe.connect(addr) {
            Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => {
                std::fs::remove_file(path)?;
                return Ok(Found::Nothing);
            }
            // As in `bind_in_a_moment`: a killed process's socket takes connections for some
            // milliseconds, and ends them when it goes.
            Ok(()) if ends_in_a_moment(probe.as_fd())? => {}
            // Accepted, or a full backlog, or not ours to ask: somebody is there.
            _ => return Ok(Found::Live),
        }
    }
    Ok(Found::Live)
}

/// Whether the other side of a connection goes while we look.
fn ends_in_a_moment(connection: BorrowedFd<'_>) -> io::Result<bool> {
    let pause = BIND_PAUSE * BIND_TRIES;
    let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
    // Nothing is asked for: the end is told all the same.
    let mut end = [PollFd::from_borrowed_fd(connection, PollFlags::empty())];
    match rustix::event::poll(&mut end, Some(&pause)) {
        Ok(ended) => Ok(ended > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Acknowledges what a TCP connection has received. A Unix socket has nothing to acknowledge, and
/// where the system does not do it the acknowledgement comes by itself, some 40 ms later.
pub(crate) fn acknowledge(connection: BorrowedFd<'_>) {
    let _ = rustix::net::sockopt::set_tcp_quickack(connection, true);
}

/// Whether the peer has ended its direction of a connection, also where bytes are to be read
/// before that end.
pub(crate) fn peer_has_ended(connection: BorrowedFd<'_>) -> bool {
    let mut end = [PollFd::from_borrowed_fd(connection, PollFlags::RDHUP)];
    loop {
        match rustix::event::poll(&mut end, Some(&Timespec::default())) {
            Err(rustix::io::Errno::INTR) => {}
            found => return found.is_ok_and(|ended| ended > 0),
        }
    }
}

/// Our own address on a connection, when it has one.
pub(crate) fn local_addr(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    socket2::SockRef::from(&fd).local_addr().ok()?.as_socket()
}

/// Who has connected, if the system says so.
pub(crate) fn peer(fd: BorrowedFd<'_>, tcp: bool) -> Option<Peer> {
    if tcp {
        let at = socket2::SockRef::from(&fd).peer_addr().ok()?.as_socket()?;
        return Some(Peer::Address(at));
    }
    crate::credentials(fd).ok()?.pid.map(Peer::Process)
}

/// Turns the result of an accept operation into its owner.
pub(crate) fn accepted(fd: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just given this descriptor to us, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// When a connection that we accepted has been silent for so long, the kernel asks whether the peer
/// is still there, and again after each pause.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEP_ALIVE_PAUSE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TRIES: u32 = 6;

/// Options that an accepted connection does not inherit from its listener.
///
/// A peer that lost its power says no good-bye. What it had would be kept for ever, and so many
/// later there would be no room for new ones.
pub(crate) fn set_accepted(fd: BorrowedFd<'_>, tcp: bool) -> io::Result<()> {
    if !tcp {
        return Ok(());
    }
    let socket = socket2::SockRef::from(&fd);
    socket.set_tcp_nodelay(true)?;
    let times = TcpKeepalive::new()
        .with_time(KEEP_ALIVE_AFTER)
        .with_interval(KEEP_ALIVE_PAUSE)
        .with_retries(KEEP_ALIVE_TRIES);
    socket.set_tcp_keepalive(&times)
}

/// Closing this socket resets the connection.
pub(crate) fn set_reset_on_close(fd: BorrowedFd<'_>) {
    // A Unix socket knows no reset; closing it is all there is, so a failure changes nothing.
    let _ = socket2::SockRef::from(&fd).set_linger(Some(Duration::ZERO));
}

/// Ends our direction of the stream.
pub(crate) fn shutdown_write(fd: BorrowedFd<'_>) -> io::Result<()> {
    socket2::SockRef::from(&fd).shutdown(std::net::Shutdown::Write)
}

/// The raw descriptor for the ring.
pub(crate) fn raw(fd: &OwnedFd) -> RawFd {
    fd.as_fd().as_raw_fd()
}

#[cfg(test)]
mod tests {
    use super::from;

    #[test]
    fn our_own_address_of_a_link_is_on_the_interface_of_the_peers() {
        for (source, to, expected) in [
            ("fe80::2", "[fe80::1%7]:4420", "[fe80::2%7]:0"),
            ("fe80::2", "[2001:db8::1]:4420", "[fe80::2]:0"),
            ("2001:db8::2", "[fe80::1%7]:4420", "[2001:db8::2]:0"),
            ("192.0.2.2", "192.0.2.1:4420", "192.0.2.2:0"),
        ] {
            let found = from(source.parse().expect(source), to.parse().expect(to));
            assert_eq!(found.to_string(), expected, "{source} to {to}");
        }
    }
}
