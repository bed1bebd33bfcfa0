//! Links of the kernel: two network namespaces of our own, a veth pair per path between them, and a
//! token bucket (`tc tbf`) on each end for the rate of its direction.
//!
//! The kernel counts every byte of a frame, Ethernet, IP and TCP headers included; frames are large
//! so that these are few. What it has no means for here (delays, congestion, faults) stays with the
//! target's ports.

use super::LiveError;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Where `ip netns` keeps namespaces.
const NAMES: &str = "/run/netns";
/// What ours are called: then the process, the session and the side.
const PREFIX: &str = "anabranch-lab-";
/// How long one command may take.
const COMMAND: Duration = Duration::from_secs(10);
/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(1);
/// The largest frames that are usual.
const MTU: &str = "9000";
/// What a bucket holds: the bytes of this time, within bounds.
const BURST_MS: u64 = 2;
const BURSTS: (u64, u64) = (18_000, 256 << 10);
/// What may wait for a bucket: the bytes of this time, at least some.
const WAITING_MS: u64 = 200;
const WAITING_LEAST: u64 = 1 << 20;

/// Whether this process still makes namespaces; held while it makes one.
static MAKING: Mutex<bool> = Mutex::new(true);

/// One end of all links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Hosts,
    Target,
}

/// The namespaces and their links; dropping them takes them down.
#[derive(Debug)]
pub(super) struct Wires {
    hosts: String,
    target: String,
}

impl Wires {
    /// A link per path, without a rate.
    pub(super) fn set_up(session: u32, paths: usize) -> Result<Wires, LiveError> {
        remove_stale();
        let name = |side: &str| format!("{PREFIX}{}-{session}-{side}", std::process::id());
        let wires = Wires { hosts: name("h"), target: name("t") };
        make(&wires.hosts).map_err(|error| LiveError::Option {
            name: "kernel-shaping",
            why: format!("it needs root and the commands ip and tc ({error})"),
        })?;
        make(&wires.target)?;
        for path in 0..paths {
            let device = device(path);
            run(
                "ip",
                &[
                    "link",
                    "add",
                    &device,
                    "mtu",
                    MTU,
                    "netns",
                    &wires.hosts,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    &device,
                    "mtu",
                    MTU,
                    "netns",
                    &wires.target,
                ],
            )?;
            for side in [Side::Hosts, Side::Target] {
                let (name, address) = (wires.name(side), format!("{}/30", address(path, side)));
                run("ip", &["-n", name, "address", "add", &address, "dev", &device])?;
                run("ip", &["-n", name, "link", "set", &device, "up"])?;
            }
        }
        Ok(wires)
    }

    fn name(&self, side: Side) -> &str {
        match side {
            Side::Hosts => &self.hosts,
            Side::Target => &self.target,
        }
    }

    /// Runs `work` on a thread of that side: threads that it starts are there too.
    pub(super) fn inside<T: Send>(
        &self,
        side: Side,
        work: impl FnOnce() -> Result<T, LiveError> + Send,
    ) -> Result<T, LiveError> {
        let name = self.name(side);
        let what = || format!("enter the network namespace {name}");
        let place = File::open(Path::new(NAMES).join(name))
            .map_err(|error| LiveError::failed(what(), error))?;
        let enter = move || {
            move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|error| LiveError::failed(what(), error))?;
            work()
        };
        std::thread::scope(|scope| {
            let thread = Builder::new()
                .name("lab-netns".to_owned())
                .spawn_scoped(scope, enter)
                .map_err(|error| LiveError::failed("start a thread", error))?;
            thread.join().unwrap_or_else(|_| Err(LiveError::failed(what(), "the thread panicked")))
        })
    }

    /// Bits per second of a path's two directions from now on.
    pub(super) fn rates(
        &self,
        path: usize,
        rate_in: Option<u64>,
        rate_out: Option<u64>,
    ) -> Result<(), LiveError> {
        for (side, rate) in [(Side::Hosts, rate_in), (Side::Target, rate_out)] {
            let device = device(path);
            let on = ["-n", self.name(side), "qdisc", "replace", "dev", &device, "root"];
            let Some(rate) = rate else {
                run("tc", &[&on[..], &["noqueue"]].concat())?;
                continue;
            };
            let (rate, burst, waiting) = bucket(rate);
            let bucket = ["tbf", "rate", &rate, "burst", &burst, "limit", &waiting];
            run("tc", &[&on[..], &bucket].concat())?;
        }
        Ok(())
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        for name in [&self.hosts, &self.target] {
            delete(name);
        }
    }
}

