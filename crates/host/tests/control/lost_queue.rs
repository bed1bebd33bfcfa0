//! A controller whose I/O queue pair is lost, and whose admin queue may still answer.

use crate::fake::Say;
use crate::rig::Rig;
use anabranch_host::mail::ToControl;
use anabranch_host::topology::{Association, ControllerId, ControllerState};
use anabranch_proto::machine::WorkerId;
use std::time::Duration;

const CONNECTING: Option<ControllerState> = Some(ControllerState::Connecting);

fn lose_queue_2(rig: &mut Rig) {
    let why = "connection reset by peer".to_string();
    let (controller, association) = (ControllerId(0), Association(1));
    rig.post(WorkerId(2), ToControl::QueueLost { controller, association, qid: 2, why });
    rig.run();
}

/// Its other queue pairs may have writes under way: it is told first, and ends them.
#[test]
fn b10_a_queue_that_a_shard_lost_takes_the_controller_down_at_once() {
    let mut rig = Rig::connected(2);
    let told = rig.fake(1).count(|command| command.is_property_set());
    lose_queue_2(&mut rig);
    assert_eq!(rig.state(0), Some(ControllerState::Resetting));
    assert_eq!(rig.fake(1).count(|command| command.is_property_set()), told + 1, "SHN");
    assert_eq!(rig.mail_count("StopQueue"), 0);
    rig.advance(Duration::from_millis(20));
    assert_eq!(rig.state(0), CONNECTING);
    assert_eq!(rig.mail_count("StopQueue"), 2);
    assert_eq!(rig.open_connections(), 0, "the admin queue goes with it");
    assert!(rig.get("nvme0", "last_error").unwrap().contains("I/O queue 2: connection reset"));
}

/// The connections of a controller that dies end one after the other.
#[test]
fn the_queue_that_was_lost_first_is_the_reason() {
    let mut rig = Rig::connected(2);
    rig.fake(1).hook = Some(Box::new(|c| c.is_property_set().then_some(Say::Nothing)));
    lose_queue_2(&mut rig);
    assert_eq!(rig.mail_count("StopQueue"), 0);
    rig.cut(1);
    assert_eq!((rig.state(0), rig.mail_count("StopQueue")), (CONNECTING, 2), "at once");
    assert!(rig.get("nvme0", "last_error").unwrap().contains("I/O queue 2: connection reset"));
    assert_eq!(rig.event_count("has not said that it has shut down"), 0);
}

#[test]
fn a_silent_controller_that_lost_a_queue_is_not_waited_for_long() {
    let mut rig = Rig::connected(2);
    rig.fake(1).silent = true;
    lose_queue_2(&mut rig);
    rig.advance(Duration::from_millis(990));
    assert_eq!(rig.mail_count("StopQueue"), 0);
    rig.advance(Duration::from_millis(20));
    assert_eq!((rig.state(0), rig.mail_count("StopQueue")), (CONNECTING, 2));
    assert_eq!(rig.event_count("nvme0: it has not said that it has shut down"), 1);
    assert!(rig.get("nvme0", "last_error").unwrap().contains("I/O queue 2: connection reset"));
}
