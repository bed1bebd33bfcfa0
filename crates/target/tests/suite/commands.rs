//! Commands that ask for the wrong thing: bad-input catalogue C25, C27 to C33, C38 to C42.

use crate::common::*;
use anabranch_proto::nvme::fabrics::ConnectCommand;
use anabranch_proto::nvme::feature::{self, HostIdentifier, NumberOfQueues, fid};
use anabranch_proto::nvme::identify::{self, Identify};
use anabranch_proto::nvme::io::{self, DsmRange};
use anabranch_proto::nvme::log::{GetLogPage, lid};
use anabranch_proto::nvme::property::Cc;
use anabranch_proto::nvme::{Sgl, Sqe, Status, aer};
use anabranch_target::TargetVerb;

const BLOCKS: u64 = 16 * MIB / 4096;

#[track_caller]
fn fails(done: &Done, status: Status) {
    assert!(done.status.is(status), "{} instead of {status}", done.status);
    assert!(done.status.dnr(), "{}", done.status);
}

#[test]
fn c27_unknown_opcodes_and_fused_commands() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    for opcode in [0x03, 0x0d, 0x11, 0x80, 0xfe] {
        fails(&rig.run(queue, Sqe::new(opcode).with_nsid(1), 0), Status::INVALID_OPCODE);
        fails(&rig.run(admin, Sqe::new(opcode), 0), Status::INVALID_OPCODE);
    }
    for fuse in 1..=3 {
        let done = rig.run(queue, read(0, 1).with_fuse(fuse), 4096);
        fails(&done, Status::INVALID_FIELD);
    }
    rig.assert_no_leak();
}

#[test]
fn c28_descriptor_length_against_need() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    fails(&rig.run(queue, read(0, 2), 4096), Status::DATA_SGL_LENGTH_INVALID);
    fails(&rig.run_out(queue, write(0, 2), &[1; 4096]), Status::DATA_SGL_LENGTH_INVALID);
    fails(&rig.run_out(queue, write(0, 16), &vec![1; 32 << 10]), Status::DATA_SGL_LENGTH_INVALID);
    fails(&rig.run(admin, Identify::CONTROLLER.sqe(), 1024), Status::DATA_SGL_LENGTH_INVALID);
    let log = GetLogPage::new(lid::SMART, 0, 512);
    fails(&rig.run(admin, log.sqe(), 256), Status::DATA_SGL_LENGTH_INVALID);
    // More room than needed is no fault, which hosts are told; nothing but the structure is sent.
    let told = rig.run(admin, Identify::CONTROLLER.sqe(), 4096).data;
    let longer = 1 << 18;
    assert_ne!(identify::Controller::parse(&told).unwrap().sgls & longer, 0);
    assert_eq!(rig.run(admin, Identify::CONTROLLER.sqe(), 8192).data.len(), 4096);
    assert_eq!(rig.run(queue, read(0, 1), 8192).data, vec![0; 4096]);
    assert_eq!(rig.run_out(queue, write(0, 1), &[3; 8192]).status, Status::SUCCESS);
    assert_eq!(rig.run(queue, read(0, 2), 8192).data, [[3; 4096], [0; 4096]].concat());
    rig.assert_no_leak();
}

#[test]
fn c29_more_than_mdts() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    fails(&rig.run(queue, read(0, 65_536), 256 << 20), Status::INVALID_FIELD);
    fails(&rig.run(queue, read(0, 257), 257 * 4096), Status::INVALID_FIELD);
    assert_eq!(rig.run(queue, read(0, 256), 1 << 20).data.len(), 1 << 20);
}

