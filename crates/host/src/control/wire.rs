//! The admin commands that control sends, and what it reads out of their answers.

use super::controller::Controller;
use super::env::Env;
use super::link::{ADMIN_DEPTH, Answer, Payload};
use super::namespace::{Ids, Namespace};
use super::scan::Named;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use anabranch_proto::nvme::aer::{self, AsyncEvent, EventKind, error, notice};
use anabranch_proto::nvme::fabrics::{
    self, CNTLID_DYNAMIC, ConnectCommand, ConnectData, PropertyGet, PropertySet,
};
use anabranch_proto::nvme::feature::{AsyncEventConfig, HostBehavior, NumberOfQueues};
use anabranch_proto::nvme::identify::{
    self, ActiveNamespaceList, Identify, NamespaceIdDescriptors,
};
use anabranch_proto::nvme::log::{
    Ana, AnaLimits, DiscoveryEntry, DiscoveryHeader, GetLogPage, lid,
};
use anabranch_proto::nvme::property::{CAP, CC, CSTS, Cc, Csts, VS};
use anabranch_proto::nvme::sqe::Sqe;
use anabranch_proto::nvme::status::Status;

/// Entries of the admin queue: one always stays free.
const ADMIN_ENTRIES: u16 = ADMIN_DEPTH + 2;

/// The largest log that is read in one command: the driver's largest buffer is at least as long.
pub(super) const MAX_LOG_BYTES: u32 = 1 << 20;

const IDENTIFY_BYTES: u32 = identify::BYTES as u32;
const ALL_NAMESPACES: u32 = u32::MAX;

type Command = (Sqe, Payload<'static>);

/// Connect for an I/O queue (from 1) of a controller, or with `None` for a new controller.
///
/// With a keep-alive time-out a discovery controller would be asked for a connection that stays
/// (Base, "Discovery Controller", explicit persistent connection), which many do not have and
/// refuse. We read its log and leave.
pub(super) fn connect(
    env: &Env,
    controller: &Controller,
    io_queue: Option<(u16, u16)>,
) -> (ConnectCommand, Box<[u8; ConnectData::BYTES]>) {
    let (qid, entries) = io_queue.unwrap_or((0, ADMIN_ENTRIES));
    let options = &controller.request.options;
    let kato = u32::try_from(options.keep_alive_tmo.as_millis()).unwrap_or(u32::MAX);
    let keeps_alive = qid == 0 && !controller.is_discovery();
    let command = ConnectCommand {
        qid,
        sqsize: entries - 1,
        disable_sq_flow: options.disable_sqflow,
        kato_ms: if keeps_alive { kato } else { 0 },
    };
    let data = ConnectData {
        hostid: env.config.host_id,
        cntlid: if qid == 0 { CNTLID_DYNAMIC } else { controller.facts.cntlid },
        subnqn: controller.request.subsystem_nqn.clone(),
        hostnqn: env.config.host_nqn.clone(),
    };
    (command, Box::new(data.to_bytes()))
}

/// What a refused Connect complains about, in words; empty when it does not say.
pub(super) fn connect_hint(answer: &Answer) -> &'static str {
    if answer.status.is(Status::CONNECT_INVALID_HOST) {
        // The last one is what SPDK means where a listener has another address.
        return ": this host is not allowed there, another one has its host identifier, or the \
                subsystem is not to be had at this address";
    }
    // So the Linux target answers when `param_inline_data_size` is too small for anybody.
    if answer.status.is(Status::SGL_OFFSET_INVALID) {
        return ": the 1024 bytes of Connect's data travel in the capsule, and this port takes less \
                there";
    }
    match fabrics::invalid_parameter(answer.status, answer.result) {
        Some((fabrics::offset::SUBNQN, true)) => ": no such subsystem at this address",
        Some((fabrics::offset::HOSTNQN, true)) => ": the host NQN is not accepted",
        Some((fabrics::offset::HOSTID, true)) => ": the host identifier is not accepted",
        Some((fabrics::offset::CNTLID, true)) => ": the controller identifier is not accepted",
        Some((fabrics::offset::SQSIZE, false)) => ": the queue size is not accepted",
        Some((fabrics::offset::KATO, false)) => ": the keep-alive time-out is not accepted",
        _ => "",
    }
}

fn get(offset: u32, wide: bool) -> Command {
    (PropertyGet { offset, wide }.sqe(), Payload::None)
}

pub(super) fn get_cap() -> Command {
    get(CAP, true)
}

