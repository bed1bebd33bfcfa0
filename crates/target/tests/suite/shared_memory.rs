//! All hosts share the payload memory: one that hoards it does not take it from the others.

use crate::common::*;
use anabranch_proto::machine::{BufRef, Buffers, ConnId, DiskOp, Input};
use anabranch_proto::nvme::fabrics::{ConnectCommand, ConnectData};
use anabranch_proto::nvme::identify::Identify;
use anabranch_proto::nvme::io::{compare, flush, write_zeroes};
use anabranch_proto::nvme::log::{GetLogPage, lid};
use anabranch_proto::nvme::property::Cc;
use anabranch_proto::nvme::{Sgl, Sqe, Status, Uuid, opcode};
use anabranch_proto::testing::MemoryBuffers;
use anabranch_target::TargetVerb;
use anabranch_target::config::{MAX_ANA_GROUP, MAX_NSID};

const BLOCKS: u32 = 32;
const BYTES: u32 = BLOCKS * 4096;
/// So many buffers of that size are all there are.
const BUFFERS: u64 = 128;

fn rig() -> Rig {
    Rig::with_buffers(config(), MemoryBuffers::with_limit(BUFFERS * u64::from(BYTES)))
}

/// A queue pair that has announced as many writes as it may, and sends data for none.
fn hoarder(rig: &mut Rig, port: u16) -> ConnId {
    let (_, queue) = rig.controller(port);
    for _ in 0..127 {
        rig.start(queue, write(0, BLOCKS), BYTES);
    }
    queue
}

/// A queue pair of another host.
fn queue_of(rig: &mut Rig, host: u8) -> ConnId {
    let (hostid, hostnqn) = (Uuid([host; 16]), nqn(&format!("{OTHER_HOST}-{host}")));
    let data = |cntlid| ConnectData { hostid, hostnqn, ..connect_data(cntlid, SUBSYSTEM) };
    let admin = rig.open(0);
    let command = ConnectCommand { qid: 0, sqsize: 31, disable_sq_flow: true, kato_ms: 0 };
    let connect = data.clone()(0xffff).to_bytes();
    let done = rig.connect_with(admin, command, &connect);
    assert_eq!(done.status, Status::SUCCESS);
    assert_eq!(rig.set_cc(admin, Cc::ENABLE).status, Status::SUCCESS);
    let io = rig.open(0);
    let command = ConnectCommand { qid: 1, sqsize: 127, ..command };
    let connect = data((done.result & 0xffff) as u16).to_bytes();
    assert_eq!(rig.connect_with(io, command, &connect).status, Status::SUCCESS);
    io
}

/// Writes and reads as if nobody else were there.
fn works_undisturbed(rig: &mut Rig, queue: ConnId) {
    for round in 0..20 {
        let data = vec![round; BYTES as usize];
        assert_eq!(rig.run_out(queue, write(32, BLOCKS), &data).status, Status::SUCCESS);
        let read = rig.run(queue, read(32, BLOCKS), BYTES);
        assert_eq!((read.status, read.data == data), (Status::SUCCESS, true));
    }
}

#[test]
fn announced_writes_without_data_leave_memory_to_other_hosts() {
    let mut rig = rig();
    let hoarders: Vec<ConnId> = (0..6).map(|at| hoarder(&mut rig, at % 2)).collect();
    rig.advance(ms(100));
    assert!(rig.status().waiting_for_buffer > 0, "they would like more");
    // A newcomer connects, which takes memory, too.
    let queue = queue_of(&mut rig, 8);
    works_undisturbed(&mut rig, queue);
    // What was waiting goes on when the others leave.
    let last = hoarders[5];
    let before = rig.wires[&last].r2t.len();
    hoarders[..5].iter().for_each(|&queue| rig.hang_up(queue));
    rig.advance(ms(10));
    assert!(rig.wires[&last].r2t.len() > before);
    rig.hang_up(last);
    rig.advance(ms(10));
    assert_eq!(rig.status().waiting_for_buffer, 0);
    rig.assert_no_leak();
}

