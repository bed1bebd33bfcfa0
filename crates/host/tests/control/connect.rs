//! The connect sequence: what is sent, what is checked, what becomes of it.

use crate::fake::{Command, Fake, SET_FEATURES, Say, Space};
use crate::rig::{NQN, Rig, Shards};
use anabranch_host::config::{ConnectRequest, ControllerOptions};
use anabranch_host::mail::{Takes, ToControl};
use anabranch_host::topology::{Association, ControllerId, ControllerState};
use anabranch_host::verb::{AsideId, Reply, Selection, Verb, VerbError};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::nqn::Nqn;
use std::convert::Infallible;
use std::time::Duration;

#[test]
fn a_connect_ends_live_with_a_head_and_one_usable_path() {
    let rig = Rig::connected(2);
    assert_eq!(rig.state(0), Some(ControllerState::Live));
    let head = rig.head("nvme0n1").expect("a head");
    assert_eq!((head.blocks, head.block_bytes), (2048, 512));
    let path = rig.path("nvme0n1", 0).expect("a path");
    assert!(path.ready && !path.ana_pending);
    assert_eq!(path.ana_state.as_str(), "optimized");
    let told = rig.event_count("nvme0n1: added, 1048576 bytes, nsid 1, uuid.");
    assert_eq!((told, rig.event_count("ANA")), (1, 0));
    let opened: Vec<u16> = rig.opened.iter().map(|open| open.qid).collect();
    assert_eq!(opened, [1, 2]);
    assert_eq!(rig.bufs.in_use_bytes(), 0, "every buffer has come back");
    assert!(rig.fake(1).has_event_request());
}

#[test]
fn b1_the_defaults_are_the_kernels() {
    let options = ControllerOptions::default();
    assert_eq!(options.queue_size, 128);
    assert_eq!(options.keep_alive_tmo, Duration::from_secs(5));
    assert_eq!(options.reconnect_delay, Duration::from_secs(10));
    assert_eq!(options.ctrl_loss_tmo, Some(Duration::from_secs(600)));
    assert_eq!(options.fast_io_fail_tmo, None);
    assert_eq!(options.io_timeout, Duration::from_secs(30));
    assert_eq!(options.admin_timeout, Duration::from_secs(60));
    let rig = Rig::connected(1);
    // The admin queue has 32 entries, I/O queues 128; one entry always stays free.
    assert_eq!(rig.fake(1).seen[0].cdw11 & 0xffff, 31);
    assert_eq!(rig.fake(1).seen[0].cdw12, 5000, "KATO in ms");
    assert_eq!((rig.opened[0].connect.sqsize, rig.opened[0].queue_size), (127, 127));
}

#[test]
fn b1_options_out_of_range_are_refused() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    type Change = fn(&mut ControllerOptions);
    let cases: [(Change, &str); 13] = [
        (|o| o.queue_size = 15, "queue_size"),
        (|o| o.queue_size = 1025, "queue_size"),
        (|o| o.nr_io_queues = Some(0), "nr_io_queues"),
        (|o| o.reconnect_delay = Duration::ZERO, "reconnect_delay"),
        (|o| o.keep_alive_tmo = Duration::ZERO, "keep_alive_tmo"),
        (|o| o.keep_alive_tmo = Duration::from_secs(1 << 33), "keep_alive_tmo"),
        (|o| o.keep_alive_tmo = Duration::from_millis(1 << 32), "keep_alive_tmo"),
        (|o| o.io_timeout = Duration::ZERO, "io_timeout"),
        (|o| o.io_timeout = Duration::from_nanos(1), "io_timeout"),
        (|o| o.reconnect_delay = Duration::from_micros(999), "reconnect_delay"),
        (|o| o.keep_alive_tmo = Duration::from_nanos(1), "keep_alive_tmo"),
        (|o| o.admin_timeout = Duration::from_secs(1 << 31), "admin_timeout"),
        (|o| o.admin_timeout = Duration::ZERO, "admin_timeout"),
    ];
    for (change, field) in cases {
        let why = rig.connect_fails(1, |request| change(&mut request.options));
        assert!(why.contains(field), "{why}");
    }
    assert_eq!(rig.fake(1).connections, 0, "nothing was tried");
    for size in [16, 1024] {
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        rig.connect_ok(1, |request| request.options.queue_size = size);
        assert_eq!(rig.opened[0].connect.sqsize, size - 1);
    }
}

