//! `target` and `target ctl`.

use anabranch_target::config::{MAX_ANA_GROUP, MAX_NSID};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Options of `target`.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// Control a running target.
    #[command(subcommand)]
    pub verb: Option<TargetVerb>,
    /// What to run.
    #[command(flatten)]
    pub run: Run,
}

/// What `target` runs.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Address to listen on, one port each; port 0 takes any (repeat) [default: 127.0.0.1:4420]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<String>,
    /// mem:SIZE or file:PATH, with [,bs=512|4096][,uuid=U][,anagrp=N][,nsid=N]; file: also
    /// [,size=SIZE], to make it if it is not there (repeat) [default: mem:1GiB]
    #[arg(long, value_name = "SPEC")]
    #[allow(rustdoc::broken_intra_doc_links, reason = "what help prints: brackets, no links")]
    pub namespace: Vec<String>,
    /// PORT:KEY=V,… with keys rate, rate_in (to the target), rate_out (500mbit, 60MiB/s), delay
    /// (2ms), jitter (of it), large=SIZE:DELAY (64k:10ms), onoff=ON:OFF (50ms:20ms); PORT is its
    /// place or TCP port (repeat)
    #[arg(long, value_name = "PORT:SHAPE")]
    pub shape: Vec<String>,
    /// Address that the discovery log names instead of the bound one (once, or once per port)
    #[arg(long, value_name = "ADDR")]
    pub advertise: Vec<String>,
    /// Subsystem NQN [default: nqn.2026-01.org.anabranch:target]
    #[arg(short = 'n', long, value_name = "NQN")]
    pub nqn: Option<String>,
    /// Host that may connect; without this option every host may (repeat)
    #[arg(long, value_name = "HOSTNQN")]
    pub allow_host: Vec<String>,
    /// Configuration file (TOML) instead of the options above
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["listen", "namespace", "shape", "advertise", "nqn", "allow_host"]
    )]
    pub config: Option<PathBuf>,
}

/// `target ctl`.
#[derive(Clone, Debug, Subcommand)]
pub enum TargetVerb {
    /// Control a running target
    Ctl {
        /// What to do.
        #[command(subcommand)]
        verb: Ctl,
    },
}

/// What to do to a running target. PORT is a port's place (1, 2, …) or its TCP port.
#[derive(Clone, Debug, Subcommand)]
pub enum Ctl {
    /// Set the state of an ANA group through a port
    Ana {
        /// The port's place or TCP port
        port: String,
        /// The group, 1 to 128
        #[arg(
            value_parser = super::whole::<u32>(1, MAX_ANA_GROUP.into()),
            allow_negative_numbers = true
        )]
        group: u32,
        /// optimized, non-optimized, inaccessible, persistent-loss or change
        state: String,
    },
    /// Give a port another shape; `none` removes it
    ///
    /// What a link is carrying at that moment still comes out when it would have; what waits behind
    /// it goes as the new shape says, at once.
    Shape {
        /// The port's place or TCP port
        port: String,
        /// KEY=V,… with keys rate, rate_in (to the target), rate_out (500mbit, 60MiB/s), delay
        /// (2ms), jitter (of it), large=SIZE:DELAY (64k:10ms), onoff=ON:OFF (50ms:20ms); what is
        /// not named is not shaped. `none`: nothing is
        shape: String,
    },
    /// Reset a port's connections and refuse new ones
    Cut {
        /// The port's place or TCP port
        port: String,
    },
    /// Freeze a port: nothing is sent or done, no connection ends; `restore` does what it had late
    ///
    /// As a target that stands still and goes on, not as a network that is silent. What a host has
    /// given up meanwhile and sent elsewhere is done late, after what was written since, unless its
    /// keep-alive time-out is over by then.
    Stall {
        /// The port's place or TCP port
        port: String,
    },
    /// End a cut or a stall
    Restore {
        /// The port's place or TCP port
        port: String,
    },
    /// Change namespaces
    Ns {
        /// What to do.
        #[command(subcommand)]
        verb: Ns,
    },
    /// Show everything
    Status,
}

/// What to do with namespaces.
#[derive(Clone, Debug, Subcommand)]
pub enum Ns {
    /// Add a namespace
    Add {
        /// mem:SIZE or file:PATH, with [,bs=512|4096][,uuid=U][,anagrp=N][,nsid=N]; file: also
        /// [,size=SIZE], to make it if it is not there
        #[allow(rustdoc::broken_intra_doc_links, reason = "what help prints: no links")]
        spec: String,
        /// The subsystem, when there are several
        #[arg(short = 'n', long)]
        nqn: Option<String>,
    },
    /// Remove a namespace
    Rm {
        /// The namespace, 1 to 1024
        #[arg(
            value_parser = super::whole::<u32>(1, MAX_NSID.into()), allow_negative_numbers = true
        )]
        nsid: u32,
        /// The subsystem, when there are several
        #[arg(short = 'n', long)]
        nqn: Option<String>,
    },
    /// Change a namespace's size
    Resize {
        /// The namespace, 1 to 1024
        #[arg(
            value_parser = super::whole::<u32>(1, MAX_NSID.into()), allow_negative_numbers = true
        )]
        nsid: u32,
        /// The new size: bytes, or with k, m, g, t (64m)
        #[arg(value_parser = blocks, allow_negative_numbers = true)]
        size: u64,
        /// The subsystem, when there are several
        #[arg(short = 'n', long)]
        nqn: Option<String>,
    },
    /// Move a namespace to another ANA group
    Group {
        /// The namespace, 1 to 1024
        #[arg(
            value_parser = super::whole::<u32>(1, MAX_NSID.into()), allow_negative_numbers = true
        )]
        nsid: u32,
        /// The group, 1 to 128
        #[arg(
            value_parser = super::whole::<u32>(1, MAX_ANA_GROUP.into()),
            allow_negative_numbers = true
        )]
        group: u32,
        /// The subsystem, when there are several
        #[arg(short = 'n', long)]
        nqn: Option<String>,
    },
    /// Damage one block on purpose, so that a verifying load can be seen to fail
    Corrupt {
        /// The namespace, 1 to 1024
        #[arg(
            value_parser = super::whole::<u32>(1, MAX_NSID.into()), allow_negative_numbers = true
        )]
        nsid: u32,
        /// The block, from 0
        #[arg(value_parser = super::whole::<u64>(0, u64::MAX), allow_negative_numbers = true)]
        lba: u64,
        /// The subsystem, when there are several
        #[arg(short = 'n', long)]
        nqn: Option<String>,
    },
}

/// Parses a size that some namespace may have, whatever its blocks are.
fn blocks(text: &str) -> Result<u64, String> {
    let bytes = crate::units::size(text)?;
    crate::daemon::backing::whole_blocks("it", bytes, 512).map(|()| bytes)
}