#[test]
fn c30_ranges_outside_the_namespace() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    for (lba, blocks) in [(u64::MAX, 1), (u64::MAX - 1, 2), (BLOCKS, 1), (BLOCKS - 1, 2)] {
        let len = blocks * 4096;
        fails(&rig.run(queue, read(lba, blocks), len), Status::LBA_OUT_OF_RANGE);
        let data = vec![1; len as usize];
        fails(&rig.run_out(queue, write(lba, blocks), &data), Status::LBA_OUT_OF_RANGE);
        let zeroes = io::write_zeroes(1, lba, blocks, true, false);
        fails(&rig.run(queue, zeroes, 0), Status::LBA_OUT_OF_RANGE);
        fails(&rig.run_out(queue, io::compare(1, lba, blocks), &data), Status::LBA_OUT_OF_RANGE);
    }
    assert_eq!(rig.run(queue, read(BLOCKS - 1, 1), 4096).status, Status::SUCCESS);
    assert_eq!(rig.status().subsystems[0].namespaces[0].resident_bytes, 0);
}

#[test]
fn c31_namespaces_that_are_not_there() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    for nsid in [0, 2, 1025, u32::MAX] {
        fails(&rig.run(queue, read(0, 1).with_nsid(nsid), 4096), Status::INVALID_NAMESPACE);
        fails(&rig.run(queue, io::flush(nsid), 0), Status::INVALID_NAMESPACE);
        let descriptors = Identify::descriptors(nsid).sqe();
        fails(&rig.run(admin, descriptors, 4096), Status::INVALID_NAMESPACE);
    }
    for nsid in [0, 1025, u32::MAX] {
        let done = rig.run(admin, Identify::namespace(nsid).sqe(), 4096);
        fails(&done, Status::INVALID_NAMESPACE);
    }
    // Valid but not active: zeroes.
    assert_eq!(rig.run(admin, Identify::namespace(2).sqe(), 4096).data, vec![0; 4096]);
}

fn ranges(list: &[(u64, u32)]) -> Vec<u8> {
    let entry = |&(lba, blocks)| DsmRange { attributes: 0, blocks, lba }.to_bytes();
    list.iter().flat_map(entry).collect()
}

#[test]
fn c32_deallocate_all_or_nothing() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    let chunk = vec![5; 64 << 10];
    assert_eq!(rig.run_out(queue, write(0, 16), &chunk).status, Status::SUCCESS);
    let done = rig.run_out(queue, io::deallocate(1, 2), &ranges(&[(0, 16), (BLOCKS, 1)]));
    fails(&done, Status::LBA_OUT_OF_RANGE);
    assert_eq!(rig.run(queue, read(0, 16), 64 << 10).data, chunk, "no partial effect");
    // Advice that nothing be deallocated: how the blocks will be used.
    let advice = io::deallocate(1, 1).with_cdw(11, 0b11);
    assert_eq!(rig.run_out(queue, advice, &ranges(&[(0, 16)])).status, Status::SUCCESS);
    assert_eq!(rig.run(queue, read(0, 16), 64 << 10).data, chunk, "nothing has changed");
    let done = rig.run_out(queue, io::deallocate(1, 2), &ranges(&[(0, 16)]));
    fails(&done, Status::DATA_SGL_LENGTH_INVALID);
    let mut list = vec![(1, 0); 255];
    list.push((0, 16));
    let done = rig.run_out(queue, io::deallocate(1, 256), &ranges(&list));
    assert_eq!(done.status, Status::SUCCESS, "256 ranges, empty ones among them");
    assert_eq!(rig.run(queue, read(0, 16), 64 << 10).data, vec![0; 64 << 10]);
    assert_eq!(rig.status().subsystems[0].namespaces[0].resident_bytes, 0);
}

#[test]
fn c33_protection_information() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    for bit in 26..30 {
        let sqe = read(0, 1);
        let sqe = sqe.with_cdw(12, sqe.cdw(12) | 1 << bit);
        fails(&rig.run(queue, sqe, 4096), Status::INVALID_FIELD);
    }
}

