//! What a controller says about itself while connecting, checked and reduced to what we use.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use anabranch_proto::machine::Time;
use anabranch_proto::nvme::fabrics::ConnectResponse;
use anabranch_proto::nvme::feature::AsyncEventConfig;
use anabranch_proto::nvme::identify::{Controller as Identified, ControllerKind, IoCommandLimits};
use anabranch_proto::nvme::nqn::Nqn;
use anabranch_proto::nvme::property::{Cap, Cc, Vs};
use core::time::Duration;

/// Namespace identification descriptors exist from this version on.
const VS_DESCRIPTORS: Vs = Vs(0x0001_0300);

/// Admin commands that may be under way beside a scan: an event request, Keep Alive, the ANA log.
const NOT_SCANS: u16 = 3;

/// A queue with all but one of its entries in use is full (Base, "Queue Size").
const MIN_QUEUE_ENTRIES: u16 = 2;

/// Sizes of a command and of a completion as powers of two, as CC asks for them ([`Cc::ENABLE`]).
const COMMAND_SIZE: u8 = 6;
const COMPLETION_SIZE: u8 = 4;

/// Time to become ready that is given to every controller, whatever CAP.TO says.
const MIN_READY_TIME: Duration = Duration::from_secs(1);

/// Who a controller says it is. Mostly the same on all controllers of a subsystem, and after a
/// reconnect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) nqn: Nqn,
    pub(super) serial: String,
    pub(super) model: String,
    pub(super) vendor: u16,
}

impl Identity {
    /// What is not as it was, in words: each field with its former value. The NQN is the one that
    /// was asked for.
    pub(super) fn changes_from(&self, former: &Identity) -> String {
        let texts = [
            ("serial", self.serial.clone(), former.serial.clone()),
            ("model", self.model.clone(), former.model.clone()),
            ("vendor", hex(self.vendor), hex(former.vendor)),
        ];
        let mut said = Vec::new();
        for (field, now, was) in texts {
            if now != was {
                said.push(format!("{field} \"{now}\" (it was \"{was}\")"));
            }
        }
        said.join(", ")
    }
}

/// What Linux finds out when the I/O queues fail. What is not reported (0) is no reason: types are
/// since 1.4, and nobody else may have looked at the sizes of entries.
fn can_do_io(said: &Identified) -> Result<(), String> {
    if said.kind == ControllerKind::Administrative {
        return Err(String::from("it is an administrative controller, which has no I/O queues"));
    }
    for (field, sizes, ours) in
        [("SQES", said.sqes, COMMAND_SIZE), ("CQES", said.cqes, COMPLETION_SIZE)]
    {
        let (least, most) = (sizes & 0xf, sizes >> 4);
        if least > ours || (1..ours).contains(&most) {
            return Err(format!("{field}: the controller has no entries of {} bytes", 1 << ours));
        }
    }
    Ok(())
}

/// As tools print a PCI vendor.
fn hex(vendor: u16) -> String {
    format!("{vendor:#06x}")
}

/// The ANA part of Identify Controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AnaFacts {
    /// NANAGRPID.
    pub(super) groups: u32,
    /// ANAGRPMAX.
    pub(super) max_group: u32,
    /// Bytes of the whole log at its longest.
    pub(super) log_bytes: u64,
    /// It can be read from an offset.
    pub(super) offsets: bool,
    /// ANATT.
    pub(super) transition_secs: u8,
}