fn is_behavior(command: &Command) -> bool {
    command.opcode == SET_FEATURES && command.cdw10 & 0xff == 0x16
}

/// A controller says when a command may be tried again only to a host that has asked for that.
#[test]
fn m13_a_controller_with_retry_delays_is_asked_to_use_them() {
    for place in [128, 130, 132] {
        let mut rig = Rig::new(1);
        let mut fake = Fake::new(NQN, 1);
        fake.patch_identify = Some(Box::new(move |data| data[place] = 3));
        rig.put(1, fake);
        rig.connect_ok(1, |_| ());
        let seen = rig.fake(1).seen.clone();
        let asked: Vec<_> = seen.iter().filter(|c| is_behavior(c)).collect();
        assert_eq!(asked.len(), 1, "CRDT at byte {place}");
        assert_eq!((asked[0].length, asked[0].first_byte), (512, Some(1)), "ACRE");
    }
}

#[test]
fn m13_a_controller_without_retry_delays_is_asked_for_none() {
    let rig = Rig::connected(1);
    assert_eq!(rig.fake(1).count(is_behavior), 0);
}

#[test]
fn m13_a_controller_that_refuses_to_use_its_retry_delays_is_taken() {
    let mut rig = Rig::new(1);
    let mut fake = Fake::new(NQN, 1);
    fake.patch_identify = Some(Box::new(|data| data[128] = 3));
    fake.hook = Some(Box::new(|c| is_behavior(c).then_some(Say::Status(0x002 | 1 << 14))));
    rig.put(1, fake);
    rig.connect_ok(1, |_| ());
    assert_eq!(rig.fake(1).count(is_behavior), 1);
    assert_eq!(rig.state(0), Some(ControllerState::Live));
}

/// Four workers, and a controller that grants so many I/O queues.
fn granting(queues: u16) -> Rig {
    let mut rig = Rig::new(4);
    let mut fake = Fake::new(NQN, 1);
    fake.queues = queues;
    rig.put(1, fake);
    rig
}

#[test]
fn b2_fewer_queues_than_asked_for_are_shared() {
    let mut rig = granting(3);
    rig.connect_ok(1, |_| ());
    let view = rig.controller(0).unwrap();
    assert_eq!(view.queue_of_worker, [1, 2, 3, 3].map(WorkerId));
    assert_eq!(rig.opened.len(), 3);
    assert_eq!(rig.get("nvme0", "queue_count"), Ok("4".to_string()));

    // After a reconnect there may be another number.
    rig.fake(1).queues = 1;
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.state(0), Some(ControllerState::Live));
    assert_eq!(rig.controller(0).unwrap().queue_of_worker, [1, 1, 1, 1].map(WorkerId));
    rig.fake(1).queues = 128;
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.controller(0).unwrap().queue_of_worker, [1, 2, 3, 4].map(WorkerId));
}

#[test]
fn a_single_shared_queue_belongs_to_the_first_worker() {
    let mut config = crate::rig::config(3);
    config.shared_queue = true;
    let mut rig = Rig::with(config);
    rig.put(1, Fake::new(NQN, 1));
    rig.connect_ok(1, |_| ());
    assert_eq!(rig.controller(0).unwrap().queue_of_worker, [1, 1, 1].map(WorkerId));
    assert_eq!(rig.opened.len(), 1);
}

