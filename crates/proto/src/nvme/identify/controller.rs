//! Identify Controller.

use super::super::check::{self, broken, unusable};
use super::super::property::Vs;
use super::super::{Nqn, le};
use crate::error::ProtocolError;
use alloc::string::String;

const WHAT: &str = "Identify Controller";

/// What a controller is for (CNTRLTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerKind {
    /// Not reported; an I/O controller of an old version.
    Unreported,
    /// Carries I/O.
    Io,
    /// Tells where subsystems are.
    Discovery,
    /// Administration only.
    Administrative,
}

/// Identify Controller, the fields that we use, named as in the specification (Base figure
/// "Identify Controller Data Structure"). What [`Controller::parse`] returns has been clamped or
/// refused field by field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// PCI vendor.
    pub vid: u16,
    /// PCI subsystem vendor.
    pub ssvid: u16,
    /// Serial number, at most 20 characters.
    pub sn: String,
    /// Model number, at most 40 characters.
    pub mn: String,
    /// Firmware revision, at most 8 characters.
    pub fr: String,
    /// Recommended arbitration burst.
    pub rab: u8,
    /// IEEE OUI.
    pub ieee: [u8; 3],
    /// Multi-path capabilities: see the constants.
    pub cmic: u8,
    /// Longest transfer as a power of two in units of the smallest page; 0 is no limit.
    pub mdts: u8,
    /// Controller identifier, below FFF0h.
    pub cntlid: u16,
    /// Version.
    pub ver: Vs,
    /// Resume latency in microseconds (RTD3R).
    pub rtd3r_us: u32,
    /// Entry latency in microseconds (RTD3E): how long a shutdown may take.
    pub rtd3e_us: u32,
    /// Events that the controller can notify of, bits as in `AsyncEventConfig`.
    pub oaes: u32,
    /// Attributes: see the constants.
    pub ctratt: u32,
    /// What it is for.
    pub kind: ControllerKind,
    /// Command retry delays 1 to 3 in units of 100 ms.
    pub crdt: [u16; 3],
    /// Optional admin commands.
    pub oacs: u16,
    /// Aborts at once, as a count less one.
    pub acl: u8,
    /// Asynchronous event requests at once, as a count less one.
    pub aerl: u8,
    /// Firmware: bit 0 slot 1 is read-only, bits 1 to 3 how many slots.
    pub frmw: u8,
    /// Log page attributes.
    pub lpa: u8,
    /// Error log entries, as a count less one.
    pub elpe: u8,
    /// Keep-alive granularity in units of 100 ms; 0 is "no keep-alive".
    pub kas: u16,
    /// Longest time in the state *change*, in seconds; at least 1 when ANA is reported.
    pub anatt_s: u8,
    /// ANA capabilities: a bit for each state that can be reported.
    pub anacap: u8,
    /// Highest ANA group identifier.
    pub anagrpmax: u32,
    /// Number of ANA groups.
    pub nanagrpid: u32,
    /// Submission queue entry sizes, powers of two: required low half, largest high half.
    pub sqes: u8,
    /// Completion queue entry sizes, likewise.
    pub cqes: u8,
    /// Commands at once on one I/O queue; 0 is "not reported".
    pub maxcmd: u16,
    /// Highest namespace identifier.
    pub nn: u32,
    /// Optional I/O commands: see the constants.
    pub oncs: u16,
    /// Fused operations.
    pub fuses: u16,
    /// Volatile write cache: bit 0 present, bits 1 and 2 how Flush treats `FFFF_FFFFh`.
    pub vwc: u8,
    /// Atomic write unit in blocks less one.
    pub awun: u16,
    /// Atomic write unit at power failure in blocks less one.
    pub awupf: u16,
    /// SGL support.
    pub sgls: u32,
    /// Most namespaces; not 0 and at most `nn` when ANA is reported.
    pub mnan: u32,
    /// The subsystem; `None` when the field holds no qualified NQN.
    pub subnqn: Option<Nqn>,
    /// Largest command capsule in units of 16 bytes; at least 4 on I/O controllers.
    pub ioccsz: u32,
    /// Largest response capsule in units of 16 bytes.
    pub iorcsz: u32,
    /// Where in-capsule data starts behind the command, in units of 16 bytes; 0.
    pub icdoff: u16,
    /// Fabrics controller attributes: bit 0 set for the static controller model.
    pub fcatt: u8,
    /// Most SGL descriptors per command; 0 is no limit.
    pub msdbd: u8,
    /// Optional Fabrics commands: bit 0 Disconnect.
    pub ofcs: u16,
}

