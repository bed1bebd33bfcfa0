//! Loss, reconnect, giving up: how a controller lives after it has been live once.

use crate::fake::{Command, Fake, Hook, KEEP_ALIVE, SET_FEATURES, Say, Space};
use crate::rig::{ANA_CHANGED, NAMESPACES_CHANGED, NQN, Rig, Shards};
use anabranch_host::mail::ToControl;
use anabranch_host::topology::{Association, ControllerId, ControllerState};
use anabranch_host::verb::{Reply, Selection, Verb};
use anabranch_proto::machine::{Endpoint, WorkerId};
use std::time::Duration;

const LIVE: Option<ControllerState> = Some(ControllerState::Live);
const CONNECTING: Option<ControllerState> = Some(ControllerState::Connecting);

#[test]
fn going_down_tells_everybody_before_anybody_is_stopped() {
    let mut rig = Rig::connected(2);
    rig.mailed.clear();
    rig.shards = Shards::Hang;
    rig.cut(1);
    let first: Vec<(u16, &str)> = rig.mailed.iter().map(|&(to, what)| (to.0, what)).collect();
    assert_eq!(
        first,
        [(1, "Topology"), (2, "Topology"), (1, "StopQueue"), (2, "StopQueue")],
        "the shards know the new state when they are told to stop"
    );
    assert_eq!(rig.state(0), Some(ControllerState::Resetting));
    // Only when both have answered does the controller go on.
    let (controller, association) = (ControllerId(0), Association(1));
    let stopped = || ToControl::QueueStopped { controller, association };
    rig.post(WorkerId(2), stopped());
    rig.run();
    assert_eq!(rig.state(0), Some(ControllerState::Resetting));
    rig.post(WorkerId(2), stopped());
    rig.run();
    assert_eq!(rig.state(0), Some(ControllerState::Resetting), "one answer counts once");
    rig.post(WorkerId(1), stopped());
    rig.run();
    assert_eq!(rig.state(0), CONNECTING);
}

#[test]
fn a_lost_controller_is_live_again_after_the_reconnect_delay() {
    let mut rig = Rig::connected(1);
    rig.cut(1);
    assert_eq!(rig.state(0), CONNECTING);
    rig.advance(Duration::from_millis(9_900));
    assert_eq!(rig.fake(1).connections, 1, "the first attempt is delayed too");
    rig.advance(Duration::from_millis(300));
    assert_eq!(rig.state(0), LIVE);
    assert!(rig.path("nvme0n1", 0).unwrap().ready);
    assert_eq!(rig.controller(0).unwrap().association, Association(2));
    assert_eq!(rig.get("nvme0", "reconnect_count"), Ok("1".to_string()));
    assert_eq!(rig.get("nvme0", "reset_count"), Ok("1".to_string()));
    assert_eq!(rig.bufs.in_use_bytes(), 0);
}

/// TCP sends its first packet ever more seldom: a new attempt finds a path that is back sooner.
#[test]
fn an_attempt_whose_first_packets_were_lost_is_soon_given_up() {
    let mut rig = Rig::connected(1);
    rig.fake(1).black_hole = true;
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!((rig.state(0), rig.open_connections()), (CONNECTING, 1), "the first one is lost");
    rig.fake(1).black_hole = false;
    rig.advance_s(15);
    assert_eq!(rig.state(0), LIVE);
}

#[test]
fn a_port_that_takes_connections_and_says_nothing_is_soon_given_up() {
    for (admin_timeout, limit) in [(60, 10), (2, 2)] {
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        rig.fake(1).silent = true;
        let id = rig.connect(1, |request| {
            request.options.admin_timeout = Duration::from_secs(admin_timeout);
        });
        rig.advance(Duration::from_secs(limit) - Duration::from_millis(1));
        assert!(rig.reply(id).is_none(), "{admin_timeout}");
        rig.advance(Duration::from_millis(2));
        let reply = rig.reply(id).expect("an answer");
        assert!(format!("{reply:?}").contains("ICReq"), "{reply:?}");
    }
}