/// Nothing more is executed for a host before it has read what it asked for.
#[test]
fn a_host_that_reads_nothing_holds_what_it_asked_for_first() {
    let mut rig = rig();
    let (_, queue) = rig.controller(0);
    rig.reads(queue, false);
    let (before, served) = (rig.bufs.spare(), rig.status().ports[0].commands);
    let cids: Vec<u16> = (0..100).map(|_| rig.start(queue, read(0, BLOCKS), BYTES)).collect();
    rig.advance(ms(100));
    assert_eq!(before - rig.bufs.spare(), 2 * u64::from(BYTES));
    assert_eq!(rig.status().ports[0].commands - served, 2);
    // It reads after all, and nothing is missing.
    rig.reads(queue, true);
    for cid in cids {
        let done = rig.poll(queue, cid).expect("answered");
        assert_eq!((done.status, done.data.len()), (Status::SUCCESS, BYTES as usize));
    }
    assert_eq!(rig.bufs.spare(), before);
}

/// What waits because its host reads nothing goes with the connection.
#[test]
fn a_host_that_reads_nothing_and_leaves_takes_its_commands_along() {
    let mut rig = rig();
    let (_, queue) = rig.controller(0);
    rig.run_out(queue, write(0, 1), &[1; 4096]);
    rig.reads(queue, false);
    for _ in 0..10 {
        rig.start(queue, read(0, BLOCKS), BYTES);
    }
    rig.start_out(queue, write(0, 1), &[2; 4096]);
    rig.hang_up(queue);
    rig.assert_no_leak();
    let (_, queue) = rig.controller(0);
    assert_eq!(rig.run(queue, read(0, 1), 4096).data, [1; 4096], "it was not executed");
}

/// So many hosts, each with a queue full of large writes.
fn hoarding_hosts(rig: &mut Rig, hosts: core::ops::Range<u8>) -> Vec<ConnId> {
    let hoards = |host| {
        let queue = queue_of(rig, host);
        for _ in 0..127 {
            rig.start(queue, write(0, BLOCKS), BYTES);
        }
        queue
    };
    let hoarders = hosts.map(hoards).collect();
    rig.advance(ms(100));
    hoarders
}

fn all_leave(mut rig: Rig, hoarders: Vec<ConnId>) {
    hoarders.into_iter().for_each(|queue| rig.hang_up(queue));
    rig.advance(ms(10));
    rig.assert_no_leak();
}

/// However many connections it has.
#[test]
fn a_host_that_hoards_on_many_connections_leaves_memory_to_other_hosts() {
    let mut rig = rig();
    let hoarders: Vec<ConnId> = (0..60).map(|at| hoarder(&mut rig, at % 2)).collect();
    rig.advance(ms(100));
    let queue = queue_of(&mut rig, 8);
    works_undisturbed(&mut rig, queue);
    all_leave(rig, hoarders);
}

/// What happens on one path of a host does not stop another one.
#[test]
fn a_path_on_which_nothing_moves_leaves_memory_to_the_other_paths_of_its_host() {
    let mut rig = rig();
    let hoarders: Vec<ConnId> = (0..6).map(|_| hoarder(&mut rig, 0)).collect();
    rig.advance(ms(100));
    let (_, queue) = rig.controller(1);
    works_undisturbed(&mut rig, queue);
    all_leave(rig, hoarders);
}

/// Nobody is asked for data in capsules: what does not find room can only be refused.
#[test]
fn data_in_capsules_finds_room_when_many_hosts_hoard() {
    let mut rig = rig();
    let early = queue_of(&mut rig, 200);
    let hoarders = hoarding_hosts(&mut rig, 10..40);
    let late = queue_of(&mut rig, 201);
    for queue in [early, late] {
        for round in 0..20 {
            let data = vec![round; 8192];
            assert_eq!(rig.run_out(queue, write(64, 2), &data).status, Status::SUCCESS);
        }
    }
    // And short answers, of which a host that connects needs some.
    let admin = rig.admin_of(0, SUBSYSTEM, 0).0;
    assert_eq!(rig.set_cc(admin, Cc::ENABLE).status, Status::SUCCESS);
    let done = rig.run(admin, Identify::CONTROLLER.sqe(), 4096);
    assert_eq!(done.status, Status::SUCCESS);
    all_leave(rig, hoarders);
}

