//! Identify: what controllers and namespaces are.

use super::super::Target;
use super::super::command::Step;
use crate::aer;
use crate::config::{MAX_ANA_GROUP, MAX_NSID};
use crate::controller::{Controller, KEEP_ALIVE_UNIT_MS, Of};
use crate::namespace::Namespace;
use anabranch_proto::machine::Buffers;
use anabranch_proto::nvme::identify::{self, ActiveNamespaceList, ControllerKind, Identify, cns};
use anabranch_proto::nvme::identify::{IoCommandLimits, NamespaceIdDescriptors};
use anabranch_proto::nvme::{AnaState, Nqn, Sqe, Status};

/// The unit of MDTS as a power of two: CAP.MPSMIN is 0.
const PAGE_SHIFT: u32 = 12;
/// Present; Flush for all namespaces at once is refused (Base, VWC: 10b).
const VWC: u8 = identify::Controller::VWC_PRESENT | 0b10 << 1;
/// Firmware revision: the version of this software, cut to the field.
pub(super) const FIRMWARE: &str = env!("CARGO_PKG_VERSION");
/// I/O command set identifier: NVM.
const NVM: u8 = 0;

impl Target {
    pub(super) fn identify(&mut self, at: usize, sqe: &Sqe, bufs: &mut dyn Buffers) -> Step {
        let len = u32::try_from(identify::BYTES).unwrap_or(u32::MAX);
        if sqe.sgl().length() < len {
            return Step::refuse(Status::DATA_SGL_LENGTH_INVALID);
        }
        let asked = Identify::parse(sqe);
        self.answer_with(at, len, bufs, |target, out| target.fill_identify(at, asked, out))
    }

