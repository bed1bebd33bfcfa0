//! The discovery log (Base 5.16.1.23).

use super::super::check::{self, broken, no_text, unusable};
use super::super::{Nqn, le};
use crate::error::{Blame, ProtocolError, Rule};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// Header of the discovery log: the first 1024 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscoveryHeader {
    /// Changes with every change of the log; read again when it differs at the end of reading.
    pub generation: u64,
    /// Entries that follow.
    pub entries: u64,
}

impl DiscoveryHeader {
    /// Size on the wire in bytes.
    pub const BYTES: usize = 1024;

    const WHAT: &str = "Discovery log";

    /// Size of the whole log in bytes.
    #[must_use]
    pub const fn log_bytes(&self) -> u64 {
        self.entries.saturating_mul(DiscoveryEntry::BYTES as u64).saturating_add(1024)
    }

    /// The 1024 bytes on the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; DiscoveryHeader::BYTES] {
        let mut bytes = [0; Self::BYTES];
        le::put_u64(&mut bytes, 0, self.generation);
        le::put_u64(&mut bytes, 8, self.entries);
        bytes
    }

    /// Reads the header; it is enough to have its first 18 bytes.
    ///
    /// # Errors
    /// Fewer bytes; an unknown record format; more entries than `max_entries`.
    pub fn parse(bytes: &[u8], max_entries: u64) -> Result<DiscoveryHeader, ProtocolError> {
        check::length(bytes, Self::WHAT, 18)?;
        let format = le::u16(bytes, 16);
        if format != 0 {
            return Err(unusable(Self::WHAT, "RECFMT", format.into(), "only format 0 is known"));
        }
        let it = DiscoveryHeader { generation: le::u64(bytes, 0), entries: le::u64(bytes, 8) };
        if it.entries > max_entries {
            let (found, limit) = (it.entries, max_entries);
            let error = ProtocolError::new(Self::WHAT, "NUMREC", found, Rule::AtMost, limit);
            return Err(error.blaming(Blame::Incompatible));
        }
        Ok(it)
    }
}

/// What an entry points to (SUBTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubsystemKind {
    /// Another discovery service.
    Referral,
    /// A subsystem with namespaces.
    Nvm,
    /// The discovery service that gave this log.
    CurrentDiscovery,
}

impl SubsystemKind {
    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            SubsystemKind::Referral => 1,
            SubsystemKind::Nvm => 2,
            SubsystemKind::CurrentDiscovery => 3,
        }
    }
}

/// Where an entry points to. A host connects to TCP only, but shows the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TransportAddress {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// Another transport, or a TCP address that is no number: the codes and the texts.
    Other {
        /// Transport type (TRTYPE).
        trtype: u8,
        /// Address family (ADRFAM).
        adrfam: u8,
        /// Transport address (TRADDR).
        traddr: String,
        /// Transport service (TRSVCID).
        trsvcid: String,
    },
}

/// One entry of the discovery log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// What it points to.
    pub kind: SubsystemKind,
    /// Where.
    pub address: TransportAddress,
    /// Transport requirements: bits 0 and 1 secure channel (1 required, 2 not required), bit 2 SQ
    /// flow control can be disabled.
    pub treq: u8,
    /// Port identifier.
    pub portid: u16,
    /// Controller identifier, FFFFh for the dynamic model.
    pub cntlid: u16,
    /// Largest admin submission queue in entries.
    pub asqsz: u16,
    /// Flags: see the constants.
    pub eflags: u16,
    /// The subsystem.
    pub subnqn: Nqn,
    /// TCP: security type, 0 none, 1 TLS 1.2, 2 TLS 1.3.
    pub sectype: u8,
}

impl DiscoveryEntry {
    /// Size on the wire in bytes.
    pub const BYTES: usize = 1024;

    /// EFLAGS: every port with this flag gives the same log.
    pub const EFLAGS_DUPLICATE: u16 = 1 << 0;
    /// EFLAGS: hosts may stay connected: there are keep-alive and events.
    pub const EFLAGS_PERSISTENT: u16 = 1 << 1;

    const WHAT: &str = "Discovery log entry";
    const TRTYPE_TCP: u8 = 3;
    const ADRFAM_IPV4: u8 = 1;
    const ADRFAM_IPV6: u8 = 2;
    const TRSVCID: core::ops::Range<usize> = 32..64;
    const TRADDR: core::ops::Range<usize> = 512..768;

    /// A TCP entry without security, any controller.
    #[must_use]
    pub fn tcp(kind: SubsystemKind, at: SocketAddr, portid: u16, subnqn: Nqn) -> DiscoveryEntry {
        DiscoveryEntry {
            kind,
            address: TransportAddress::Tcp(at),
            // Secure channel not specified, as the Linux target says it: of "not required",
            // nvme-cli 2.3 makes a connect with TLS. SQ flow control can be disabled.
            treq: 1 << 2,
            portid,
            cntlid: super::super::fabrics::CNTLID_DYNAMIC,
            asqsz: 32,
            eflags: 0,
            subnqn,
            sectype: 0,
        }
    }