/// A host connects and reads the log as Linux and ours do: whole, whatever it has.
fn connects_and_reads_the_ana_log(rig: &mut Rig) {
    let bytes = 16 + 32 * MAX_ANA_GROUP + 4 * MAX_NSID;
    let admin = rig.admin_of(0, SUBSYSTEM, 0).0;
    assert_eq!(rig.set_cc(admin, Cc::ENABLE).status, Status::SUCCESS);
    let cid = rig.start(admin, GetLogPage::new(lid::ANA, 0, bytes).sqe(), bytes);
    assert_eq!(rig.poll(admin, cid).expect("it does not wait").status, Status::SUCCESS);
}

/// A path that comes back is of no use before its ANA log was read.
#[test]
fn a_host_can_read_the_ana_log_while_another_one_hoards() {
    let mut rig = rig();
    let hoarders: Vec<ConnId> = (0..6).map(|at| hoarder(&mut rig, at % 2)).collect();
    rig.advance(ms(100));
    assert!(rig.bufs.spare() < rig.bufs.capacity() / 4, "the memory is low");
    connects_and_reads_the_ana_log(&mut rig);
    all_leave(rig, hoarders);
}

/// Admin commands have answers, too, and there may be as many of them.
#[test]
fn answers_to_admin_commands_that_nobody_reads_leave_memory_to_other_hosts() {
    let mut rig = rig();
    let hoards = |rig: &mut Rig| {
        let admin = rig.admin_of(0, SUBSYSTEM, 0).0;
        assert_eq!(rig.set_cc(admin, Cc::ENABLE).status, Status::SUCCESS);
        rig.reads(admin, false);
        for _ in 0..28 {
            rig.start(admin, GetLogPage::new(lid::ANA, 0, 8192).sqe(), 8192);
        }
        admin
    };
    let hoarders: Vec<ConnId> = (0..80).map(|_| hoards(&mut rig)).collect();
    rig.advance(ms(100));
    assert!(rig.status().waiting_for_buffer > 0, "they would like more");
    let queue = queue_of(&mut rig, 8);
    works_undisturbed(&mut rig, queue);
    connects_and_reads_the_ana_log(&mut rig);
    all_leave(rig, hoarders);
}

/// A peer may claim to be any number of hosts.
#[test]
fn hosts_without_number_at_one_address_leave_memory_to_other_addresses() {
    let mut rig = rig();
    rig.peer = Some("192.0.2.1:1000".parse().unwrap());
    let hoarders = hoarding_hosts(&mut rig, 10..60);
    // At their own address there is little left, but a host can read a block.
    let beside = queue_of(&mut rig, 9);
    let done = rig.run(beside, read(64, 1), 4096);
    assert_eq!((done.status, done.data.len()), (Status::SUCCESS, 4096));
    rig.peer = Some("192.0.2.2:1000".parse().unwrap());
    let queue = queue_of(&mut rig, 8);
    works_undisturbed(&mut rig, queue);
    all_leave(rig, hoarders);
}

/// Hosts behind one address do not answer for each other as long as there is memory.
#[test]
fn a_host_that_hoards_leaves_memory_to_others_at_its_address() {
    let mut rig = rig();
    rig.peer = Some("192.0.2.1:1000".parse().unwrap());
    let hoarders: Vec<ConnId> = (0..6).map(|at| hoarder(&mut rig, at % 2)).collect();
    rig.advance(ms(100));
    let queue = queue_of(&mut rig, 8);
    works_undisturbed(&mut rig, queue);
    all_leave(rig, hoarders);
}

#[test]
fn with_the_memory_to_itself_a_host_gets_all_that_it_asks_for() {
    let mut rig = rig();
    let (_, queue) = rig.controller(0);
    for _ in 0..64 {
        rig.start(queue, write(0, BLOCKS), BYTES);
    }
    assert_eq!(rig.wires[&queue].r2t.len(), 64, "half of the memory, at once");
    rig.hang_up(queue);
    rig.assert_no_leak();
}