#[test]
fn b13_reads_have_queues_of_their_own_where_the_others_are_asked_for() {
    let mut rig = granting(6);
    rig.connect_ok(1, |request| request.options.nr_write_queues = 3);
    let is_count = |c: &Command| c.opcode == SET_FEATURES && c.cdw10 & 0xff == 7;
    let asked = rig.fake(1).seen.iter().find(|c| is_count(c)).unwrap().cdw11;
    assert_eq!(asked, 6 | 6 << 16, "seven, counted from 0");
    let takes: Vec<_> = rig.opened.iter().map(|open| (open.qid, open.takes)).collect();
    let (writes, reads) = ([1, 2], [3, 4, 5, 6]);
    let of = |qids: &[u16], takes| qids.iter().map(|&qid| (qid, takes)).collect::<Vec<_>>();
    assert_eq!(takes, [of(&writes, Takes::Others), of(&reads, Takes::Reads)].concat());
    let view = rig.controller(0).unwrap();
    assert_eq!(view.queue_of_worker, [1, 1, 3, 3].map(WorkerId));
    assert_eq!(view.read_queue_of_worker, [1, 2, 3, 4].map(WorkerId));
    assert_eq!(rig.get("nvme0", "queue_count"), Ok("7".to_string()));

    // As in Linux: with no more than those for reads, all share them.
    rig.fake(1).queues = 4;
    rig.cut(1);
    rig.advance_s(11);
    let view = rig.controller(0).unwrap();
    assert_eq!(view.queue_of_worker, [1, 2, 3, 4].map(WorkerId));
    assert_eq!(view.read_queue_of_worker, view.queue_of_worker);
    assert!(rig.opened[6..].iter().all(|open| open.takes == Takes::All));
}

#[test]
fn the_number_of_queues_can_be_limited() {
    let mut rig = Rig::new(4);
    rig.put(1, Fake::new(NQN, 1));
    rig.connect_ok(1, |request| request.options.nr_io_queues = Some(2));
    assert_eq!(rig.opened.len(), 2);
    let is_count = |c: &Command| c.opcode == SET_FEATURES && c.cdw10 & 0xff == 7;
    let asked = rig.fake(1).seen.iter().find(|c| is_count(c)).unwrap().cdw11;
    assert_eq!(asked, 1 | 1 << 16);
}

#[test]
fn a_number_of_queues_that_cannot_be_is_told_with_its_value() {
    for (granted, value, counts) in [
        (0xffff, "0000ffffh", "65536 submission and 1 completion queues"),
        (0xffff_0003, "ffff0003h", "4 submission and 65536 completion queues"),
    ] {
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        let is_count = |c: &Command| c.opcode == SET_FEATURES && c.cdw10 & 0xff == 7;
        rig.fake(1).hook = Some(Box::new(move |c| is_count(c).then_some(Say::Result(granted))));
        let why = rig.connect_fails(1, |_| ());
        let wanted = format!("Number of Queues, DW0 is {value}: {counts}");
        assert!(why.contains(&wanted), "{why}");
    }
}

#[test]
fn connecting_one_controller_does_not_hold_another_up() {
    let mut rig = Rig::new(1);
    let mut slow = Fake::new(NQN, 1);
    slow.black_hole = true;
    rig.put(1, slow);
    rig.put(2, Fake::new(NQN, 2));
    let waiting = rig.connect(1, |_| ());
    assert_eq!(rig.connect_ok(2, |_| ()), "nvme1");
    assert!(rig.reply(waiting).is_none());
    rig.advance_s(61);
    let reply = rig.reply(waiting).expect("it is bounded");
    assert!(format!("{reply:?}").contains("TCP connect"), "{reply:?}");
    assert_eq!(rig.state(0), None, "a first attempt that fails leaves nothing behind");
}

#[test]
fn every_step_that_is_not_answered_is_given_up_in_time() {
    // How many commands are answered before the controller falls silent.
    for answered in 0..9 {
        let mut rig = Rig::new(1);
        let mut fake = Fake::new(NQN, 1);
        let mut left = answered;
        fake.hook = Some(Box::new(move |_| {
            if left == 0 {
                return Some(Say::Nothing);
            }
            left -= 1;
            None
        }));
        rig.put(1, fake);
        let why = rig.connect_fails(1, |_| ());
        assert!(why.contains("no answer"), "after {answered}: {why}");
        assert_eq!(rig.open_connections(), 0);
        assert_eq!(rig.bufs.in_use_bytes(), 0);
        assert_eq!(rig.state(0), None);
    }
    let mut rig = Rig::new(1);
    let mut fake = Fake::new(NQN, 1);
    fake.silent = true;
    rig.put(1, fake);
    assert!(rig.connect_fails(1, |_| ()).contains("ICReq"));
}