#[test]
fn c38_properties() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.admin_of(0, SUBSYSTEM, 0);
    let get = |offset, wide| anabranch_proto::nvme::fabrics::PropertyGet { offset, wide }.sqe();
    let set = |offset, value| {
        anabranch_proto::nvme::fabrics::PropertySet { offset, wide: false, value }.sqe()
    };
    for sqe in [get(0, false), get(8, true), get(0x14, true), get(0x1000, false), get(3, false)] {
        fails(&rig.run(admin, sqe, 0), Status::INVALID_FIELD);
    }
    for sqe in [set(0, 1), set(8, 1), set(0x1c, 1), set(0x28, 1), get(0, true).with_cdw(10, 2)] {
        fails(&rig.run(admin, sqe, 0), Status::INVALID_FIELD);
    }
    assert_eq!(rig.run(admin, get(0, true), 0).result & 0xffff, 1023, "MQES");
    // Nonsense in CC: fatal, and a reset heals it.
    let good = Cc::ENABLE.0;
    for nonsense in
        [good | 1 << 4, good | 1 << 7, good | 1 << 11, 1 | 5 << 16 | 4 << 20, 1 | 6 << 16 | 5 << 20]
    {
        rig.set_cc(admin, Cc(nonsense));
        assert_eq!(rig.csts(admin) & 3, 2, "CFS, not ready: {nonsense:#x}");
        rig.set_cc(admin, Cc(0));
        assert_eq!(rig.csts(admin), 0);
    }
    for _ in 0..1000 {
        rig.set_cc(admin, Cc::ENABLE);
        rig.set_cc(admin, Cc::ENABLE);
        assert_eq!(rig.csts(admin), 1);
        rig.set_cc(admin, Cc(0));
    }
    rig.set_cc(admin, Cc::ENABLE);
    rig.set_cc(admin, Cc::ENABLE.with_shutdown());
    assert_eq!(rig.csts(admin) >> 2 & 3, 2, "shutdown complete");
}

#[test]
fn c38_a_reset_leaves_nothing_of_what_was() {
    let mut rig = Rig::new(config());
    let (admin, cntlid) = rig.admin_of(0, SUBSYSTEM, 0);
    // Hosts write the sizes first, which enables nothing.
    rig.set_cc(admin, Cc(Cc::ENABLE.0 & !1));
    assert_eq!(rig.csts(admin), 0);
    rig.set_cc(admin, Cc::ENABLE);
    assert_eq!(rig.run(admin, NumberOfQueues::pairs(1).sqe(), 0).status, Status::SUCCESS);
    rig.ok(TargetVerb::NamespaceResize { subsystem: nqn(SUBSYSTEM), nsid: 1, bytes: MIB });
    rig.set_cc(admin, Cc::ENABLE.with_shutdown());
    let late = rig.open(0);
    let command = ConnectCommand { qid: 1, sqsize: 31, disable_sq_flow: true, kato_ms: 0 };
    let done = rig.connect_with(late, command, &connect_data(cntlid, SUBSYSTEM).to_bytes());
    fails(&done, Status::CONNECT_INVALID_PARAMETERS);
    rig.set_cc(admin, Cc(0));
    rig.set_cc(admin, Cc::ENABLE);
    assert_eq!(rig.csts(admin), 1, "ready, not shut down");
    let page = GetLogPage::new(lid::CHANGED_NAMESPACES, 0, 4096).sqe();
    assert_eq!(rig.run(admin, page, 4096).data, [0; 4096]);
    let queue = rig.io_queue(0, cntlid, 2);
    assert_eq!(rig.run(queue, read(0, 1), 4096).status, Status::SUCCESS);
}

#[test]
fn c38_shutdown_ends_io() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    rig.set_cc(admin, Cc::ENABLE.with_shutdown());
    // Nobody can tell whether it was sent before. Its host may do it again, elsewhere.
    assert_eq!(rig.run(queue, read(0, 1), 4096).status, Status::ABORTED_SQ_DELETION);
}

