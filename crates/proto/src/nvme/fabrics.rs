//! Fabrics commands: Connect, Property Get and Set, Disconnect (Base 6).

use super::opcode::fabrics as fctype;
use super::{Nqn, Sgl, Sqe, Status, Uuid, le};

/// CNTLID in Connect data that asks for any controller (dynamic controller model).
pub const CNTLID_DYNAMIC: u16 = 0xffff;

/// The parameters of a Connect command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectCommand {
    /// 0 for the admin queue.
    pub qid: u16,
    /// Entries of the submission queue, less one; at least 1.
    pub sqsize: u16,
    /// The host asks for no submission queue flow control.
    pub disable_sq_flow: bool,
    /// Keep-alive time-out in milliseconds; 0 is off. Means something on the admin queue only.
    pub kato_ms: u32,
}

/// Why a Connect is refused, so that the host can tell what to change (Base 6.3, "Connect
/// Response").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRefusal {
    /// The status; DNR is set where trying again is of no use.
    pub status: Status,
    /// Byte offset of the parameter that is refused, and whether it lies in the data.
    pub parameter: Option<(u16, bool)>,
}

impl ConnectRefusal {
    /// A parameter of the command is invalid.
    #[must_use]
    pub const fn command(offset: u16) -> ConnectRefusal {
        let status = Status::CONNECT_INVALID_PARAMETERS.with_dnr();
        ConnectRefusal { status, parameter: Some((offset, false)) }
    }

    /// A parameter in the data is invalid.
    #[must_use]
    pub const fn data(offset: u16) -> ConnectRefusal {
        let status = Status::CONNECT_INVALID_PARAMETERS.with_dnr();
        ConnectRefusal { status, parameter: Some((offset, true)) }
    }

    /// The completion's result: IPO in bits 0 to 15, IATTR in 16 to 23.
    #[must_use]
    pub fn result(self) -> u64 {
        self.parameter.map_or(0, |(offset, data)| u64::from(offset) | u64::from(data) << 16)
    }
}

/// Byte offsets of Connect's parameters, for [`ConnectRefusal`].
pub mod offset {
    /// In the command: the data descriptor.
    pub const SGL: u16 = 24;
    /// In the command: record format.
    pub const RECFMT: u16 = 40;
    /// In the command: queue identifier.
    pub const QID: u16 = 42;
    /// In the command: submission queue size.
    pub const SQSIZE: u16 = 44;
    /// In the command: keep-alive time-out.
    pub const KATO: u16 = 48;
    /// In the data: host identifier.
    pub const HOSTID: u16 = 0;
    /// In the data: controller identifier.
    pub const CNTLID: u16 = 16;
    /// In the data: subsystem NQN.
    pub const SUBNQN: u16 = 256;
    /// In the data: host NQN.
    pub const HOSTNQN: u16 = 512;
}

impl ConnectCommand {
    /// The command, without CID and SGL.
    #[must_use]
    pub fn sqe(&self) -> Sqe {
        Sqe::fabrics(fctype::CONNECT)
            .with_cdw(10, u32::from(self.qid) << 16)
            .with_cdw(11, u32::from(self.sqsize) | u32::from(self.disable_sq_flow) << 18)
            .with_cdw(12, self.kato_ms)
    }

    /// Reads a command whose Fabrics type is Connect.
    ///
    /// # Errors
    /// An unknown record format, a queue of less than two entries, or a data descriptor of less
    /// than 1024 bytes; the refusal names the parameter. Limits of the controller are for the
    /// caller to check.
    pub fn parse(sqe: &Sqe) -> Result<ConnectCommand, ConnectRefusal> {
        let (cdw10, cdw11) = (sqe.cdw(10), sqe.cdw(11));
        if cdw10 & 0xffff != 0 {
            let status = Status::CONNECT_INCOMPATIBLE_FORMAT.with_dnr();
            return Err(ConnectRefusal { status, parameter: Some((offset::RECFMT, false)) });
        }
        if (sqe.sgl().length() as usize) < ConnectData::BYTES {
            return Err(ConnectRefusal::command(offset::SGL));
        }
        let sqsize = (cdw11 & 0xffff) as u16;
        if sqsize == 0 {
            return Err(ConnectRefusal::command(offset::SQSIZE));
        }
        Ok(ConnectCommand {
            qid: (cdw10 >> 16) as u16,
            sqsize,
            disable_sq_flow: cdw11 >> 18 & 1 != 0,
            kato_ms: sqe.cdw(12),
        })
    }
}

/// The data of a Connect command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectData {
    /// Host identifier. Zero on an I/O queue: not told.
    pub hostid: Uuid,
    /// The controller asked for, or [`CNTLID_DYNAMIC`].
    pub cntlid: u16,
    /// The subsystem.
    pub subnqn: Nqn,
    /// The host.
    pub hostnqn: Nqn,
}

impl ConnectData {
    /// Size on the wire in bytes.
    pub const BYTES: usize = 1024;