#[test]
fn every_step_that_fails_is_told_with_its_name() {
    for failing in 0..9 {
        let mut rig = Rig::new(1);
        let mut fake = Fake::new(NQN, 1);
        let mut count = 0;
        fake.hook = Some(Box::new(move |_| {
            count += 1;
            (count == failing + 1).then_some(Say::Status(0x006))
        }));
        rig.put(1, fake);
        let id = rig.connect(1, |_| ());
        rig.advance_s(1);
        let text = format!("{:?}", rig.reply(id).expect("an answer"));
        // Two steps cost a feature only: limits of the NVM command set, event configuration.
        if failing == 6 || failing == 7 {
            assert!(text.contains("Connected"), "{failing}: {text}");
        } else {
            assert!(text.contains("Internal Error"), "{failing}: {text}");
        }
    }
}

#[test]
fn a_port_that_wants_tls_is_recognised_by_its_reset_before_icresp() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.fake(1).wants_tls = true;
    let why = rig.connect_fails(1, |_| ());
    let expected = "connection reset by peer (errno 104) before ICResp (a port that requires TLS";
    assert!(why.contains(expected), "{why}");
    // Where nobody listens there is nothing to say about TLS.
    rig.fake(1).refuse = true;
    let why = rig.connect_fails(1, |_| ());
    assert!(why.ends_with("connection refused (errno 111)"), "{why}");
}

#[test]
fn a_shard_that_cannot_open_its_queue_fails_the_attempt() {
    let mut rig = Rig::new(2);
    rig.put(1, Fake::new(NQN, 1));
    rig.shards = Shards::FailToOpen;
    let why = rig.connect_fails(1, |_| ());
    assert!(why.contains("I/O queue 1: connection refused"), "{why}");
    assert_eq!(rig.mail_count("StopQueue"), 2, "both are told to let go");
}

#[test]
fn a_shard_that_hangs_is_waited_for_in_bounds() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.shards = Shards::Hang;
    let id = rig.connect(1, |_| ());
    rig.advance_s(200);
    let text = format!("{:?}", rig.reply(id).expect("an answer"));
    assert!(text.contains("did not open in time"), "{text}");
    assert_eq!(rig.state(0), None);
}

#[test]
fn the_same_subsystem_at_the_same_address_is_refused() {
    let mut rig = Rig::connected(1);
    let why = rig.connect_fails(1, |_| ());
    assert!(why.contains("already connected: nvme0"), "{why}");
    // Another source address is another path (and the target gives it another number).
    rig.fake(1).cntlid = 2;
    rig.connect_ok(1, |request| {
        request.options.socket.source = Some("127.0.0.2".parse().unwrap());
    });
}

#[test]
fn another_subsystem_or_another_interface_at_the_same_address_is_another_path() {
    let mut rig = Rig::connected(1);
    let changes: [fn(&mut ConnectRequest); 2] = [
        |request| request.subsystem_nqn = "nqn.2024-01.test:two".parse().unwrap(),
        |request| request.options.socket.interface = Some("eth1".into()),
    ];
    for change in changes {
        let id = rig.connect(1, change);
        rig.advance(Duration::from_millis(200));
        // The controller has a mistake to find in either; that it was asked is what matters.
        assert!(!matches!(rig.reply(id), Some(Reply::Error(VerbError::Connected(_)))));
    }
    assert_eq!(rig.fake(1).connections, 3);
}

/// The system says "no such device" and no more.
#[test]
fn a_connect_that_fails_names_our_own_side_where_it_was_asked_for() {
    for (source, interface, side) in [
        (None, None, "failed: connection refused (errno 111) (attempt 1"),
        (None, Some("eth7"), "(errno 111) (through interface eth7) (attempt 1"),
        (Some("192.0.2.7"), None, "(errno 111) (from 192.0.2.7) (attempt 1"),
        (Some("192.0.2.7"), Some("eth7"), "(from 192.0.2.7, through interface eth7) (attempt 1"),
    ] {
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        rig.fake(1).refuse = true;
        rig.connect(1, |request| {
            request.options.socket.source = source.map(|source| source.parse().unwrap());
            request.options.socket.interface = interface.map(Into::into);
        });
        rig.advance_s(1);
        assert_eq!(rig.event_count(side), 1, "{side}");
    }
}

