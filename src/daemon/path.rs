//! How a path is described in a configuration file and on the control socket.

use super::wording;
use crate::units::{Span, SpanOrOff};
use anabranch_host::config::{ConnectRequest, ControllerOptions, LONGEST_TIME, check_time};
use anabranch_policy::MAX_RELATIVE_THROUGHPUT;
use anabranch_proto::machine::Endpoint;
use anabranch_proto::nvme::nqn::Nqn;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

/// The port of I/O controllers.
pub const IO_PORT: u16 = 4420;
/// The port of discovery controllers.
pub const DISCOVERY_PORT: u16 = 8009;
/// The longest keep-alive time-out: what KATO of Fabrics Connect can say, in whole seconds.
const MAX_KEEP_ALIVE: Duration = Duration::from_secs(u32::MAX as u64 / 1000);
/// What a message shows at most of what is no port, in characters.
const MAX_PORT_CHARS: usize = 20;
/// The longest name of a network interface (`IFNAMSIZ` without its terminator).
const MAX_INTERFACE: usize = 15;
/// Of a host (RFC 1035 section 2.3.4, without the length bytes at both ends).
const MAX_NAME_BYTES: usize = 253;

/// A path: nvme-cli's option names with underscores (hyphens are taken too).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathSpec {
    /// `tcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// Address or name of the controller.
    pub traddr: String,
    /// TCP port, 4420 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trsvcid: Option<Service>,
    /// Our own address.
    #[serde(default, alias = "host-traddr", skip_serializing_if = "Option::is_none")]
    pub host_traddr: Option<IpAddr>,
    /// Our own interface.
    #[serde(default, alias = "host-iface", skip_serializing_if = "Option::is_none")]
    pub host_iface: Option<String>,
    /// I/O queues to ask for.
    #[serde(default, alias = "nr-io-queues", skip_serializing_if = "Option::is_none")]
    pub nr_io_queues: Option<u16>,
    /// Further I/O queues, for all but reads.
    #[serde(default, alias = "nr-write-queues", skip_serializing_if = "Option::is_none")]
    pub nr_write_queues: Option<u16>,
    /// Entries of each I/O queue, 16 to 1024; one stays free.
    #[serde(default, alias = "queue-size", skip_serializing_if = "Option::is_none")]
    pub queue_size: Option<u16>,
    /// Keep-alive time-out.
    #[serde(default, alias = "keep-alive-tmo", skip_serializing_if = "Option::is_none")]
    pub keep_alive_tmo: Option<Span>,
    /// Pause before each attempt to reconnect.
    #[serde(default, alias = "reconnect-delay", skip_serializing_if = "Option::is_none")]
    pub reconnect_delay: Option<Span>,
    /// How long to try to reconnect; -1 or "off": for ever.
    #[serde(default, alias = "ctrl-loss-tmo", skip_serializing_if = "Option::is_none")]
    pub ctrl_loss_tmo: Option<SpanOrOff>,
    /// After this time without a connection, waiting I/O fails; -1 or "off": never.
    #[serde(default, alias = "fast-io-fail-tmo", skip_serializing_if = "Option::is_none")]
    pub fast_io_fail_tmo: Option<SpanOrOff>,
    /// Time limit of one I/O command.
    #[serde(default, alias = "io-timeout", skip_serializing_if = "Option::is_none")]
    pub io_timeout: Option<Span>,
    /// Time limit of one admin command and of each step of connecting.
    #[serde(default, alias = "admin-timeout", skip_serializing_if = "Option::is_none")]
    pub admin_timeout: Option<Span>,
    /// Type of service of the connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tos: Option<u8>,
    /// Weight under `service-time` at first, 0 to 100.
    #[serde(default, alias = "relative-throughput", skip_serializing_if = "Option::is_none")]
    pub relative_throughput: Option<i64>,
    /// PDU header digests.
    #[serde(default, alias = "hdr-digest")]
    pub hdr_digest: bool,
    /// PDU data digests.
    #[serde(default, alias = "data-digest")]
    pub data_digest: bool,
    /// Ask for no SQ flow control.
    #[serde(default, alias = "disable-sqflow")]
    pub disable_sqflow: bool,
}

