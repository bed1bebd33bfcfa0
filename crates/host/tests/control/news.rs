//! A controller says that its namespaces have changed while it is being looked at.

use crate::fake::{Command, Say, Space};
use crate::rig::{NAMESPACES_CHANGED, Rig};

/// The scan may have read what has changed since: its end puts nothing into use. What was not named
/// then is used at once.
#[test]
fn f13_a_change_during_the_first_scan_keeps_the_path_out_of_use_until_it_is_named() {
    let mut rig = Rig::connected_twice(1);
    for at in [1, 2] {
        rig.fake(at).spaces.insert(2, Space::new(0x22, 2048));
        rig.raise(at, NAMESPACES_CHANGED);
    }
    rig.fake(1).hook =
        Some(Box::new(|c| (c.is_identify(0) && c.nsid == 2).then_some(Say::Nothing)));
    rig.cut(1);
    rig.advance_s(11);
    let ready = |rig: &Rig| {
        ["nvme0n1", "nvme0n2"].map(|head| rig.path(head, 0).is_some_and(|path| path.ready))
    };
    let last = |rig: &mut Rig, is: &dyn Fn(&Command) -> bool| {
        rig.fake(1).seen.iter().rfind(|&c| is(c)).copied().expect("it was asked")
    };
    rig.fake(1).spaces.insert(1, Space::new(0x99, 2048));
    rig.raise(1, NAMESPACES_CHANGED);
    let held = last(&mut rig, &|c| c.is_identify(0) && c.nsid == 2);
    rig.fake(1).hook = Some(Box::new(|c| c.is_log(4).then_some(Say::Nothing)));
    rig.fake(1).say(&held, Say::namespace(2048));
    rig.deliver(1);
    rig.run();
    assert_eq!(ready(&rig), [false, false], "which of them has changed was not said yet");
    let held = last(&mut rig, &|c| c.is_log(4));
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(2).then_some(Say::Nothing)));
    let mut named = vec![0; 4096];
    named[0] = 1;
    rig.fake(1).say(&held, Say::Data(named));
    rig.deliver(1);
    rig.run();
    assert_eq!(ready(&rig), [false, true], "the other one was looked at");
    let held = last(&mut rig, &|c| c.is_identify(2));
    rig.fake(1).hook = None;
    let mut list = vec![0; 4096];
    (list[0], list[4]) = (1, 2);
    rig.fake(1).say(&held, Say::Data(list));
    rig.deliver(1);
    rig.run();
    assert_eq!(ready(&rig), [false, true]);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 1, "it leads elsewhere now");
}

/// The event and the last answer of the scan come at once, and a further event before the list:
/// what the first one is about is not known any better.
#[test]
fn f13_a_change_that_comes_with_the_end_of_the_first_scan_is_waited_for() {
    let mut rig = Rig::connected_twice(1);
    let held = |c: &Command| c.is_identify(0) || c.is_log(4);
    rig.fake(1).hook = Some(Box::new(move |c| held(c).then_some(Say::Nothing)));
    rig.cut(1);
    rig.advance_s(11);
    let ready = |rig: &Rig| rig.path("nvme0n1", 0).is_some_and(|path| path.ready);
    let last = |rig: &mut Rig| rig.fake(1).seen.iter().rfind(|&c| held(c)).copied();
    let identify = last(&mut rig).filter(|c| c.is_identify(0)).expect("it was asked");
    rig.fake(1).raise(NAMESPACES_CHANGED);
    rig.fake(1).say(&identify, Say::namespace(2048));
    rig.deliver(1);
    rig.run();
    assert!(!ready(&rig), "it may be what has changed");
    rig.raise(1, NAMESPACES_CHANGED);
    assert!(!ready(&rig), "it still may");
    let log = last(&mut rig).filter(|c| c.is_log(4)).expect("it was asked");
    rig.fake(1).hook = None;
    rig.fake(1).say(&log, Say::Data(vec![0; 4096]));
    rig.deliver(1);
    rig.run();
    assert!(ready(&rig), "it is not");
}

/// The controller was lost before it has named what has changed. It looks at everything then.
#[test]
fn a_path_does_not_wait_for_news_of_a_connection_that_is_gone() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(2).then_some(Say::Nothing)));
    rig.cut(1);
    rig.advance_s(11);
    rig.raise(1, NAMESPACES_CHANGED);
    rig.fake(1).hook = None;
    rig.cut(1);
    rig.advance_s(11);
    assert!(rig.path("nvme0n1", 0).unwrap().ready);
}

/// One that names all it has as changed, and has changed again during each look at it, is used all
/// the same.
#[test]
fn changes_without_end_do_not_keep_a_path_out_of_use() {
    let mut rig = Rig::connected(1);
    let hold = |c: &Command| c.is_log(4) || c.is_identify(2);
    rig.fake(1).hook = Some(Box::new(move |c| hold(c).then_some(Say::Nothing)));
    rig.cut(1);
    rig.advance_s(11);
    let answer = |rig: &mut Rig, is: fn(&Command) -> bool, say: Say| {
        let held = rig.fake(1).seen.iter().rfind(|&c| hold(c)).copied().expect("it was asked");
        assert!(is(&held), "{held:?}");
        rig.fake(1).say(&held, say);
        rig.deliver(1);
        rig.run();
        rig.path("nvme0n1", 0).unwrap().ready
    };
    let list = || {
        let mut list = vec![0; 4096];
        list[0] = 1;
        Say::Data(list)
    };
    let used = [(); 8].map(|()| {
        rig.raise(1, NAMESPACES_CHANGED);
        let used = answer(&mut rig, |c| c.is_identify(2), list());
        answer(&mut rig, |c| c.is_log(4), Say::Status(0x002));
        used
    });
    assert_eq!(used, [false, true, true, true, true, true, true, true]);
}