/// A connection that waits, be it first in line, holds up no other.
#[test]
fn a_line_that_does_not_move_holds_up_no_other() {
    let mut rig = rig();
    let (_, first) = rig.controller(0);
    let second = queue_of(&mut rig, 8);
    let hostage: Vec<_> =
        (0..BUFFERS).map(|_| rig.bufs.alloc(BYTES).expect("below the limit")).collect();
    for _ in 0..3 {
        rig.start(first, write(0, BLOCKS), BYTES);
    }
    let waits = rig.start(second, read(0, BLOCKS), BYTES);
    rig.advance(ms(5));
    assert!(rig.poll(second, waits).is_none(), "there is no memory at all");
    let mut hostage = hostage.into_iter();
    // A part is kept for data in capsules.
    let kept = BUFFERS / 32;
    (0..kept + 2).for_each(|_| rig.bufs.free(hostage.next().unwrap()));
    rig.advance(ms(5));
    let done = rig.poll(second, waits).expect("its turn came");
    assert_eq!(done.status, Status::SUCCESS);
    assert_eq!(rig.wires[&first].r2t.len(), 1, "one share each");
    hostage.for_each(|buf| rig.bufs.free(buf));
    rig.advance(ms(5));
    assert_eq!(rig.wires[&first].r2t.len(), 3);
    rig.hang_up(first);
    rig.assert_no_leak();
}

/// A host that keeps many more large writes in flight than there is memory for has all of them
/// carried out, with most of the memory in use until the last.
#[test]
fn large_writes_on_many_queues_use_the_memory_and_all_end() {
    let mut rig = rig();
    let queues: Vec<ConnId> = (0..8).map(|_| rig.controller(0).1).collect();
    let data = vec![7; BYTES as usize];
    let (mut left, mut rounds) = (Vec::new(), 0);
    rig.answer_r2t = false;
    for _ in 0..127 {
        left.extend(
            queues.iter().map(|&queue| (queue, rig.start_out(queue, write(0, BLOCKS), &data))),
        );
    }
    while !left.is_empty() {
        if left.len() as u64 >= BUFFERS {
            let used = rig.bufs.in_use_bytes() / u64::from(BYTES);
            assert!(used >= BUFFERS * 3 / 4, "{used} of {BUFFERS} with {} to do", left.len());
        }
        for &queue in &queues {
            rig.send_asked(queue);
        }
        rig.input(Input::Timeout);
        left.retain(|&(queue, cid)| {
            rig.poll(queue, cid).is_none_or(|done| {
                assert_eq!(done.status, Status::SUCCESS);
                false
            })
        });
        rounds += 1;
        assert!(rounds < 100, "{} are left", left.len());
    }
    rig.assert_no_leak();
}

/// Such a command needs memory twice: none must wait for the second while all hold the first.
#[test]
fn comparisons_with_a_file_do_not_wait_for_each_other() {
    let mut config = config();
    config.subsystems[0].namespaces = vec![file_namespace(1, 16 << 20)];
    let bufs = MemoryBuffers::with_limit(BUFFERS * u64::from(BYTES));
    let mut rig = Rig::with_buffers(config, bufs);
    let queues: Vec<ConnId> = (0..16).map(|_| rig.controller(0).1).collect();
    let data = vec![7; BYTES as usize];
    let mut left = Vec::new();
    rig.answer_r2t = false;
    for _ in 0..127 {
        for &queue in &queues {
            left.push((queue, rig.start_out(queue, compare(1, 0, BLOCKS), &data)));
        }
    }
    while !left.is_empty() {
        while rig.disk.is_empty() {
            let asked: usize = queues.iter().map(|queue| rig.wires[queue].r2t.len()).sum();
            assert!(asked > 0, "{} wait for each other", left.len());
            queues.iter().for_each(|&queue| rig.send_asked(queue));
            rig.input(Input::Timeout);
        }
        let DiskOp::Read { buf, .. } = rig.disk[0].2 else { panic!() };
        rig.bufs.bytes_mut(buf).fill(7);
        rig.finish_disk(Ok(BYTES));
        left.retain(|&(queue, cid)| {
            rig.poll(queue, cid).is_none_or(|done| {
                assert_eq!(done.status, Status::SUCCESS);
                false
            })
        });
    }
    rig.assert_no_leak();
}