impl Controller {
    /// CMIC: the subsystem may have several ports.
    pub const CMIC_MULTI_PORT: u8 = 1 << 0;
    /// CMIC: the subsystem may have several controllers.
    pub const CMIC_MULTI_CONTROLLER: u8 = 1 << 1;
    /// CMIC: ANA is reported.
    pub const CMIC_ANA: u8 = 1 << 3;
    /// CTRATT: 128-bit host identifier.
    pub const CTRATT_HOSTID_128: u32 = 1 << 0;
    /// CTRATT: traffic-based keep-alive.
    pub const CTRATT_TBKAS: u32 = 1 << 6;
    /// FRMW: one slot, and nothing is written there.
    pub const FRMW_FIXED: u8 = 1 | 1 << 1;
    /// LPA: the log of commands and their effects is there.
    pub const LPA_EFFECTS: u8 = 1 << 1;
    /// LPA: Get Log Page takes offsets.
    pub const LPA_EXTENDED_DATA: u8 = 1 << 2;
    /// ONCS: Compare.
    pub const ONCS_COMPARE: u16 = 1 << 0;
    /// ONCS: Dataset Management.
    pub const ONCS_DSM: u16 = 1 << 2;
    /// ONCS: Write Zeroes.
    pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;
    /// VWC: a volatile write cache is present.
    pub const VWC_PRESENT: u8 = 1 << 0;
    /// OFCS: Disconnect.
    pub const OFCS_DISCONNECT: u16 = 1 << 0;
    /// SGLS: SGLs without alignment, longer than what is moved, offsets in data blocks, transport
    /// data blocks.
    pub const SGLS_TCP: u32 = 1 | 1 << 18 | 1 << 20 | 1 << 21;
    /// ANACAP: all five states, and the group of a namespace does not change while attached.
    pub const ANACAP_ALL: u8 = 0x1f | 1 << 6;
    /// The longest time that a volatile field such as ANATT may ask us to wait when it is 0.
    pub const ANATT_DEFAULT_S: u8 = 10;

    /// A controller that promises nothing; what a target starts from.
    #[must_use]
    pub fn new(kind: ControllerKind) -> Controller {
        Controller {
            vid: 0,
            ssvid: 0,
            sn: String::new(),
            mn: String::new(),
            fr: String::new(),
            rab: 6,
            ieee: [0; 3],
            cmic: 0,
            mdts: 0,
            cntlid: 1,
            ver: Vs::V2_0,
            rtd3r_us: 0,
            rtd3e_us: 0,
            oaes: 0,
            ctratt: 0,
            kind,
            crdt: [0; 3],
            oacs: 0,
            acl: 3,
            aerl: 3,
            frmw: 0,
            lpa: 0,
            elpe: 0,
            kas: 1,
            anatt_s: 0,
            anacap: 0,
            anagrpmax: 0,
            nanagrpid: 0,
            sqes: 0x66,
            cqes: 0x44,
            maxcmd: 0,
            nn: 0,
            oncs: 0,
            fuses: 0,
            vwc: 0,
            awun: 0,
            awupf: 0,
            sgls: Self::SGLS_TCP,
            mnan: 0,
            subnqn: None,
            ioccsz: 4,
            iorcsz: 1,
            icdoff: 0,
            fcatt: 0,
            msdbd: 1,
            ofcs: 0,
        }
    }

    /// Whether ANA is reported.
    #[must_use]
    pub const fn has_ana(&self) -> bool {
        self.cmic & Self::CMIC_ANA != 0
    }

