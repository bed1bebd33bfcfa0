//! A controller that shows another namespace under an NSID than the others do, and not the same one
//! for long.

use crate::fake::{Command, Say, Space};
use crate::rig::{NAMESPACES_CHANGED, Rig};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Shows another namespace under NSID 1 through the second controller.
fn contradict(rig: &mut Rig, uuid: u8) {
    rig.fake(2).spaces = [(1, Space::new(uuid, 2048))].into();
    rig.raise(2, NAMESPACES_CHANGED);
}

/// How often the honest path came into doubt.
fn doubts(rig: &Rig) -> u32 {
    rig.path("nvme0n1", 0).unwrap().doubted
}

#[test]
fn a_controller_that_shows_another_namespace_at_each_look_does_not_keep_the_others_from_work() {
    let mut rig = Rig::connected_twice(1);
    // The honest controller takes its time.
    let late: Rc<RefCell<Vec<Command>>> = Rc::default();
    let kept = late.clone();
    rig.fake(1).hook = Some(Box::new(move |c| {
        let scans = [0, 2, 3].iter().any(|cns| c.is_identify(*cns));
        scans.then(|| {
            kept.borrow_mut().push(*c);
            Say::Nothing
        })
    }));
    let before = doubts(&rig);
    contradict(&mut rig, 0x80);
    assert!(!rig.path("nvme0n1", 0).unwrap().ready, "it is looked at first");
    for look in 0..3 {
        contradict(&mut rig, 0x81 + look);
        let asked: Vec<Command> = late.borrow_mut().drain(..).collect();
        for command in asked {
            let said = match command.cdw10 & 0xff {
                2 => Say::Data(vec![1, 0, 0, 0]),
                3 => Say::Data([vec![3, 16, 0, 0], vec![0x11; 16]].concat()),
                _ => Say::namespace(2048),
            };
            rig.fake(1).say(&command, said);
        }
        rig.deliver(1);
        rig.run();
        rig.advance(Duration::from_millis(20));
    }
    assert!(rig.path("nvme0n1", 0).unwrap().ready, "it was looked at: {:?}", rig.events);
    assert_eq!(doubts(&rig), before + 1);

    // However long it goes on, agrees in between, leaves it out or connects again.
    rig.fake(1).hook = None;
    for look in 0..1500_u32 {
        match look % 50 {
            7 => rig.fake(2).spaces.clear(),
            9 => rig.fake(2).spaces = [(1, Space::new(0x11, 2048))].into(),
            _ => {
                let uuid = 0x80 | look as u8;
                rig.fake(2).spaces = [(1, Space::new(uuid, 2048))].into();
            }
        }
        if rig.fake(2).has_event_request() {
            rig.raise(2, NAMESPACES_CHANGED);
        }
        if look % 600 == 300 {
            rig.cut(2);
        }
        rig.advance(Duration::from_millis(20));
    }
    let times = doubts(&rig) - before;
    assert!((2..=6).contains(&times), "after 1, 2, 4, 8, 16 s: {times}");
}

/// The second controller tells first, and its other one only when it has been asked already.
#[test]
fn a_namespace_that_changes_on_two_controllers_one_after_the_other_is_a_new_device() {
    let mut rig = Rig::connected_twice(1);
    for uuid in [0x22, 0x33] {
        contradict(&mut rig, uuid);
        rig.advance(Duration::from_millis(300));
        assert!(rig.head("nvme0n1").is_some() && rig.heads().len() == 1, "{:?}", rig.events);
    }
    rig.fake(1).spaces = [(1, Space::new(0x33, 2048))].into();
    rig.raise(1, NAMESPACES_CHANGED);
    let heads = rig.heads();
    assert_eq!(heads.len(), 1, "{:?}", rig.events);
    assert!(heads[0].wwid.starts_with("uuid.3333"), "{}", heads[0].wwid);
    assert!(heads[0].paths.len() == 2 && heads[0].paths.iter().all(|path| path.ready));
}

/// No event came of the first one, which has changed meanwhile.
#[test]
fn who_goes_on_contradicting_is_heard_again_after_a_while() {
    let mut rig = Rig::connected_twice(1);
    contradict(&mut rig, 0x22);
    contradict(&mut rig, 0x33);
    rig.fake(1).spaces = [(1, Space::new(0x33, 2048))].into();
    rig.advance_s(2);
    let heads = rig.heads();
    assert_eq!(heads.len(), 1, "{:?}", rig.events);
    assert!(heads[0].paths.len() == 2 && heads[0].paths.iter().all(|path| path.ready));
}