/// Fabrics commands are all that a controller takes after that (Base 3.6.2).
#[test]
fn c38_shutdown_ends_administration() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    rig.set_cc(admin, Cc::ENABLE.with_shutdown());
    for sqe in [Identify::CONTROLLER.sqe(), aer::keep_alive(), aer::request()] {
        fails(&rig.run(admin, sqe, 4096), Status::COMMAND_SEQUENCE_ERROR);
    }
    assert_eq!(rig.csts(admin) >> 2 & 3, 2, "complete");
    rig.set_cc(admin, Cc(0));
    rig.set_cc(admin, Cc::ENABLE);
    assert_eq!(rig.run(admin, Identify::CONTROLLER.sqe(), 4096).status, Status::SUCCESS);
}

/// Base, "Shutdown": once it is through, only a reset makes the controller work again. Its host has
/// sent elsewhere what was not answered.
#[test]
fn c38_what_was_on_its_way_at_a_shutdown_is_never_done_however_cc_is_written_then() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    let (_, other) = rig.controller(1);
    rig.answer_r2t = false;
    let late = rig.start_out(queue, write(0, 4), &[1; 4 * 4096]);
    rig.set_cc(admin, Cc::ENABLE.with_shutdown());
    assert_eq!(rig.csts(admin) >> 2 & 3, 2, "complete");
    rig.set_cc(admin, Cc::ENABLE);
    assert_eq!(rig.csts(admin) >> 2 & 3, 2, "still");
    rig.send_asked(queue);
    rig.status();
    assert_eq!(rig.poll(queue, late).unwrap().status, Status::ABORTED_SQ_DELETION);
    assert_eq!(rig.run(other, read(0, 4), 4 * 4096).data, [0; 4 * 4096]);
    rig.set_cc(admin, Cc(0));
    rig.set_cc(admin, Cc::ENABLE);
    assert_eq!(rig.csts(admin), 1, "ready, not shut down");
    // Whoever shuts down what is not enabled can enable it then.
    for cc in [Cc(0), Cc(0).with_shutdown(), Cc::ENABLE] {
        rig.set_cc(admin, cc);
    }
    assert_eq!(rig.csts(admin), 1);
    rig.assert_no_leak();
}

#[test]
fn c39_the_fifth_event_request() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    let parked: Vec<u16> = (0..4).map(|_| rig.start(admin, aer::request(), 0)).collect();
    fails(&rig.run(admin, aer::request(), 0), Status::AER_LIMIT_EXCEEDED);
    assert!(parked.iter().all(|cid| !rig.wires[&admin].done.contains_key(cid)));
    // A controller reset answers them.
    rig.set_cc(admin, Cc(0));
    for cid in parked {
        let done = rig.poll(admin, cid).unwrap();
        assert!(done.status.is(Status::ABORT_REQUESTED), "{}", done.status);
    }
}

#[test]
fn c40_abort() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    for (sqid, cid) in [(0, 999), (1, 999), (7, 1), (0xffff, 0xffff)] {
        let done = rig.run(admin, aer::abort(sqid, cid), 0);
        assert_eq!((done.status, done.result), (Status::SUCCESS, 1), "not aborted");
    }
    // Itself.
    let cid = rig.cid();
    rig.raw(admin, aer::abort(0, cid).with_cid(cid).with_sgl(Sgl::none()), &[]);
    assert_eq!(rig.poll(admin, cid).unwrap().result, 1);
    // A parked request, twice.
    let parked = rig.start(admin, aer::request(), 0);
    assert_eq!(rig.run(admin, aer::abort(0, parked), 0).result, 0);
    assert!(rig.poll(admin, parked).unwrap().status.is(Status::ABORT_REQUESTED));
    assert_eq!(rig.run(admin, aer::abort(0, parked), 0).result, 1);
}