/// As above, with the data in the capsules, which nobody can ask to wait: the link holds them back
/// until they fill the memory, and then they all want more at once.
#[test]
fn comparisons_with_data_in_capsules_do_not_wait_for_each_other() {
    let mut config = config();
    config.subsystems[0].namespaces = vec![file_namespace(1, 16 << 20)];
    let bufs = MemoryBuffers::with_limit(BUFFERS * u64::from(BYTES));
    let mut rig = Rig::with_buffers(config, bufs);
    let queues: Vec<ConnId> = (0..20).map(|_| rig.controller(0).1).collect();
    let shape = "delay=10ms".parse().unwrap();
    rig.ok(TargetVerb::Shape { port: 0, shape });
    let mut left = Vec::new();
    for _ in 0..127 {
        for &queue in &queues {
            left.push((queue, rig.start_out(queue, compare(1, 0, 2), &[7; 8192])));
        }
    }
    rig.advance(ms(20));
    let (mut done, all) = (0, left.len());
    loop {
        left.retain(|&(queue, cid)| {
            let Some(end) = rig.poll(queue, cid) else { return true };
            done += usize::from(end.status.is_success());
            assert!(end.status.is_success() || end.status == Status::COMMAND_INTERRUPTED);
            false
        });
        if left.is_empty() {
            break;
        }
        assert!(!rig.disk.is_empty(), "{} of {all} wait for each other", left.len());
        let DiskOp::Read { buf, .. } = rig.disk[0].2 else { panic!() };
        rig.bufs.bytes_mut(buf).fill(7);
        rig.finish_disk(Ok(8192));
    }
    assert!(done > 0);
    rig.assert_no_leak();
}

/// Hosts that read nothing of 256 KiB of answers, so that nothing more is begun for them, and send
/// writes with their data in the capsule all the same.
fn hoard_in_capsules(rig: &mut Rig, queues: &[ConnId]) -> Vec<(ConnId, u16)> {
    let mut commands = Vec::new();
    for &queue in queues {
        rig.reads(queue, false);
        commands.extend((0..2).map(|_| (queue, rig.start(queue, read(0, BLOCKS), BYTES))));
    }
    for &queue in queues {
        let start = |_| (queue, rig.start_out(queue, write(0, 2), &[9; 8192]));
        commands.extend((0..120).map(start));
    }
    commands
}

/// A host that comes now, from elsewhere, has all that it may expect.
fn newcomer_works(rig: &mut Rig) {
    rig.peer = Some("192.0.2.2:1000".parse().unwrap());
    let queue = queue_of(rig, 8);
    works_undisturbed(rig, queue);
    for round in 0..20 {
        let done = rig.run_out(queue, write(64, 2), &[round; 8192]);
        assert_eq!(done.status, Status::SUCCESS);
    }
    connects_and_reads_the_ana_log(rig);
    assert!(!rig.wires[&queue].paused);
}

/// Nothing is looked at again and again.
fn assert_rests(rig: &mut Rig) {
    let soon = rig.now.after(ms(100));
    assert!(rig.target_timeout().is_none_or(|at| at > soon));
}

/// Everything has been answered; so many of the answers are refusals for want of memory.
fn refused(rig: &mut Rig, commands: &[(ConnId, u16)]) -> usize {
    let mut refused = 0;
    for &(queue, cid) in commands {
        let done = rig.poll(queue, cid).expect("answered");
        assert!(done.status.is_success() || done.status == Status::COMMAND_INTERRUPTED);
        refused += usize::from(!done.status.is_success());
    }
    refused
}

/// Hosts that do not stop sending where nothing is read are refused; others are not read for a
/// while, and nothing fails.
fn data_in_capsules_leaves_memory(queues: impl Fn(&mut Rig) -> Vec<ConnId>) {
    for obeys_pause in [true, false] {
        let mut rig = rig();
        rig.obeys_pause = obeys_pause;
        rig.peer = Some("192.0.2.1:1000".parse().unwrap());
        let queues = queues(&mut rig);
        let commands = hoard_in_capsules(&mut rig, &queues);
        rig.advance(ms(100));
        assert!(queues.iter().any(|queue| rig.wires[queue].paused));
        let left = rig.bufs.spare();
        assert!(left >= rig.bufs.capacity() / if obeys_pause { 8 } else { 20 }, "{left}");
        newcomer_works(&mut rig);
        // They read after all.
        queues.iter().for_each(|&queue| rig.reads(queue, true));
        rig.advance(ms(100));
        assert_eq!(refused(&mut rig, &commands) == 0, obeys_pause);
        assert!(queues.iter().all(|queue| !rig.wires[queue].paused));
        assert_rests(&mut rig);
        rig.assert_no_leak();
    }
}

#[test]
fn data_in_capsules_of_many_hosts_leaves_memory_to_others() {
    data_in_capsules_leaves_memory(|rig| (10..30).map(|host| queue_of(rig, host)).collect());
}