/// `blackhole` and `prohibit` of `ip route` are "invalid argument" and "permission denied".
#[test]
fn what_this_machine_does_not_let_through_is_told_as_such() {
    for (errno, told) in [
        (22, "invalid argument (errno 22): a blackhole route leads there, or our own address"),
        (13, "permission denied (errno 13): a route or a firewall of this machine forbids it"),
        (1, "operation not permitted (errno 1): a route or a firewall of this machine forbids it"),
        (113, "no route to host (errno 113) (attempt 1"),
    ] {
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        (rig.fake(1).refuse, rig.fake(1).refuse_with) = (true, errno);
        rig.connect(1, |_| ());
        rig.advance_s(1);
        assert_eq!(rig.event_count(told), 1, "{told}: {:?}", rig.events);
    }
}

#[test]
fn times_that_make_no_sense_together_are_told() {
    let told = |loss: Option<u64>, fast: Option<u64>, delay: u64| {
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        rig.connect_ok(1, |request| {
            let options = &mut request.options;
            options.ctrl_loss_tmo = loss.map(Duration::from_secs);
            options.fast_io_fail_tmo = fast.map(Duration::from_secs);
            options.reconnect_delay = Duration::from_secs(delay);
        });
        let never = rig.event_count("nvme0: fast_io_fail_tmo is longer than ctrl_loss_tmo");
        let once = rig.event_count("nvme0: ctrl_loss_tmo is shorter than reconnect_delay");
        (never, once)
    };
    assert_eq!(told(Some(60), Some(61), 10), (1, 0));
    assert_eq!(told(Some(9), None, 10), (0, 1));
    for fine in [(Some(60), Some(60), 10), (Some(10), None, 10), (Some(0), None, 10)] {
        assert_eq!(told(fine.0, fine.1, fine.2), (0, 0), "{fine:?}");
    }
    assert_eq!(told(None, Some(600), 10), (0, 0));
}

#[test]
fn times_that_make_no_sense_together_are_told_when_they_are_set_later_too() {
    let mut rig = Rig::connected(1);
    let told = |rig: &Rig| {
        let never = rig.event_count("nvme0: fast_io_fail_tmo is longer than ctrl_loss_tmo");
        (never, rig.event_count("nvme0: ctrl_loss_tmo is shorter than reconnect_delay"))
    };
    let mut set = |name: &str, value: &str| {
        rig.set("nvme0", name, value).expect("it is taken, as by Linux");
        told(&rig)
    };
    assert_eq!(set("fast_io_fail_tmo", "600"), (0, 0));
    assert_eq!(set("fast_io_fail_tmo", "601"), (1, 0));
    assert_eq!(set("io_timeout", "20000"), (1, 0), "told by what is concerned");
    assert_eq!(set("ctrl_loss_tmo", "601"), (1, 0));
    assert_eq!(set("ctrl_loss_tmo", "30"), (2, 0));
    assert_eq!(set("fast_io_fail_tmo", "off"), (2, 0));
    assert_eq!(set("reconnect_delay", "31"), (2, 1));
}

#[test]
fn a_controller_that_needs_time_to_get_ready_is_waited_for() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    let mut looks = 0;
    rig.fake(1).hook = Some(Box::new(move |c| {
        looks += u32::from(c.is_property_get(0x1c));
        (c.is_property_get(0x1c) && looks < 6).then_some(Say::Result(0))
    }));
    // 1, 2, 4, 8 and 16 ms between the looks.
    rig.connect_ok(1, |_| ());
    assert_eq!(rig.fake(1).count(|command| command.is_property_get(0x1c)), 6);
}

/// CAP.TO, or a second if that says less.
#[test]
fn a_controller_has_as_long_to_get_ready_as_it_says() {
    for (half_seconds, slow_ms, comes) in [(20, 9_000, true), (0, 900, true), (2, 1_200, false)] {
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        let cap = 1023 | 1 << 16 | half_seconds << 24 | 1 << 37;
        let hook = move |ready| -> Option<crate::fake::Hook> {
            Some(Box::new(move |c| match () {
                () if c.is_property_get(0) => Some(Say::Result(cap)),
                () if c.is_property_get(0x1c) => Some(Say::Result(ready)),
                () => None,
            }))
        };
        rig.fake(1).hook = hook(0);
        let id = rig.connect(1, |_| ());
        rig.advance(Duration::from_millis(slow_ms));
        rig.fake(1).hook = hook(1);
        rig.advance_s(1);
        assert_eq!(matches!(rig.reply(id), Some(Reply::Connected(..))), comes, "{half_seconds}");
    }
}

