//! `connect`, `connect-all`, `disconnect`, `discover`: nvme-cli's options, letter for letter.

use crate::daemon::path::{DISCOVERY_PORT, IO_PORT, PathSpec, Service};
use crate::units::{Span, SpanOrOff, time, time_or_off};
use anabranch_policy::MAX_RELATIVE_THROUGHPUT;
use anabranch_proto::nvme::nqn::Nqn;
use clap::{Arg, Args};
use std::net::IpAddr;

/// Where a controller is and how to talk to it.
#[derive(Args, Clone, Debug)]
pub struct Fabrics {
    /// Transport: tcp
    #[arg(short = 't', long, value_name = "STR", default_value = "tcp")]
    pub transport: String,
    /// Address or name of the controller
    #[arg(short = 'a', long, value_name = "ADDR")]
    pub traddr: String,
    /// TCP port; each verb says its default
    #[arg(
        short = 's', long, value_name = "PORT",
        value_parser = service, allow_negative_numbers = true
    )]
    pub trsvcid: Option<Service>,
    /// Our own address
    #[arg(short = 'w', long, alias = "host_traddr", value_name = "ADDR")]
    pub host_traddr: Option<IpAddr>,
    /// Our own interface
    #[arg(short = 'f', long, alias = "host_iface", value_name = "NAME")]
    pub host_iface: Option<String>,
    /// Host NQN; a running host has one, and this must be it
    #[arg(short = 'q', long, value_name = "NQN")]
    pub hostnqn: Option<String>,
    /// Host identifier; a running host has one, and this must be it
    #[arg(short = 'I', long, value_name = "UUID")]
    pub hostid: Option<String>,
    /// I/O queues to ask for, at most one per data worker [default: one per data worker]
    #[arg(
        short = 'i', long, alias = "nr_io_queues", value_name = "N",
        value_parser = super::whole::<u16>(1, u16::MAX.into()), allow_negative_numbers = true
    )]
    pub nr_io_queues: Option<u16>,
    /// Further I/O queues, for writes and the rest; reads keep the others for themselves
    /// [default: 0]
    #[arg(
        short = 'W', long, alias = "nr_write_queues", value_name = "N",
        value_parser = super::whole::<u16>(0, u16::MAX.into()), allow_negative_numbers = true
    )]
    pub nr_write_queues: Option<u16>,
    /// Entries of each I/O queue, 16 to 1024; one stays free: 128 carry 127 commands [default: 128]
    #[arg(
        short = 'Q', long, alias = "queue_size", value_name = "N",
        value_parser = super::whole::<u16>(16, 1024), allow_negative_numbers = true
    )]
    pub queue_size: Option<u16>,
    /// Keep-alive time-out, in seconds or with a unit (500ms, 1m) [default: 5]
    #[arg(
        short = 'k', long, alias = "keep_alive_tmo", value_name = "TIME",
        value_parser = span, allow_negative_numbers = true
    )]
    pub keep_alive_tmo: Option<Span>,
    /// Pause before each attempt to reconnect, in seconds or with a unit [default: 10]
    #[arg(
        short = 'c', long, alias = "reconnect_delay", value_name = "TIME",
        value_parser = span, allow_negative_numbers = true
    )]
    pub reconnect_delay: Option<Span>,
    /// How long to try to reconnect, in seconds or with a unit; -1 or off: for ever [default: 600]
    #[arg(
        short = 'l',
        long,
        alias = "ctrl_loss_tmo",
        value_name = "TIME",
        value_parser = span_or_off,
        allow_hyphen_values = true
    )]
    pub ctrl_loss_tmo: Option<SpanOrOff>,
    /// How long without a connection until waiting I/O fails, in seconds or with a unit; -1 or off:
    /// never [default: never]
    #[arg(
        short = 'F',
        long,
        alias = "fast_io_fail_tmo",
        value_name = "TIME",
        value_parser = span_or_off,
        allow_hyphen_values = true
    )]
    pub fast_io_fail_tmo: Option<SpanOrOff>,
    /// Time limit of one I/O command, in seconds or with a unit (the attribute is in ms)
    /// [default: 30]
    #[arg(
        long, alias = "io_timeout", value_name = "TIME", value_parser = span,
        allow_negative_numbers = true
    )]
    pub io_timeout: Option<Span>,
    /// Time limit of one admin command and of each step of connecting, in seconds or with a unit
    /// [default: 60]
    #[arg(
        long, alias = "admin_timeout", value_name = "TIME", value_parser = span,
        allow_negative_numbers = true
    )]
    pub admin_timeout: Option<Span>,
    /// Type of service, 0 to 255
    #[arg(
        short = 'T', long, value_name = "N", value_parser = super::whole::<u8>(0, 255),
        allow_negative_numbers = true
    )]
    pub tos: Option<u8>,
    /// Weight under service-time, 0 (standby) to 100 [default: 1]
    #[arg(
        long, alias = "relative_throughput", value_name = "W",
        value_parser = super::whole::<u32>(0, MAX_RELATIVE_THROUGHPUT.into()),
        allow_negative_numbers = true
    )]
    pub relative_throughput: Option<u32>,
    /// PDU header digests
    #[arg(short = 'g', long, alias = "hdr_digest")]
    pub hdr_digest: bool,
    /// PDU data digests
    #[arg(short = 'G', long, alias = "data_digest")]
    pub data_digest: bool,
    /// No SQ flow control
    #[arg(short = 'd', long, alias = "disable_sqflow")]
    pub disable_sqflow: bool,
}

