//! Keep-alive while a controller is not live yet, and while its admin queue has much to do. The
//! controller's timer runs from CSTS.RDY on (Base, "Keep Alive"), however long the rest of
//! connecting takes.

use crate::fake::{Command, Fake, KEEP_ALIVE, Say};
use crate::rig::{NQN, Rig, Shards};
use anabranch_host::mail::ToControl;
use anabranch_host::topology::{Association, ControllerId, ControllerState};
use anabranch_host::verb::{Reply, Verb};
use anabranch_proto::machine::WorkerId;

fn keep_alives(rig: &Rig) -> usize {
    rig.fake(1).count(|command| command.opcode == KEEP_ALIVE)
}

/// One controller whose I/O queues are being opened.
fn opening_its_queues() -> Rig {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.shards = Shards::Hang;
    rig.connect(1, |_| ());
    rig
}

fn queues_are_open(rig: &mut Rig) {
    let (controller, association) = (ControllerId(0), Association(1));
    rig.post(WorkerId(1), ToControl::QueueOpen { controller, association, qid: 1 });
    rig.run();
    assert_eq!(rig.state(0), Some(ControllerState::Live));
}

#[test]
fn a_controller_hears_of_us_while_its_queues_are_opened() {
    let mut rig = opening_its_queues();
    rig.advance_s(21);
    assert_eq!(keep_alives(&rig), 8, "one each KATO / 2");
    queues_are_open(&mut rig);
    rig.advance_s(2);
    assert_eq!(keep_alives(&rig), 9, "being live begins no new interval");
    assert_eq!(rig.fake(1).connections, 1);
}

#[test]
fn a_controller_hears_of_us_while_a_step_takes_long() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.fake(1).hook = Some(Box::new(|c| c.is_log(0x0c).then_some(Say::Nothing)));
    rig.connect(1, |_| ());
    rig.advance_s(21);
    assert_eq!(keep_alives(&rig), 8);
    let asked = *rig.fake(1).seen.iter().find(|c| c.is_log(0x0c)).expect("an ANA log read");
    let log = rig.fake(1).ana_log();
    rig.fake(1).say(&asked, Say::Data(log));
    rig.deliver(1);
    rig.run();
    assert_eq!(rig.state(0), Some(ControllerState::Live));
}

/// Whoever is slow to answer is given the time that each step has, and asked no second time.
#[test]
fn a_slow_answer_to_keep_alive_ends_no_connecting() {
    let mut rig = opening_its_queues();
    rig.fake(1).hook = Some(Box::new(|c| (c.opcode == KEEP_ALIVE).then_some(Say::Nothing)));
    rig.advance_s(30);
    assert_eq!((keep_alives(&rig), rig.fake(1).connections), (1, 1));
    let asked: Command = *rig.fake(1).seen.last().expect("a command");
    rig.fake(1).hook = None;
    rig.fake(1).say(&asked, Say::Result(0));
    rig.deliver(1);
    queues_are_open(&mut rig);
    rig.advance_s(60);
    assert_eq!(rig.fake(1).connections, 1);
}

/// What becomes of an attempt is for its steps to say.
#[test]
fn a_refused_keep_alive_ends_no_connecting() {
    let mut rig = opening_its_queues();
    rig.fake(1).hook = Some(Box::new(|c| (c.opcode == KEEP_ALIVE).then_some(Say::Status(0x006))));
    rig.advance_s(21);
    rig.fake(1).hook = None;
    queues_are_open(&mut rig);
    assert_eq!(rig.fake(1).connections, 1);
}

#[test]
fn nothing_is_said_before_the_controller_is_ready() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    let cap = 1023 | 1 << 16 | 20 << 24 | 1 << 37;
    rig.fake(1).hook = Some(Box::new(move |c| match () {
        () if c.is_property_get(0) => Some(Say::Result(cap)),
        () if c.is_property_get(0x1c) => Some(Say::Result(0)),
        () => None,
    }));
    rig.connect(1, |_| ());
    rig.advance_s(9);
    assert_eq!(keep_alives(&rig), 0);
}

/// Their callers are told to come back: what the controller needs to stay goes before them.
#[test]
fn callers_commands_leave_room_for_keep_alive() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(1).then_some(Say::Nothing)));
    let ask = || Verb::IdCtrl { controller: "nvme0".to_string() };
    let asked: Vec<u64> = (0..64).map(|_| rig.verb(ask())).collect();
    rig.advance_s(21);
    assert_eq!((keep_alives(&rig), rig.fake(1).connections), (8, 1));
    let replies = asked.iter().filter_map(|&id| rig.reply(id));
    let refused: Vec<_> = replies.filter(|reply| matches!(reply, Reply::Error(_))).collect();
    assert!((40..50).contains(&refused.len()), "{}", refused.len());
}