#[test]
fn an_error_that_may_pass_is_no_reason_to_give_up_a_controller_that_comes_back() {
    for cns in [None, Some(1)] {
        let mut rig = Rig::connected(1);
        rig.fake(1).hook = Some(Box::new(move |c| {
            let refused = cns.map_or(c.is_connect(), |cns| c.is_identify(cns));
            refused.then_some(Say::Status(0x006))
        }));
        rig.cut(1);
        rig.advance_s(15);
        rig.fake(1).hook = None;
        rig.advance_s(10);
        assert_eq!(rig.state(0), LIVE, "{:#?}", rig.events);
    }
}

#[test]
fn a_path_is_shown_as_usable_while_it_is() {
    let mut rig = Rig::connected_twice(1);
    let usable = |rig: &mut Rig| {
        let paths = rig.snapshot().subsystems[0].heads[0].paths.clone();
        paths.iter().map(|path| path.usable).collect::<Vec<_>>()
    };
    assert_eq!(usable(&mut rig), [true, true]);
    rig.cut(1);
    assert_eq!(usable(&mut rig), [false, true], "its controller is lost");
    rig.advance_s(11);
    assert_eq!(usable(&mut rig), [true, true]);
    rig.fake(1).spaces = [(1, Space::new(0x11, 1024))].into();
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(usable(&mut rig), [false, true], "it has another size than the device");
}

/// No answer to the scan that was going on will ever come.
#[test]
fn a_controller_that_is_lost_while_its_namespaces_are_read_is_read_anew() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(0).then_some(Say::Nothing)));
    rig.raise(1, NAMESPACES_CHANGED);
    rig.cut(1);
    rig.fake(1).hook = None;
    rig.fake(1).spaces.insert(2, Space::new(0x22, 4096));
    rig.advance_s(11);
    assert!(rig.path("nvme0n1", 0).unwrap().ready);
    assert_eq!(rig.heads().len(), 2);
}

#[test]
fn a_command_without_an_answer_is_told_in_words() {
    type Is = fn(&Command) -> bool;
    let silent: [(Is, &str); 4] = [
        (|c| c.is_log(4), "Get Log Page (changed namespaces)"),
        (|c| c.is_identify(2), "Identify (list of active namespaces)"),
        (|c| c.is_identify(3), "Identify (identifiers of namespace 1)"),
        (|c| c.is_identify(0), "Identify (namespace 1)"),
    ];
    for (is, name) in silent {
        let mut rig = Rig::connected(1);
        rig.fake(1).hook = Some(Box::new(move |c| is(c).then_some(Say::Nothing)));
        rig.raise(1, NAMESPACES_CHANGED);
        rig.advance_s(70);
        let told = format!("no answer to {name} in time");
        assert_eq!(rig.event_count(&told), 1, "{told}: {:#?}", rig.events);
    }
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_log(0x0c).then_some(Say::Nothing)));
    rig.raise(1, ANA_CHANGED);
    rig.advance_s(70);
    assert_eq!(rig.event_count("no answer to Get Log Page (ANA) in time"), 1, "{:#?}", rig.events);
}

/// A target with few controllers still counts the one that was lost, until its keep-alive ends.
#[test]
fn a_target_that_is_busy_when_a_controller_comes_back_is_tried_again() {
    const BUSY: u16 = 0x181 | 1 << 14;
    const NO_SUCH_SUBSYSTEM: u16 = 0x182 | 1 << 14;
    let mut rig = Rig::connected(1);
    let answer = |status| -> Option<Hook> {
        Some(Box::new(move |c| c.is_connect().then_some(Say::Status(status))))
    };
    rig.fake(1).hook = answer(BUSY);
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.state(0), CONNECTING);
    rig.fake(1).hook = None;
    rig.advance_s(10);
    assert_eq!(rig.state(0), LIVE);

    // Other refusals that are final are believed, as Linux does.
    rig.fake(1).hook = answer(NO_SUCH_SUBSYSTEM);
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.state(0), None);
}