#[test]
fn c41_log_pages() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    let page =
        |id, offset, bytes| GetLogPage { nsid: u32::MAX, ..GetLogPage::new(id, offset, bytes) };
    for (id, size) in [(lid::ERROR, 64), (lid::SMART, 512)] {
        let done = rig.run(admin, page(id, 0, size).sqe(), size);
        assert_eq!((done.status, done.data.len()), (Status::SUCCESS, size as usize));
        let whole = done.data;
        let done = rig.run(admin, page(id, 8, size).sqe(), size);
        assert_eq!(done.data[..size as usize - 8], whole[8..], "from an offset");
        assert_eq!(done.data[size as usize - 8..], [0; 8], "nothing behind the page");
        let done = rig.run(admin, page(id, u64::from(size) + 4, 4).sqe(), 4);
        fails(&done, Status::INVALID_FIELD);
    }
    let odd = page(lid::SMART, 0, 512).sqe().with_cdw(12, 2);
    fails(&rig.run(admin, odd, 512), Status::INVALID_FIELD);
    let wrap = page(lid::SMART, 0, 512).sqe().with_cdw_pair(12, u64::MAX - 3);
    fails(&rig.run(admin, wrap, 512), Status::INVALID_FIELD);
    let entries = page(lid::SMART, 1, 4).sqe().with_cdw(14, 1 << 23);
    fails(&rig.run(admin, entries, 4), Status::INVALID_FIELD);
    let huge = page(lid::SMART, 0, 512).sqe().with_cdw(11, 0xffff);
    fails(&rig.run(admin, huge, u32::MAX), Status::INVALID_FIELD);
    for unknown in [0x06, 0x0d, lid::DISCOVERY, 0xc0] {
        fails(&rig.run(admin, page(unknown, 0, 64).sqe(), 64), Status::INVALID_LOG_PAGE);
    }
    rig.assert_no_leak();
}

#[test]
fn c41_what_the_pages_say() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    let mut page = |id, bytes| {
        let done = rig.run(admin, GetLogPage::new(id, 0, bytes).sqe(), bytes);
        assert_eq!(done.status, Status::SUCCESS);
        done.data
    };
    // The kernel asks which commands change blocks.
    let effects = page(lid::EFFECTS, 4096);
    let said = |from: usize| {
        let places = (0..256).map(|opcode| (opcode, effects[from + 4 * opcode]));
        places.filter(|(_, said)| *said != 0).collect::<Vec<_>>()
    };
    let admin_commands = [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18];
    assert_eq!(said(0), admin_commands.map(|opcode| (opcode, 1)));
    assert_eq!(said(1024), [(0, 1), (1, 3), (2, 1), (5, 1), (8, 3), (9, 3)]);
    let supported = page(lid::SUPPORTED, 1024);
    let ids: Vec<usize> = (0..256).filter(|id| supported[4 * id] & 1 != 0).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5, 0x0c]);
    let firmware = page(lid::FIRMWARE_SLOT, 512);
    let longest = page(lid::ERROR, 1 << 20);
    assert_eq!(longest.len(), 1 << 20, "as much as MDTS allows");
    let data = rig.run(admin, Identify::CONTROLLER.sqe(), 4096).data;
    let controller = identify::Controller::parse(&data).unwrap();
    assert_eq!(firmware[0], 1, "the first slot is active");
    assert_eq!(firmware[8..16], data[64..72], "as Identify says");
    assert_eq!(controller.frmw, 0b11, "there is one slot, for reading only");
    assert_eq!(controller.aerl, 3, "four event requests are taken");
    // SMART is of the controller, not of a namespace.
    let smart = |nsid| GetLogPage { nsid, ..GetLogPage::new(lid::SMART, 0, 512) }.sqe();
    assert_eq!(rig.run(admin, smart(0), 512).status, Status::SUCCESS);
    fails(&rig.run(admin, smart(1), 512), Status::INVALID_FIELD);
}