    fn fill_identify(&self, at: usize, asked: Identify, out: &mut [u8]) -> Result<(), Status> {
        let controller = self.controller(at)?;
        if asked.cns == cns::CONTROLLER {
            self.identify_controller(controller).emit(out);
            return Ok(());
        }
        let Of::Subsystem(subsystem) = controller.of else { return Err(Status::INVALID_FIELD) };
        let subsystem = &self.subsystems[subsystem];
        // Zeroes for a namespace that is not there, and might be (Base 5.17.2.1, 5.17.2.5,
        // 5.17.2.8).
        let possible = || match asked.nsid {
            1..=MAX_NSID => Ok(subsystem.namespace(asked.nsid)),
            _ => Err(Status::INVALID_NAMESPACE),
        };
        let csi = if asked.csi == NVM { Ok(()) } else { Err(Status::INVALID_FIELD) };
        match asked.cns {
            cns::NAMESPACE => {
                if let Some(namespace) = possible()? {
                    let state = self.ports[controller.port].ana.state(namespace.ana_group);
                    identify_namespace(namespace, state).emit(out);
                }
            }
            cns::ACTIVE_NAMESPACES => {
                // FFFFFFFEh and FFFFFFFFh are refused (Base 5.17.2.3).
                if asked.nsid >= u32::MAX - 1 {
                    return Err(Status::INVALID_NAMESPACE);
                }
                let nsids = subsystem.namespaces.iter().map(|namespace| namespace.nsid);
                ActiveNamespaceList::page(nsids, asked.nsid).emit(out);
            }
            cns::DESCRIPTORS => {
                let namespace = subsystem.namespace(asked.nsid).ok_or(Status::INVALID_NAMESPACE)?;
                NamespaceIdDescriptors {
                    eui64: None,
                    nguid: Some(namespace.nguid),
                    uuid: Some(namespace.uuid),
                    csi: Some(NVM),
                }
                .emit(out);
            }
            cns::NAMESPACE_IO => {
                csi?;
                possible()?;
                // Zeroes: no protection information, no further formats.
            }
            cns::CONTROLLER_IO => {
                csi?;
                IoCommandLimits { wzsl: 0, dmrl: 0, dmrsl_blocks: 0, dmsl_blocks: 0 }.emit(out);
            }
            cns::NAMESPACE_COMMON => {
                if let Some(namespace) = possible()? {
                    emit_common(namespace, out);
                }
            }
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(())
    }

    fn identify_controller(&self, controller: &Controller) -> identify::Controller {
        let kind = match controller.of {
            Of::Discovery => ControllerKind::Discovery,
            Of::Subsystem(_) => ControllerKind::Io,
        };
        let mdts = self.limits.max_transfer_bytes.ilog2() - PAGE_SHIFT;
        let common = identify::Controller {
            fr: FIRMWARE.chars().take(8).collect(),
            mdts: u8::try_from(mdts).unwrap_or(0),
            cntlid: controller.cntlid,
            ver: super::property::VERSION,
            oaes: aer::supported(controller.is_discovery()),
            ctratt: identify::Controller::CTRATT_HOSTID_128 | identify::Controller::CTRATT_TBKAS,
            acl: 3,
            aerl: u8::try_from(aer::LIMIT - 1).unwrap_or(0),
            lpa: identify::Controller::LPA_EXTENDED_DATA,
            kas: u16::try_from(KEEP_ALIVE_UNIT_MS / 100).unwrap_or(1),
            maxcmd: self.limits.queue_depth,
            ioccsz: (64 + self.limits.in_capsule_bytes) / 16,
            ..identify::Controller::new(kind)
        };
        let Of::Subsystem(at) = controller.of else {
            return identify::Controller {
                sn: "0".into(),
                mn: "Anabranch discovery".into(),
                subnqn: Some(Nqn::discovery()),
                ..common
            };
        };
        let subsystem = &self.subsystems[at];
        identify::Controller {
            sn: subsystem.serial.clone(),
            mn: subsystem.model.clone(),
            cmic: identify::Controller::CMIC_MULTI_PORT
                | identify::Controller::CMIC_MULTI_CONTROLLER
                | identify::Controller::CMIC_ANA,
            frmw: identify::Controller::FRMW_FIXED,
            lpa: identify::Controller::LPA_EFFECTS | common.lpa,
            anatt_s: self.limits.ana_transition_s,
            anacap: ANACAP,
            anagrpmax: MAX_ANA_GROUP,
            nanagrpid: MAX_ANA_GROUP,
            nn: MAX_NSID,
            mnan: MAX_NSID,
            oncs: identify::Controller::ONCS_COMPARE
                | identify::Controller::ONCS_DSM
                | identify::Controller::ONCS_WRITE_ZEROES,
            vwc: VWC,
            ofcs: identify::Controller::OFCS_DISCONNECT,
            subnqn: Some(subsystem.nqn.clone()),
            ..common
        }
    }
}

/// All five states; a namespace may move to another group while it is attached.
const ANACAP: u8 = identify::Controller::ANACAP_ALL & !(1 << 6);

fn identify_namespace(namespace: &Namespace, state: AnaState) -> identify::Namespace {
    // How much is in use is cleared where there is no access (Base 8.1.3).
    let hidden = matches!(state, AnaState::Inaccessible | AnaState::PersistentLoss);
    identify::Namespace {
        nuse: if hidden { 0 } else { namespace.blocks },
        nmic: identify::Namespace::NMIC_SHARED,
        dlfeat: identify::Namespace::DLFEAT_ZEROES,
        anagrpid: namespace.ana_group,
        nguid: namespace.nguid,
        ..identify::Namespace::new(namespace.blocks, namespace.block_shift)
    }
}

/// I/O command set independent Identify Namespace (Base 5.17.2.8).
fn emit_common(namespace: &Namespace, out: &mut [u8]) {
    const READY: u8 = 1;
    out[1] = identify::Namespace::NMIC_SHARED;
    out[4..8].copy_from_slice(&namespace.ana_group.to_le_bytes());
    out[14] = READY;
}