#[test]
fn b10_a_silent_controller_is_noticed_within_kato() {
    let mut rig = Rig::connected(1);
    rig.advance_s(60);
    assert_eq!(rig.state(0), LIVE);
    let sent = rig.fake(1).count(|command| command.opcode == KEEP_ALIVE);
    assert_eq!(sent, 24, "one each KATO / 2");
    rig.fake(1).silent = true;
    rig.advance_s(4);
    assert_eq!(rig.state(0), LIVE, "one command is still waited for");
    rig.advance_s(1);
    assert_eq!(rig.state(0), CONNECTING);
    assert!(rig.get("nvme0", "last_error").unwrap().contains("Keep Alive"));
}

#[test]
fn a_keep_alive_that_is_refused_resets_the_controller_without_a_busy_loop() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| (c.opcode == KEEP_ALIVE).then_some(Say::Status(0x019))));
    rig.advance_s(120);
    let connections = rig.fake(1).connections;
    assert!((5..=12).contains(&connections), "{connections} connections in two minutes");
}

#[test]
fn an_admin_command_that_is_not_answered_resets_the_controller() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_log(0x0c).then_some(Say::Nothing)));
    rig.raise(1, crate::rig::ANA_CHANGED);
    rig.advance_s(59);
    assert_eq!(rig.state(0), LIVE);
    rig.advance_s(2);
    assert_eq!(rig.state(0), CONNECTING);
}

#[test]
fn b11_a_controller_is_removed_after_as_many_attempts_as_fit_in_ctrl_loss_tmo() {
    for (loss, delay, attempts) in [(600, 10, 60), (25, 10, 3), (30, 10, 3), (5, 10, 1)] {
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        rig.connect_ok(1, |request| {
            request.options.ctrl_loss_tmo = Some(Duration::from_secs(loss));
            request.options.reconnect_delay = Duration::from_secs(delay);
        });
        rig.fake(1).refuse = true;
        rig.cut(1);
        rig.advance_s(attempts * delay - 1);
        assert_eq!(rig.state(0), CONNECTING, "{loss} s: before the last attempt");
        rig.advance_s(2);
        assert_eq!(rig.state(0), None, "{loss} s: removed");
        assert_eq!(rig.event_count("failed: connection refused"), attempts as usize);
        assert_eq!(rig.event_count("do not retry"), 0, "nobody has said so");
        assert_eq!(rig.event_count("connecting -> connecting"), 0);
        assert_eq!(rig.event_count("nvme0: removed: "), 1);
        assert_eq!(rig.heads().len(), 0);
    }
}

/// It is lost again and again, and comes back each time: that may go on for ever.
#[test]
fn b11_m10_who_comes_back_has_all_of_its_time_again() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.connect_ok(1, |request| {
        request.options.ctrl_loss_tmo = Some(Duration::from_secs(25));
        request.options.reconnect_delay = Duration::from_secs(10);
        request.options.fast_io_fail_tmo = Some(Duration::from_secs(22));
    });
    for _ in 0..10 {
        rig.fake(1).refuse = true;
        rig.cut(1);
        rig.advance_s(11);
        rig.fake(1).refuse = false;
        rig.advance_s(10);
        assert_eq!(rig.state(0), LIVE);
    }
    assert_eq!(rig.event_count("failed: connection refused"), 10);
    assert_eq!(rig.event_count("fast_io_fail_tmo"), 0);
}

#[test]
fn b11_off_means_never_and_zero_means_at_once() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.connect_ok(1, |request| request.options.ctrl_loss_tmo = None);
    assert_eq!(rig.get("nvme0", "ctrl_loss_tmo"), Ok("off".to_string()));
    rig.fake(1).refuse = true;
    rig.cut(1);
    rig.advance_s(100_000);
    assert_eq!(rig.state(0), CONNECTING);
    rig.fake(1).refuse = false;
    rig.advance_s(11);
    assert_eq!(rig.state(0), LIVE);
    rig.set("nvme0", "ctrl_loss_tmo", "0").unwrap();
    rig.cut(1);
    assert_eq!(rig.state(0), None);
}

