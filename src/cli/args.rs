//! The command line: verbs and options, one definition for parsing and help.

pub mod bench;
pub mod fabrics;
pub mod lab;
pub mod target;
pub mod top;

pub use top::Top;

use super::print::topology::Ranking;
use crate::daemon::explain::DEFAULT_SAMPLES;
use anabranch_host::explain::DECISIONS_MAX;
use anabranch_policy::{Policy, UnknownPolicy};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// NVMe/TCP multipath host in user space: one block device over many paths.
#[derive(Debug, Parser)]
#[command(name = "anabranch", version, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    /// Options of every verb.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Where help lists the options that every verb takes: behind the verb's own.
const EVERYWHERE: &str = "Options of every verb";

/// Options that every verb takes.
#[derive(Args, Clone, Debug)]
pub struct Global {
    /// Control socket [default: host.sock or target.sock in /run/anabranch (root), else in
    /// $XDG_RUNTIME_DIR/anabranch or /tmp/anabranch-UID]
    #[arg(long, global = true, value_name = "PATH", help_heading = EVERYWHERE)]
    pub socket: Option<PathBuf>,
    /// Output format; with json, standard output holds JSON alone
    #[arg(
        short = 'o',
        long,
        alias = "output_format",
        global = true,
        value_name = "FMT",
        default_value = "normal",
        help_heading = EVERYWHERE
    )]
    pub output_format: Format,
}

/// How output looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for people.
    Normal,
    /// JSON; in nvme-cli's shape where nvme-cli has the verb.
    Json,
}

impl Global {
    /// Whether standard output holds JSON alone.
    #[must_use]
    pub fn json(&self) -> bool {
        self.output_format == Format::Json
    }
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show it at work: embedded target, two paths, a verifying load, one path cut and restored
    Demo(Demo),
    /// Run the embedded target, or control it
    Target(target::Target),
    /// Run the host in the foreground: connect, export, listen on the control socket
    Serve(Serve),
    /// Connect to a subsystem through one path
    Connect(fabrics::Connect),
    /// Connect to everything that a discovery controller names, and those that it refers to
    ConnectAll(fabrics::ConnectAll),
    /// Disconnect a subsystem or a controller
    Disconnect(fabrics::Disconnect),
    /// Disconnect everything
    DisconnectAll,
    /// Reset a controller: it is connected anew
    Reset(OneController),
    /// Have the namespaces of a controller looked for
    NsRescan(OneController),
    /// Read the log of a discovery controller
    Discover(fabrics::Discover),
    /// List devices
    List(List),
    /// List subsystems and their controllers
    ListSubsys(Device),
    /// Show heads, paths and controllers
    ShowTopology(ShowTopology),
    /// Read the ANA log of a controller
    AnaLog(OneController),
    /// Identify a controller, or one that leads to a device
    IdCtrl(OneController),
    /// Identify a namespace
    IdNs(OneHead),
    /// Read an attribute, or all of an object
    Get(Get),
    /// Write an attribute; nvme_core iopolicy is the default policy (exact names)
    Set(Set),
    /// Offer devices to other programs
    Export(Export),
    /// Why a device's I/O went where it went: what each path got, and the last decisions
    Explain(Explain),
    /// Watch what flows over which path, live
    Top(Top),
    /// Compare policies on described links and load
    Lab(lab::Lab),
    /// Put load on a device and measure
    Bench(bench::Bench),
}

/// Options of `demo`.
#[derive(Args, Clone, Debug)]
pub struct Demo {
    /// I/O policy
    #[arg(long, default_value_t, value_parser = policy, help = policy_help("I/O policy"))]
    pub policy: Policy,
    /// Seconds of load, 6 to 3600
    #[arg(
        long, default_value_t = 9, value_name = "N",
        value_parser = whole::<u32>(6, 3600), allow_negative_numbers = true
    )]
    pub seconds: u32,
    /// Go on serving afterwards, and say how to attach
    #[arg(long)]
    pub keep: bool,
}

/// A parser of whole numbers whose every refusal names the limits.
fn whole<T: TryFrom<u64>>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
            let limits = match most {
                u64::MAX => format!(", {least} or more,"),
                _ => format!(" from {least} to {most}"),
            };
            format!("a whole number{limits} is expected")
        })
    }
}

