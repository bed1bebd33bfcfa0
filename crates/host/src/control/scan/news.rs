//! What changes while a controller is being looked at is named at once, not when that ends: it may
//! take long, and until then commands would go to what may be another namespace by now.

use super::super::controller::Controller;
use super::super::env::{Env, Notice};
use super::super::lifecycle::Phase;
use super::super::link::{Answer, Purpose};
use super::super::wire;
use super::named::Named;
use super::progress::{ASK_PAUSE, ASKED_AT_ONCE};
use super::{MAX_FAILURES, RETRY, Scan};
use alloc::vec::Vec;
use anabranch_proto::machine::{Buffers, Time};
use anabranch_proto::nvme::status::Status;
use core::time::Duration;

/// While a scan has to wait it is asked as often what has changed as while one goes on; all anew
/// when nobody has asked for so long.
const ASKS_FORGOTTEN: Duration = Duration::from_secs(60);

/// So answers who does not have the list of changed namespaces at all.
const LASTING: [Status; 3] =
    [Status::INVALID_OPCODE, Status::INVALID_FIELD, Status::INVALID_LOG_PAGE];

/// The list of changed namespaces, beside a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum News {
    /// It is not to be read.
    #[default]
    None,
    /// It is to be read, then: it was read too often of late.
    Later(Time),
    /// It is to be read when there is room.
    Due,
    /// It was asked for; `more` has changed since.
    Asked { more: bool },
}

impl Scan {
    /// When it may be asked what has changed while no scan goes on and the next has to wait; counts
    /// it as done where that is now. What is named is out of use until then: who names it faster
    /// than it can be looked at does not keep it from all use.
    fn asks_between(&mut self, now: Time) -> News {
        let (last, times) = &mut self.asks_between;
        let pause = now.since(*last);
        if pause >= ASKS_FORGOTTEN {
            *times = 0;
        }
        if *times >= ASKED_AT_ONCE && pause < ASK_PAUSE {
            return News::Later(last.after(ASK_PAUSE));
        }
        (*last, *times) = (now, (*times + 1).min(ASKED_AT_ONCE));
        News::Due
    }

    /// When it is asked what has changed, if not by the next scan. That one would be too late for
    /// what is in use: there may be another namespace by now.
    fn asks(&mut self, now: Time) -> News {
        if let Some(progress) = &mut self.running {
            return progress.asks(now);
        }
        if self.may_begin(now) { News::None } else { self.asks_between(now) }
    }

    /// When it is to be asked later what has changed.
    pub(super) fn asks_later(&self) -> Option<Time> {
        match self.news {
            News::Later(at) => Some(at),
            _ => None,
        }
    }

    /// Which namespaces have changed, as the answer says; any, if it does not. Until the list has
    /// been read no further event comes: who refuses it for now is asked again, a few times. By
    /// then all have been looked at, so that another refusal says nothing of any.
    pub(super) fn heeds(&mut self, answer: &Answer, now: Time) -> Named {
        let status = answer.status;
        let times = core::mem::take(&mut self.refusals);
        if status.is_success() {
            return wire::parse_changed(&answer.data);
        }
        if !status.dnr() && !LASTING.contains(&status) && times < MAX_FAILURES {
            self.refusals = times + 1;
            self.clear_first = true;
            self.retry_by(now.after(RETRY));
        }
        if times == 0 { Named::All } else { Named::Some(Vec::new()) }
    }

    /// Whether a namespace has changed since the scan that goes on began.
    pub(super) fn has_just_changed(&self, nsid: u32) -> bool {
        self.doubted_since(nsid) >= Some(self.number)
    }
}

impl Controller {
    /// Something has changed. When a scan goes on it is asked what, as soon as there is room, or
    /// when what is asked for has come.
    pub(super) fn ask_for_news(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let scan = &mut self.scan;
        match &mut scan.news {
            News::None | News::Later(_) => {}
            News::Due => return,
            News::Asked { more } => {
                *more = true;
                return;
            }
        }
        scan.news = scan.asks(env.now);
        self.send_for_news(env, bufs);
    }

    /// Asks what has changed, if that is due and there is room.
    pub(super) fn send_for_news(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        if self.scan.news != News::Due || self.scan.under_way() >= self.admin_room() {
            return;
        }
        let deadline = self.admin_deadline(env.now);
        let command = wire::changed_namespaces();
        let Some(link) = &mut self.link else { return };
        // What cannot be sent stays due.
        if link.send(env, bufs, Purpose::News, command, deadline).is_ok() {
            self.scan.news = News::Asked { more: false };
        }
    }

    /// Which namespaces have changed since a scan has begun; that may have ended, or failed. What
    /// was read of them does not count.
    pub(in super::super) fn news_answered(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        answer: &Answer,
    ) {
        if self.phase != Phase::Live {
            return;
        }
        self.note_pace(answer);
        let in_use = self.is_verified();
        let scan = &mut self.scan;
        let more = scan.news == News::Asked { more: true };
        scan.news = News::None;
        (scan.unheard, scan.clear_first) = (more, more);
        let named = scan.heeds(answer, env.now);
        scan.has_changed_meanwhile(&named, in_use);
        env.notice(self, Notice::Named);
        self.tell_later(env);
        if more {
            self.ask_for_news(env, bufs);
        }
        if self.scan.is_idle() {
            self.request_paced_scan(env, bufs);
        }
        self.scan_on(env, bufs);
    }
}