/// A TCP port, as a number or as text (nvme-cli has text).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PortText", into = "u16")]
pub struct Service(pub u16);

#[derive(Deserialize)]
#[serde(untagged, expecting = "a TCP port, 1 to 65535, is expected")]
enum PortText {
    Number(i64),
    Text(String),
}

impl TryFrom<PortText> for Service {
    type Error = String;

    fn try_from(text: PortText) -> Result<Service, String> {
        let text = match text {
            PortText::Number(number) => number.to_string(),
            PortText::Text(text) => text,
        };
        match text.parse() {
            Ok(port) if port != 0 => Ok(Service(port)),
            _ => {
                let shown = wording::shortened(&text, MAX_PORT_CHARS);
                let shown = shown.escape_debug();
                Err(format!("'{shown}' is no TCP port: 1 to 65535 is expected"))
            }
        }
    }
}

impl From<Service> for u16 {
    fn from(service: Service) -> u16 {
        service.0
    }
}

/// A path whose options make sense. Where its name leads has not been looked up.
#[derive(Clone, Debug)]
pub struct NamedPath {
    /// Address or name of the controller.
    pub traddr: String,
    /// TCP port.
    pub port: u16,
    /// The subsystem.
    pub subsystem_nqn: Nqn,
    /// How to connect.
    pub options: ControllerOptions,
    keep_trying: bool,
}

impl NamedPath {
    /// The request for the host engine, with the address that the name stands for now.
    #[must_use]
    pub fn request(&self, to: SocketAddr) -> ConnectRequest {
        ConnectRequest {
            subsystem_nqn: self.subsystem_nqn.clone(),
            to: Endpoint::Tcp(to),
            options: self.options.clone(),
            keep_trying: self.keep_trying,
        }
    }

    /// Whether it is the same as another one as both are named, wherever the name leads.
    #[must_use]
    pub fn is_same(&self, other: &NamedPath) -> bool {
        let (mine, theirs) = (&self.options.socket, &other.options.socket);
        self.subsystem_nqn == other.subsystem_nqn
            && self.traddr == other.traddr
            && self.port == other.port
            && mine.source == theirs.source
            && mine.interface == theirs.interface
    }

    /// Whether it is tried again when the first attempt fails.
    #[must_use]
    pub fn keeps_trying(&self) -> bool {
        self.keep_trying
    }

    /// Whether a name service has to say where it leads.
    #[must_use]
    pub fn has_name(&self) -> bool {
        literal(&self.traddr).is_none()
    }

    /// Looks the name up, which may take seconds.
    ///
    /// # Errors
    /// There is no address: one sentence.
    pub fn look_up(&self) -> Result<SocketAddr, String> {
        self.addresses().map(|all| all[0])
    }

    /// Looks the name up: all its addresses that our own can lead to, in the system's order of
    /// preference. There is one at least.
    ///
    /// # Errors
    /// As [`NamedPath::look_up`].
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        addresses(&self.traddr, self.port, self.options.socket.source)
    }
}

impl PathSpec {
    /// The request for the host engine. A name is looked up, which may take seconds.
    ///
    /// # Errors
    /// One sentence that names the option and what would be right.
    pub fn request(&self, nqn: &str, keep_trying: bool) -> Result<ConnectRequest, String> {
        let named = self.named(nqn, keep_trying)?;
        Ok(named.request(named.look_up()?))
    }

    /// The path with everything checked that does not need its address.
    ///
    /// # Errors
    /// One sentence that names the option and what would be right.
    pub fn named(&self, nqn: &str, keep_trying: bool) -> Result<NamedPath, String> {
        self.checked(nqn, keep_trying, false)
    }

    /// The same of a path to a discovery controller, whose NQN may be one of its own.
    ///
    /// # Errors
    /// As [`PathSpec::named`].
    pub fn discovery(&self, nqn: &str) -> Result<NamedPath, String> {
        self.checked(nqn, false, true)
    }

