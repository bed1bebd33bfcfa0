//! Properties: capabilities, version, enabling, shutting down.

use super::super::Target;
use super::super::command::Step;
use crate::conn::{Answer, SlotId};
use alloc::vec::Vec;
use anabranch_proto::machine::{Buffers, CloseHow, Time};
use anabranch_proto::nvme::fabrics::{PropertyGet, PropertySet};
use anabranch_proto::nvme::property::{self, Cap, Cc, Csts, Vs};
use anabranch_proto::nvme::{Sqe, Status};

/// The version that controllers comply with.
pub(super) const VERSION: Vs = Vs::V1_4;
/// How long enabling may take (CAP.TO). It takes no time; hosts with a busy network like more.
const READY_MS: u32 = 7_500;
const SHUTDOWN_IN_PROGRESS: u8 = 1;
const SHUTDOWN_COMPLETE: u8 = 2;

impl Target {
    pub(in super::super) fn property_get(&mut self, at: usize, sqe: &Sqe) -> Step {
        match self.read_property(at, sqe) {
            Ok(value) => Step::Done(Answer::result(value)),
            Err(status) => Step::refuse(status),
        }
    }

    fn read_property(&self, at: usize, sqe: &Sqe) -> Result<u64, Status> {
        let get = PropertyGet::parse(sqe)?;
        let controller = self.controller(at)?;
        match (get.offset, get.wide) {
            (property::CAP, true) => Ok(Cap::new(self.limits.queue_depth.into(), READY_MS).0),
            (property::VS, false) => Ok(VERSION.0.into()),
            (property::CC, false) => Ok(controller.configuration.into()),
            (property::CSTS, false) => {
                // Whoever reads that it is through may send what was not answered elsewhere: a
                // write that is still on its way to a file would come after that.
                let works = self.disk.works_for(controller.cntlid);
                let shutdown = match (controller.shut_down, works) {
                    (false, _) => 0,
                    (true, true) => SHUTDOWN_IN_PROGRESS,
                    (true, false) => SHUTDOWN_COMPLETE,
                };
                let enabled = Cc(controller.configuration).enable();
                let ready = controller.ready || works && !enabled;
                Ok(Csts::new(ready, controller.fatal, shutdown).0.into())
            }
            _ => Err(Status::INVALID_FIELD),
        }
    }

    pub(in super::super) fn property_set(
        &mut self,
        now: Time,
        at: usize,
        sqe: &Sqe,
        bufs: &mut dyn Buffers,
    ) -> Step {
        match PropertySet::parse(sqe) {
            Ok(PropertySet { offset: property::CC, wide: false, value }) => {
                let value = u32::try_from(value).unwrap_or(u32::MAX);
                self.configure(now, at, Cc(value), bufs);
                Step::Done(Answer::status(Status::SUCCESS))
            }
            Ok(_) => Step::refuse(Status::INVALID_FIELD),
            Err(status) => Step::refuse(status),
        }
    }

    /// Writes CC.
    fn configure(&mut self, now: Time, at: usize, new: Cc, bufs: &mut dyn Buffers) {
        let Some(controller) = self.controllers[at].as_mut() else { return };
        let old = Cc(core::mem::replace(&mut controller.configuration, new.0));
        let discovery = controller.is_discovery();
        if new.enable() && !old.enable() {
            // A controller without I/O queues takes any entry sizes (Base 3.1.3.5).
            let sizes = discovery || (new.iosqes() == 6 && new.iocqes() == 4);
            let fits = new.css() == 0 && new.page_shift() == 12 && new.ams() == 0;
            controller.ready = sizes && fits;
            controller.fatal = !controller.ready;
            controller.shut_down = false;
        }
        // Only a reset takes it back, whatever else is written (Base 3.6, "Shutdown"): what its
        // host was not answered may have been done elsewhere by then.
        controller.shut_down |= new.shutdown() != 0;
        if !new.enable() && old.enable() {
            self.reset(now, at, bufs);
        }
    }

    /// Controller reset: I/O queues are gone, event requests answered, features at their defaults.
    fn reset(&mut self, now: Time, at: usize, bufs: &mut dyn Buffers) {
        let max_queues = self.limits.io_queues;
        let Some(controller) = self.controllers[at].as_mut() else { return };
        controller.ready = false;
        controller.fatal = false;
        controller.shut_down = false;
        controller.granted_queues = max_queues;
        controller.clear_changed();
        let admin = controller.admin;
        let parked: Vec<SlotId> = controller.events.reset().into_iter().flatten().collect();
        let queues = core::mem::take(&mut controller.io_queues);
        for slot in parked {
            let aborted = Answer::status(Status::ABORT_REQUESTED);
            self.answer(now, admin, slot, &aborted, bufs);
        }
        for (_, place) in queues {
            if let Some(conn) = self.conns.get_mut(place) {
                conn.role = crate::conn::Role::New;
            }
            self.close(place, CloseHow::Abort);
        }
    }
}