    /// The 1024 bytes on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ConnectData::BYTES] {
        let mut bytes = [0; Self::BYTES];
        le::put(&mut bytes, 0, self.hostid.as_bytes());
        le::put_u16(&mut bytes, 16, self.cntlid);
        le::put(&mut bytes, 256, &self.subnqn.to_field());
        le::put(&mut bytes, 512, &self.hostnqn.to_field());
        bytes
    }

    /// Reads the data of a Connect; bytes behind the 1024th are not looked at.
    ///
    /// # Errors
    /// Fewer than 1024 bytes, or an NQN that is not a qualified one; the refusal names the
    /// parameter. Whether a host identifier of zero will do depends on the queue.
    pub fn parse(bytes: &[u8]) -> Result<ConnectData, ConnectRefusal> {
        if bytes.len() < Self::BYTES {
            return Err(ConnectRefusal::command(offset::SGL));
        }
        let hostid = Uuid(le::array(bytes, 0));
        let nqn = |at| Nqn::from_field(&le::array(bytes, at)).and_then(Nqn::qualified);
        let subnqn = nqn(256).map_err(|_| ConnectRefusal::data(offset::SUBNQN))?;
        let hostnqn = nqn(512).map_err(|_| ConnectRefusal::data(offset::HOSTNQN))?;
        Ok(ConnectData { hostid, cntlid: le::u16(bytes, 16), subnqn, hostnqn })
    }
}

/// The result of a Connect that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectResponse(u32);

impl ConnectResponse {
    /// The connection belongs to this controller; no authentication.
    #[must_use]
    pub const fn new(cntlid: u16) -> ConnectResponse {
        ConnectResponse(cntlid as u32)
    }

    /// From the completion's result.
    #[must_use]
    pub const fn from_result(result: u64) -> ConnectResponse {
        ConnectResponse((result & 0xffff_ffff) as u32)
    }

    /// The completion's result.
    #[must_use]
    pub const fn result(self) -> u64 {
        self.0 as u64
    }

    /// The controller that the connection belongs to.
    #[must_use]
    pub const fn cntlid(self) -> u16 {
        (self.0 & 0xffff) as u16
    }

    /// Whether the controller wants authentication before anything else (AUTHREQ).
    #[must_use]
    pub const fn authentication_required(self) -> bool {
        self.0 >> 16 != 0
    }
}

/// What a refused Connect says about the parameter: byte offset, and whether in the data.
#[must_use]
pub fn invalid_parameter(status: Status, result: u64) -> Option<(u16, bool)> {
    let relevant = status.is(Status::CONNECT_INVALID_PARAMETERS)
        || status.is(Status::CONNECT_INCOMPATIBLE_FORMAT);
    relevant.then_some(((result & 0xffff) as u16, result >> 16 & 1 != 0))
}

/// Property Get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertyGet {
    /// Byte offset of the property.
    pub offset: u32,
    /// 8 bytes wide, otherwise 4.
    pub wide: bool,
}

impl PropertyGet {
    /// The command, without CID.
    #[must_use]
    pub fn sqe(&self) -> Sqe {
        Sqe::fabrics(fctype::PROPERTY_GET)
            .with_cdw(10, u32::from(self.wide))
            .with_cdw(11, self.offset)
    }

    /// Reads a command whose Fabrics type is Property Get.
    ///
    /// # Errors
    /// A reserved size.
    pub fn parse(sqe: &Sqe) -> Result<PropertyGet, Status> {
        Ok(PropertyGet { offset: sqe.cdw(11), wide: property_is_wide(sqe)? })
    }
}

/// Property Set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertySet {
    /// Byte offset of the property.
    pub offset: u32,
    /// 8 bytes wide, otherwise 4.
    pub wide: bool,
    /// The new value.
    pub value: u64,
}

impl PropertySet {
    /// The command, without CID.
    #[must_use]
    pub fn sqe(&self) -> Sqe {
        Sqe::fabrics(fctype::PROPERTY_SET)
            .with_cdw(10, u32::from(self.wide))
            .with_cdw(11, self.offset)
            .with_cdw_pair(12, self.value)
    }

    /// Reads a command whose Fabrics type is Property Set.
    ///
    /// # Errors
    /// A reserved size.
    pub fn parse(sqe: &Sqe) -> Result<PropertySet, Status> {
        let wide = property_is_wide(sqe)?;
        let value = sqe.cdw_pair(12);
        let value = if wide { value } else { value & 0xffff_ffff };
        Ok(PropertySet { offset: sqe.cdw(11), wide, value })
    }
}

fn property_is_wide(sqe: &Sqe) -> Result<bool, Status> {
    match sqe.cdw(10) & 7 {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Status::INVALID_FIELD.with_dnr()),
    }
}

/// Disconnect: the end of one I/O queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect;

impl Disconnect {
    /// The command, without CID.
    #[must_use]
    pub fn sqe() -> Sqe {
        Sqe::fabrics(fctype::DISCONNECT).with_sgl(Sgl::none())
    }

    /// Reads a command whose Fabrics type is Disconnect.
    ///
    /// # Errors
    /// An unknown record format.
    pub fn parse(sqe: &Sqe) -> Result<Disconnect, Status> {
        match sqe.cdw(10) & 0xffff {
            0 => Ok(Disconnect),
            _ => Err(Status::CONNECT_INCOMPATIBLE_FORMAT.with_dnr()),
        }
    }
}