/// A device or controller, also as nvme-cli is given it: by a path that there is none of here.
fn device(text: &str) -> Result<String, Infallible> {
    Ok(text.strip_prefix("/dev/").unwrap_or(text).to_owned())
}

/// Parses a policy; the error lists those that exist.
fn policy(text: &str) -> Result<Policy, String> {
    text.parse().map_err(|error: UnknownPolicy| error.to_string())
}

/// What an option sets, and every policy.
fn policy_help(what: &str) -> String {
    format!("{what}: {}", Policy::ALL.map(Policy::name).join(", "))
}

/// Options of `serve`.
#[derive(Args, Clone, Debug)]
pub struct Serve {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Host NQN [default: configuration, /etc/nvme/hostnqn, else generated once]
    #[arg(short = 'q', long, value_name = "NQN")]
    pub hostnqn: Option<String>,
    /// Host identifier [default: configuration, /etc/nvme/hostid, else generated once]
    #[arg(short = 'I', long, value_name = "UUID")]
    pub hostid: Option<String>,
    /// Data workers [default: one per CPU that they may use]
    #[arg(
        long, value_name = "N",
        value_parser = whole::<u16>(1, 128), allow_negative_numbers = true
    )]
    pub workers: Option<u16>,
    /// Show attributes as files in this empty directory, laid out like /sys (needs FUSE)
    #[arg(long, value_name = "DIR")]
    pub attr_fs: Option<PathBuf>,
    /// Serve metrics for Prometheus at this address, over HTTP; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::daemon::metrics::address)]
    pub metrics: Option<SocketAddr>,
}

/// Options of `list`.
#[derive(Args, Clone, Copy, Debug)]
pub struct List {
    /// Subsystems and controllers, too
    #[arg(short = 'v', long, action = ArgAction::Count)]
    pub verbose: u8,
}

/// A device to narrow a listing to.
#[derive(Args, Clone, Debug)]
pub struct Device {
    /// Only what leads to this device or controller
    #[arg(value_name = "DEVICE", value_parser = device)]
    pub device: Option<String>,
    /// Model, serial number, firmware and type, too, which JSON always has
    #[arg(short = 'v', long, action = ArgAction::Count)]
    pub verbose: u8,
}

/// Options of `show-topology`.
#[derive(Args, Clone, Debug)]
pub struct ShowTopology {
    /// Only the subsystem of this device or controller
    #[arg(value_name = "DEVICE", value_parser = device)]
    pub device: Option<String>,
    /// What stands first
    #[arg(short = 'r', long, value_name = "RANK", default_value = "multipath")]
    pub ranking: Ranking,
    /// Model, serial number, firmware and type, too, which JSON always has
    #[arg(short = 'v', long, action = ArgAction::Count)]
    pub verbose: u8,
}

/// A controller.
#[derive(Args, Clone, Debug)]
pub struct OneController {
    /// The controller, such as nvme0
    #[arg(value_name = "CONTROLLER", value_parser = device)]
    pub controller: String,
}

/// A head.
#[derive(Args, Clone, Debug)]
pub struct OneHead {
    /// The device, such as nvme0n1
    #[arg(value_name = "DEVICE", value_parser = device)]
    pub device: String,
}

/// Options of `get`.
#[derive(Args, Clone, Debug)]
pub struct Get {
    /// nvme_core, nvme-subsysN, nvmeN, nvmeXnY or nvmeXcYnZ
    #[arg(value_parser = device)]
    pub object: String,
    /// The attribute, with the kernel's name [default: all that the object shows]
    pub attribute: Option<String>,
}

/// Options of `set`.
#[derive(Args, Clone, Debug)]
pub struct Set {
    /// nvme_core, nvme-subsysN, nvmeN, nvmeXnY or nvmeXcYnZ
    #[arg(value_parser = device)]
    pub object: String,
    /// The attribute, with the kernel's name
    pub attribute: String,
    /// The new value
    #[arg(allow_hyphen_values = true)]
    pub value: String,
}

/// Options of `explain`.
#[derive(Args, Clone, Debug)]
pub struct Explain {
    /// The device, such as nvme0n1
    #[arg(value_name = "DEVICE", value_parser = device)]
    pub device: String,
    /// How many of the last noted decisions to show, 0 to 4096
    #[arg(
        long, default_value_t = DEFAULT_SAMPLES, value_name = "N",
        value_parser = whole::<u32>(0, DECISIONS_MAX as u64), allow_negative_numbers = true
    )]
    pub samples: u32,
    /// Count for so long from now on, such as 5s [default: since the paths joined]
    #[arg(long, value_name = "TIME", value_parser = interval, allow_negative_numbers = true)]
    pub interval: Option<Duration>,
}