#[test]
fn c42_identify_of_command_sets() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    let asked = |cns: u32| Identify::namespace(1).sqe().with_cdw(10, cns);
    for cns in [0x05, 0x06] {
        let done = rig.run(admin, asked(cns), 4096);
        assert_eq!((done.status, done.data), (Status::SUCCESS, vec![0; 4096]), "{cns:#x}");
        fails(&rig.run(admin, asked(cns).with_cdw(11, 2 << 24), 4096), Status::INVALID_FIELD);
    }
    let common = rig.run(admin, asked(0x08), 4096).data;
    assert_eq!((common[1], &common[4..8], common[14]), (1, &[1, 0, 0, 0][..], 1));
    // One that might be there has none of it; one that cannot be is a mistake.
    for cns in [0x05, 0x08] {
        assert_eq!(rig.run(admin, asked(cns).with_nsid(9), 4096).data, vec![0; 4096], "{cns:#x}");
        for nsid in [0, 1025, u32::MAX] {
            fails(&rig.run(admin, asked(cns).with_nsid(nsid), 4096), Status::INVALID_NAMESPACE);
        }
    }
}

#[test]
fn c42_features_that_are_set() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    fails(&rig.run(admin, HostIdentifier::get(), 8), Status::DATA_SGL_LENGTH_INVALID);
    let mut can = |id: u8| {
        let done = rig.run(admin, feature::get(id).with_cdw(10, u32::from(id) | 3 << 8), 0);
        assert_eq!(done.status, Status::SUCCESS);
        done.result
    };
    let ids = [fid::KEEP_ALIVE_TIMER, fid::VOLATILE_WRITE_CACHE, fid::HOST_IDENTIFIER];
    assert_eq!(ids.map(&mut can), [4, 0, 0], "changeable");
    for (id, same) in [(fid::VOLATILE_WRITE_CACHE, 1), (fid::POWER_MANAGEMENT, 0)] {
        assert_eq!(rig.run(admin, feature::set(id, same), 0).status, Status::SUCCESS);
        let other = feature::set(id, 1 - same);
        fails(&rig.run(admin, other, 0), Status::FEATURE_NOT_CHANGEABLE);
    }
}

#[test]
fn c42_identify_and_features() {
    let mut rig = Rig::new(config());
    let (admin, io) = rig.controller(0);
    for cns in [0x04, 0x10, 0x13, 0x1c, 0xff] {
        let sqe = Identify::CONTROLLER.sqe().with_cdw(10, cns);
        fails(&rig.run(admin, sqe, 4096), Status::INVALID_FIELD);
    }
    fails(&rig.run(admin, feature::set(0x7f, 0), 0), Status::INVALID_FIELD);
    fails(&rig.run(admin, feature::get(0x7f), 0), Status::INVALID_FIELD);
    let save = feature::set(fid::KEEP_ALIVE_TIMER, 1000);
    let save = save.with_cdw(10, save.cdw(10) | 1 << 31);
    fails(&rig.run(admin, save, 0), Status::FEATURE_NOT_SAVEABLE);
    fails(&rig.run(admin, feature::set(fid::NUMBER_OF_QUEUES, 0xffff), 0), Status::INVALID_FIELD);
    // After I/O queues it is too late.
    let queues = NumberOfQueues::pairs(4).sqe();
    fails(&rig.run(admin, queues, 0), Status::COMMAND_SEQUENCE_ERROR);
    rig.hang_up(io);
    for (asked, granted) in [(1, 1), (4, 4), (64, 64), (1000, 64)] {
        let done = rig.run(admin, NumberOfQueues::pairs(asked).sqe(), 0);
        let got = NumberOfQueues::from_dword(u32::try_from(done.result).unwrap()).unwrap();
        assert_eq!(got.usable(), granted);
    }
    fails(&rig.run(admin, HostIdentifier::get().with_cdw(11, 0), 16), Status::INVALID_FIELD);
    assert_eq!(rig.run(admin, HostIdentifier::get(), 16).data, HOST_ID.as_bytes());
    let reserved = HostIdentifier::get();
    let reserved = reserved.with_cdw(10, reserved.cdw(10) | 4 << 8);
    fails(&rig.run(admin, reserved, 16), Status::INVALID_FIELD);
    let set_id = feature::set(fid::HOST_IDENTIFIER, 1);
    fails(&rig.run_out(admin, set_id, &[1; 16]), Status::COMMAND_SEQUENCE_ERROR);
    let config = feature::set(fid::ASYNC_EVENT_CONFIG, 1 << 20);
    fails(&rig.run(admin, config, 0), Status::INVALID_FIELD);
}

