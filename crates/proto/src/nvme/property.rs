//! Controller properties that a host reads and writes by Property Get and Set (Base 3.1.3).

/// Offset of CAP, 8 bytes.
pub const CAP: u32 = 0x00;
/// Offset of VS, 4 bytes.
pub const VS: u32 = 0x08;
/// Offset of CC, 4 bytes.
pub const CC: u32 = 0x14;
/// Offset of CSTS, 4 bytes.
pub const CSTS: u32 = 0x1c;
/// Offset of NSSR, 4 bytes.
pub const NSSR: u32 = 0x20;

/// Controller capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cap(pub u64);

impl Cap {
    /// What a Fabrics controller says: queues of `queue_entries` (2 to 65536), contiguous queues,
    /// ready within `ready_ms` (rounded up to half seconds), the NVM command set, 4 KiB pages.
    #[must_use]
    pub const fn new(queue_entries: u32, ready_ms: u32) -> Cap {
        let mqes = if queue_entries < 2 { 1 } else { queue_entries - 1 };
        let mqes = if mqes > 0xffff { 0xffff } else { mqes } as u64;
        let halves = ready_ms.div_ceil(500);
        let halves = if halves > 0xff { 0xff } else { halves } as u64;
        Cap(mqes | 1 << 16 | halves << 24 | 1 << 37)
    }

    /// The most entries of a queue (MQES + 1).
    #[must_use]
    pub const fn queue_entries(self) -> u32 {
        (self.0 & 0xffff) as u32 + 1
    }

    /// How long enabling and disabling may take, in milliseconds (CAP.TO).
    #[must_use]
    pub const fn ready_ms(self) -> u32 {
        (self.0 >> 24 & 0xff) as u32 * 500
    }

    /// The smallest memory page as a power of two (MPSMIN + 12): the unit of MDTS.
    #[must_use]
    pub const fn page_shift(self) -> u32 {
        (self.0 >> 48 & 0xf) as u32 + 12
    }

    /// Whether the controller has the NVM command set.
    #[must_use]
    pub const fn has_nvm_command_set(self) -> bool {
        self.0 >> 37 & 1 != 0
    }

    /// Whether the controller has one or more command sets that CC.CSS can select together (bit 6
    /// of CSS). Which ones is another matter: one with zoned namespaces may say this alone.
    #[must_use]
    pub const fn has_command_sets(self) -> bool {
        self.0 >> 43 & 1 != 0
    }

    /// Whether the controller has no I/O command set at all (bit 7 of CSS), as a discovery
    /// controller may say.
    #[must_use]
    pub const fn is_admin_only(self) -> bool {
        self.0 >> 44 & 1 != 0
    }
}

/// The version that a controller complies with: major, minor and tertiary in one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vs(pub u32);

impl Vs {
    /// 1.4.
    pub const V1_4: Vs = Vs(0x0001_0400);
    /// 2.0.
    pub const V2_0: Vs = Vs(0x0002_0000);
}

impl core::fmt::Display for Vs {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (major, minor, tertiary) = (self.0 >> 16, self.0 >> 8 & 0xff, self.0 & 0xff);
        write!(f, "{major}.{minor}")?;
        if tertiary != 0 {
            write!(f, ".{tertiary}")?;
        }
        Ok(())
    }
}

/// Controller configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cc(pub u32);

impl Cc {
    /// Enabled as a Fabrics host enables: NVM command set, 4 KiB pages, 64-byte commands, 16-byte
    /// completions.
    pub const ENABLE: Cc = Cc(1 | 6 << 16 | 4 << 20);

    /// As [`Cc::ENABLE`], with all command sets that there are ([`Cap::has_command_sets`]).
    pub const ENABLE_ALL_SETS: Cc = Cc(Cc::ENABLE.0 | 6 << 4);

    /// As [`Cc::ENABLE`], with no I/O command set ([`Cap::is_admin_only`]).
    pub const ENABLE_ADMIN_ONLY: Cc = Cc(Cc::ENABLE.0 | 7 << 4);

    /// With memory pages of so many bytes as a power of two (CC.MPS + 12). Over Fabrics nothing
    /// is addressed by them, but a controller may have no smaller ones.
    #[must_use]
    pub const fn with_page_shift(self, shift: u32) -> Cc {
        Cc(self.0 & !(0xf << 7) | (shift.saturating_sub(12) & 0xf) << 7)
    }

    /// Whether the controller shall be enabled.
    #[must_use]
    pub const fn enable(self) -> bool {
        self.0 & 1 != 0
    }

    /// Command set selected: 0 NVM, 6 all supported, 7 admin only.
    #[must_use]
    pub const fn css(self) -> u8 {
        (self.0 >> 4 & 7) as u8
    }

    /// Memory page size as a power of two (MPS + 12).
    #[must_use]
    pub const fn page_shift(self) -> u32 {
        (self.0 >> 7 & 0xf) + 12
    }

    /// Arbitration mechanism: 0 is round robin.
    #[must_use]
    pub const fn ams(self) -> u8 {
        (self.0 >> 11 & 7) as u8
    }

    /// Shutdown notification: 0 none, 1 normal, 2 abrupt.
    #[must_use]
    pub const fn shutdown(self) -> u8 {
        (self.0 >> 14 & 3) as u8
    }

    /// Submission queue entry size as a power of two.
    #[must_use]
    pub const fn iosqes(self) -> u8 {
        (self.0 >> 16 & 0xf) as u8
    }

    /// Completion queue entry size as a power of two.
    #[must_use]
    pub const fn iocqes(self) -> u8 {
        (self.0 >> 20 & 0xf) as u8
    }

    /// The same configuration, asking for a normal shutdown.
    #[must_use]
    pub const fn with_shutdown(self) -> Cc {
        Cc(self.0 & !(3 << 14) | 1 << 14)
    }

    /// The same configuration, disabled.
    #[must_use]
    pub const fn disabled(self) -> Cc {
        Cc(self.0 & !1)
    }
}

/// Controller status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Csts(pub u32);

impl Csts {
    /// Puts the parts together; `shutdown` is 0 none, 1 in progress, 2 complete.
    #[must_use]
    pub const fn new(ready: bool, fatal: bool, shutdown: u8) -> Csts {
        Csts(ready as u32 | (fatal as u32) << 1 | (shutdown as u32 & 3) << 2)
    }

    /// Ready to process commands.
    #[must_use]
    pub const fn ready(self) -> bool {
        self.0 & 1 != 0
    }

    /// Fatal status.
    #[must_use]
    pub const fn fatal(self) -> bool {
        self.0 & 2 != 0
    }

    /// Whether shutdown processing is complete.
    #[must_use]
    pub const fn shutdown_complete(self) -> bool {
        self.0 >> 2 & 3 == 2
    }
}