    fn checked(&self, nqn: &str, keep_trying: bool, discovery: bool) -> Result<NamedPath, String> {
        if let Some(transport) = self.transport.as_deref()
            && transport != "tcp"
        {
            return Err(format!("transport '{transport}' is not supported: only tcp is"));
        }
        let subsystem_nqn =
            Nqn::as_named(nqn).map_err(|why| format!("nqn '{}': {why}", nqn.escape_debug()))?;
        let discovery = discovery || subsystem_nqn.is_discovery();
        let usual = if discovery { DISCOVERY_PORT } else { IO_PORT };
        let port = self.trsvcid.map_or(usual, |service| service.0);
        self.check_addresses()?;
        let options = self.options(discovery)?;
        Ok(NamedPath { traddr: self.traddr.clone(), port, subsystem_nqn, options, keep_trying })
    }

    /// The interface in an address such as `fe80::1%eth0`, by name or number.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        let (address, zone) = bare(&self.traddr).split_once('%')?;
        address.parse::<Ipv6Addr>().is_ok().then_some(zone)
    }

    /// The interface that its connections are bound to. One that stands in the address is, too, by
    /// its name: whoever comes back under it, after it was taken away and made again, has another
    /// number.
    fn interface(&self) -> Option<&str> {
        self.host_iface.as_deref().or_else(|| link(bare(&self.traddr)).map(|(_, name)| name))
    }

    /// Our own address.
    #[must_use]
    pub fn own_address(&self) -> Option<IpAddr> {
        self.host_traddr.map(|address| address.to_canonical())
    }

    /// Where it leads, in one spelling for each address.
    #[must_use]
    pub fn plain_traddr(&self) -> Cow<'_, str> {
        let bare = bare(&self.traddr);
        match address(bare) {
            Some(address) => Cow::Owned(address.to_string()),
            None => Cow::Borrowed(bare),
        }
    }

    /// What no name service and no change of this machine can mend.
    fn check_addresses(&self) -> Result<(), String> {
        let text = &self.traddr;
        let shown = text.escape_debug();
        let literal = literal(text);
        if literal.is_none() {
            if text.is_empty() {
                return Err("traddr is empty: it takes an address or a name".to_owned());
            }
            if text.len() > MAX_NAME_BYTES {
                let bytes = text.len();
                return Err(format!(
                    "traddr has {bytes} bytes: a name has {MAX_NAME_BYTES} at most"
                ));
            }
            if text.contains(|c: char| c.is_whitespace() || c.is_control() || "/:[]".contains(c)) {
                return Err(format!(
                    "traddr '{shown}' is neither an address nor a name; the port stands in trsvcid"
                ));
            }
        }
        if let (Some(to), Some(from)) = (literal, self.own_address())
            && to.is_ipv4() != from.is_ipv4()
        {
            return Err(format!("host-traddr {from} cannot lead to traddr {to}"));
        }
        if literal.is_some_and(is_link_local) && self.zone().is_none() && self.host_iface.is_none()
        {
            return Err(format!(
                "traddr {shown} is there on every link: name the interface with host-iface, or as \
                 in fe80::1%eth0"
            ));
        }
        if let (Some((_, named)), Some(other)) = (link(bare(text)), &self.host_iface)
            && named != other
        {
            let other = other.escape_debug();
            return Err(format!("traddr {shown} is on {named}, and host-iface is {other}"));
        }
        self.interface().map_or(Ok(()), |name| check_interface_name(self.interface_option(), name))
    }

    /// Where its interface stands.
    fn interface_option(&self) -> &'static str {
        if self.host_iface.is_some() { "host-iface" } else { "traddr: interface" }
    }

    /// Whether this machine has the address and the interface that are asked for. To be asked
    /// where the connection is made, and not where they may come later.
    ///
    /// # Errors
    /// One sentence that names the option.
    pub fn check_own_side(&self) -> Result<(), String> {
        if let Some(name) = self.interface() {
            check_interface(self.interface_option(), name)?;
        }
        // One of a link is an address of some interface; whether of that one is seen on connecting.
        if let Some(address) = self.own_address().filter(|address| !is_link_local(*address)) {
            UdpSocket::bind((address, 0)).map_err(|why| {
                format!("host-traddr {address} is no address of this machine: {why}")
            })?;
        }
        Ok(())
    }

    fn options(&self, discovery: bool) -> Result<ControllerOptions, String> {
        let mut options = ControllerOptions::default();
        if let Some(size) = self.queue_size {
            if !(16..=1024).contains(&size) {
                return Err(format!("queue-size is {size}, must lie between 16 and 1024"));
            }
            options.queue_size = size;
        }
        if self.nr_io_queues == Some(0) {
            return Err("nr-io-queues is 0, must be at least 1".to_owned());
        }
        options.nr_io_queues = self.nr_io_queues;
        options.nr_write_queues = self.nr_write_queues.unwrap_or(options.nr_write_queues);
        let times = [
            ("reconnect-delay", self.reconnect_delay, &mut options.reconnect_delay),
            ("io-timeout", self.io_timeout, &mut options.io_timeout),
            ("admin-timeout", self.admin_timeout, &mut options.admin_timeout),
        ];
        for (name, given, into) in times {
            if let Some(Span(span)) = given {
                check_time(span).map_err(|why| format!("{name} is {span:?}, {why}"))?;
                *into = span;
            }
        }
        if let Some(Span(span)) = self.keep_alive_tmo {
            if span.is_zero() && !discovery {
                return Err("keep-alive-tmo 0 is for discovery controllers only".to_owned());
            }
            if !span.is_zero() {
                check_time(span).map_err(|why| format!("keep-alive-tmo is {span:?}, {why}"))?;
            }
            if span > MAX_KEEP_ALIVE {
                return Err(format!(
                    "keep-alive-tmo is {}, must not exceed {} (NVMe has 32 bits of milliseconds)",
                    seconds(span),
                    seconds(MAX_KEEP_ALIVE)
                ));
            }
            options.keep_alive_tmo = span;
        }
        let times = [
            ("ctrl-loss-tmo", self.ctrl_loss_tmo, &mut options.ctrl_loss_tmo),
            ("fast-io-fail-tmo", self.fast_io_fail_tmo, &mut options.fast_io_fail_tmo),
        ];
        for (name, given, into) in times {
            if let Some(SpanOrOff(span)) = given {
                // What the attribute of that name takes and shows.
                if let Some(long) = span.filter(|span| *span > LONGEST_TIME) {
                    let (long, most) = (seconds(long), seconds(LONGEST_TIME));
                    return Err(format!("{name} is {long}, must not exceed {most}, or be off"));
                }
                *into = span;
            }
        }
        options.relative_throughput = self.weight(options.relative_throughput)?;
        options.hdr_digest = self.hdr_digest;
        options.data_digest = self.data_digest;
        options.disable_sqflow = self.disable_sqflow;
        options.socket.source = self.own_address();
        options.socket.interface = self.interface().map(str::to_owned);
        options.socket.tos = self.tos;
        Ok(options)
    }

    /// The weight of its controller, or this one.
    fn weight(&self, default: u32) -> Result<u32, String> {
        let Some(weight) = self.relative_throughput else { return Ok(default) };
        let within = u32::try_from(weight).ok().filter(|it| *it <= MAX_RELATIVE_THROUGHPUT);
        within.ok_or_else(|| {
            let most = MAX_RELATIVE_THROUGHPUT;
            format!("relative-throughput is {weight}, must lie between 0 and {most}")
        })
    }
}