#[test]
fn m10_b12_fast_io_fail_is_published_in_time_while_the_reconnect_goes_on() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.connect_ok(1, |request| {
        request.options.fast_io_fail_tmo = Some(Duration::from_secs(13));
    });
    rig.fake(1).refuse = true;
    rig.cut(1);
    rig.advance_s(9);
    (rig.fake(1).refuse, rig.fake(1).black_hole) = (false, true);
    rig.advance_s(3);
    assert!(!rig.controller(0).unwrap().fast_io_failed);
    rig.advance_s(2);
    assert!(rig.controller(0).unwrap().fast_io_failed);
    assert_eq!(rig.event_count("fast_io_fail_tmo"), 1);
    assert_eq!(rig.event_count("connect to"), 0, "the attempt goes on, too");
    rig.advance_s(2);
    assert_eq!(rig.event_count("no answer to TCP connect in time"), 1);
    assert_eq!(rig.event_count("fast_io_fail_tmo"), 1);
    rig.fake(1).black_hole = false;
    rig.advance_s(10);
    let view = rig.controller(0).unwrap();
    assert!(!view.fast_io_failed && view.state == ControllerState::Live);
}

/// The pause before the next attempt is as long as it is.
#[test]
fn m10_fast_io_fail_hastens_no_attempt() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.connect_ok(1, |request| {
        request.options.fast_io_fail_tmo = Some(Duration::from_secs(5));
    });
    rig.cut(1);
    rig.advance_s(9);
    assert!(rig.controller(0).unwrap().fast_io_failed);
    assert_eq!((rig.state(0), rig.fake(1).connections), (CONNECTING, 1));
    rig.advance_s(2);
    assert_eq!((rig.state(0), rig.fake(1).connections), (LIVE, 2));
}

/// It is live now and then, but never for long enough that its namespaces are known: I/O does not
/// wait for it for ever.
#[test]
fn m10_what_is_live_without_proving_itself_gives_fast_io_fail_no_new_time() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.connect_ok(1, |request| {
        request.options.fast_io_fail_tmo = Some(Duration::from_secs(25));
    });
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(2).then_some(Say::Nothing)));
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.state(0), LIVE);
    rig.cut(1);
    assert_eq!(rig.state(0), CONNECTING);
    rig.fake(1).refuse = true;
    rig.advance_s(12);
    assert!(!rig.controller(0).unwrap().fast_io_failed, "23 s");
    rig.advance_s(3);
    assert!(rig.controller(0).unwrap().fast_io_failed, "26 s");
}

/// A reset on request is without a connection from when the former one was given up.
#[test]
fn m10_a_reset_that_does_not_come_back_is_without_a_connection_from_its_start() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.connect_ok(1, |request| {
        request.options.fast_io_fail_tmo = Some(Duration::from_secs(5));
    });
    rig.fake(1).black_hole = true;
    rig.verb(Verb::Reset { controller: "nvme0".to_string() });
    rig.advance(Duration::from_millis(100));
    assert_eq!(rig.state(0), CONNECTING);
    rig.advance_s(4);
    assert!(!rig.controller(0).unwrap().fast_io_failed);
    rig.advance_s(1);
    assert!(rig.controller(0).unwrap().fast_io_failed);
}

/// It was live and comes back by itself: whoever asked for it has got it.
#[test]
fn a_connect_that_is_lost_before_its_namespaces_are_known_is_answered() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(2).then_some(Say::Nothing)));
    let id = rig.connect(1, |_| ());
    rig.advance_s(1);
    assert!(rig.reply(id).is_none());
    rig.cut(1);
    assert!(matches!(rig.reply(id), Some(Reply::Connected(name, _)) if name == "nvme0"));
}

#[test]
fn m10_without_fast_io_fail_nothing_expires() {
    let mut rig = Rig::connected(1);
    rig.fake(1).refuse = true;
    rig.cut(1);
    rig.advance_s(500);
    let view = rig.controller(0).unwrap();
    assert!(!view.fast_io_failed && view.state == ControllerState::Connecting);
    // Set while it is away, it counts from the loss.
    rig.set("nvme0", "fast_io_fail_tmo", "501").unwrap();
    rig.advance_s(2);
    assert!(rig.controller(0).unwrap().fast_io_failed);
}

