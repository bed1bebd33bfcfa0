//! Get Log Page.

use super::super::Target;
use super::super::command::Step;
use crate::ana_group::AnaGroups;
use crate::config::{MAX_ANA_GROUP, MAX_NSID};
use crate::controller::{Controller, Of};
use crate::subsystem::Subsystem;
use alloc::vec;
use alloc::vec::Vec;
use anabranch_proto::machine::Buffers;
use anabranch_proto::nvme::log::{
    Ana, AnaGroup, ChangedNamespaces, DiscoveryEntry, DiscoveryHeader, ErrorEntry, GetLogPage,
    Smart, SubsystemKind, lid,
};
use anabranch_proto::nvme::opcode::{admin, io};
use anabranch_proto::nvme::{Nqn, Sqe, Status};
use core::net::SocketAddr;

/// ANA log, return groups only.
const RGO: u8 = 1;
/// The ANA log at its longest, which is what hosts compute from NANAGRPID and MNAN: header, every
/// group, every namespace.
const ANA_BYTES_MAX: usize = 16 + 32 * MAX_ANA_GROUP as usize + 4 * MAX_NSID as usize;
/// Dword 14: the offset counts entries, not bytes (OT). No page here has that.
const INDEX_OFFSET: u32 = 1 << 23;
/// NSID for "the whole controller".
const ALL: u32 = u32::MAX;
const EFFECTS_BYTES: usize = 4096;
const FIRMWARE_BYTES: usize = 512;
const SUPPORTED_BYTES: usize = 1024;
/// Supported; supported and changes the content of blocks.
const SUPPORTED: u8 = 1;
const CHANGES_BLOCKS: u8 = 1 << 1;
/// SMART counts data in units of 1000 times 512 bytes, rounded up.
const DATA_UNIT: u64 = 512_000;
/// 300 kelvin: there is no sensor, and hosts plot it.
const TEMPERATURE_K: u16 = 300;
const FULL_SPARE: u8 = 100;

/// A log page, or the part of it that was asked for.
struct Page {
    bytes: Vec<u8>,
    /// Where the part begins.
    from: u64,
}

impl From<Vec<u8>> for Page {
    fn from(bytes: Vec<u8>) -> Page {
        Page { bytes, from: 0 }
    }
}

impl Target {
    pub(super) fn get_log_page(&mut self, at: usize, sqe: &Sqe, bufs: &mut dyn Buffers) -> Step {
        let asked = match GetLogPage::parse(sqe) {
            Ok(asked) => asked,
            Err(status) => return Step::refuse(status),
        };
        if sqe.cdw(14) & INDEX_OFFSET != 0 {
            return Step::refuse(Status::INVALID_FIELD.with_dnr());
        }
        let len = u32::try_from(asked.bytes).unwrap_or(u32::MAX);
        if len > self.limits.max_transfer_bytes {
            return Step::refuse(Status::INVALID_FIELD);
        }
        if sqe.sgl().length() < len {
            return Step::refuse(Status::DATA_SGL_LENGTH_INVALID);
        }
        self.answer_with(at, len, bufs, |target, out| target.fill_log(at, asked, out))
    }

    fn fill_log(&mut self, at: usize, asked: GetLogPage, out: &mut [u8]) -> Result<(), Status> {
        let page = self.log_page(at, asked)?;
        self.turns.answer(page.bytes.len());
        let offset = asked.offset.checked_sub(page.from).and_then(|at| usize::try_from(at).ok());
        let rest = offset.and_then(|at| page.bytes.get(at..)).ok_or(Status::INVALID_FIELD)?;
        let len = rest.len().min(out.len());
        out[..len].copy_from_slice(&rest[..len]);
        if let Some(controller) = self.controllers[at].as_mut()
            && !asked.retain_event
        {
            controller.events.log_read(asked.lid);
            if asked.lid == lid::CHANGED_NAMESPACES {
                controller.clear_changed();
            }
        }
        Ok(())
    }

