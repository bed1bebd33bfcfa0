//! Data that is damaged on its way: its command fails, and that is told and counted.

use crate::common::*;
use anabranch_proto::nvme::Status;
use anabranch_target::{QueueOf, TargetEvent};

/// In its capsule, and asked for.
const SIZES: [usize; 2] = [4096, 64 << 10];

fn damages(rig: &Rig) -> Vec<TargetEvent> {
    let damaged = |event: &&TargetEvent| matches!(event, TargetEvent::DataDamaged { .. });
    rig.events.iter().filter(damaged).cloned().collect()
}

/// Of both ports, and of the controllers that there are.
fn counted(rig: &mut Rig) -> ([u64; 2], Vec<u64>) {
    let status = rig.status();
    let controllers = status.controllers.iter().map(|it| it.damaged_commands).collect();
    ([0, 1].map(|port| status.ports[port].damaged_commands), controllers)
}

fn blocks(bytes: usize) -> u32 {
    u32::try_from(bytes / 4096).expect("a few")
}

#[test]
fn damaged_data_of_a_write_is_told_and_counted_once() {
    let peer = "192.0.2.7:50000".parse().expect("an address");
    for bytes in SIZES {
        let mut rig = Rig::new(config());
        rig.data_digest = true;
        rig.peer = Some(peer);
        rig.controller(0);
        let (admin, _) = rig.controller(1);
        let cntlid = rig.status().controllers[1].cntlid;
        let queue = rig.io_queue(1, cntlid, 2);
        let data = vec![5; bytes];

        let sound = rig.run_out(queue, write(0, blocks(bytes)), &data);
        assert_eq!(sound.status, Status::SUCCESS);
        assert_eq!((damages(&rig), counted(&mut rig)), (vec![], ([0, 0], vec![0, 0])));

        rig.damages_data = true;
        let damaged = rig.run_out(queue, write(0, blocks(bytes)), &vec![6; bytes]);
        rig.damages_data = false;
        assert_eq!(damaged.status, Status::TRANSIENT_TRANSPORT_ERROR);
        let of = QueueOf { cntlid, qid: 2, host: nqn(HOST) };
        let told = TargetEvent::DataDamaged {
            port: 1,
            peer: Some(anabranch_proto::machine::Peer::Address(peer)),
            queue: Some(Box::new(of)),
            commands: 1,
        };
        assert_eq!(damages(&rig), vec![told], "{bytes}");
        assert_eq!(counted(&mut rig), ([0, 1], vec![0, 1]), "{bytes}");

        let read = rig.run(queue, read(0, blocks(bytes)), bytes.try_into().expect("a few"));
        assert_eq!(read.data, data, "the damaged one was not done");
        let again = rig.run_out(queue, write(0, blocks(bytes)), &data);
        assert_eq!((again.status, damages(&rig).len()), (Status::SUCCESS, 1));
        rig.hang_up(admin);
        assert_eq!(counted(&mut rig), ([0, 1], vec![0]), "its port remembers");
        rig.assert_no_leak();
    }
}

/// Nothing compares it then.
#[test]
fn without_digests_nothing_is_told_of_damage() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    rig.damages_data = true;
    for bytes in SIZES {
        let done = rig.run_out(queue, write(0, blocks(bytes)), &vec![5; bytes]);
        assert_eq!(done.status, Status::SUCCESS);
    }
    assert_eq!((damages(&rig), counted(&mut rig)), (vec![], ([0, 0], vec![0])));
}

/// Who connects is not known before its Connect could be read.
#[test]
fn damaged_data_of_a_connect_is_told_without_a_name() {
    let mut rig = Rig::new(config());
    rig.data_digest = true;
    let conn = rig.open(0);
    rig.damages_data = true;
    let command = anabranch_proto::nvme::fabrics::ConnectCommand {
        qid: 0,
        sqsize: 31,
        disable_sq_flow: true,
        kato_ms: 0,
    };
    let done = rig.connect_with(conn, command, &connect_data(0xffff, SUBSYSTEM).to_bytes());
    assert_eq!(done.status, Status::TRANSIENT_TRANSPORT_ERROR);
    let told = TargetEvent::DataDamaged { port: 0, peer: None, queue: None, commands: 1 };
    assert_eq!((damages(&rig), counted(&mut rig)), (vec![told], ([1, 0], vec![])));
    // The connection stays: it may try again.
    rig.damages_data = false;
    let done = rig.connect_with(conn, command, &connect_data(0xffff, SUBSYSTEM).to_bytes());
    assert_eq!(done.status, Status::SUCCESS);
}