    /// The TCP address that the entry points to.
    #[must_use]
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self.address {
            TransportAddress::Tcp(at) => Some(at),
            TransportAddress::Other { .. } => None,
        }
    }

    /// TRTYPE, ADRFAM, TRADDR and TRSVCID.
    #[must_use]
    pub fn address_fields(&self) -> (u8, u8, String, String) {
        match &self.address {
            TransportAddress::Tcp(at) => {
                let family = if at.is_ipv4() { Self::ADRFAM_IPV4 } else { Self::ADRFAM_IPV6 };
                (Self::TRTYPE_TCP, family, at.ip().to_string(), at.port().to_string())
            }
            TransportAddress::Other { trtype, adrfam, traddr, trsvcid } => {
                (*trtype, *adrfam, traddr.clone(), trsvcid.clone())
            }
        }
    }

    /// The 1024 bytes on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; DiscoveryEntry::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (trtype, adrfam, traddr, trsvcid) = self.address_fields();
        le::put(&mut bytes, 0, &[trtype, adrfam, self.kind.code(), self.treq]);
        le::put_u16(&mut bytes, 4, self.portid);
        le::put_u16(&mut bytes, 6, self.cntlid);
        le::put_u16(&mut bytes, 8, self.asqsz);
        le::put_u16(&mut bytes, 10, self.eflags);
        check::put_ascii(&mut bytes[Self::TRSVCID], &trsvcid, b' ');
        le::put(&mut bytes, 256, &self.subnqn.to_field());
        check::put_ascii(&mut bytes[Self::TRADDR], &traddr, b' ');
        bytes[768] = self.sectype;
        bytes
    }

    /// Reads one entry. A host skips an entry that fails and goes on with the next.
    ///
    /// # Errors
    /// Fewer than 1024 bytes, an unknown SUBTYPE, no NQN, or for TCP over IP a TRADDR or TRSVCID
    /// that is no address or no port.
    pub fn parse(bytes: &[u8]) -> Result<DiscoveryEntry, ProtocolError> {
        check::length(bytes, Self::WHAT, Self::BYTES)?;
        let kind = match bytes[2] {
            1 => SubsystemKind::Referral,
            2 => SubsystemKind::Nvm,
            3 => SubsystemKind::CurrentDiscovery,
            other => return Err(broken(Self::WHAT, "SUBTYPE", other.into(), "must be 1 to 3")),
        };
        let subnqn = Nqn::from_field(&le::array(bytes, 256))
            .map_err(|_| no_text(Self::WHAT, "SUBNQN", "holds no NQN"))?;
        Ok(DiscoveryEntry {
            kind,
            address: Self::parse_address(bytes)?,
            treq: bytes[3],
            portid: le::u16(bytes, 4),
            cntlid: le::u16(bytes, 6),
            asqsz: le::u16(bytes, 8),
            eflags: le::u16(bytes, 10),
            subnqn,
            sectype: bytes[768],
        })
    }

    fn parse_address(bytes: &[u8]) -> Result<TransportAddress, ProtocolError> {
        let (trtype, adrfam) = (bytes[0], bytes[1]);
        let (traddr, trsvcid) =
            (check::ascii(&bytes[Self::TRADDR]), check::ascii(&bytes[Self::TRSVCID]));
        if trtype != Self::TRTYPE_TCP {
            return Ok(TransportAddress::Other { trtype, adrfam, traddr, trsvcid });
        }
        let ip: Option<IpAddr> = traddr.parse().ok();
        let family = match ip {
            Some(IpAddr::V4(_)) => Self::ADRFAM_IPV4,
            Some(IpAddr::V6(_)) => Self::ADRFAM_IPV6,
            None => 0,
        };
        match (ip, trsvcid.parse::<u16>()) {
            (Some(ip), Ok(port)) if port != 0 && family == adrfam => {
                Ok(TransportAddress::Tcp(SocketAddr::new(ip, port)))
            }
            (Some(_), Ok(port)) if port != 0 => {
                Err(broken(Self::WHAT, "ADRFAM", adrfam.into(), "does not fit the address"))
            }
            (Some(_), _) => Err(no_text(Self::WHAT, "TRSVCID", "is no TCP port")),
            (None, _) => Err(no_text(Self::WHAT, "TRADDR", "is no IP address")),
        }
    }

    /// A whole log: header and entries.
    #[must_use]
    pub fn log(generation: u64, entries: &[DiscoveryEntry]) -> Vec<u8> {
        let header = DiscoveryHeader { generation, entries: entries.len() as u64 };
        let mut out = Vec::with_capacity(DiscoveryHeader::BYTES * (entries.len() + 1));
        out.extend_from_slice(&header.to_bytes());
        for entry in entries {
            out.extend_from_slice(&entry.to_bytes());
        }
        out
    }
}