/// What was said in one association.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) cntlid: u16,
    /// Entries of an I/O queue; 0 until CAP was read.
    pub(super) queue_entries: u16,
    /// MAXCMD; 0 = not said.
    max_commands: u16,
    page_shift: u32,
    pub(super) ready_timeout: Duration,
    pub(super) ready_by: Option<Time>,
    version: Vs,
    /// What CC is set to.
    pub(super) configuration: Cc,
    pub(super) firmware: String,
    /// CMIC: there may be others in its subsystem.
    pub(super) multi_controller: bool,
    /// I/O queues granted.
    pub(super) io_queues: u16,
    pub(super) in_capsule_bytes: u32,
    /// MDTS; `None` = no limit.
    pub(super) max_transfer_bytes: Option<u32>,
    pub(super) write_zeroes: bool,
    /// WZSL; `None` = not reported.
    pub(super) max_write_zeroes_bytes: Option<u32>,
    pub(super) discard: bool,
    pub(super) max_discard_blocks: u32,
    pub(super) compare: bool,
    pub(super) volatile_write_cache: bool,
    /// Events to ask for.
    pub(super) events_mask: u32,
    pub(super) ana: Option<AnaFacts>,
    /// CRDT1 to CRDT3.
    pub(super) retry_delays: [Duration; 3],
}

impl Facts {
    pub(super) fn take_connect(&mut self, result: u64) -> Result<(), String> {
        let response = ConnectResponse::from_result(result);
        if response.authentication_required() {
            return Err(String::from(
                "the controller requires authentication, which is not supported",
            ));
        }
        self.cntlid = response.cntlid();
        Ok(())
    }

    /// Takes CAP in. A discovery controller needs no I/O command set, and no I/O queue.
    pub(super) fn take_capabilities(
        &mut self,
        cap: u64,
        queue_size: u16,
        discovery: bool,
    ) -> Result<(), String> {
        let cap = Cap(cap);
        // Where there is more than the NVM command set, namespaces of the others are not used, one
        // by one, by what their identifiers say.
        let configuration = match (cap.has_nvm_command_set(), cap.has_command_sets()) {
            (true, _) => Cc::ENABLE,
            (false, true) => Cc::ENABLE_ALL_SETS,
            (false, false) if discovery && cap.is_admin_only() => Cc::ENABLE_ADMIN_ONLY,
            (false, false) if discovery => Cc::ENABLE,
            (false, false) => {
                return Err(String::from("CAP.CSS: the controller has no I/O command set"));
            }
        };
        self.configuration = configuration.with_page_shift(cap.page_shift());
        if !discovery && cap.queue_entries() < MIN_QUEUE_ENTRIES.into() {
            return Err(String::from("CAP.MQES: a queue of one entry holds no command"));
        }
        let offered = u16::try_from(cap.queue_entries()).unwrap_or(u16::MAX);
        self.queue_entries = queue_size.min(offered).max(MIN_QUEUE_ENTRIES);
        self.page_shift = cap.page_shift();
        self.ready_timeout = Duration::from_millis(u64::from(cap.ready_ms())).max(MIN_READY_TIME);
        Ok(())
    }

    pub(super) fn take_version(&mut self, vs: u64) {
        self.version = Vs((vs & u64::from(u32::MAX)) as u32);
    }

    /// Takes Identify Controller in; gives back who it is.
    pub(super) fn take_identify(
        &mut self,
        bytes: &[u8],
        wanted: &Nqn,
        discovery: bool,
        keep_alive: Duration,
    ) -> Result<Identity, String> {
        let parse = if discovery { Identified::parse_discovery } else { Identified::parse };
        let said = parse(bytes).map_err(|error| error.to_string())?;
        if said.cntlid != self.cntlid {
            return Err(format!(
                "mismatching controller id: Connect says {}, Identify says {}",
                self.cntlid, said.cntlid
            ));
        }
        if let Some(nqn) = said.subnqn.as_ref().filter(|&nqn| !discovery && nqn != wanted) {
            return Err(format!("it belongs to another subsystem: {nqn}"));
        }
        if !discovery && said.is_discovery() {
            return Err(String::from("it is a discovery controller"));
        }
        if !discovery {
            can_do_io(&said)?;
        }
        if said.sgls & 3 == 0 {
            return Err(String::from("SGLS: the controller does not support SGLs"));
        }
        if !discovery && said.kas == 0 && !keep_alive.is_zero() {
            return Err(String::from("KAS: the controller does not support keep-alive"));
        }
        self.take_limits(&said);
        self.take_features(&said, discovery);
        Ok(Identity { nqn: wanted.clone(), serial: said.sn, model: said.mn, vendor: said.vid })
    }