#[test]
fn a_controller_is_live_when_all_its_queues_are_open_and_not_before() {
    let mut rig = Rig::new(2);
    rig.put(1, Fake::new(NQN, 1));
    rig.shards = Shards::Hang;
    rig.connect(1, |_| ());
    rig.advance(Duration::from_millis(200));
    let (controller, association) = (ControllerId(0), Association(1));
    let open = |qid| ToControl::QueueOpen { controller, association, qid };
    rig.post(WorkerId(1), open(1));
    rig.run();
    assert_eq!(rig.state(0), Some(ControllerState::Connecting), "one is still to come");
    rig.post(WorkerId(2), open(2));
    rig.run();
    assert_eq!(rig.state(0), Some(ControllerState::Live));

    // What a shard has said before it was told to stop its queue pair is no answer to that.
    rig.cut(1);
    rig.post(WorkerId(1), open(1));
    rig.post(WorkerId(2), open(2));
    rig.advance_s(15);
    assert_eq!(rig.state(0), Some(ControllerState::Resetting));
    assert_eq!(rig.fake(1).connections, 1, "no new one before the former is let go");
}

#[test]
fn the_discovery_subsystem_is_not_connected_for_io() {
    let mut rig = Rig::new(1);
    let why = rig.connect_fails(1, |request| {
        request.subsystem_nqn = "nqn.2014-08.org.nvmexpress.discovery".parse().unwrap();
    });
    assert!(why.contains("discover"), "{why}");
}

/// Of a controller whose name has no address.
fn set_aside(nqn: &str) -> Verb<Infallible> {
    let (traddr, trsvcid) = ("array.example".to_string(), "4420".to_string());
    Verb::SetAside { nqn: nqn.parse().unwrap(), traddr, trsvcid }
}

/// The next number, which must be this one.
fn aside(rig: &mut Rig, nqn: &str, expected: u32) -> AsideId {
    match rig.ask(set_aside(nqn)) {
        Reply::SetAside(number, aside) if number == expected => aside,
        other => panic!("{other:?} instead of {expected}"),
    }
}

/// What is to be connected first counts as connected first: the numbers of the others, which
/// exports and scripts name, do not depend on which address is known when.
#[test]
fn a_number_that_is_set_aside_stays_its_controllers_and_its_subsystems() {
    const OTHER: &str = "nqn.2026-01.org.example:other";
    let nqn = |of: &str| of.parse::<Nqn>().unwrap();
    let mut rig = Rig::new(1);
    for port in 1..5 {
        let mut fake = Fake::new(if port == 3 { OTHER } else { NQN }, port);
        fake.spaces = [(1, Space::new(if port == 3 { 0x33 } else { 0x11 }, 2048))].into();
        rig.put(port, fake);
    }
    let first = aside(&mut rig, NQN, 0);
    assert_eq!(rig.connect_ok(3, |request| request.subsystem_nqn = nqn(OTHER)), "nvme1");
    assert_eq!(rig.connect_ok(2, |_| ()), "nvme2");
    let paths = |rig: &Rig, head: &str| rig.head(head).map(|head| head.paths.len());
    assert_eq!(paths(&rig, "nvme1n1"), Some(1), "of the other subsystem");
    assert_eq!(paths(&rig, "nvme0n1"), Some(1), "called after the one that is to come");
    let connect = |aside, to| Verb::ConnectAs(aside, Box::new(Rig::request(to)));
    assert!(matches!(rig.ask(connect(AsideId(5), 1)), Reply::Error(_)), "that was not set aside");
    let mut another = Rig::request(5);
    another.subsystem_nqn = nqn(OTHER);
    let another = rig.ask(Verb::ConnectAs(first, Box::new(another)));
    assert!(matches!(another, Reply::Error(VerbError::Invalid(_))), "not for it: {another:?}");
    let id = rig.verb(connect(first, 1));
    rig.advance(Duration::from_secs(1));
    assert!(matches!(rig.reply(id), Some(Reply::Connected(name, _)) if name == "nvme0"));
    assert_eq!(paths(&rig, "nvme0n1"), Some(2));
    let taken = rig.ask(connect(first, 5));
    assert!(matches!(taken, Reply::Error(VerbError::Invalid(_))), "it was taken: {taken:?}");
    assert_eq!(rig.connect_ok(4, |_| ()), "nvme3");
}

