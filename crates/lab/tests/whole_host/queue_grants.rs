//! Controllers grant fewer I/O queues than there are workers, and another number the next time.

use crate::rig::{Rig, SECOND, Setup, writes};
use crate::wire::{Pdu, kind};
use anabranch_host::verb::Verb;
use anabranch_proto::nvme::Status;
use anabranch_proto::nvme::opcode::admin;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Feature identifier of the number of queues.
const NUMBER_OF_QUEUES: u32 = 7;

/// I/O from every worker; gives back whose queue pairs carried it.
fn carriers(rig: &mut Rig, workers: u16) -> BTreeSet<u16> {
    let before = rig.seen(Pdu::is_io).len();
    let names: Vec<u64> = (1..=workers)
        .flat_map(|worker| rig.submit_to(worker, "nvme0n1", writes(10, worker as u8)))
        .collect();
    rig.succeed(&names);
    let sent = rig.seen(Pdu::is_io).split_off(before);
    assert_eq!(sent.len(), names.len());
    sent.iter().map(|pdu| pdu.worker).collect()
}

#[test]
fn b2_fewer_queues_than_workers_carry_the_io_of_all() {
    for (granted, expected) in [(1, vec![1, 2]), (2, vec![1, 2, 3]), (64, vec![1, 2, 3])] {
        let mut setup = Setup::new(2, 3);
        setup.target.limits.io_queues = granted;
        let mut rig = setup.connect();
        let carriers: Vec<u16> = carriers(&mut rig, 3).into_iter().collect();
        assert_eq!(carriers, expected, "{granted} granted");
        rig.finish();
    }
}

#[test]
fn b2_the_number_may_change_with_every_reconnect() {
    let mut rig = Setup::new(1, 3).build();
    let granted = Rc::new(Cell::new(2u32));
    let grant = Rc::clone(&granted);
    rig.wire().rule(move |pdu| {
        let of_queues = |sqe: anabranch_proto::nvme::Sqe| {
            sqe.opcode() == admin::SET_FEATURES && sqe.cdw(10) & 0xff == NUMBER_OF_QUEUES
        };
        if pdu.kind == kind::CAPSULE_RESP && pdu.worker == 0 && pdu.sqe.is_some_and(of_queues) {
            // Both counts start at 0.
            let count = grant.get() - 1;
            pdu.bytes[8..12].copy_from_slice(&(count << 16 | count).to_le_bytes());
        }
    });
    rig.connect(0);
    assert_eq!(carriers(&mut rig, 3), BTreeSet::from([1, 2]));
    for (count, expected) in [(1, vec![1]), (3, vec![1, 2, 3]), (2, vec![1, 2])] {
        granted.set(count);
        // I/O is under way while the number changes.
        let under_way = rig.submit_to(3, "nvme0n1", writes(60, 9));
        rig.done(Verb::Reset { controller: "nvme0".into() });
        rig.wait_live(0);
        rig.succeed(&under_way);
        let carriers: Vec<u16> = carriers(&mut rig, 3).into_iter().collect();
        assert_eq!(carriers, expected, "{count} granted");
    }
    rig.finish();
}

/// An I/O queue whose Connect is not answered costs its controller the attempt, nobody else
/// anything.
#[test]
fn a_queue_that_does_not_open_is_given_up_in_time_and_tried_again() {
    let mut setup = Setup::new(2, 2);
    setup.options.admin_timeout = 2 * SECOND;
    let mut rig = setup.build();
    rig.connect(0);
    let once = Cell::new(true);
    rig.wire().rule(move |pdu| {
        let of_connect = pdu.sqe.is_some_and(|sqe| sqe.is_fabrics());
        let answer = pdu.kind == kind::CAPSULE_RESP && pdu.worker == 2 && pdu.port == 1;
        if answer && of_connect && once.replace(false) {
            pdu.bytes.clear();
        }
    });
    let mut request = crate::setup::connect(1, &rig.options);
    request.keep_trying = true;
    let begin = rig.now();
    rig.ask(Verb::Connect(Box::new(request)));
    rig.run(SECOND);
    assert!(!rig.is_live(1));
    assert_eq!(carriers(&mut rig, 2), BTreeSet::from([1, 2]), "the first path serves meanwhile");
    rig.wait_live(1);
    let took = rig.now().since(begin);
    assert!(took < 3 * SECOND, "{took:?}");
    assert!(rig.event(begin, "connecting timed out").is_some());
    rig.finish();
}