    fn take_limits(&mut self, said: &Identified) {
        self.max_commands = said.maxcmd;
        if said.maxcmd != 0 {
            self.queue_entries = self.queue_entries.min(said.maxcmd).max(MIN_QUEUE_ENTRIES);
        }
        self.in_capsule_bytes = said.in_capsule_bytes();
        self.max_transfer_bytes = said.max_transfer_bytes(self.page_shift);
        self.retry_delays =
            [1, 2, 3].map(|crd| Duration::from_millis(u64::from(said.retry_delay_ms(crd))));
        self.firmware.clone_from(&said.fr);
        self.multi_controller = said.cmic & Identified::CMIC_MULTI_CONTROLLER != 0;
    }

    fn take_features(&mut self, said: &Identified, discovery: bool) {
        self.write_zeroes = said.oncs & Identified::ONCS_WRITE_ZEROES != 0;
        self.discard = said.oncs & Identified::ONCS_DSM != 0;
        self.max_discard_blocks = u32::MAX;
        self.compare = said.oncs & Identified::ONCS_COMPARE != 0;
        self.volatile_write_cache = said.vwc & Identified::VWC_PRESENT != 0;
        let wanted = if discovery {
            AsyncEventConfig::DISCOVERY_CHANGE
        } else {
            AsyncEventConfig::NAMESPACE_ATTRIBUTE | AsyncEventConfig::ANA_CHANGE
        };
        self.events_mask = said.oaes & wanted;
        self.ana = said.has_ana().then(|| AnaFacts {
            groups: said.nanagrpid,
            max_group: said.anagrpmax,
            log_bytes: said.ana_log_bytes(),
            offsets: said.lpa & Identified::LPA_EXTENDED_DATA != 0,
            transition_secs: said.anatt_s,
        });
    }

    /// Takes the limits of the NVM command set in. They are optional, so a structure that makes no
    /// sense changes nothing.
    pub(super) fn take_nvm_limits(&mut self, bytes: &[u8]) {
        let Ok(limits) = IoCommandLimits::parse(bytes) else { return };
        self.max_write_zeroes_bytes = limits.write_zeroes_bytes(self.page_shift);
        // Ours name one range each.
        let one_range = Some(limits.dmrsl_blocks).filter(|&blocks| blocks != 0);
        let all_ranges = u32::try_from(limits.dmsl_blocks).ok().filter(|&blocks| blocks != 0);
        if let Some(blocks) = one_range.into_iter().chain(all_ranges).min() {
            self.max_discard_blocks = blocks;
        }
    }

    /// Whether Identify with CNS 03h exists.
    pub(super) fn has_descriptors(&self) -> bool {
        self.version >= VS_DESCRIPTORS
    }

    /// Whether it may ask for a pause before a command is tried again. It does so only where the
    /// host says that it heeds that (Base, "Host Behavior Support").
    pub(super) fn has_retry_delays(&self) -> bool {
        self.retry_delays.iter().any(|delay| !delay.is_zero())
    }

    /// Whether Identify with CNS 06h exists.
    pub(super) fn has_nvm_limits(&self) -> bool {
        self.version >= Vs::V2_0
    }

    /// Admin commands that a scan may have under way, up to `most`. SPDK's target gives the admin
    /// queue no more places than the others (MAXCMD), and ends the connection of who sends more.
    pub(super) fn scan_window(&self, most: u16) -> u16 {
        match self.max_commands {
            0 => most,
            commands => commands.saturating_sub(NOT_SCANS).clamp(1, most),
        }
    }
}
