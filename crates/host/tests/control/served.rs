//! What is told and listed of devices as a whole.

use crate::fake::{Fake, Say, Space};
use crate::rig::{NAMESPACES_CHANGED, NQN, Rig};
use anabranch_host::verb::{Selection, Verb};

/// As Linux does, in the words of Linux; and that it is over.
#[test]
fn a_device_without_a_usable_path_is_told_of() {
    let mut rig = Rig::connected_twice(1);
    let told = |rig: &Rig| {
        [rig.event_count("nvme0n1: no usable path of 2"), rig.event_count("usable again")]
    };
    rig.cut(1);
    assert_eq!(told(&rig), [0, 0], "there is another one");
    rig.cut(2);
    assert_eq!(told(&rig), [1, 0]);
    rig.advance_s(11);
    assert_eq!(told(&rig), [1, 1]);
    for _ in 0..3 {
        rig.raise(1, NAMESPACES_CHANGED);
        rig.raise(2, NAMESPACES_CHANGED);
    }
    assert_eq!(told(&rig), [1, 1], "what is only looked at is there in a moment");
    rig.verb(Verb::Disconnect(Selection::All));
    rig.advance_s(2);
    assert!(rig.heads().is_empty());
    assert_eq!(told(&rig), [1, 1], "it was asked for");
}

/// Programs take the first of a list, and people look where it was last time.
#[test]
fn subsystems_are_listed_by_number_whichever_answers_first() {
    let other = "nqn.2024-01.test:two";
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.put(2, Fake::new(other, 1));
    rig.fake(2).spaces = [(1, Space::new(0x33, 100))].into();
    rig.fake(1).hook = Some(Box::new(|c| c.is_connect().then_some(Say::Nothing)));
    rig.connect(1, |request| request.keep_trying = true);
    rig.connect_ok(2, |request| request.subsystem_nqn = other.parse().unwrap());
    rig.fake(1).hook = None;
    rig.cut(1);
    rig.advance_s(11);
    let names: Vec<_> = rig.snapshot().subsystems.into_iter().map(|it| (it.name, it.nqn)).collect();
    let [first, second] = [("nvme-subsys0", NQN), ("nvme-subsys1", other)];
    let wanted = [first, second].map(|(name, nqn)| (name.to_string(), nqn.to_string()));
    assert_eq!(names, wanted);
}
