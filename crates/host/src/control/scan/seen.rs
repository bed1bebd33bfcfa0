//! What a scan has seen counts before it ends, where users wait for it.

use super::super::controller::Controller;
use super::super::env::{Env, Notice};
use super::super::namespace::Namespace;
use super::lasting;
use super::named::Named;
use super::progress::MAX_NAMESPACES;
use alloc::vec::Vec;
use anabranch_proto::machine::Time;
use core::time::Duration;

/// How often it is told what a scan has seen so far: at first; then half as often each time, down
/// to a 16th. All controllers tell at the same times, for it is work for each path of a subsystem.
const TELL_PACE: Duration = Duration::from_millis(100);
const SLOWER_MOST: u32 = 4;

impl Controller {
    /// A known namespace that is still the same need not wait for the end of the scan, nor does one
    /// that is new. (Where one is not there any more, is another one or cannot be read, it takes
    /// the whole scan.)
    pub(super) fn note_seen(&mut self, env: &mut Env, namespace: &Namespace) {
        match self.scan.namespace(namespace.nsid) {
            Some(known) if known.is_still(namespace) => {}
            _ => return self.tell_later(env),
        }
        let Some(progress) = &mut self.scan.running else { return };
        if progress.named.binary_search(&namespace.nsid).is_ok() {
            progress.named_left -= 1;
            if progress.named_left == 0 && !self.scan.unheard {
                let named = core::mem::take(&mut progress.named);
                self.take_early(env, named);
                return env.notice(self, Notice::Scanned);
            }
        }
        self.tell_later(env);
    }

    pub(super) fn tell_later(&mut self, env: &Env) {
        let Some(progress) = &self.scan.running else { return };
        let pace = TELL_PACE * (1 << progress.told.min(SLOWER_MOST));
        let at = env.now.after(pace).ns().next_multiple_of(TELL_PACE.as_nanos() as u64);
        self.scan.tell_at.get_or_insert(Time::from_ns(at));
    }

    /// What was seen so far counts before the scan ends. Known namespaces that are what they were,
    /// and new ones, are used, unless something has changed that was not read: it may be any of
    /// them. Nothing is sent any more to those that are something else or are gone; what they are
    /// counts at the end.
    pub(super) fn tell_seen(&mut self, env: &mut Env) {
        self.scan.tell_at = None;
        let Some(progress) = &mut self.scan.running else { return };
        let (known, mut changed) = (&self.scan.namespaces, core::mem::take(&mut progress.gone));
        let mut same = Vec::new();
        // Those that may be gone keep their places until that is certain.
        let mut room = MAX_NAMESPACES.saturating_sub(known.len());
        for found in &progress.found {
            match known.binary_search_by_key(&found.nsid, |known| known.nsid) {
                Ok(at) if known[at].is_still(found) => same.push(found.nsid),
                Ok(_) => changed.push(found.nsid),
                Err(_) if room > 0 => {
                    room -= 1;
                    same.push(found.nsid);
                }
                Err(_) => {}
            }
        }
        if !changed.is_empty() {
            self.scan.seen.retain(|nsid| !changed.contains(nsid));
            let before = self.scan.before();
            self.scan.doubts.add(&Named::Some(changed), before);
            env.notice(self, Notice::Named);
        }
        if !self.scan.unheard && !same.is_empty() {
            same.sort_unstable();
            self.scan.seen.extend(&same);
            self.take_early(env, same);
            env.notice(self, Notice::Seen);
        }
    }

    /// What the scan that goes on has found of these, ordered by NSID, is known before its end.
    fn take_early(&mut self, env: &Env, nsids: Vec<u32>) {
        let Some(progress) = &mut self.scan.running else { return };
        let mut changed = false;
        for found in progress.found.iter().filter(|it| nsids.binary_search(&it.nsid).is_ok()) {
            let known = &mut self.scan.namespaces;
            match known.binary_search_by_key(&found.nsid, |known| known.nsid) {
                Ok(at) => {
                    changed |= lasting(found) != lasting(&known[at]);
                    known[at] = *found;
                }
                Err(at) => {
                    changed |= self.scan.verified.is_some();
                    known.insert(at, *found);
                    self.scan.unsettled.insert(found.nsid);
                }
            }
        }
        progress.told += 1;
        let tick = |nsid| progress.late.get(&nsid).copied().unwrap_or(self.scan.number);
        let ticks: Vec<_> = nsids.into_iter().map(|nsid| (nsid, tick(nsid))).collect();
        if changed {
            self.scan.has_changed(1, env.now);
        }
        self.scan.early.extend(ticks);
    }
}