/// Parses the time to count for.
fn interval(text: &str) -> Result<Duration, String> {
    let time = crate::units::time(text)?;
    let range = Duration::from_millis(1)..=Duration::from_secs(3600);
    if range.contains(&time) { Ok(time) } else { Err("use 1ms to 1h".to_owned()) }
}

/// `export add`, `list`, `rm`.
#[derive(Args, Clone, Debug)]
pub struct Export {
    /// What to do.
    #[command(subcommand)]
    pub verb: ExportVerb,
}

/// What to do with exports.
#[derive(Clone, Debug, Subcommand)]
pub enum ExportVerb {
    /// Offer a device
    Add {
        /// The device, such as nvme0n1, or its wwid, which is the same after a restart
        #[arg(value_parser = device)]
        device: String,
        /// NBD on a Unix socket at this path, or on TCP at ADDR:PORT; several exports may share one
        #[arg(long, value_name = "SOCKET|ADDR:PORT")]
        nbd: Option<String>,
        /// Name of the export [default: the device's]
        #[arg(long)]
        name: Option<String>,
        /// Sentence for people who list the exports
        #[arg(long, default_value = "")]
        description: String,
        /// Clients may not change the device
        #[arg(long)]
        read_only: bool,
        /// Mode of the Unix socket, octal [default: 0600, with a group 0660]
        #[arg(long)]
        mode: Option<String>,
        /// Group of the Unix socket, by name or number
        #[arg(long)]
        group: Option<String>,
        /// Not there yet
        #[arg(long, hide = true)]
        fuse: Option<String>,
        /// Not there yet
        #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "")]
        ublk: Option<String>,
        /// Not there yet
        #[arg(long, hide = true)]
        vhost_user: Option<String>,
    },
    /// List what is offered
    List,
    /// Withdraw an export; an address that has none left is closed
    Rm {
        /// The export's name, or its device's
        name: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_may_be_named_as_nvme_cli_is_given_them() {
        for (line, named) in [
            ("id-ctrl /dev/nvme0", "nvme0"),
            ("ana-log nvme0", "nvme0"),
            ("id-ns /dev/nvme0n1", "nvme0n1"),
            ("list-subsys /dev/nvme0n1", "nvme0n1"),
            ("show-topology /dev/nvme0n1", "nvme0n1"),
            ("disconnect -d /dev/nvme0", "nvme0"),
            ("disconnect -d nvme1,/dev/nvme0", "nvme1 nvme0"),
            ("explain /dev/nvme0n1", "nvme0n1"),
            ("export add /dev/nvme0n1", "nvme0n1"),
            ("top /dev/nvme0n1", "nvme0n1"),
            ("bench /dev/nvme0n1", "nvme0n1"),
            ("top /device/nvme0n1", "/device/nvme0n1"),
            ("get /dev/nvme0n1 size", "nvme0n1"),
            ("set /dev/nvme0 reset_controller 1", "nvme0"),
            ("reset /dev/nvme0", "nvme0"),
            ("ns-rescan /dev/nvme0", "nvme0"),
        ] {
            let words = ["anabranch"].into_iter().chain(line.split(' '));
            let found = match Cli::try_parse_from(words).expect(line).verb {
                Verb::IdCtrl(one) | Verb::AnaLog(one) => Some(one.controller),
                Verb::Reset(one) | Verb::NsRescan(one) => Some(one.controller),
                Verb::IdNs(one) => Some(one.device),
                Verb::ListSubsys(one) => one.device,
                Verb::ShowTopology(one) => one.device,
                Verb::Disconnect(those) => Some(those.device.join(" ")),
                Verb::Explain(one) => Some(one.device),
                Verb::Export(Export { verb: ExportVerb::Add { device, .. } }) => Some(device),
                Verb::Top(one) => one.device,
                Verb::Bench(one) => one.device,
                Verb::Get(one) => Some(one.object),
                Verb::Set(one) => Some(one.object),
                other => panic!("{other:?}"),
            };
            assert_eq!(found.as_deref(), Some(named), "{line}");
        }
    }
}