    /// Whether this is a discovery controller, by its kind or by its name.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        self.kind == ControllerKind::Discovery
            || self.subnqn.as_ref().is_some_and(Nqn::is_discovery)
    }

    /// The longest transfer of one command in bytes, `None` when there is no limit below 4 GiB.
    /// `page_shift` is [`super::super::property::Cap::page_shift`].
    #[must_use]
    pub fn max_transfer_bytes(&self, page_shift: u32) -> Option<u32> {
        if self.mdts == 0 {
            return None;
        }
        1_u32.checked_shl(page_shift.checked_add(self.mdts.into())?)
    }

    /// How many data bytes a command capsule of an I/O queue may carry.
    #[must_use]
    pub const fn in_capsule_bytes(&self) -> u32 {
        self.ioccsz.saturating_mul(16).saturating_sub(64)
    }

    /// The ANA log in bytes at its longest: header, every group, every namespace.
    #[must_use]
    pub fn ana_log_bytes(&self) -> u64 {
        16 + 32 * u64::from(self.nanagrpid) + 4 * u64::from(self.mnan)
    }

    /// The wait in milliseconds that a command retry delay index (1 to 3) stands for; 0 for others.
    #[must_use]
    pub fn retry_delay_ms(&self, crd: u8) -> u32 {
        let index = usize::from(crd).checked_sub(1);
        index.and_then(|index| self.crdt.get(index)).map_or(0, |&units| u32::from(units) * 100)
    }

    /// Writes as much of the 4096-byte structure as fits into `out`.
    pub fn emit(&self, out: &mut [u8]) {
        let mut bytes = [0; super::BYTES];
        self.emit_identity(&mut bytes);
        self.emit_admin(&mut bytes);
        self.emit_io(&mut bytes);
        check::copy_prefix(&bytes, out);
    }

    fn emit_identity(&self, b: &mut [u8; super::BYTES]) {
        le::put_u16(b, 0, self.vid);
        le::put_u16(b, 2, self.ssvid);
        check::put_ascii(&mut b[4..24], &self.sn, b' ');
        check::put_ascii(&mut b[24..64], &self.mn, b' ');
        check::put_ascii(&mut b[64..72], &self.fr, b' ');
        b[72] = self.rab;
        le::put(b, 73, &self.ieee);
        b[76] = self.cmic;
        b[77] = self.mdts;
        le::put_u16(b, 78, self.cntlid);
        le::put_u32(b, 80, self.ver.0);
        le::put_u32(b, 84, self.rtd3r_us);
        le::put_u32(b, 88, self.rtd3e_us);
        le::put_u32(b, 92, self.oaes);
        le::put_u32(b, 96, self.ctratt);
        b[111] = match self.kind {
            ControllerKind::Unreported => 0,
            ControllerKind::Io => 1,
            ControllerKind::Discovery => 2,
            ControllerKind::Administrative => 3,
        };
        for (index, delay) in self.crdt.iter().enumerate() {
            le::put_u16(b, 128 + 2 * index, *delay);
        }
    }

    fn emit_admin(&self, b: &mut [u8; super::BYTES]) {
        le::put_u16(b, 256, self.oacs);
        b[258] = self.acl;
        b[259] = self.aerl;
        b[260] = self.frmw;
        b[261] = self.lpa;
        b[262] = self.elpe;
        le::put_u16(b, 320, self.kas);
        b[342] = self.anatt_s;
        b[343] = self.anacap;
        le::put_u32(b, 344, self.anagrpmax);
        le::put_u32(b, 348, self.nanagrpid);
    }

    fn emit_io(&self, b: &mut [u8; super::BYTES]) {
        b[512] = self.sqes;
        b[513] = self.cqes;
        le::put_u16(b, 514, self.maxcmd);
        le::put_u32(b, 516, self.nn);
        le::put_u16(b, 520, self.oncs);
        le::put_u16(b, 522, self.fuses);
        b[525] = self.vwc;
        le::put_u16(b, 526, self.awun);
        le::put_u16(b, 528, self.awupf);
        le::put_u32(b, 536, self.sgls);
        le::put_u32(b, 540, self.mnan);
        if let Some(nqn) = &self.subnqn {
            le::put(b, 768, &nqn.to_field());
        }
        le::put_u32(b, 1792, self.ioccsz);
        le::put_u32(b, 1796, self.iorcsz);
        le::put_u16(b, 1800, self.icdoff);
        b[1802] = self.fcatt;
        b[1803] = self.msdbd;
        le::put_u16(b, 1804, self.ofcs);
    }

    /// Reads what a controller says about itself.
    ///
    /// Text that is not ASCII is shown with `?`; a subsystem NQN that is none is left out; ANATT 0
    /// becomes [`Controller::ANATT_DEFAULT_S`]; an NN of `FFFF_FFFFh` becomes the highest valid
    /// one.
    ///
    /// # Errors
    /// Fewer than 4096 bytes; a reserved controller identifier; with ANA: MNAN 0 or above NN, no
    /// groups, more groups than identifiers; on other than discovery controllers: no keep-alive, a
    /// capsule that cannot hold a command, a response capsule that cannot hold a completion, an
    /// in-capsule data offset.
    pub fn parse(bytes: &[u8]) -> Result<Controller, ProtocolError> {
        let it = Controller::parse_discovery(bytes)?;
        it.check_ana()?;
        if !it.is_discovery() {
            it.check_io()?;
        }
        Ok(it)
    }

    /// As [`Controller::parse`], of one that was asked for to tell where subsystems are: what it
    /// calls itself, and what only I/O needs, does not matter.
    ///
    /// # Errors
    /// Fewer than 4096 bytes; a reserved controller identifier.
    pub fn parse_discovery(bytes: &[u8]) -> Result<Controller, ProtocolError> {
        check::length(bytes, WHAT, super::BYTES)?;
        let mut it = Controller::new(match bytes[111] {
            1 => ControllerKind::Io,
            2 => ControllerKind::Discovery,
            3 => ControllerKind::Administrative,
            _ => ControllerKind::Unreported,
        });
        it.read_identity(bytes);
        it.read_admin(bytes);
        it.read_io(bytes);
        it.check_identity()?;
        Ok(it)
    }

    fn read_identity(&mut self, b: &[u8]) {
        self.vid = le::u16(b, 0);
        self.ssvid = le::u16(b, 2);
        self.sn = check::ascii(&b[4..24]);
        self.mn = check::ascii(&b[24..64]);
        self.fr = check::ascii(&b[64..72]);
        self.rab = b[72];
        self.ieee = le::array(b, 73);
        self.cmic = b[76];
        self.mdts = b[77];
        self.cntlid = le::u16(b, 78);
        self.ver = Vs(le::u32(b, 80));
        self.rtd3r_us = le::u32(b, 84);
        self.rtd3e_us = le::u32(b, 88);
        self.oaes = le::u32(b, 92);
        self.ctratt = le::u32(b, 96);
        self.crdt = [le::u16(b, 128), le::u16(b, 130), le::u16(b, 132)];
    }

    fn read_admin(&mut self, b: &[u8]) {
        self.oacs = le::u16(b, 256);
        self.acl = b[258];
        self.aerl = b[259];
        self.frmw = b[260];
        self.lpa = b[261];
        self.elpe = b[262];
        self.kas = le::u16(b, 320);
        self.anatt_s = b[342];
        self.anacap = b[343];
        self.anagrpmax = le::u32(b, 344);
        self.nanagrpid = le::u32(b, 348);
        if self.has_ana() && self.anatt_s == 0 {
            self.anatt_s = Self::ANATT_DEFAULT_S;
        }
    }

    fn read_io(&mut self, b: &[u8]) {
        self.sqes = b[512];
        self.cqes = b[513];
        self.maxcmd = le::u16(b, 514);
        self.nn = le::u32(b, 516).min(u32::MAX - 1);
        self.oncs = le::u16(b, 520);
        self.fuses = le::u16(b, 522);
        self.vwc = b[525];
        self.awun = le::u16(b, 526);
        self.awupf = le::u16(b, 528);
        self.sgls = le::u32(b, 536);
        self.mnan = le::u32(b, 540);
        self.subnqn = Nqn::from_field(&le::array(b, 768)).and_then(Nqn::qualified).ok();
        self.ioccsz = le::u32(b, 1792);
        self.iorcsz = le::u32(b, 1796);
        self.icdoff = le::u16(b, 1800);
        self.fcatt = b[1802];
        self.msdbd = b[1803];
        self.ofcs = le::u16(b, 1804);
    }

    fn check_identity(&self) -> Result<(), ProtocolError> {
        if self.cntlid >= 0xfff0 {
            return Err(broken(WHAT, "CNTLID", self.cntlid.into(), "FFF0h and above are reserved"));
        }
        Ok(())
    }

    fn check_ana(&self) -> Result<(), ProtocolError> {
        if !self.has_ana() {
            return Ok(());
        }
        let (mnan, groups) = (u64::from(self.mnan), u64::from(self.nanagrpid));
        if self.mnan == 0 || self.mnan > self.nn {
            return Err(broken(WHAT, "MNAN", mnan, "with ANA it must be 1 to NN"));
        }
        if self.nanagrpid == 0 {
            return Err(broken(WHAT, "NANAGRPID", groups, "with ANA there must be a group"));
        }
        if self.nanagrpid > self.anagrpmax {
            let limit = ("ANAGRPMAX", self.anagrpmax.into());
            return Err(check::above_its(WHAT, "NANAGRPID", groups, limit));
        }
        Ok(())
    }

    fn check_io(&self) -> Result<(), ProtocolError> {
        if self.kas == 0 {
            return Err(unusable(WHAT, "KAS", 0, "keep-alive is mandatory over fabrics"));
        }
        if self.ioccsz < 4 {
            let size = self.ioccsz.into();
            return Err(broken(WHAT, "IOCCSZ", size, "must hold a command: at least 4"));
        }
        if self.iorcsz < 1 {
            return Err(broken(WHAT, "IORCSZ", 0, "must hold a completion: at least 1"));
        }
        if self.icdoff != 0 {
            let offset = self.icdoff.into();
            return Err(unusable(WHAT, "ICDOFF", offset, "an offset is not supported: must be 0"));
        }
        Ok(())
    }
}

