//! Commands on admin queues.

mod features;
mod identify;
mod logs;
mod property;

use super::Target;
use super::command::Step;
use crate::conn::{Answer, AnswerData, SlotId, Stage};
use crate::controller::Controller;
use anabranch_proto::machine::{Buffers, Time};
use anabranch_proto::nvme::opcode::{admin, fabrics};
use anabranch_proto::nvme::{Sqe, Status, aer};

impl Target {
    pub(super) fn admin(
        &mut self,
        now: Time,
        place: u32,
        slot: SlotId,
        at: usize,
        bufs: &mut dyn Buffers,
    ) -> Step {
        let Some(sqe) = self.sqe(place, slot) else { return Step::refuse(Status::INTERNAL_ERROR) };
        let Some(controller) = self.controllers[at].as_mut() else {
            return Step::refuse(Status::INTERNAL_ERROR);
        };
        if sqe.is_fabrics() {
            return match sqe.fctype() {
                fabrics::PROPERTY_GET => self.property_get(at, &sqe),
                fabrics::PROPERTY_SET => self.property_set(now, at, &sqe, bufs),
                fabrics::CONNECT => Step::refuse(Status::COMMAND_SEQUENCE_ERROR),
                fabrics::DISCONNECT => Step::refuse(Status::DISCONNECT_INVALID_QUEUE_TYPE),
                // The opcode is right, the type in it is not (Base 4.1.2).
                _ => Step::refuse(Status::INVALID_FIELD),
            };
        }
        controller.admin_commands += 1;
        if !controller.takes_commands() {
            return Step::refuse(Status::COMMAND_SEQUENCE_ERROR);
        }
        match sqe.opcode() {
            admin::IDENTIFY => self.identify(at, &sqe, bufs),
            admin::GET_LOG_PAGE => self.get_log_page(at, &sqe, bufs),
            admin::GET_FEATURES => self.get_features(at, &sqe, bufs),
            admin::SET_FEATURES => self.set_features(now, at, &sqe),
            admin::KEEP_ALIVE => {
                controller.restart_timer(now);
                Step::Done(Answer::status(Status::SUCCESS))
            }
            admin::ABORT => self.abort(now, place, slot, at, &sqe, bufs),
            admin::ASYNC_EVENT_REQUEST => {
                if controller.events.park(slot) {
                    Step::Parked
                } else {
                    Step::refuse(Status::AER_LIMIT_EXCEEDED)
                }
            }
            _ => Step::refuse(Status::INVALID_OPCODE),
        }
    }

    /// Sends a controller's host the events that it has requests for.
    pub(super) fn deliver_events(&mut self, now: Time, at: usize, bufs: &mut dyn Buffers) {
        while let Some(controller) = self.controllers[at].as_mut() {
            let place = controller.admin;
            let Some((slot, result)) = controller.events.next() else { return };
            self.answer(now, place, slot, &Answer::result(result), bufs);
        }
    }

    /// Abort (Base 5.1): a command that was not yet executed will not be. Result bit 0 says "not
    /// aborted".
    fn abort(
        &mut self,
        now: Time,
        place: u32,
        own: SlotId,
        at: usize,
        sqe: &Sqe,
        bufs: &mut dyn Buffers,
    ) -> Step {
        const NOT_ABORTED: u64 = 1;
        let (sqid, cid) = aer::abort_target(sqe);
        let controller = self.controllers[at].as_mut();
        let Some(controller) = controller else { return Step::refuse(Status::INTERNAL_ERROR) };
        let queue = if sqid == 0 { Some(place) } else { controller.io_queue(sqid) };
        let conn = queue.and_then(|queue| self.conns.get_mut(queue));
        let found = conn.and_then(|conn| {
            let queue = &conn.queue;
            let entries = conn.entries.iter_mut().enumerate();
            entries.filter_map(|(slot, entry)| Some((slot, entry.as_mut()?))).find(
                |(slot, entry)| {
                    let is_itself = sqid == 0 && *slot == usize::from(own);
                    queue.sqe(entry.slot).cid() == cid && !is_itself
                },
            )
        });
        let Some((slot, entry)) = found else { return Step::Done(Answer::result(NOT_ABORTED)) };
        match entry.stage {
            Stage::Inbound | Stage::Waiting | Stage::Held | Stage::Served => {
                entry.verdict = Some(Status::ABORT_REQUESTED);
                Step::Done(Answer::result(0))
            }
            Stage::Parked => {
                let slot = SlotId::try_from(slot).unwrap_or(SlotId::MAX);
                controller.events.unpark(slot);
                let aborted = Answer::status(Status::ABORT_REQUESTED);
                self.answer(now, place, slot, &aborted, bufs);
                Step::Done(Answer::result(0))
            }
            _ => Step::Done(Answer::result(NOT_ABORTED)),
        }
    }

    /// Answers with `len` bytes that `fill` writes; `len` is at most the largest transfer.
    fn answer_with(
        &mut self,
        at: usize,
        len: u32,
        bufs: &mut dyn Buffers,
        fill: impl FnOnce(&mut Target, &mut [u8]) -> Result<(), Status>,
    ) -> Step {
        let free = self.may_answer(at, len, bufs);
        let Some(buf) = free.then(|| bufs.alloc(len)).flatten() else { return Step::Wait };
        let bytes = bufs.bytes_mut(buf);
        // A pool buffer holds what was in it before.
        bytes.fill(0);
        self.turns.answer(bytes.len());
        match fill(self, bytes) {
            Ok(()) => {
                let data = AnswerData::Buffer(buf);
                Step::Done(Answer { status: Status::SUCCESS, result: 0, data })
            }
            Err(status) => {
                bufs.free(buf);
                Step::Done(Answer::status(status.with_dnr()))
            }
        }
    }

    fn controller(&self, at: usize) -> Result<&Controller, Status> {
        self.controllers[at].as_ref().ok_or(Status::INTERNAL_ERROR)
    }
}