#[test]
fn a_connect_refused_with_dnr_is_not_tried_again() {
    let dnr = 0x182 | 1 << 14;
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(move |c| c.is_connect().then_some(Say::Status(dnr))));
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.state(0), None);
    assert_eq!(
        rig.event_count("giving up: the controller says \"do not retry\"; connect again"),
        1
    );

    // So does a property, but no command behind them: it may be on its way to a reset.
    type Hits = fn(&Command) -> bool;
    let refused: [(Hits, _); 4] = [
        (|c| c.is_property_get(0), None),
        (Command::is_property_set, None),
        (|c| c.is_identify(1), CONNECTING),
        (|c| c.opcode == SET_FEATURES, CONNECTING),
    ];
    for (number, (hits, state)) in refused.into_iter().enumerate() {
        let mut rig = Rig::connected(1);
        rig.fake(1).hook = Some(Box::new(move |c| hits(c).then_some(Say::Status(0x00c | 1 << 14))));
        rig.cut(1);
        rig.advance_s(11);
        assert_eq!(rig.state(0), state, "{number}: {:?}", rig.events);
        rig.fake(1).hook = None;
        rig.advance_s(11);
        assert_eq!(rig.state(0), state.and(LIVE), "{number}: {:?}", rig.events);
    }

    // What was never live, or has used up its attempts, ends for another reason.
    let mut rig = Rig::connected(1);
    rig.set("nvme0", "ctrl_loss_tmo", "20").unwrap();
    rig.fake(1).refuse = true;
    rig.cut(1);
    rig.advance_s(60);
    let over = "(attempt 2, giving up: ctrl_loss_tmo is over)";
    assert_eq!((rig.state(0), rig.event_count(over)), (None, 1), "{:?}", rig.events);
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.fake(1).refuse = true;
    rig.verb(Verb::Connect(Box::new(Rig::request(1))));
    rig.advance_s(1);
    assert_eq!(rig.event_count("(attempt 1, giving up)"), 1, "{:?}", rig.events);

    // Unless the caller wanted to keep trying.
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.fake(1).hook = Some(Box::new(move |c| c.is_connect().then_some(Say::Status(dnr))));
    let id = rig.connect(1, |request| request.keep_trying = true);
    assert!(matches!(rig.reply(id), Some(Reply::Connected(name, _)) if name == "nvme0"));
    rig.advance_s(35);
    assert_eq!(rig.state(0), CONNECTING);
    rig.fake(1).hook = None;
    rig.advance_s(10);
    assert_eq!(rig.state(0), LIVE);
}

/// A Linux target that was given no serial number draws a new one whenever it starts.
#[test]
fn a_target_that_starts_anew_under_another_serial_number_is_the_same_subsystem() {
    let mut rig = Rig::connected_twice(1);
    let uuid = rig.head("nvme0n1").unwrap().id;
    for port in [1, 2] {
        rig.fake(port).serial = "OTHER".to_string();
        rig.cut(port);
    }
    rig.advance_s(11);
    assert_eq!([rig.state(0), rig.state(1)], [LIVE; 2]);
    assert_eq!(rig.heads().len(), 1);
    assert_eq!(rig.head("nvme0n1").unwrap().id, uuid, "the same device");
    assert!([0, 1].iter().all(|path| rig.path("nvme0n1", *path).unwrap().ready));
    assert_eq!(
        rig.event_count("another one since it is back: serial \"OTHER\" (it was \"SER1\");"),
        2
    );
    assert_eq!(rig.get("nvme-subsys0", "serial"), Ok("OTHER".to_string()));

    // Who connects now finds the subsystem.
    rig.put(3, Fake::new(NQN, 3));
    rig.fake(3).serial = "OTHER".to_string();
    rig.connect_ok(3, |_| ());
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 3);
    assert!(rig.get("nvme-subsys1", "serial").is_err());
    assert_eq!(rig.event_count("another one than"), 0);
}

/// And it is gone although the controller never gets so far as to show its namespaces.
#[test]
fn a_device_without_identifiers_goes_with_the_serial_number_whatever_comes_then() {
    let mut rig = Rig::new(1);
    let mut fake = Fake::new(NQN, 1);
    fake.spaces = [(1, Space::new(0, 2048))].into();
    rig.put(1, fake);
    rig.connect_ok(1, |_| ());
    rig.set("nvme0n1", "delayed_removal_secs", "5").unwrap();
    rig.fake(1).serial = "SER2".to_string();
    rig.shards = Shards::FailToOpen;
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.state(0), CONNECTING);
    assert!(rig.head("nvme0n1").is_some_and(|head| head.paths.is_empty()), "it is kept");
    rig.advance_s(5);
    assert!(rig.head("nvme0n1").is_none(), "{:?}", rig.events);
}