/// Limits of single I/O commands (Identify Controller, NVM command set, CNS 06h). 0 is "no limit"
/// or "not reported" everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCommandLimits {
    /// Longest Write Zeroes as a power of two in units of the smallest page.
    pub wzsl: u8,
    /// Most Dataset Management ranges.
    pub dmrl: u8,
    /// Most blocks in one Dataset Management range.
    pub dmrsl_blocks: u32,
    /// Most blocks in one Dataset Management command.
    pub dmsl_blocks: u64,
}

impl IoCommandLimits {
    /// Writes as much of the 4096-byte structure as fits into `out`.
    pub fn emit(&self, out: &mut [u8]) {
        let mut bytes = [0; super::BYTES];
        bytes[1] = self.wzsl;
        bytes[3] = self.dmrl;
        le::put_u32(&mut bytes, 4, self.dmrsl_blocks);
        le::put_u64(&mut bytes, 8, self.dmsl_blocks);
        check::copy_prefix(&bytes, out);
    }

    /// Reads what a controller says.
    ///
    /// # Errors
    /// Fewer than 4096 bytes.
    pub fn parse(bytes: &[u8]) -> Result<IoCommandLimits, ProtocolError> {
        check::length(bytes, "Identify Controller (NVM)", super::BYTES)?;
        Ok(IoCommandLimits {
            wzsl: bytes[1],
            dmrl: bytes[3],
            dmrsl_blocks: le::u32(bytes, 4),
            dmsl_blocks: le::u64(bytes, 8),
        })
    }

    /// The longest Write Zeroes in bytes, `None` when there is no limit below 4 GiB.
    #[must_use]
    pub fn write_zeroes_bytes(&self, page_shift: u32) -> Option<u32> {
        if self.wzsl == 0 {
            return None;
        }
        1_u32.checked_shl(page_shift.checked_add(self.wzsl.into())?)
    }
}
