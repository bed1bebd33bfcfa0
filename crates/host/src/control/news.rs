//! What changes while a controller is being looked at is named at once, not when that ends: it may
//! take long, and until then commands would go to what may be another namespace by now.

use super::controller::Controller;
use super::env::{Env, Notice};
use super::lifecycle::Phase;
use super::link::{Answer, Purpose};
use super::named::Named;
use super::progress::Progress;
use super::scan::News;
use super::wire;
use anabranch_proto::machine::Buffers;

impl Controller {
    /// Something has changed. When a scan goes on it is asked what, as soon as there is room.
    pub(super) fn ask_for_news(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let scan = &mut self.scan;
        match &mut scan.news {
            News::None => {}
            News::Due => return,
            News::Asked { more } => {
                *more = true;
                return;
            }
        }
        if scan.may_begin(env.now) && scan.running.as_mut().is_some_and(Progress::may_ask) {
            scan.news = News::Due;
            self.send_for_news(env, bufs);
        }
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
    pub(super) fn news_answered(&mut self, env: &mut Env, bufs: &mut dyn Buffers, answer: &Answer) {
        if self.phase != Phase::Live {
            return;
        }
        self.note_pace(answer);
        let in_use = self.is_verified();
        let scan = &mut self.scan;
        let more = scan.news == News::Asked { more: true };
        scan.news = News::None;
        (scan.unheard, scan.clear_first) = (false, more);
        scan.has_changed_meanwhile(&named(answer), in_use);
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

/// Which namespaces have changed, as an answer says; any, if it does not.
pub(super) fn named(answer: &Answer) -> Named {
    let named = answer.status.is_success().then(|| wire::parse_changed(&answer.data));
    named.unwrap_or(Named::All)
}