/// Features of the controller are not set for one namespace; whose value it is may be asked.
#[test]
fn c42_features_of_the_controller_belong_to_no_namespace() {
    let mut rig = Rig::new(config());
    let (admin, io) = rig.controller(0);
    rig.hang_up(io);
    let sets = [
        NumberOfQueues::pairs(4).sqe(),
        feature::set(fid::KEEP_ALIVE_TIMER, 1000),
        feature::set(fid::ASYNC_EVENT_CONFIG, 0),
        feature::set(fid::VOLATILE_WRITE_CACHE, 1),
        feature::set(fid::POWER_MANAGEMENT, 0),
        feature::set(fid::WRITE_ATOMICITY, 0),
    ];
    for set in sets {
        for nsid in [0, u32::MAX] {
            let done = rig.run(admin, set.with_nsid(nsid), 0);
            assert_eq!(done.status, Status::SUCCESS, "{set:?}, namespace {nsid}");
        }
        fails(&rig.run(admin, set.with_nsid(1), 0), Status::FEATURE_NOT_PER_NAMESPACE);
        let get = feature::get(feature::fid_of(&set));
        for nsid in [0, 1, u32::MAX] {
            let done = rig.run(admin, get.with_nsid(nsid), 0);
            assert_eq!(done.status, Status::SUCCESS, "{get:?}, namespace {nsid}");
        }
        for nsid in [2, 1025, u32::MAX - 1] {
            fails(&rig.run(admin, set.with_nsid(nsid), 0), Status::INVALID_NAMESPACE);
            fails(&rig.run(admin, get.with_nsid(nsid), 0), Status::INVALID_NAMESPACE);
        }
    }
    // That one is there for every namespace.
    let recovery = feature::set(fid::ERROR_RECOVERY, 0);
    for nsid in [1, u32::MAX] {
        let set = recovery.with_nsid(nsid);
        fails(&rig.run(admin, set, 0), Status::FEATURE_NOT_CHANGEABLE);
    }
    fails(&rig.run(admin, recovery.with_nsid(2), 0), Status::INVALID_NAMESPACE);
    // What there is not is told first.
    fails(&rig.run(admin, feature::set(0x7f, 0).with_nsid(1), 0), Status::INVALID_FIELD);
    fails(&rig.run(admin, feature::get(0x7f).with_nsid(9), 0), Status::INVALID_FIELD);
    let host = HostIdentifier::get().with_nsid(9);
    fails(&rig.run(admin, host, 16), Status::INVALID_NAMESPACE);
}

/// What NVMe 1.4, which the controllers claim to follow, demands of every I/O controller.
#[test]
fn mandatory_features_are_there() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    for id in [
        fid::ARBITRATION,
        fid::POWER_MANAGEMENT,
        fid::TEMPERATURE_THRESHOLD,
        fid::ERROR_RECOVERY,
        fid::NUMBER_OF_QUEUES,
        fid::WRITE_ATOMICITY,
        fid::ASYNC_EVENT_CONFIG,
    ] {
        assert_eq!(rig.run(admin, feature::get(id), 0).status, Status::SUCCESS, "{id:#04x}");
    }
    // Writes of one block stay atomic: nobody can turn that off.
    let normal = |value| feature::set(fid::WRITE_ATOMICITY, value);
    assert_eq!(rig.run(admin, normal(0), 0).status, Status::SUCCESS);
    fails(&rig.run(admin, normal(1), 0), Status::FEATURE_NOT_CHANGEABLE);
}