/// What has no identifiers may be anything after that.
#[test]
fn a_namespace_without_identifiers_is_another_device_when_the_serial_number_is_another() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.fake(1).spaces.get_mut(&1).unwrap().uuid = [0; 16];
    rig.connect_ok(1, |_| ());
    let first = rig.head("nvme0n1").unwrap().id;
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.head("nvme0n1").unwrap().id, first, "the same serial number");

    rig.fake(1).serial = "OTHER".to_string();
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.state(0), LIVE);
    assert!(rig.heads().iter().all(|head| head.id != first), "{:?}", rig.events);
    assert_eq!(rig.event_count("path nvme0c0n1 removed"), 1, "{:?}", rig.events);
    assert_eq!(rig.heads().len(), 1);
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.heads().len(), 1, "and stays it: {:?}", rig.events);
}

#[test]
fn a_reset_on_request_is_answered_when_it_is_live_again() {
    let mut rig = Rig::connected(1);
    let id = rig.verb(Verb::Reset { controller: "nvme0".to_string() });
    rig.advance(Duration::from_millis(100));
    assert!(matches!(rig.reply(id), Some(Reply::Done)));
    assert_eq!(rig.state(0), LIVE);
    assert_eq!(rig.fake(1).connections, 2, "at once, without the delay");

    rig.fake(1).refuse = true;
    let id = rig.verb(Verb::Reset { controller: "nvme0".to_string() });
    rig.advance(Duration::from_millis(100));
    assert!(matches!(rig.reply(id), Some(Reply::Error(_))));
    assert!(matches!(
        rig.ask(Verb::Reset { controller: "nvme0".to_string() }),
        Reply::Error(error) if error.to_string().contains("connecting")
    ));
}

/// Each is quicker than the look at the namespaces, so none of these connections proves itself.
#[test]
fn resets_on_request_use_up_no_attempts() {
    for loss in [0, 10, 600] {
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        rig.connect_ok(1, |request| {
            request.options.ctrl_loss_tmo = Some(Duration::from_secs(loss));
            request.options.reconnect_delay = Duration::from_secs(10);
        });
        rig.fake(1).hook = Some(Box::new(|c| c.is_identify(2).then_some(Say::Nothing)));
        for round in 0..70 {
            let id = rig.verb(Verb::Reset { controller: "nvme0".to_string() });
            rig.advance(Duration::from_millis(100));
            assert!(matches!(rig.reply(id), Some(Reply::Done)), "{loss} s, reset {round}");
        }
        assert_eq!(rig.state(0), LIVE);
        assert_eq!(rig.heads().len(), 1);
        // What is a loss still counts.
        if loss == 0 {
            rig.cut(1);
            assert_eq!(rig.state(0), None);
        }
    }
}

#[test]
fn mail_of_an_old_association_changes_nothing() {
    let mut rig = Rig::connected(1);
    rig.cut(1);
    rig.advance_s(11);
    let (controller, association) = (ControllerId(0), Association(1));
    let why = String::new();
    let lost = ToControl::QueueLost { controller, association, qid: 1, why: why.clone() };
    rig.post(WorkerId(1), lost);
    rig.post(WorkerId(1), ToControl::QueueFailed { controller, association, qid: 1, why });
    rig.run();
    assert_eq!(rig.state(0), LIVE);
}

#[test]
fn garbage_on_the_admin_queue_resets_the_controller() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| (c.opcode == KEEP_ALIVE).then_some(Say::Garbage)));
    rig.advance_s(3);
    assert_eq!(rig.state(0), CONNECTING);
    rig.fake(1).hook = None;
    rig.advance_s(11);
    assert_eq!(rig.state(0), LIVE);
    assert_eq!(rig.bufs.in_use_bytes(), 0);
}