impl Fabrics {
    /// As the control socket takes it.
    #[must_use]
    pub fn path(&self) -> PathSpec {
        PathSpec {
            transport: Some(self.transport.clone()),
            traddr: self.traddr.clone(),
            trsvcid: self.trsvcid,
            host_traddr: self.host_traddr,
            host_iface: self.host_iface.clone(),
            nr_io_queues: self.nr_io_queues,
            nr_write_queues: self.nr_write_queues,
            queue_size: self.queue_size,
            keep_alive_tmo: self.keep_alive_tmo,
            reconnect_delay: self.reconnect_delay,
            ctrl_loss_tmo: self.ctrl_loss_tmo,
            fast_io_fail_tmo: self.fast_io_fail_tmo,
            io_timeout: self.io_timeout,
            admin_timeout: self.admin_timeout,
            tos: self.tos,
            relative_throughput: self.relative_throughput.map(i64::from),
            hdr_digest: self.hdr_digest,
            data_digest: self.data_digest,
            disable_sqflow: self.disable_sqflow,
        }
    }
}

/// Options of `connect`.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("trsvcid", |arg| port(arg, IO_PORT)))]
pub struct Connect {
    /// The subsystem
    #[arg(short = 'n', long, value_name = "NQN")]
    pub nqn: String,
    /// The path.
    #[command(flatten)]
    pub path: Fabrics,
    /// Keep trying if the first attempt fails
    #[arg(long, alias = "keep_trying")]
    pub keep_trying: bool,
}

/// Options of `connect-all`.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("trsvcid", |arg| port(arg, DISCOVERY_PORT)))]
pub struct ConnectAll {
    /// The discovery subsystem
    #[arg(short = 'n', long, value_name = "NQN", default_value = Nqn::DISCOVERY)]
    pub nqn: String,
    /// The discovery controller, and options for every path.
    #[command(flatten)]
    pub path: Fabrics,
}

/// Options of `discover`.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("trsvcid", |arg| port(arg, DISCOVERY_PORT)))]
pub struct Discover {
    /// The discovery subsystem
    #[arg(short = 'n', long, value_name = "NQN", default_value = Nqn::DISCOVERY)]
    pub nqn: String,
    /// The discovery controller.
    #[command(flatten)]
    pub path: Fabrics,
}

/// Options of `disconnect`.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct Disconnect {
    /// All controllers of a subsystem, or of several: NQN,NQN
    #[arg(short = 'n', long, value_name = "NQN", value_delimiter = ',')]
    pub nqn: Vec<String>,
    /// One controller, or several: nvme0,nvme2
    #[arg(short = 'd', long, value_name = "nvmeN", value_delimiter = ',',
        value_parser = super::device)]
    pub device: Vec<String>,
    /// All controllers
    #[arg(long)]
    pub all: bool,
}

impl Disconnect {
    /// Everything.
    #[must_use]
    pub const fn all() -> Disconnect {
        Disconnect { nqn: Vec::new(), device: Vec::new(), all: true }
    }
}

/// The option with the port that it has for a verb when it is left out.
fn port(option: Arg, default: u16) -> Arg {
    option.help(format!("TCP port [default: {default}]"))
}

fn service(text: &str) -> Result<Service, String> {
    match text.parse() {
        Ok(port) if port != 0 => Ok(Service(port)),
        _ => Err("a TCP port, 1 to 65535, is expected".to_owned()),
    }
}

fn span(text: &str) -> Result<Span, String> {
    time(text).map(Span)
}

fn span_or_off(text: &str) -> Result<SpanOrOff, String> {
    time_or_off(text).map(SpanOrOff)
}