pub(super) fn get_vs() -> Command {
    get(VS, false)
}

pub(super) fn get_csts() -> Command {
    get(CSTS, false)
}

fn set_cc(cc: Cc) -> Command {
    (PropertySet { offset: CC, wide: false, value: cc.0.into() }.sqe(), Payload::None)
}

/// Enables the controller.
pub(super) fn enable(configuration: Cc) -> Command {
    set_cc(configuration)
}

/// Normal shutdown of a controller that was enabled so.
pub(super) fn shut_down(configuration: Cc) -> Command {
    set_cc(configuration.with_shutdown())
}

pub(super) fn csts(result: u64) -> Csts {
    Csts((result & u64::from(u32::MAX)) as u32)
}

fn identify(what: Identify) -> Command {
    (what.sqe(), Payload::In(IDENTIFY_BYTES))
}

pub(super) fn identify_controller() -> Command {
    identify(Identify::CONTROLLER)
}

/// Limits of the NVM command set.
pub(super) fn identify_nvm_controller() -> Command {
    identify(Identify::CONTROLLER_IO)
}

pub(super) fn active_namespaces(after: u32) -> Command {
    identify(Identify::active_namespaces(after))
}

pub(super) fn namespace_descriptors(nsid: u32) -> Command {
    identify(Identify::descriptors(nsid))
}

pub(super) fn identify_namespace(nsid: u32) -> Command {
    identify(Identify::namespace(nsid))
}

pub(super) fn set_queue_count(count: u16) -> Command {
    (NumberOfQueues::pairs(count).sqe(), Payload::None)
}

/// How many queue pairs the answer allows, at least one.
///
/// # Errors
/// What the answer holds, when that cannot be: both counts are less by one on the wire, where FFFFh
/// is none (Base, "Number of Queues").
pub(super) fn queues_granted(result: u64) -> Result<u16, String> {
    let value = (result & u64::from(u32::MAX)) as u32;
    let granted = NumberOfQueues::from_dword(value).ok_or_else(|| {
        let (submission, completion) = ((value & 0xffff) + 1, (value >> 16) + 1);
        format!(
            "Number of Queues, DW0 is {value:08x}h: {submission} submission and {completion} \
             completion queues, where at most {} of each can be",
            u16::MAX
        )
    })?;
    Ok(granted.usable().max(1))
}

pub(super) fn set_event_config(mask: u32) -> Command {
    (AsyncEventConfig(mask).sqe(), Payload::None)
}

/// Says that we wait as long as CRD says before we try again.
pub(super) fn set_host_behavior() -> Command {
    static DATA: [u8; HostBehavior::BYTES] = HostBehavior { retry_delays: true }.to_bytes();
    (HostBehavior::sqe(), Payload::Out(&DATA))
}

pub(super) fn keep_alive() -> Command {
    (aer::keep_alive(), Payload::None)
}

fn log(page: u8, nsid: u32, offset: u64, bytes: u32) -> Command {
    let log = GetLogPage { nsid, ..GetLogPage::new(page, offset, bytes) };
    (log.sqe(), Payload::In(bytes))
}

/// `bytes` of the ANA log from `offset`; whether the event stays, if there is one (RAE).
pub(super) fn ana_log_part(offset: u64, bytes: u32, retain_event: bool) -> Command {
    let (nsid, log) = (ALL_NAMESPACES, GetLogPage::new(lid::ANA, offset, bytes));
    (GetLogPage { nsid, retain_event, ..log }.sqe(), Payload::In(bytes))
}

/// The list of changed namespaces; reading it clears the event.
pub(super) fn changed_namespaces() -> Command {
    log(lid::CHANGED_NAMESPACES, ALL_NAMESPACES, 0, IDENTIFY_BYTES)
}

/// The list of changed namespaces: NSIDs up to the first zero; FFFFFFFFh first stands for more than
/// it has room for (Base, "Changed Attached Namespace List").
pub(super) fn parse_changed(bytes: &[u8]) -> Named {
    let entries = bytes.chunks_exact(4).map(|entry| {
        let entry = entry.try_into().unwrap_or_default();
        u32::from_le_bytes(entry)
    });
    let nsids: Vec<u32> = entries.take_while(|&nsid| nsid != 0).collect();
    if nsids.first() == Some(&ALL_NAMESPACES) { Named::All } else { Named::Some(nsids) }
}

