//! Get and Set Features.

use super::super::Target;
use super::super::command::Step;
use crate::aer;
use crate::conn::Answer;
use crate::controller::{Of, round_keep_alive};
use anabranch_proto::machine::{Buffers, Time};
use anabranch_proto::nvme::feature::{self, HostIdentifier, NumberOfQueues, Select, fid};
use anabranch_proto::nvme::{Sqe, Status};

/// Warnings of the SMART log that may be configured; there never is one.
const SMART_WARNINGS: u32 = 0xff;
/// Get Features, "supported capabilities": every namespace has a value of its own.
const PER_NAMESPACE: u64 = 1 << 1;
/// Get Features, "supported capabilities": the value can be changed.
const CHANGEABLE: u64 = 1 << 2;

/// NSID: all that there are.
const ALL_NAMESPACES: u32 = u32::MAX;

/// Whether the feature is one of each namespace (DULBE of Error Recovery), not of the controller.
const fn is_per_namespace(id: u8) -> bool {
    id == fid::ERROR_RECOVERY
}

impl Target {
    pub(super) fn get_features(&mut self, at: usize, sqe: &Sqe, bufs: &mut dyn Buffers) -> Step {
        let id = feature::fid_of(sqe);
        let select = feature::select_of(sqe);
        if matches!(select, Select::Reserved(_)) {
            return Step::refuse(Status::INVALID_FIELD);
        }
        if let Err(status) = self.check_scope(at, id, sqe.nsid(), false) {
            return Step::refuse(status);
        }
        if id == fid::HOST_IDENTIFIER && select != Select::Capabilities {
            if !HostIdentifier::is_extended(sqe) {
                return Step::refuse(Status::INVALID_FIELD);
            }
            let len = u32::try_from(HostIdentifier::BYTES).unwrap_or(u32::MAX);
            if sqe.sgl().length() < len {
                return Step::refuse(Status::DATA_SGL_LENGTH_INVALID);
            }
            return self.answer_with(at, len, bufs, |target, bytes| {
                bytes.copy_from_slice(target.controller(at)?.host_id.as_bytes());
                Ok(())
            });
        }
        match self.feature(at, id, select) {
            Ok(value) => Step::Done(Answer::result(value)),
            Err(status) => Step::refuse(status),
        }
    }

    /// Whether a command about a feature may name this namespace. One that is not there is refused
    /// always; one that is there, where a feature of the controller is to be set (Base, Set
    /// Features, "Feature Not Namespace Specific"). Whoever asks what holds for a namespace is told
    /// the value of the controller. Other features than ours are refused as such.
    fn check_scope(&self, at: usize, id: u8, nsid: u32, sets: bool) -> Result<(), Status> {
        if matches!(nsid, 0 | ALL_NAMESPACES) || self.feature(at, id, Select::Current).is_err() {
            return Ok(());
        }
        let there = match self.controller(at)?.of {
            Of::Subsystem(subsystem) => self.subsystems[subsystem].namespace(nsid).is_some(),
            Of::Discovery => false,
        };
        if !there {
            return Err(Status::INVALID_NAMESPACE);
        }
        if sets && !is_per_namespace(id) {
            return Err(Status::FEATURE_NOT_PER_NAMESPACE);
        }
        Ok(())
    }

    fn feature(&self, at: usize, id: u8, select: Select) -> Result<u64, Status> {
        let controller = self.controller(at)?;
        let queues = |count| u64::from(NumberOfQueues::pairs(count).dword());
        let (current, default, changeable) = match id {
            fid::KEEP_ALIVE_TIMER => (controller.kato_ms.into(), 0, true),
            fid::ASYNC_EVENT_CONFIG => {
                (controller.events.config.into(), controller.events.default.into(), true)
            }
            fid::HOST_IDENTIFIER => (0, 0, false),
            _ if controller.is_discovery() => return Err(Status::INVALID_FIELD),
            fid::NUMBER_OF_QUEUES => {
                (queues(controller.granted_queues), queues(self.limits.io_queues), true)
            }
            fid::VOLATILE_WRITE_CACHE => (1, 1, false),
            // All that I/O controllers must have (NVMe 1.4, figure "Feature Support").
            fid::ARBITRATION
            | fid::POWER_MANAGEMENT
            | fid::TEMPERATURE_THRESHOLD
            | fid::ERROR_RECOVERY
            | fid::WRITE_ATOMICITY => (0, 0, false),
            _ => return Err(Status::INVALID_FIELD),
        };
        match select {
            Select::Current => Ok(current),
            Select::Default | Select::Saved => Ok(default),
            Select::Capabilities => {
                let scope = if is_per_namespace(id) { PER_NAMESPACE } else { 0 };
                Ok(scope | if changeable { CHANGEABLE } else { 0 })
            }
            Select::Reserved(_) => Err(Status::INVALID_FIELD),
        }
    }

    pub(super) fn set_features(&mut self, now: Time, at: usize, sqe: &Sqe) -> Step {
        match self.set_feature(now, at, sqe) {
            Ok(result) => Step::Done(Answer::result(result)),
            Err(status) => Step::refuse(status),
        }
    }

    fn set_feature(&mut self, now: Time, at: usize, sqe: &Sqe) -> Result<u64, Status> {
        if feature::save_of(sqe) {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        self.check_scope(at, feature::fid_of(sqe), sqe.nsid(), true)?;
        let (value, max_queues) = (sqe.cdw(11), self.limits.io_queues);
        let controller = self.controllers[at].as_mut().ok_or(Status::INTERNAL_ERROR)?;
        let discovery = controller.is_discovery();
        match feature::fid_of(sqe) {
            fid::KEEP_ALIVE_TIMER => {
                controller.kato_ms = round_keep_alive(value);
                controller.restart_timer(now);
                if let Some(deadline) = controller.timer_ends() {
                    self.check_by(deadline);
                }
                Ok(0)
            }
            fid::ASYNC_EVENT_CONFIG => {
                if value & !(aer::supported(discovery) | SMART_WARNINGS) != 0 {
                    return Err(Status::INVALID_FIELD);
                }
                controller.events.config = value;
                Ok(0)
            }
            // It comes with Connect, and never again (Fabrics 4.1).
            fid::HOST_IDENTIFIER => Err(Status::COMMAND_SEQUENCE_ERROR),
            _ if discovery => Err(Status::INVALID_FIELD),
            fid::NUMBER_OF_QUEUES => {
                let wanted = NumberOfQueues::from_dword(value).ok_or(Status::INVALID_FIELD)?;
                if !controller.io_queues.is_empty() {
                    return Err(Status::COMMAND_SEQUENCE_ERROR);
                }
                controller.granted_queues = wanted.usable().min(max_queues);
                Ok(NumberOfQueues::pairs(controller.granted_queues).dword().into())
            }
            fid::VOLATILE_WRITE_CACHE if value & 1 != 0 => Ok(0),
            fid::POWER_MANAGEMENT if value & 0x1f == 0 => Ok(0),
            fid::WRITE_ATOMICITY if value & 1 == 0 => Ok(0),
            fid::VOLATILE_WRITE_CACHE
            | fid::POWER_MANAGEMENT
            | fid::ARBITRATION
            | fid::TEMPERATURE_THRESHOLD
            | fid::ERROR_RECOVERY
            | fid::WRITE_ATOMICITY => Err(Status::FEATURE_NOT_CHANGEABLE),
            _ => Err(Status::INVALID_FIELD),
        }
    }
}