fn make(name: &str) -> Result<(), LiveError> {
    let making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if !*making {
        return Err(LiveError::failed(format!("make the network namespace {name}"), "it ends"));
    }
    run("ip", &["netns", "add", name])
}

fn delete(name: &str) {
    // It may not have come about, or somebody else does the same; nobody is left to be told.
    let _ = run("ip", &["netns", "delete", name]);
}

/// Takes down what this process has made outside of itself, its network namespaces, and makes no
/// more: for a program that is told to end at once. Sessions that are at work lose their links.
pub fn clean_up() {
    let mut making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    *making = false;
    let ours = std::process::id();
    namespaces().filter(|(process, _)| *process == ours).for_each(|(_, name)| delete(&name));
}

/// Namespaces of any session, and the processes that made them.
fn namespaces() -> impl Iterator<Item = (u32, String)> {
    let entries = std::fs::read_dir(NAMES).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let process = name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()?;
        Some((process, name))
    })
}

/// Where a path's port listens, and where its hosts come from: networks for tests between networks
/// (RFC 2544), seen by nobody else.
pub(super) fn address(path: usize, side: Side) -> IpAddr {
    let host = match side {
        Side::Hosts => 1,
        Side::Target => 2,
    };
    // Scenarios have at most 64 paths.
    let (third, fourth) = (path / 64, path % 64 * 4 + host);
    let byte = |value: usize| u8::try_from(value).unwrap_or(u8::MAX);
    IpAddr::V4(Ipv4Addr::new(198, 18, byte(third), byte(fourth)))
}

fn device(path: usize) -> String {
    format!("path{path}")
}

/// Rate, burst and limit of a bucket, as `tc` reads them.
fn bucket(rate: u64) -> (String, String, String) {
    let bytes_of = |ms: u64| rate / 8 / 1000 * ms;
    let burst = bytes_of(BURST_MS).clamp(BURSTS.0, BURSTS.1);
    let waiting = bytes_of(WAITING_MS).max(WAITING_LEAST);
    (format!("{rate}bit"), burst.to_string(), waiting.to_string())
}

/// What a process left that ended without its destructors.
fn remove_stale() {
    let gone = |process| !Path::new(&format!("/proc/{process}")).exists();
    namespaces().filter(|(process, _)| gone(*process)).for_each(|(_, name)| delete(&name));
}

/// Runs a command to its end.
fn run(program: &str, args: &[&str]) -> Result<(), LiveError> {
    let failed = |why: &dyn std::fmt::Display| {
        LiveError::failed(format!("{program} {}", args.join(" ")), why)
    };
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    let until = Instant::now() + COMMAND;
    loop {
        let ended = child.try_wait().map_err(|error| failed(&error))?;
        if ended.is_none() && Instant::now() < until {
            std::thread::sleep(LOOK);
            continue;
        }
        if ended.is_none() {
            // It is ours, and it hangs.
            let _ = child.kill();
        }
        // What it says is a line, which a pipe holds.
        let output = child.wait_with_output().map_err(|error| failed(&error))?;
        if ended.is_some_and(|status| status.success()) {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().next().unwrap_or("it did not end in time");
        return Err(failed(&line.escape_debug()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_a_network_of_its_own() {
        let shown = |path, side| address(path, side).to_string();
        assert_eq!(shown(0, Side::Hosts), "198.18.0.1");
        assert_eq!(shown(63, Side::Target), "198.18.0.254");
        assert_eq!(shown(64, Side::Hosts), "198.18.1.1");
    }

    #[test]
    fn buckets_hold_more_than_a_frame() {
        let text = |rate| {
            let (rate, burst, waiting) = bucket(rate);
            [rate, burst, waiting].join(" ")
        };
        assert_eq!(text(1_000_000), "1000000bit 18000 1048576");
        assert_eq!(text(1_000_000_000), "1000000000bit 250000 25000000");
    }

    #[test]
    fn a_command_that_fails_is_named_with_what_it_said() {
        let error = run("ip", &["no-such-object"]).expect_err("there is no such object");
        let text = error.to_string();
        assert!(text.starts_with("ip no-such-object: "), "{text}");
    }
}