/// It is told what it did wrong, and the path does not wait for it to leave.
#[test]
fn a_controller_that_breaks_the_protocol_and_stays_keeps_the_path_away_no_longer_for_it() {
    let mut rig = Rig::connected(1);
    rig.fake(1).never_closes = true;
    rig.fake(1).hook = Some(Box::new(|c| (c.opcode == KEEP_ALIVE).then_some(Say::Garbage)));
    while rig.state(0) == LIVE {
        rig.advance(Duration::from_millis(10));
    }
    rig.fake(1).hook = None;
    rig.advance(Duration::from_secs(1));
    assert_eq!(rig.state(0), CONNECTING, "the connection is over");
    rig.advance_s(10);
    assert_eq!(rig.state(0), LIVE, "one reconnect_delay later");
}

#[test]
fn a_scan_that_never_works_counts_as_a_failed_attempt() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(2).then_some(Say::Status(0x006))));
    rig.connect(1, |request| {
        request.options.ctrl_loss_tmo = Some(Duration::from_secs(30));
    });
    rig.advance_s(120);
    assert_eq!(rig.state(0), None, "it does not go round for ever");
}

fn at(port: u16) -> Endpoint {
    Rig::request(port).to
}

/// A target that has another address under the same name comes back, with what was there of it.
#[test]
fn a_lost_controller_comes_back_where_it_has_moved_to() {
    let mut rig = Rig::connected(1);
    rig.put(2, Fake::new(NQN, 1));
    rig.fake(1).refuse = true;
    rig.cut(1);
    let moved = rig.ask(Verb::Move { request: Box::new(Rig::request(1)), to: at(2) });
    assert!(matches!(moved, Reply::Done), "{moved:?}");
    assert_eq!(rig.event_count("nvme0: it moves from 127.0.0.1:1 to 127.0.0.1:2"), 1);
    rig.advance_s(11);
    assert_eq!(rig.state(0), LIVE);
    assert!(rig.path("nvme0n1", 0).unwrap().ready);
    assert_eq!((rig.fake(1).connections, rig.fake(2).connections), (1, 1));
    let address = rig.get("nvme0", "address").unwrap();
    assert!(address.contains("trsvcid=2"), "{address}");
}

#[test]
fn a_controller_moves_between_two_attempts_only_and_to_no_place_that_is_taken() {
    let mut rig = Rig::connected_twice(1);
    rig.put(3, Fake::new(NQN, 3));
    let go = |rig: &mut Rig, from: u16, to: u16| match rig
        .ask(Verb::Move { request: Box::new(Rig::request(from)), to: at(to) })
    {
        Reply::Error(error) => error.to_string(),
        other => format!("{other:?}"),
    };
    assert!(go(&mut rig, 1, 3).contains("nvme0 is live"), "its queues are where they are");
    rig.fake(1).black_hole = true;
    rig.cut(1);
    assert!(go(&mut rig, 1, 2).contains("already connected: nvme1"), "that would be it twice");
    assert!(go(&mut rig, 1, 1).contains("already being connected: nvme0"), "it is there");
    assert!(go(&mut rig, 4, 3).contains("no such controller"), "nobody is there");
    rig.advance_s(11);
    assert!(go(&mut rig, 1, 2).contains("already connected: nvme1"), "nor with the next attempt");
    assert_eq!(rig.state(0), CONNECTING);
    rig.advance_s(5);
    assert_eq!(go(&mut rig, 1, 3), "Done");
    rig.advance_s(11);
    assert_eq!(rig.state(0), LIVE);
}