#[test]
fn data_in_capsules_of_one_host_leaves_memory_to_others() {
    data_in_capsules_leaves_memory(|rig| (0..20).map(|at| rig.controller(at % 2).1).collect());
}

/// Who keeps a transfer under way cannot be left unread, and is refused when it comes to the last.
#[test]
fn data_in_capsules_behind_a_transfer_leaves_memory_to_others() {
    let mut rig = rig();
    rig.obeys_pause = true;
    rig.peer = Some("192.0.2.1:1000".parse().unwrap());
    let queues: Vec<ConnId> = (10..30).map(|host| queue_of(&mut rig, host)).collect();
    for &queue in &queues {
        rig.start(queue, write(0, BLOCKS), BYTES);
        assert_eq!(rig.wires[&queue].r2t.len(), 1);
    }
    hoard_in_capsules(&mut rig, &queues);
    assert!(queues.iter().all(|queue| !rig.wires[queue].paused));
    rig.advance(ms(100));
    newcomer_works(&mut rig);
    all_leave(rig, queues);
}

/// Admin queues bring data, too.
#[test]
fn data_in_capsules_on_admin_queues_leaves_memory_to_others() {
    let mut rig = rig();
    rig.peer = Some("192.0.2.1:1000".parse().unwrap());
    let admins: Vec<ConnId> = (0..80).map(|_| rig.controller(0).0).collect();
    for &admin in &admins {
        rig.reads(admin, false);
        let log = GetLogPage::new(lid::ANA, 0, 128 << 10).sqe();
        (0..2).for_each(|_| _ = rig.start(admin, log, 128 << 10));
    }
    let sqe = Sqe::new(opcode::admin::SET_FEATURES);
    for &admin in &admins {
        (0..28).for_each(|_| _ = rig.start_out(admin, sqe, &[1; 8192]));
    }
    rig.advance(ms(100));
    newcomer_works(&mut rig);
    all_leave(rig, admins);
}

/// Two namespaces: one in memory, and number 2 in a file.
fn rig_with_file() -> Rig {
    let mut config = config();
    config.subsystems[0].namespaces.push(file_namespace(2, 16 << 20));
    let bufs = MemoryBuffers::with_limit(BUFFERS * u64::from(BYTES));
    let mut rig = Rig::with_buffers(config, bufs);
    rig.obeys_pause = true;
    rig
}

/// A write of the file's first blocks, data in the capsule.
fn start_to_file(rig: &mut Rig, queue: ConnId) -> u16 {
    rig.start_out(queue, write(0, 2).with_nsid(2), &[9; 8192])
}

#[test]
fn data_in_capsules_that_a_file_does_not_take_leaves_memory_to_others() {
    let mut rig = rig_with_file();
    let queues: Vec<ConnId> = (10..30).map(|host| queue_of(&mut rig, host)).collect();
    let mut commands = Vec::new();
    for &queue in &queues {
        commands.extend((0..120).map(|_| (queue, start_to_file(&mut rig, queue))));
    }
    rig.advance(ms(100));
    assert!(queues.iter().any(|queue| rig.wires[queue].paused));
    newcomer_works(&mut rig);
    // The file takes it after all.
    finish_file(&mut rig);
    assert_eq!(refused(&mut rig, &commands), 0);
    rig.assert_no_leak();
}

/// What was on its way when it was to be read no more comes in, but not without end.
#[test]
fn a_host_brings_no_more_than_half_of_what_is_left() {
    let mut rig = rig_with_file();
    rig.obeys_pause = false;
    let (_, queue) = rig.controller(0);
    let left = rig.bufs.capacity() / 8;
    let hostage: Vec<BufRef> =
        std::iter::from_fn(|| (rig.bufs.spare() > left).then(|| rig.bufs.alloc(BYTES)).flatten())
            .collect();
    let commands: Vec<_> = (0..120).map(|_| (queue, start_to_file(&mut rig, queue))).collect();
    let (held, spare) = (left - rig.bufs.spare(), rig.bufs.spare());
    assert!((spare / 2 - 8192..=spare / 2 + 2 * 8192).contains(&held), "{held} and {spare}");
    finish_file(&mut rig);
    assert_eq!(refused(&mut rig, &commands) as u64, 120 - held / 8192);
    hostage.into_iter().for_each(|buf| rig.bufs.free(buf));
    rig.assert_no_leak();
}