    fn log_page(&self, at: usize, asked: GetLogPage) -> Result<Page, Status> {
        let controller = self.controller(at)?;
        let Of::Subsystem(subsystem) = controller.of else {
            return match asked.lid {
                lid::DISCOVERY => Ok(self.discovery_log(controller, asked)),
                lid::ERROR => Ok(ErrorEntry::default().to_bytes().to_vec().into()),
                lid::SUPPORTED => {
                    Ok(supported(&[lid::SUPPORTED, lid::ERROR, lid::DISCOVERY]).into())
                }
                _ => Err(Status::INVALID_LOG_PAGE),
            };
        };
        let subsystem = &self.subsystems[subsystem];
        let page = match asked.lid {
            lid::SUPPORTED => Ok(supported(&[
                lid::SUPPORTED,
                lid::ERROR,
                lid::SMART,
                lid::FIRMWARE_SLOT,
                lid::CHANGED_NAMESPACES,
                lid::EFFECTS,
                lid::ANA,
            ])),
            lid::ERROR => Ok(ErrorEntry::default().to_bytes().to_vec()),
            lid::SMART if asked.nsid == ALL || asked.nsid == 0 => Ok(smart(subsystem)),
            lid::SMART => Err(Status::INVALID_FIELD),
            lid::FIRMWARE_SLOT => Ok(firmware()),
            lid::CHANGED_NAMESPACES => {
                let mut page = vec![0; ChangedNamespaces::BYTES];
                changed(controller).emit(&mut page);
                Ok(page)
            }
            lid::EFFECTS => Ok(effects()),
            lid::ANA => {
                let members = subsystem.namespaces.iter().map(|n| (n.nsid, n.ana_group));
                let log = ana_log(&self.ports[controller.port].ana, members);
                let mut page = log.to_bytes(asked.lsp & RGO != 0);
                // Hosts that read in parts (nvme-cli) go on to the end of the longest log.
                page.resize(page.len().max(ANA_BYTES_MAX), 0);
                Ok(page)
            }
            _ => Err(Status::INVALID_LOG_PAGE),
        };
        page.map(Page::from)
    }

    /// Every visible port, for every subsystem that the host may use, and the discovery service
    /// itself there. The log may be long, and hosts read it a few entries at a time: no more is put
    /// together than they ask for.
    fn discovery_log(&self, controller: &Controller, asked: GetLogPage) -> Page {
        const RECORD: u64 = DiscoveryEntry::BYTES as u64;
        let ports = (1..).zip(&self.ports).filter(|(_, port)| port.visible);
        let ports = ports.filter_map(|(number, port)| Some((number, port.reachable_at()?)));
        let ports: Vec<(u16, SocketAddr)> = ports.collect();
        let allowed = self.subsystems.iter().filter(|s| s.allows(&controller.host));
        let nqns: Vec<&Nqn> = allowed.map(|subsystem| &subsystem.nqn).collect();
        let of_port = 1 + nqns.len();
        let entry = |at: usize| {
            let (number, address) = ports[at / of_port];
            let entry = |kind, nqn| DiscoveryEntry::tcp(kind, address, number, nqn);
            match (at % of_port).checked_sub(1) {
                Some(at) => entry(SubsystemKind::Nvm, nqns[at].clone()),
                None => DiscoveryEntry {
                    // This log, whichever port it is read at; with keep-alive and events.
                    eflags: DiscoveryEntry::EFLAGS_DUPLICATE | DiscoveryEntry::EFLAGS_PERSISTENT,
                    ..entry(SubsystemKind::CurrentDiscovery, Nqn::discovery())
                },
            }
        };
        // The header has the size of an entry.
        let entries = (ports.len() * of_port) as u64;
        let first = (asked.offset / RECORD).min(entries + 1);
        let end = (asked.offset + asked.bytes).div_ceil(RECORD).min(entries + 1);
        let mut bytes = Vec::new();
        if first == 0 {
            let generation = self.discovery_generation;
            bytes.extend_from_slice(&DiscoveryHeader { generation, entries }.to_bytes());
        }
        for at in first.max(1)..end {
            bytes.extend_from_slice(&entry(at as usize - 1).to_bytes());
        }
        Page { bytes, from: first * RECORD }
    }
}