/// Reads the page that an event names, so that the next event of its kind can come.
pub(super) fn clear_event(page: u8) -> Command {
    let bytes = if page == lid::DISCOVERY { DiscoveryHeader::BYTES as u32 } else { 512 };
    let nsid = if page == lid::DISCOVERY { 0 } else { ALL_NAMESPACES };
    log(page, nsid, 0, bytes)
}

pub(super) fn discovery_header() -> Command {
    log(lid::DISCOVERY, 0, 0, DiscoveryHeader::BYTES as u32)
}

/// `count` entries (small: ours) from entry `first`.
pub(super) fn discovery_entries(first: u64, count: u32) -> Command {
    let entry = DiscoveryEntry::BYTES as u32;
    let offset = DiscoveryHeader::BYTES as u64 + first * u64::from(entry);
    log(lid::DISCOVERY, 0, offset, count * entry)
}

pub(super) fn parse_discovery_header(bytes: &[u8], max: u64) -> Result<DiscoveryHeader, String> {
    DiscoveryHeader::parse(bytes, max).map_err(text)
}

/// The entries, or why one cannot be understood.
pub(super) fn parse_discovery_entries(
    bytes: &[u8],
) -> impl Iterator<Item = Result<DiscoveryEntry, String>> {
    let entries = bytes.chunks_exact(DiscoveryEntry::BYTES);
    entries.map(|entry| DiscoveryEntry::parse(entry).map_err(text))
}

pub(super) fn parse_ana(bytes: &[u8], limits: AnaLimits) -> Result<Ana, String> {
    Ana::parse(bytes, limits).map_err(text)
}

/// One page of the active namespaces, and where the next one starts.
pub(super) fn parse_active(bytes: &[u8], after: u32) -> Result<(Vec<u32>, Option<u32>), String> {
    let list = ActiveNamespaceList::parse(bytes, after).map_err(text)?;
    Ok((list.nsids().to_vec(), list.next_after()))
}

/// The identifiers; a namespace of another command set than NVM is refused.
pub(super) fn parse_descriptors(bytes: &[u8]) -> Result<Ids, String> {
    let said = NamespaceIdDescriptors::parse(bytes).map_err(text)?;
    if let Some(csi) = said.csi.filter(|&csi| csi != 0) {
        return Err(alloc::format!("command set {csi} is not supported, only 0 (NVM)"));
    }
    Ok(Ids {
        uuid: said.uuid.unwrap_or_default(),
        nguid: said.nguid.unwrap_or_default(),
        eui64: said.eui64.unwrap_or_default(),
    })
}

/// A namespace; `None` when it is not active. Identifiers that have no descriptor are taken from
/// Identify Namespace, as in Linux.
pub(super) fn parse_namespace(
    nsid: u32,
    mut ids: Ids,
    bytes: &[u8],
) -> Result<Option<Namespace>, String> {
    if identify::Namespace::is_inactive(bytes) {
        return Ok(None);
    }
    let said = identify::Namespace::parse(bytes).map_err(text)?;
    if ids.nguid.is_zero() {
        ids.nguid = said.nguid;
    }
    if ids.eui64.is_zero() {
        ids.eui64 = said.eui64;
    }
    Ok(Some(Namespace {
        nsid,
        ids,
        blocks: said.nsze,
        used_blocks: said.nuse,
        block_bytes: said.block_bytes(),
        shared: said.is_shared(),
        ana_group: said.anagrpid,
        write_protected: said.is_write_protected(),
        zeroes_may_deallocate: said.zeroes_may_deallocate(),
        unread: false,
    }))
}

/// What an asynchronous event means to us.
pub(super) enum Happening {
    NamespacesChanged,
    AnaChanged,
    DiscoveryChanged,
    /// A persistent internal error.
    Fatal,
    /// Nothing.
    Other(AsyncEvent),
}

pub(super) fn happening(result: u64) -> Happening {
    let event = AsyncEvent::from_result(result);
    match (event.kind, event.info) {
        (EventKind::Notice, notice::NAMESPACE_ATTRIBUTE) => Happening::NamespacesChanged,
        (EventKind::Notice, notice::ANA_CHANGE) => Happening::AnaChanged,
        (EventKind::Notice, notice::DISCOVERY_CHANGE) => Happening::DiscoveryChanged,
        (EventKind::Error, error::PERSISTENT_INTERNAL) => Happening::Fatal,
        _ => Happening::Other(event),
    }
}

fn text(error: anabranch_proto::error::ProtocolError) -> String {
    error.to_string()
}