/// The file does what it was asked for, and what is asked of it then.
fn finish_file(rig: &mut Rig) {
    while !rig.disk.is_empty() {
        rig.finish_disk(Ok(8192));
    }
}

/// A queue that is not read, with so many writes sent, and all memory but so much taken.
fn choked(rig: &mut Rig, left: u64) -> (ConnId, Vec<(ConnId, u16)>, Vec<BufRef>) {
    let (_, queue) = rig.controller_with(0, 1000);
    let taken = (rig.bufs.spare() - left) / u64::from(BYTES);
    let hostage = (0..taken).map(|_| rig.bufs.alloc(BYTES).expect("below the limit")).collect();
    let commands = (0..100).map(|_| (queue, start_to_file(rig, queue))).collect();
    assert!(rig.wires[&queue].paused);
    assert_eq!(rig.bufs.spare(), left - 5 * 8192, "four, and the one too many");
    (queue, commands, hostage)
}

#[test]
fn a_queue_that_is_not_read_goes_on_as_its_commands_end() {
    let mut rig = rig_with_file();
    let (queue, commands, hostage) = choked(&mut rig, 2 << 20);
    rig.advance(ms(5));
    assert!(rig.wires[&queue].paused, "nothing has changed");
    rig.finish_disk(Ok(8192));
    assert!(rig.bufs.spare() < (2 << 20) - 4 * 8192, "there is less than its share left");
    finish_file(&mut rig);
    assert_eq!(refused(&mut rig, &commands), 0);
    assert!(!rig.wires[&queue].paused);
    hostage.into_iter().for_each(|buf| rig.bufs.free(buf));
    rig.advance(ms(5));
    assert_rests(&mut rig);
    rig.assert_no_leak();
}

#[test]
fn a_queue_that_is_not_read_goes_on_when_memory_is_back() {
    let mut rig = rig_with_file();
    let (queue, commands, hostage) = choked(&mut rig, 2 << 20);
    hostage.into_iter().for_each(|buf| rig.bufs.free(buf));
    rig.advance(ms(1));
    assert!(!rig.wires[&queue].paused, "nobody needed to say so");
    assert_eq!(rig.bufs.in_use_bytes(), 100 * 8192, "all is there");
    assert_rests(&mut rig);
    finish_file(&mut rig);
    assert_eq!(refused(&mut rig, &commands), 0);
    rig.assert_no_leak();
}

/// The end of a stall is not the end of want, nor the other way round.
#[test]
fn a_queue_that_is_not_read_for_two_reasons_is_read_when_neither_holds() {
    let mut rig = rig_with_file();
    let (queue, _, hostage) = choked(&mut rig, 2 << 20);
    assert!(rig.wires[&queue].watched, "its end ends it");
    rig.ok(TargetVerb::Stall { port: 0 });
    assert!(!rig.wires[&queue].watched, "a stall keeps even that back");
    rig.ok(TargetVerb::Restore { port: 0 });
    rig.advance(ms(5));
    assert!(rig.wires[&queue].paused && rig.wires[&queue].watched, "memory is low still");
    rig.ok(TargetVerb::Stall { port: 0 });
    hostage.into_iter().for_each(|buf| rig.bufs.free(buf));
    rig.advance(ms(5));
    assert!(rig.wires[&queue].paused, "the port has stalled still");
    rig.ok(TargetVerb::Restore { port: 0 });
    assert!(!rig.wires[&queue].paused);
    rig.hang_up(queue);
    finish_file(&mut rig);
    rig.assert_no_leak();
}

#[test]
fn a_queue_that_is_not_read_may_end() {
    for how in ["hung up", "cut", "silent"] {
        let mut rig = rig_with_file();
        let (queue, _, hostage) = choked(&mut rig, 2 << 20);
        rig.slow_closing = true;
        match how {
            "hung up" => rig.hang_up(queue),
            "cut" => rig.ok(TargetVerb::Cut { port: 0 }),
            _ => rig.advance(ms(1200)),
        }
        assert_eq!(rig.closes.iter().any(|(conn, _)| *conn == queue), how != "hung up");
        rig.advance(ms(5));
        assert_rests(&mut rig);
        rig.end_closing();
        hostage.into_iter().for_each(|buf| rig.bufs.free(buf));
        finish_file(&mut rig);
        rig.assert_no_leak();
    }
}