fn seconds(span: Duration) -> String {
    format!("{} s", span.as_secs_f64())
}

fn check_interface_name(option: &str, name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > MAX_INTERFACE || name.contains(['/', '\0']) {
        let shown = name.escape_debug();
        return Err(format!("{option} '{shown}' is no name of 1 to {MAX_INTERFACE} bytes"));
    }
    Ok(())
}

fn check_interface(option: &str, name: &str) -> Result<(), String> {
    check_interface_name(option, name)?;
    // Not by /sys/class/net: that may show another network namespace than ours.
    let Ok(asked) = socket(AddressFamily::UNIX, SocketType::DGRAM, None) else { return Ok(()) };
    name_to_index(asked, name).map(drop).map_err(|_| {
        let shown = name.escape_debug();
        format!("{option} '{shown}': this machine has no such interface")
    })
}

/// An address without the brackets that URLs and `--listen` have around those of IPv6.
fn bare(traddr: &str) -> &str {
    traddr.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(traddr)
}

/// An address that is written in numbers. `::ffff:192.0.2.1` is one of IPv4 to the system: a path
/// to it is one to `192.0.2.1`, and must not be had twice.
fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok().map(|address: IpAddr| address.to_canonical())
}

/// An address in numbers; of IPv6, also with the interface that it is on: `fe80::1%eth0`.
fn literal(traddr: &str) -> Option<IpAddr> {
    bare(traddr).split('%').next().and_then(address)
}