/// What a name service says may come while the next attempt is under way: the one after that goes
/// there.
#[test]
fn a_move_during_an_attempt_holds_for_the_next_one() {
    let mut rig = Rig::connected(1);
    let go = |rig: &mut Rig, from: u16, to: u16| match rig
        .ask(Verb::Move { request: Box::new(Rig::request(from)), to: at(to) })
    {
        Reply::Error(error) => error.to_string(),
        other => format!("{other:?}"),
    };
    rig.put(2, Fake::new(NQN, 1));
    rig.fake(1).black_hole = true;
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(go(&mut rig, 1, 2), "Done", "an attempt is under way");
    assert_eq!(rig.event_count("it moves"), 0, "it is where it was");
    assert!(rig.get("nvme0", "address").unwrap().contains("trsvcid=1"));
    rig.advance_s(5);
    assert_eq!(rig.event_count("nvme0: it moves from 127.0.0.1:1 to 127.0.0.1:2"), 1);
    rig.advance_s(11);
    assert_eq!(rig.state(0), LIVE, "{:?}", rig.events);
    assert_eq!((rig.fake(1).connections, rig.fake(2).connections), (1, 1));
    assert!(rig.get("nvme0", "address").unwrap().contains("trsvcid=2"));

    // One that comes back where it was stays there, also when it is lost again.
    rig.fake(2).hook = Some(Box::new(|c| c.is_property_get(0x1c).then_some(Say::Result(0))));
    rig.cut(2);
    rig.advance(Duration::from_millis(10_200));
    assert_eq!(go(&mut rig, 2, 1), "Done", "it is not ready yet");
    rig.fake(2).hook = None;
    rig.advance_s(1);
    assert_eq!(rig.state(0), LIVE, "{:?}", rig.events);
    rig.fake(2).refuse = true;
    rig.cut(2);
    rig.advance_s(11);
    rig.fake(2).refuse = false;
    rig.advance_s(11);
    assert_eq!(rig.state(0), LIVE, "{:?}", rig.events);
    assert_eq!(rig.event_count("it moves"), 1, "{:?}", rig.events);
}

/// Where a controller was going to be next, another one may be first.
#[test]
fn a_move_during_an_attempt_leaves_the_place_to_whoever_is_there_first() {
    let mut rig = Rig::connected_twice(1);
    rig.put(3, Fake::new(NQN, 3));
    let go = |rig: &mut Rig, from: u16| match rig
        .ask(Verb::Move { request: Box::new(Rig::request(from)), to: at(3) })
    {
        Reply::Error(error) => error.to_string(),
        other => format!("{other:?}"),
    };
    for port in [1, 2] {
        rig.fake(port).black_hole = true;
        rig.cut(port);
    }
    rig.advance_s(11);
    assert_eq!(go(&mut rig, 1), "Done");
    assert_eq!(go(&mut rig, 1), "Done", "it may be said again");
    assert!(go(&mut rig, 2).contains("nvme0 is going to be"), "that would be it twice");
    rig.ask(Verb::Disconnect(Selection::Controller("nvme0".to_owned())));
    assert_eq!(go(&mut rig, 2), "Done", "what is removed keeps nobody away");
    assert_eq!(rig.connect_ok(3, |_| ()), "nvme2");
    rig.advance_s(15);
    assert_eq!(rig.event_count("it moves"), 0, "{:?}", rig.events);
    assert!(rig.get("nvme1", "address").unwrap().contains("trsvcid=2"));
}

/// A path may be away for months, and is tried every ten seconds.
#[test]
fn of_attempts_that_fail_alike_without_end_few_are_told() {
    let mut rig = Rig::connected(1);
    rig.set("nvme0", "ctrl_loss_tmo", "-1").expect("it is tried for ever");
    rig.fake(1).refuse = true;
    rig.cut(1);
    rig.events.clear();
    rig.advance_s(3005);
    let told = |rig: &Rig| {
        let failed = rig.event_count("connect to 127.0.0.1:1 failed");
        (failed, failed - rig.no_news)
    };
    assert_eq!(told(&rig), (300, 10 + 4), "the first ten, and one in sixty");
    assert_eq!(rig.event_count("one in 60 is told"), 1);
    // Another reason is news.
    rig.fake(1).refuse_with = 113;
    rig.advance_s(200);
    assert_eq!(told(&rig), (320, 10 + 4 + 10));
    // And so is the next time.
    rig.fake(1).refuse = false;
    rig.advance_s(10);
    assert_eq!(rig.state(0), LIVE);
    rig.fake(1).refuse = true;
    rig.cut(1);
    rig.events.clear();
    rig.no_news = 0;
    rig.advance_s(25);
    assert_eq!(told(&rig), (2, 2));
}
