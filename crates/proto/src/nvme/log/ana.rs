//! The ANA log (Base 5.16.1.13).

use super::super::check::{self, broken};
use super::super::{AnaState, le};
use crate::error::ProtocolError;
use alloc::vec::Vec;

const WHAT: &str = "ANA log";
const HEADER: usize = 16;
const DESCRIPTOR: usize = 32;

/// One ANA group as one controller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnaGroup {
    /// Group identifier, never 0.
    pub id: u32,
    /// State; codes that we do not know read as inaccessible.
    pub state: AnaState,
    /// Changes of this group so far; 0 is "not reported".
    pub change_count: u64,
    /// Its namespaces, ascending; empty when only groups were asked for.
    pub nsids: Vec<u32>,
}

/// What the log may hold at most; from Identify Controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnaLimits {
    /// Highest group identifier (ANAGRPMAX).
    pub group_id: u32,
    /// Number of groups (NANAGRPID).
    pub groups: u32,
}

/// The ANA log, whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ana {
    /// Changes of the log so far.
    pub change_count: u64,
    /// The groups.
    pub groups: Vec<AnaGroup>,
}

impl Ana {
    /// The bytes that a log has at least, by the counts in its first ones. The log is whole when
    /// these are as many.
    #[must_use]
    pub fn bytes_at_least(bytes: &[u8]) -> u64 {
        let mut end = HEADER as u64;
        if bytes.len() < HEADER {
            return end;
        }
        for _ in 0..le::u16(bytes, 8) {
            let start = usize::try_from(end).unwrap_or(usize::MAX);
            let group = bytes.get(start..).filter(|rest| rest.len() >= DESCRIPTOR);
            end += DESCRIPTOR as u64;
            let Some(group) = group else { return end };
            end += 4 * u64::from(le::u32(group, 4));
        }
        end
    }

    /// Size on the wire in bytes; without namespaces when `groups_only`.
    #[must_use]
    pub fn bytes(&self, groups_only: bool) -> usize {
        let nsids: usize = self.groups.iter().map(|group| group.nsids.len()).sum();
        HEADER + DESCRIPTOR * self.groups.len() + if groups_only { 0 } else { 4 * nsids }
    }

    /// The log on the wire; without namespaces when `groups_only` (LSP bit 0, RGO).
    #[must_use]
    pub fn to_bytes(&self, groups_only: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes(groups_only));
        out.extend_from_slice(&self.change_count.to_le_bytes());
        let count = u16::try_from(self.groups.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
        for group in self.groups.iter().take(count.into()) {
            let nsids: &[u32] = if groups_only { &[] } else { &group.nsids };
            let listed = u32::try_from(nsids.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&group.id.to_le_bytes());
            out.extend_from_slice(&listed.to_le_bytes());
            out.extend_from_slice(&group.change_count.to_le_bytes());
            out.push(group.state.code());
            out.extend_from_slice(&[0; 15]);
            for nsid in nsids.iter().take(listed as usize) {
                out.extend_from_slice(&nsid.to_le_bytes());
            }
        }
        out
    }

    /// Reads a whole log. The caller keeps its last good one when this fails.
    ///
    /// # Errors
    /// The groups or their namespaces go beyond the bytes; more groups than `limits`; a group
    /// identifier of 0, above the limit or named twice; a namespace of 0, out of order or in two
    /// groups.
    pub fn parse(bytes: &[u8], limits: AnaLimits) -> Result<Ana, ProtocolError> {
        check::length(bytes, WHAT, HEADER)?;
        let count = le::u16(bytes, 8);
        if u32::from(count) > limits.groups {
            let limit = ("NANAGRPID", limits.groups.into());
            return Err(check::above_its(WHAT, "NGRPS", count.into(), limit));
        }
        let mut rest = &bytes[HEADER..];
        let mut groups = Vec::with_capacity(usize::from(count).min(rest.len() / DESCRIPTOR));
        for _ in 0..count {
            let group;
            (group, rest) = Self::parse_group(rest, limits)?;
            groups.push(group);
        }
        let it = Ana { change_count: le::u64(bytes, 0), groups };
        it.check_overlap()?;
        Ok(it)
    }

    fn parse_group(bytes: &[u8], limits: AnaLimits) -> Result<(AnaGroup, &[u8]), ProtocolError> {
        check::length(bytes, "ANA group descriptor", DESCRIPTOR)?;
        let (id, count) = (le::u32(bytes, 0), le::u32(bytes, 4));
        if id == 0 {
            return Err(broken(WHAT, "ANA Group ID", 0, "identifiers start at 1"));
        }
        if id > limits.group_id {
            let limit = ("ANAGRPMAX", limits.group_id.into());
            return Err(check::above_its(WHAT, "ANA Group ID", id.into(), limit));
        }
        let (head, tail) = bytes.split_at(DESCRIPTOR);
        let listed = usize::try_from(count).ok().and_then(|count| count.checked_mul(4));
        let Some(listed) = listed.filter(|&listed| listed <= tail.len()) else {
            return Err(broken(WHAT, "Number of NSIDs", count.into(), "goes beyond the log"));
        };
        let (list, rest) = tail.split_at(listed);
        let nsids: Vec<u32> = list.chunks_exact(4).map(|nsid| le::u32(nsid, 0)).collect();
        let mut last = 0;
        for &nsid in &nsids {
            if nsid <= last {
                return Err(broken(WHAT, "NSID", nsid.into(), "must ascend from 1"));
            }
            last = nsid;
        }
        let state = AnaState::from_code_or_inaccessible(head[16] & 0xf);
        Ok((AnaGroup { id, state, change_count: le::u64(head, 8), nsids }, rest))
    }

    fn check_overlap(&self) -> Result<(), ProtocolError> {
        let mut ids: Vec<u32> = self.groups.iter().map(|group| group.id).collect();
        if let Some(twice) = first_twice(&mut ids) {
            return Err(broken(WHAT, "ANA Group ID", twice.into(), "is there twice"));
        }
        let mut nsids: Vec<u32> =
            self.groups.iter().flat_map(|group| group.nsids.iter().copied()).collect();
        match first_twice(&mut nsids) {
            Some(twice) => Err(broken(WHAT, "NSID", twice.into(), "is in two groups")),
            None => Ok(()),
        }
    }
}

/// A value that occurs more than once.
fn first_twice(values: &mut [u32]) -> Option<u32> {
    values.sort_unstable();
    values.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}