#[test]
fn all_io_commands_do_what_they_say() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    let data: Vec<u8> = (0..1_u32 << 20).map(|i| ((i * 7) >> 3) as u8).collect();
    assert_eq!(rig.run_out(queue, write(3, 256), &data).status, Status::SUCCESS);
    assert_eq!(rig.run(queue, read(3, 256), 1 << 20).data, data);
    assert_eq!(rig.run_out(queue, io::compare(1, 3, 256), &data).status, Status::SUCCESS);
    let mut other = data.clone();
    other[777_777] ^= 1;
    fails(&rig.run_out(queue, io::compare(1, 3, 256), &other), Status::COMPARE_FAILURE);
    assert_eq!(rig.run(queue, io::write_zeroes(1, 4, 1, false, true), 0).status, Status::SUCCESS);
    assert_eq!(rig.run(queue, read(4, 1), 4096).data, vec![0; 4096]);
    assert_eq!(rig.run(queue, read(5, 1), 4096).data, data[8192..12288]);
    assert_eq!(rig.run(queue, io::flush(1), 0).status, Status::SUCCESS);
    let fua = io::write(1, 0, 1, true);
    assert_eq!(rig.run_out(queue, fua, &[1; 4096]).status, Status::SUCCESS);
    let counters = rig.status().subsystems[0].namespaces[0].counters;
    assert_eq!((counters.reads, counters.writes, counters.fua_writes), (3, 2, 1));
    assert_eq!((counters.flushes, counters.others, counters.errors), (1, 2, 1));
    assert_eq!(counters.written_bytes, (1 << 20) + 4096);
    assert_eq!(counters.read_bytes, (1 << 20) + 8192);
    fails(&rig.run(queue, read(BLOCKS, 1), 4096), Status::LBA_OUT_OF_RANGE);
    assert_eq!(rig.status().subsystems[0].namespaces[0].counters.errors, 2);
    rig.assert_no_leak();
}

#[test]
fn small_blocks() {
    let mut config = config();
    config.subsystems[0].namespaces[0].block_bytes = 512;
    let mut rig = Rig::new(config);
    let (_, queue) = rig.controller(0);
    assert_eq!(rig.run_out(queue, write(1, 1), &[9; 512]).status, Status::SUCCESS);
    let data = rig.run(queue, read(0, 3), 1536).data;
    assert_eq!(data, [[0; 512], [9; 512], [0; 512]].concat());
    let last = 16 * MIB / 512;
    fails(&rig.run(queue, read(last, 1), 512), Status::LBA_OUT_OF_RANGE);
}

#[test]
fn without_buffers_commands_wait_and_then_finish() {
    let bufs = anabranch_proto::testing::MemoryBuffers::with_limit(8192);
    let mut rig = Rig::with_buffers(config(), bufs);
    let (_, queue) = rig.controller(0);
    assert_eq!(rig.run_out(queue, write(0, 1), &[4; 4096]).status, Status::SUCCESS);
    // Someone else holds the pool.
    let hostage = anabranch_proto::machine::Buffers::alloc(&mut rig.bufs, 8192).unwrap();
    let cids: Vec<u16> = (0..20).map(|_| rig.start(queue, read(0, 1), 4096)).collect();
    rig.advance(ms(3));
    assert!(rig.wires[&queue].done.is_empty());
    assert_eq!(rig.status().waiting_for_buffer, 20);
    anabranch_proto::machine::Buffers::free(&mut rig.bufs, hostage);
    rig.advance(ms(60));
    for cid in cids {
        assert_eq!(rig.poll(queue, cid).unwrap().data, vec![4; 4096]);
    }
    rig.assert_no_leak();
}