/// The same where not even ICResp comes: as on the admin connection, a new attempt is not put off
/// for as long as a command may take.
#[test]
fn an_io_queue_that_is_not_even_answered_icreq_is_soon_given_up() {
    let mut rig = Setup::new(2, 2).build();
    rig.connect(0);
    let once = Cell::new(true);
    rig.wire().rule(move |pdu| {
        if pdu.kind == kind::IC_RESP && (pdu.worker, pdu.port) == (2, 1) && once.replace(false) {
            pdu.bytes.clear();
        }
    });
    let mut request = crate::setup::connect(1, &rig.options);
    request.keep_trying = true;
    let pause = request.options.reconnect_delay;
    let begin = rig.now();
    rig.ask(Verb::Connect(Box::new(request)));
    rig.wait(11 * SECOND, "failed attempt", |rig| {
        rig.event(begin, "connecting timed out").is_some()
    });
    rig.wait(pause + SECOND, "live controller", |rig| rig.is_live(1));
    rig.finish();
}

/// A rig whose target says another controller number when I/O queues are connected.
fn answering_connect_with(cntlid: u16) -> Rig {
    let rig = Setup::new(1, 2).build();
    rig.wire().rule(move |pdu| {
        let of_connect = pdu.sqe.is_some_and(|sqe| sqe.is_fabrics());
        if pdu.kind == kind::CAPSULE_RESP && pdu.worker > 0 && of_connect {
            pdu.bytes[8..10].copy_from_slice(&cntlid.to_le_bytes());
        }
    });
    rig
}

/// So the Linux target before 5.15 answers for I/O queues. Connect's data has named the controller.
#[test]
fn a_controller_that_does_not_say_its_number_again_for_an_io_queue_is_taken() {
    let mut rig = answering_connect_with(0);
    rig.connect(0);
    assert_eq!(carriers(&mut rig, 2), BTreeSet::from([1, 2]));
    rig.finish();
}

#[test]
fn c64_an_io_queue_that_wants_authentication_does_not_cost_the_controller() {
    let mut rig = Setup::new(1, 2).connect();
    rig.wire().rule(move |pdu| {
        let of_connect = pdu.sqe.is_some_and(|sqe| sqe.is_fabrics());
        if pdu.kind == kind::CAPSULE_RESP && pdu.worker > 0 && of_connect {
            // ATR, bit 17 of dword 0.
            pdu.bytes[10] |= 1 << 1;
        }
    });
    let reply = rig.ask(Verb::Reset { controller: "nvme0".into() });
    assert!(format!("{reply:?}").contains("requires authentication"), "{reply:?}");
    rig.wire().clear_rules();
    rig.wait_live(0);
    rig.finish();
}

/// The admin queue may have been set up with a node that was fenced since: to the one that has its
/// address now the controller is not known. What ends the attempts is the next admin Connect.
#[test]
fn an_io_queue_that_is_refused_for_good_does_not_cost_the_controller() {
    let mut rig = Setup::new(1, 2).connect();
    rig.wire().rule(move |pdu| {
        let of_connect = pdu.sqe.is_some_and(|sqe| sqe.is_fabrics() && sqe.fctype() == 1);
        let answer = pdu.kind == kind::CAPSULE_RESP && of_connect;
        if answer && pdu.worker == 2 {
            pdu.answer(Status::CONNECT_INVALID_PARAMETERS.with_dnr());
        }
    });
    let begin = rig.now();
    let reply = rig.ask(Verb::Reset { controller: "nvme0".into() });
    assert!(format!("{reply:?}").contains("Connect refused"), "{reply:?}");
    rig.run(SECOND);
    assert!(rig.controller(0).is_some(), "{:?}", rig.events());
    rig.wire().clear_rules();
    rig.wait_live(0);
    assert!(rig.event(begin, "do not retry").is_none());
    assert_eq!(carriers(&mut rig, 2), BTreeSet::from([1, 2]));
    rig.finish();
}

#[test]
fn c64_an_io_queue_of_another_controller_is_refused() {
    let mut rig = answering_connect_with(77);
    let begin = rig.now();
    rig.ask(Verb::Connect(Box::new(crate::setup::connect(0, &rig.options))));
    rig.run(SECOND);
    assert!(!rig.is_live(0));
    assert!(rig.event(begin, "it belongs to another controller").is_some());
}