fn changed(controller: &Controller) -> ChangedNamespaces {
    if controller.changed_overflow {
        ChangedNamespaces::TooMany
    } else {
        ChangedNamespaces::new(controller.changed())
    }
}

/// The log of groups with their members, each of which is asked for once, by NSID.
fn ana_log(groups: &AnaGroups, members: impl Iterator<Item = (u32, u32)>) -> Ana {
    let mut nsids = vec![Vec::new(); MAX_ANA_GROUP as usize];
    for (nsid, group) in members {
        nsids[group as usize - 1].push(nsid);
    }
    let listed = (1..=MAX_ANA_GROUP).zip(nsids).filter_map(|(id, nsids)| {
        let shown = groups.is_named(id) || !nsids.is_empty();
        let (state, change_count) = (groups.state(id), groups.change_count(id));
        shown.then_some(AnaGroup { id, state, change_count, nsids })
    });
    Ana { change_count: groups.changes, groups: listed.collect() }
}

fn smart(subsystem: &Subsystem) -> Vec<u8> {
    let sum = |of: fn(&crate::NamespaceCounters) -> u64| {
        subsystem.namespaces.iter().map(|namespace| of(&namespace.counters)).sum::<u64>()
    };
    Smart {
        temperature_k: TEMPERATURE_K,
        available_spare: FULL_SPARE,
        data_units_read: sum(|c| c.read_bytes).div_ceil(DATA_UNIT).into(),
        data_units_written: sum(|c| c.written_bytes).div_ceil(DATA_UNIT).into(),
        host_reads: sum(|c| c.reads).into(),
        host_writes: sum(|c| c.writes).into(),
        ..Smart::default()
    }
    .to_bytes()
    .to_vec()
}

fn firmware() -> Vec<u8> {
    let mut page = vec![0; FIRMWARE_BYTES];
    page[0] = 1;
    page[8..16].fill(b' ');
    for (place, letter) in page[8..16].iter_mut().zip(super::identify::FIRMWARE.bytes()) {
        *place = letter;
    }
    page
}

fn effects() -> Vec<u8> {
    let mut page = vec![0; EFFECTS_BYTES];
    for opcode in [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
        admin::KEEP_ALIVE,
    ] {
        page[usize::from(opcode) * 4] = SUPPORTED;
    }
    for opcode in [io::FLUSH, io::READ, io::COMPARE] {
        page[1024 + usize::from(opcode) * 4] = SUPPORTED;
    }
    for opcode in [io::WRITE, io::WRITE_ZEROES, io::DATASET_MANAGEMENT] {
        page[1024 + usize::from(opcode) * 4] = SUPPORTED | CHANGES_BLOCKS;
    }
    page
}

fn supported(pages: &[u8]) -> Vec<u8> {
    let mut page = vec![0; SUPPORTED_BYTES];
    for id in pages {
        page[usize::from(*id) * 4] = SUPPORTED;
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use anabranch_proto::nvme::AnaState;
    use core::cell::Cell;

    /// However many groups there are, each namespace is looked at once.
    #[test]
    fn the_ana_log_looks_at_each_namespace_once() {
        let groups = AnaGroups::new(&BTreeMap::from([(7, AnaState::Inaccessible)]));
        let seen = Cell::new(0);
        let members = (1..=MAX_NSID).map(|nsid| {
            seen.set(seen.get() + 1);
            (nsid, if nsid % 2 == 0 { 2 } else { MAX_ANA_GROUP })
        });
        let log = ana_log(&groups, members);
        assert_eq!(seen.get(), MAX_NSID);
        let found = |id| log.groups.iter().find(|group| group.id == id).map(|group| &group.nsids);
        let every_second = |first| (first..=MAX_NSID).step_by(2).collect::<Vec<u32>>();
        assert_eq!(log.groups.len(), 3);
        assert_eq!(found(2), Some(&every_second(2)));
        assert_eq!(found(MAX_ANA_GROUP), Some(&every_second(1)));
        assert_eq!(found(7), Some(&vec![]), "it was named");
    }
}