#[test]
fn a_controller_that_is_still_to_come_is_disconnected_with_its_subsystem() {
    let nqn: Nqn = NQN.parse().unwrap();
    for selection in [Selection::Subsystem(nqn.clone()), Selection::All] {
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        let first = aside(&mut rig, NQN, 0);
        let other: Nqn = "nqn.2026-01.org.example:other".parse().unwrap();
        assert!(matches!(
            rig.ask(Verb::Disconnect(Selection::Subsystem(other))),
            Reply::Disconnected(0)
        ));
        aside(&mut rig, NQN, 1);
        assert!(matches!(rig.ask(Verb::Disconnect(selection)), Reply::Disconnected(0)));
        let late = |rig: &mut Rig| rig.ask(Verb::ConnectAs(first, Box::new(Rig::request(1))));
        let refused = |it: Reply<Infallible>| matches!(it, Reply::Error(VerbError::Invalid(_)));
        assert!(refused(late(&mut rig)));
        // The number is free again, and is kept for another one of the same subsystem.
        let second = aside(&mut rig, NQN, 0);
        assert!(refused(late(&mut rig)), "that is another one's by now");
        assert!(refused(rig.ask(Verb::GiveUp(first))));
        assert_eq!(rig.connect_ok(1, |_| ()), "nvme1", "nor is it its to give up");
        assert!(refused(late(&mut rig)), "whoever has its place");
        let taken = rig.ask(Verb::ConnectAs(second, Box::new(Rig::request(1))));
        assert!(matches!(taken, Reply::Error(VerbError::Connected(_))), "{taken:?}");
        rig.put(2, Fake::new(NQN, 2));
        let id = rig.verb(Verb::ConnectAs(second, Box::new(Rig::request(2))));
        rig.advance(Duration::from_secs(1));
        assert!(matches!(rig.reply(id), Some(Reply::Connected(name, _)) if name == "nvme0"));
        assert!(refused(rig.ask(Verb::GiveUp(second))), "it has come");
    }
}

/// They stand with the others of their NQN, or in a subsystem of their own.
#[test]
fn controllers_that_are_to_come_are_shown_until_they_come_or_are_given_up() {
    const OTHER: &str = "nqn.2026-01.org.example:other";
    let mut rig = Rig::connected(1);
    let own_aside = aside(&mut rig, NQN, 1);
    let other_aside = aside(&mut rig, OTHER, 2);
    let awaited = |rig: &mut Rig| -> Vec<(String, Vec<String>)> {
        let subsystems = rig.snapshot().subsystems.into_iter();
        let names = subsystems.map(|it| {
            assert!(it.awaited.iter().all(|it| it.traddr == "array.example"));
            (it.name, it.awaited.into_iter().map(|it| it.name).collect())
        });
        names.collect()
    };
    let own = |name: &str, of: &[&str]| -> (String, Vec<String>) {
        (name.to_string(), of.iter().map(ToString::to_string).collect())
    };
    let both = [own("nvme-subsys0", &["nvme1"]), own("nvme-subsys2", &["nvme2"])];
    assert_eq!(awaited(&mut rig), both);
    assert!(matches!(rig.ask(Verb::GiveUp(other_aside)), Reply::Done));
    assert_eq!(awaited(&mut rig), both[..1]);
    rig.put(2, Fake::new(NQN, 2));
    let id = rig.verb(Verb::ConnectAs(own_aside, Box::new(Rig::request(2))));
    rig.advance(Duration::from_secs(1));
    assert!(matches!(rig.reply(id), Some(Reply::Connected(name, _)) if name == "nvme1"));
    assert_eq!(awaited(&mut rig), [own("nvme-subsys0", &[])]);
    // One that nobody has seen is called after its first, whether that has its address or not.
    aside(&mut rig, OTHER, 2);
    let late = Rig::request(5);
    let late = ConnectRequest { subsystem_nqn: OTHER.parse().unwrap(), keep_trying: true, ..late };
    rig.ask(Verb::Connect(Box::new(late)));
    let both = [own("nvme-subsys0", &[]), own("nvme-subsys2", &["nvme2"])];
    assert_eq!(awaited(&mut rig), both);
}