/// Whether an address says nothing without an interface.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// An address of a link and the name of its interface: `fe80::1%eth0`. A number is none: it is
/// meant as it is.
fn link(traddr: &str) -> Option<(Ipv6Addr, &str)> {
    let (address, zone) = traddr.split_once('%')?;
    let address: Ipv6Addr = address.parse().ok()?;
    let name = address.is_unicast_link_local() && zone.parse::<u32>().is_err();
    name.then_some((address, zone))
}

fn addresses(traddr: &str, port: u16, own: Option<IpAddr>) -> Result<Vec<SocketAddr>, String> {
    let traddr = bare(traddr);
    if let Some((address, _)) = link(traddr) {
        return Ok(vec![SocketAddr::new(address.into(), port)]);
    }
    if let Some(address) = address(traddr) {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let found = (traddr, port).to_socket_addrs();
    let found = found.map_err(|why| format!("traddr '{traddr}' cannot be looked up: {why}"))?;
    reachable(found, own).map_err(|why| format!("traddr '{traddr}' {why}"))
}

/// An IPv4 address as such, also where it was given as an IPv6 one: the same place is not to be had
/// twice.
fn plain(to: SocketAddr) -> SocketAddr {
    match to.ip().to_canonical() {
        four @ IpAddr::V4(_) => SocketAddr::new(four, to.port()),
        // It may have a scope.
        IpAddr::V6(_) => to,
    }
}

/// Of the addresses of a name those that our own can lead to, each once.
fn reachable(
    found: impl IntoIterator<Item = SocketAddr>,
    own: Option<IpAddr>,
) -> Result<Vec<SocketAddr>, String> {
    let (mut all, mut others) = (Vec::new(), false);
    for to in found.into_iter().map(plain) {
        let leads = own.is_none_or(|own| own.is_ipv4() == to.is_ipv4());
        others |= !leads;
        if leads && !all.contains(&to) {
            all.push(to);
        }
    }
    match own {
        _ if !all.is_empty() => Ok(all),
        Some(own) if others => Err(format!("has no address that host-traddr {own} can lead to")),
        _ => Err("has no address".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::reachable;
    use std::net::{IpAddr, SocketAddr};

    #[test]
    fn of_several_addresses_those_that_our_own_can_lead_to() {
        let at = |text: &str| -> SocketAddr { text.parse().expect(text) };
        let all = ["[2001:db8::1]:4420", "192.0.2.1:4420", "192.0.2.2:4420"].map(at);
        let four: IpAddr = "192.0.2.9".parse().expect("an address");
        let six: IpAddr = "2001:db8::9".parse().expect("an address");
        assert_eq!(reachable(all, None), Ok(all.to_vec()));
        assert_eq!(reachable(all, Some(four)), Ok(all[1..].to_vec()));
        assert_eq!(reachable([all[1], all[1]], None), Ok(vec![all[1]]), "each once");
        let told = "has no address that host-traddr 2001:db8::9 can lead to".to_owned();
        assert_eq!(reachable(all[1..].to_vec(), Some(six)), Err(told));
        assert_eq!(reachable([], Some(six)), Err("has no address".to_owned()));
        let mapped = at("[::ffff:192.0.2.1]:4420");
        assert_eq!(reachable([mapped, all[1]], Some(four)), Ok(vec![all[1]]), "one place");
    }
}