/// Data that was asked for stands behind what was sent before it.
#[test]
fn a_queue_is_read_while_data_that_was_asked_for_is_on_its_way() {
    let mut rig = rig_with_file();
    rig.answer_r2t = false;
    let (_, queue) = rig.controller(0);
    let large = rig.start_out(queue, write(0, BLOCKS), &vec![3; BYTES as usize]);
    let taken = (rig.bufs.spare() - (2 << 20)) / u64::from(BYTES);
    let hostage: Vec<BufRef> = (0..taken).map(|_| rig.bufs.alloc(BYTES).unwrap()).collect();
    let mut commands: Vec<_> = (0..10).map(|_| (queue, start_to_file(&mut rig, queue))).collect();
    assert!(!rig.wires[&queue].paused);
    rig.send_asked(queue);
    rig.input(Input::Timeout);
    assert_eq!(rig.poll(queue, large).expect("its data came").status, Status::SUCCESS);
    assert!(rig.wires[&queue].paused, "now it has to wait");
    commands.extend((0..10).map(|_| (queue, start_to_file(&mut rig, queue))));
    finish_file(&mut rig);
    assert_eq!(refused(&mut rig, &commands), 0);
    hostage.into_iter().for_each(|buf| rig.bufs.free(buf));
    rig.assert_no_leak();
}

/// An event request lasts for ever: it keeps no memory. Nor does a command that takes no data
/// bring any past its refusal.
#[test]
fn data_in_the_capsule_of_a_command_that_takes_none_is_refused_and_not_kept() {
    let mut rig = rig();
    let (admin, io) = rig.controller(0);
    let before = rig.bufs.in_use_bytes();
    let aer = Sqe::new(opcode::admin::ASYNC_EVENT_REQUEST);
    let zeroes = write_zeroes(1, 0, 1, false, false);
    let commands = [(admin, aer), (io, flush(1)), (io, zeroes)];
    for (queue, sqe) in commands {
        let cid = rig.start_out(queue, sqe, &[1; 8192]);
        assert_eq!(rig.bufs.in_use_bytes(), before);
        let done = rig.poll(queue, cid).expect("refused at once");
        assert_eq!(done.status, Status::INVALID_FIELD.with_dnr());
    }
    // A descriptor of nothing is fine, of either kind.
    for sgl in [Sgl::in_capsule(0), Sgl::transport(0)] {
        let cid = rig.cid();
        rig.raw(io, flush(1).with_cid(cid).with_sgl(sgl), &[]);
        assert_eq!(rig.poll(io, cid).expect("done").status, Status::SUCCESS);
        let parked = rig.cid();
        rig.raw(admin, aer.with_cid(parked).with_sgl(sgl), &[]);
        assert!(rig.poll(admin, parked).is_none(), "it waits for an event");
    }
    assert_eq!(rig.bufs.in_use_bytes(), before);
}

/// What holds some memory already goes before what would begin to.
#[test]
fn a_comparison_is_before_new_commands_in_the_line_for_its_second_buffer() {
    let mut config = config();
    config.subsystems[0].namespaces = vec![file_namespace(1, 16 << 20)];
    let bufs = MemoryBuffers::with_limit(BUFFERS * u64::from(BYTES));
    let mut rig = Rig::with_buffers(config, bufs);
    let (_, queue) = rig.controller(0);
    rig.answer_r2t = false;
    for _ in 0..8 {
        rig.start_out(queue, compare(1, 0, BLOCKS), &vec![7; BYTES as usize]);
    }
    assert_eq!(rig.wires[&queue].r2t.len(), 8);
    let mut hostage: Vec<_> = std::iter::from_fn(|| rig.bufs.alloc(BYTES)).collect();
    rig.start(queue, write(0, BLOCKS), BYTES);
    rig.send_asked(queue);
    rig.advance(ms(5));
    assert!(rig.disk.is_empty() && rig.wires[&queue].r2t.is_empty(), "all wait");
    hostage.drain(..BUFFERS as usize / 32 + 2).for_each(|buf| rig.bufs.free(buf));
    rig.advance(ms(5));
    assert!(matches!(rig.disk[0].2, DiskOp::Read { .. }), "{:?}", rig.disk);
    assert!(rig.wires[&queue].r2t.is_empty(), "the write is the last");
}