/// A controller with zoned namespaces may offer its command sets together only.
#[test]
fn command_sets_are_selected_as_the_controller_offers_them() {
    const NVM: u64 = 1 << 37;
    const TOGETHER: u64 = 1 << 43;
    // No pages are smaller than 16 KiB (CAP.MPSMIN) in the last case.
    let cases = [(NVM, 0, 0), (NVM | TOGETHER, 0, 0), (TOGETHER, 6, 0), (NVM | 2 << 48, 0, 2)];
    for (offered, selected, page) in cases {
        let mut rig = Rig::new(1);
        let mut fake = Fake::new(NQN, 1);
        let cap = 1023 | 1 << 16 | 2 << 24 | offered;
        fake.hook = Some(Box::new(move |c| c.is_property_get(0).then_some(Say::Result(cap))));
        rig.put(1, fake);
        rig.connect_ok(1, |_| ());
        assert_eq!(rig.heads().len(), 1);
        assert_eq!(rig.fake(1).cc >> 4 & 7, selected, "CC.CSS for {offered:#x}");
        assert_eq!(rig.fake(1).cc >> 7 & 15, page, "CC.MPS for {offered:#x}");
        rig.verb(Verb::Disconnect(Selection::Controller("nvme0".into())));
        rig.advance(Duration::from_secs(1));
        assert_eq!(rig.fake(1).cc >> 14 & 3, 1, "an orderly shutdown");
        assert_eq!(rig.fake(1).cc >> 4 & 7, selected, "CC.CSS stays while it is enabled");
    }
    let mut rig = Rig::new(1);
    let mut fake = Fake::new(NQN, 1);
    fake.hook = Some(Box::new(|c| c.is_property_get(0).then_some(Say::Result(1023 | 1 << 16))));
    rig.put(1, fake);
    let why = rig.connect_fails(1, |_| ());
    assert!(why.ends_with("CAP.CSS: the controller has no I/O command set"), "{why}");
}

/// A queue of one entry is always full.
#[test]
fn a_controller_whose_queues_hold_no_command_is_refused() {
    const CAP: u64 = 1 << 16 | 2 << 24 | 1 << 37;
    let with_mqes = |mqes: u64| {
        let mut rig = Rig::new(1);
        let mut fake = Fake::new(NQN, 1);
        fake.hook =
            Some(Box::new(move |c| c.is_property_get(0).then_some(Say::Result(CAP | mqes))));
        rig.put(1, fake);
        rig
    };
    let why = with_mqes(0).connect_fails(1, |_| ());
    assert!(why.ends_with("CAP.MQES: a queue of one entry holds no command"), "{why}");
    let mut least = with_mqes(1);
    least.connect_ok(1, |_| ());
    assert_eq!(least.opened[0].queue_size, 1);
}

/// As Linux's target lets its owner name one.
#[test]
fn a_subsystem_may_have_a_name_that_is_not_a_qualified_one() {
    const NAME: &str = "testnqn";
    let nqn = Nqn::as_named(NAME).expect("a name");
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NAME, 1));
    rig.connect_ok(1, |request| request.subsystem_nqn = nqn.clone());
    assert!(rig.path("nvme0n1", 0).is_some());
    let id = rig.verb(Verb::Disconnect(Selection::Subsystem(nqn)));
    rig.advance(Duration::from_secs(5));
    let gone = rig.reply(id);
    assert!(matches!(gone, Some(Reply::Disconnected(1))), "{gone:?}");
}

/// A controller may keep the status of a read until its data is acknowledged, which takes some
/// 40 ms by itself.
#[test]
fn data_of_an_admin_command_is_acknowledged_at_once_where_its_status_comes_apart() {
    for (piece, expected) in [(usize::MAX, false), (24 + 4096, true)] {
        let mut rig = Rig::new(1);
        rig.piece = piece;
        rig.put(1, Fake::new(NQN, 1));
        rig.connect_ok(1, |_| ());
        assert_eq!(rig.acknowledged > 0, expected, "{piece}");
    }
}
