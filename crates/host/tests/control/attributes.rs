//! Attributes, figures and the verbs about devices.

use crate::fake::{Fake, Say, Space};
use crate::rig::{NAMESPACES_CHANGED, NQN, Rig};
use anabranch_host::attribute;
use anabranch_host::block_stat::BlockStat;
use anabranch_host::mail::{HeadStats, PathStats, ShardStats, ToControl};
use anabranch_host::topology::{ControllerId, HeadId};
use anabranch_host::verb::{Reply, Verb, VerbError};
use anabranch_policy::Policy;
use anabranch_proto::machine::WorkerId;
use std::time::Duration;

#[test]
fn every_attribute_can_be_read_and_only_writable_ones_written() {
    let mut rig = Rig::connected(1);
    for entry in attribute::all().filter(|entry| entry.is_readable()) {
        let object = match entry.object {
            attribute::ObjectKind::Module => attribute::MODULE,
            attribute::ObjectKind::Subsystem => "nvme-subsys0",
            attribute::ObjectKind::Controller => "nvme0",
            attribute::ObjectKind::Head => "nvme0n1",
            attribute::ObjectKind::Path => "nvme0c0n1",
        };
        let value = rig.get(object, entry.name);
        let hidden = matches!(entry.name, "nguid" | "eui");
        assert_eq!(value.is_err(), hidden, "{object} {}: {value:?}", entry.name);
        let Ok(value) = value else { continue };
        let counter = entry.name.ends_with("_count") && entry.is_writable();
        // What its policy alone shows is empty here.
        let value = match value.as_str() {
            _ if counter => "0",
            "" => "1",
            value => value,
        };
        let written = rig.set(object, entry.name, value);
        assert_eq!(written.is_ok(), entry.is_writable(), "{object} {}: {written:?}", entry.name);
        if entry.is_writable() {
            assert!(rig.set(object, entry.name, "no such value").is_err(), "{}", entry.name);
        }
    }
}

/// As `nvme disconnect` of nvme-cli, which writes to `delete_controller`, and scripts do.
#[test]
fn what_is_only_written_does_what_its_verb_does() {
    let mut rig = Rig::connected(1);
    let act = |rig: &mut Rig, name: &str, value: &str| {
        let (object, attribute) = (String::from("nvme0"), name.to_string());
        rig.verb(Verb::Set { object, attribute, value: value.to_string() })
    };
    let wanted = "reset_controller of nvme0 is only written";
    assert_eq!(rig.get("nvme0", "reset_controller").expect_err("no text").to_string(), wanted);

    let lists = |rig: &mut Rig| rig.fake(1).count(|command| command.is_identify(2));
    let before = lists(&mut rig);
    let id = act(&mut rig, "rescan_controller", "1\n");
    rig.advance(Duration::from_millis(100));
    assert!(matches!(rig.reply(id), Some(Reply::Done)));
    assert_eq!(lists(&mut rig), before + 1, "the list of namespaces is read again");

    let id = act(&mut rig, "reset_controller", "whatever");
    rig.advance(Duration::from_millis(100));
    assert!(matches!(rig.reply(id), Some(Reply::Done)));
    assert_eq!(rig.fake(1).connections, 2);
    assert_eq!(rig.get("nvme0", "reset_count"), Ok("1".to_string()));
    assert_eq!(rig.get("nvme0", "reconnect_count"), Ok("0".to_string()), "nothing was lost");

    let id = act(&mut rig, "delete_controller", "1");
    rig.advance(Duration::from_millis(100));
    assert!(matches!(rig.reply(id), Some(Reply::Disconnected(1))));
    assert!(rig.get("nvme0", "state").is_err(), "it has gone");
}

/// Nothing is looked for there, which nobody should take for a look that has found nothing.
#[test]
fn a_controller_that_is_not_live_is_neither_reset_nor_rescanned() {
    let mut rig = Rig::connected(1);
    rig.fake(1).refuse = true;
    rig.cut(1);
    rig.advance_s(1);
    for (attribute, done) in [("reset_controller", "reset"), ("rescan_controller", "rescanned")] {
        let told = rig.set("nvme0", attribute, "1").expect_err("it is connecting");
        assert!(matches!(told, VerbError::Conflict(_)), "{told:?}");
        let expected = format!("nvme0 is connecting, only a live controller is {done}");
        assert_eq!(told.to_string(), expected);
    }
}

#[test]
fn counters_of_a_controller_can_be_reset() {
    let mut rig = Rig::connected(1);
    rig.fake(1).refuse = true;
    rig.cut(1);
    rig.advance_s(25);
    rig.fake(1).refuse = false;
    rig.advance_s(10);
    let counts = [("reset_count", "1"), ("reconnect_count", "3"), ("command_error_count", "0")];
    for (name, count) in counts {
        assert_eq!(rig.get("nvme0", name), Ok(count.to_string()), "{name}");
        assert!(rig.set("nvme0", name, "5").is_err(), "only 0");
        rig.set("nvme0", name, "0").unwrap();
        assert_eq!(rig.get("nvme0", name), Ok("0".to_string()), "{name}");
    }
}

#[test]
fn an_attribute_of_another_object_is_said_to_be_there() {
    let mut rig = Rig::connected(1);
    let mut told = |name| rig.get("nvme0n1", name).expect_err("not of a device").to_string();
    let of = "nvme0n1 has no attribute ana_state (a path (nvmeXcYnZ) has it); a device (nvmeXnY)";
    assert!(told("ana_state").starts_with(of), "{}", told("ana_state"));
    let unknown = "nvme0n1 has no attribute nosuch; a device (nvmeXnY) has ";
    assert!(told("nosuch").starts_with(unknown), "{}", told("nosuch"));
}

#[test]
fn the_listing_names_every_object_with_what_it_shows_and_nothing_else() {
    let mut rig = Rig::connected(1);
    let Reply::Attributes(all) = rig.ask(Verb::Attributes { object: None }) else {
        panic!("another answer")
    };
    let names: Vec<&str> = all.iter().map(|shown| shown.object.name.as_str()).collect();
    assert_eq!(names, ["nvme_core", "nvme-subsys0", "nvme0n1", "nvme0c0n1", "nvme0"]);
    let Reply::Objects(objects) = rig.ask(Verb::Objects) else { panic!("another answer") };
    assert!(objects.iter().eq(all.iter().map(|shown| &shown.object)));
    let path = &objects[3];
    assert_eq!(path.kind, attribute::ObjectKind::Path);
    assert_eq!(path.subsystem.as_deref(), Some("nvme-subsys0"));
    assert_eq!(path.controller.as_deref(), Some("nvme0"));
    assert_eq!(path.head.as_deref(), Some("nvme0n1"));
    for shown in all {
        let name = shown.object.name.clone();
        for entry in attribute::all().filter(|entry| entry.object == shown.object.kind) {
            let listed = shown.attributes.iter().find(|listed| listed.name == entry.name);
            let Ok(text) = rig.get(&name, entry.name) else {
                assert!(listed.is_none(), "{name} {} is hidden", entry.name);
                continue;
            };
            let listed = listed.unwrap_or_else(|| panic!("{name} {} is missing", entry.name));
            assert_eq!(listed.text, text);
            assert_eq!((listed.dir, listed.mode), (entry.dir, entry.mode()));
            assert_eq!(listed.is_writable(), entry.is_writable());
        }
        let object = name.clone();
        let Reply::Description(object, shows) = rig.ask(Verb::Describe { object }) else {
            panic!("another answer")
        };
        assert_eq!(object, shown.object);
        let read = shows.iter().filter(|entry| entry.is_readable());
        let names = read.map(|entry| entry.name);
        assert!(names.eq(shown.attributes.iter().map(|listed| listed.name)), "{name}");
        let object = Some(name.clone());
        let Reply::Attributes(one) = rig.ask(Verb::Attributes { object }) else {
            panic!("another answer")
        };
        assert_eq!((one.len(), &one[0].object.name), (1, &name));
    }
    let object = Some(String::from("nvme7"));
    assert!(matches!(rig.ask(Verb::Attributes { object }), Reply::Error(VerbError::Invalid(_))));
}

#[test]
fn a_controller_that_was_never_admitted_is_listed_with_the_others_of_its_nqn() {
    let subsystem = |rig: &mut Rig, name: &str| {
        let object = name.to_string();
        match rig.ask(Verb::Describe { object }) {
            Reply::Description(object, _) => object.subsystem,
            other => panic!("{other:?}"),
        }
    };
    let mut rig = Rig::new(1);
    rig.connect(2, |request| request.keep_trying = true);
    assert_eq!(subsystem(&mut rig, "nvme0"), None, "nobody knows it");
    let mut rig = Rig::connected(1);
    rig.connect(2, |request| request.keep_trying = true);
    assert_eq!(subsystem(&mut rig, "nvme1").as_deref(), Some("nvme-subsys0"));
}

#[test]
fn a_controller_that_never_was_connected_stands_among_the_others_by_its_number() {
    let mut rig = Rig::new(1);
    rig.connect(3, |request| request.keep_trying = true);
    for at in [1, 2] {
        rig.put(at, Fake::new(NQN, at));
        rig.connect_ok(at, |_| ());
    }
    let names = |rig: &mut Rig| -> Vec<String> {
        let subsystems = rig.snapshot().subsystems;
        let controllers = subsystems.into_iter().flat_map(|it| it.controllers);
        controllers.map(|it| it.name).collect()
    };
    assert_eq!(names(&mut rig), ["nvme0", "nvme1", "nvme2"]);
}

#[test]
fn a_number_that_does_not_fit_is_out_of_range_and_nonsense_is_invalid() {
    let mut rig = Rig::connected(1);
    let set = |rig: &mut Rig, value| rig.set("nvme0n1", "delayed_removal_secs", value);
    assert!(matches!(set(&mut rig, "4294967296"), Err(VerbError::OutOfRange(_))));
    assert!(matches!(set(&mut rig, "-1"), Err(VerbError::Invalid(_))));
    set(&mut rig, "0x10").unwrap();
    assert_eq!(rig.get("nvme0n1", "delayed_removal_secs"), Ok(String::from("16")));
}

#[test]
fn texts_are_the_kernels() {
    let mut rig = Rig::connected(2);
    for (object, name, text) in [
        ("nvme-subsys0", "iopolicy", "queue-depth"),
        ("nvme-subsys0", "kernel_exact", "0"),
        ("nvme-subsys0", "subsysnqn", NQN),
        ("nvme-subsys0", "model", "Fake"),
        ("nvme-subsys0", "serial", "SER1"),
        ("nvme-subsys0", "firmware_rev", "1.0"),
        ("nvme0", "state", "live"),
        ("nvme0", "transport", "tcp"),
        ("nvme0", "address", "traddr=127.0.0.1,trsvcid=1,src_addr=127.0.0.1"),
        ("nvme0", "cntlid", "1"),
        ("nvme0", "queue_count", "3"),
        ("nvme0", "sqsize", "127"),
        ("nvme0", "kato", "5"),
        ("nvme0", "reconnect_delay", "10"),
        ("nvme0", "ctrl_loss_tmo", "600"),
        ("nvme0", "fast_io_fail_tmo", "off"),
        ("nvme0", "io_timeout", "30000"),
        ("nvme0", "admin_timeout", "60000"),
        ("nvme0", "numa_node", "-1"),
        ("nvme0n1", "size", "2048"),
        ("nvme0n1", "uuid", "11111111-1111-1111-1111-111111111111"),
        ("nvme0n1", "wwid", "uuid.11111111-1111-1111-1111-111111111111"),
        ("nvme0n1", "nsid", "1"),
        ("nvme0n1", "delayed_removal_secs", "0"),
        ("nvme0c0n1", "ana_state", "optimized"),
        ("nvme0c0n1", "ana_grpid", "1"),
        ("nvme0c0n1", "queue_depth", "0"),
        ("nvme0c0n1", "numa_nodes", ""),
    ] {
        assert_eq!(rig.get(object, name), Ok(text.to_string()), "{object} {name}");
    }
}

#[test]
fn m8_an_unknown_policy_is_refused_with_the_list_and_the_same_one_changes_nothing() {
    let mut rig = Rig::connected(1);
    let error = rig.set("nvme-subsys0", "iopolicy", "fastest").unwrap_err().to_string();
    for policy in Policy::ALL {
        assert!(error.contains(policy.name()), "{error}");
    }
    assert_eq!(rig.get("nvme-subsys0", "iopolicy"), Ok("queue-depth".to_string()));
    let epoch = rig.topology.epoch;
    rig.set("nvme-subsys0", "iopolicy", "queue-depth").unwrap();
    assert_eq!(rig.topology.epoch, epoch, "no side effect");
    let before = rig.head("nvme0n1").unwrap().policy_epoch;
    rig.set("nvme-subsys0", "iopolicy", "round-robin\n").unwrap();
    let head = rig.head("nvme0n1").unwrap();
    assert_eq!((head.parameters.policy, head.policy_epoch), (Policy::RoundRobin, before + 1));
    assert_eq!(rig.event_count("iopolicy changed from queue-depth to round-robin"), 1);
}

#[test]
fn what_is_set_to_another_value_is_told_and_what_is_only_reset_is_not() {
    let mut rig = Rig::connected(1);
    for (object, attribute, value, told) in [
        ("nvme_core", "iopolicy", "numa", "nvme_core: iopolicy changed from queue-depth to numa"),
        (
            "nvme-subsys0",
            "queue_depth_scope",
            "worker",
            "nvme-subsys0: queue_depth_scope changed from controller to worker",
        ),
        (
            "nvme-subsys0",
            "iopolicy",
            "service-time",
            "nvme-subsys0: iopolicy changed from queue-depth to service-time",
        ),
        (
            "nvme0c0n1",
            "relative_throughput",
            "7",
            "nvme0c0n1: relative_throughput changed from 1 to 7",
        ),
        ("nvme0", "reconnect_delay", "3", "nvme0: reconnect_delay changed from 10 to 3"),
    ] {
        rig.set(object, attribute, value).expect(attribute);
        rig.set(object, attribute, value).expect(attribute);
        assert_eq!(rig.event_count(told), 1, "{told}");
    }
    // Its text is empty under this policy.
    rig.set("nvme-subsys0", "iopolicy", "numa").expect("a policy");
    rig.set("nvme0c0n1", "relative_throughput", "9").expect("a weight");
    assert_eq!(rig.event_count("nvme0c0n1: relative_throughput set to 9"), 1);
    rig.set("nvme0n1", "io_requeue_no_usable_path_count", "0").expect("a counter");
    assert_eq!(rig.event_count("io_requeue_no_usable_path_count"), 0);
}

#[test]
fn m21_queue_depth_and_numa_nodes_show_under_their_policy_only() {
    let mut rig = Rig::connected(2);
    let head = rig.head("nvme0n1").unwrap().id;
    for worker in 1..=2 {
        rig.stats.insert(worker, stats(head, 1));
    }
    for (policy, depth, nodes) in
        [("queue-depth", "0", ""), ("numa", "", "0"), ("round-robin", "", "")]
    {
        rig.set("nvme-subsys0", "iopolicy", policy).unwrap();
        assert_eq!(rig.get("nvme0c0n1", "queue_depth"), Ok(depth.to_string()), "{policy}");
        assert_eq!(rig.get("nvme0c0n1", "numa_nodes"), Ok(nodes.to_string()), "{policy}");
    }
    for name in ["queue_depth", "numa_nodes", "ana_state"] {
        assert!(rig.get("nvme0n1", name).is_err(), "absent on the device");
    }
}

/// One worker's figures about the device and its first path.
pub(crate) fn stats(head: anabranch_host::topology::HeadId, times: u64) -> ShardStats {
    let path = PathStats {
        head,
        controller: ControllerId(0),
        commands: [5 * times, 6, 7],
        bytes: [8, 9],
        latency_sums_ns: [0; 3],
        errors: times,
        flawed: 0,
        retries: 2 * times,
        failovers: 3 * times,
        uncertain_writes_resent: 4,
        in_flight: 0,
        numa_cached: true,
        stat: BlockStat::default(),
        latency_ns: None,
        latency: None,
        finish_time: None,
        probes: 5,
        probe_bytes: 6,
        probe_errors: 7,
        rescued: 0,
    };
    let of_head = HeadStats {
        head,
        requests: [1, 2, 3],
        bytes: [4, 5],
        latency_sums_ns: [0; 3],
        errors: 0,
        in_flight: 0,
        requeued_no_usable_path: 10 * times,
        failed_no_available_path: 20 * times,
        affinity_misses: 4,
        stat: BlockStat::default(),
        latency_ns: None,
    };
    ShardStats { paths: vec![path], heads: vec![of_head], explain: None }
}

#[test]
fn m22_counters_are_summed_over_workers_and_can_be_reset() {
    let mut rig = Rig::connected(2);
    let head = rig.head("nvme0n1").unwrap().id;
    let counters = [
        ("nvme0c0n1", "multipath_failover_count", 6_u64),
        ("nvme0n1", "io_requeue_no_usable_path_count", 20),
        ("nvme0n1", "io_fail_no_available_path_count", 40),
        ("nvme0c0n1", "command_error_count", 2),
        ("nvme0c0n1", "command_retries_count", 4),
    ];
    rig.stats.insert(1, stats(head, 1));
    rig.stats.insert(2, stats(head, 1));
    assert_eq!(rig.get("nvme0n1", "io_affinity_map_misses"), Ok("8".to_string()));
    assert_eq!(rig.get("nvme0c0n1", "command_retry_count"), Ok("4".to_string()), "nvme-cli's");
    for (object, name, value) in counters {
        assert_eq!(rig.get(object, name), Ok(value.to_string()));
        assert!(rig.set(object, name, "5").is_err(), "only 0");
        rig.set(object, name, "0").unwrap();
        assert_eq!(rig.get(object, name), Ok("0".to_string()));
    }
    rig.stats.insert(2, stats(head, 2));
    for (object, name, value) in counters {
        assert_eq!(rig.get(object, name), Ok((value / 2).to_string()));
    }
    let snapshot = rig.snapshot();
    let path = &snapshot.subsystems[0].heads[0].paths[0];
    assert_eq!((path.commands, path.failovers), ([15, 12, 14], 3));
}

/// A path that has left and come back stands there twice, wherever it was in the shard's table.
#[test]
fn figures_go_to_their_paths_in_whatever_order_a_shard_tells_them() {
    let mut rig = Rig::connected_twice(1);
    let head = rig.head("nvme0n1").unwrap().id;
    let path = |controller: u32, times: u64| PathStats {
        controller: ControllerId(controller),
        ..stats(head, times).paths.remove(0)
    };
    let of_another = PathStats { head: HeadId(head.0 + 1), ..path(0, 9) };
    let paths = vec![path(1, 1), of_another, path(0, 2), path(1, 4)];
    rig.stats.insert(1, ShardStats { paths, ..ShardStats::default() });
    assert_eq!(rig.get("nvme0c0n1", "multipath_failover_count"), Ok("6".to_string()));
    assert_eq!(rig.get("nvme0c1n1", "multipath_failover_count"), Ok("15".to_string()));
    let snapshot = rig.snapshot();
    let failovers: Vec<u64> =
        snapshot.subsystems[0].heads[0].paths.iter().map(|path| path.failovers).collect();
    assert_eq!(failovers, [6, 15]);
}

#[test]
fn a_shard_that_hangs_holds_figures_up_for_a_second_at_most() {
    let mut rig = Rig::connected(1);
    rig.shards = crate::rig::Shards::Hang;
    let id = rig.verb(Verb::Snapshot);
    rig.advance(std::time::Duration::from_millis(1001));
    assert!(matches!(rig.reply(id), Some(Reply::Snapshot(_))));
}

/// A counter that falls looks as if it had begun anew.
#[test]
fn sums_in_which_a_worker_is_missing_are_not_told() {
    let mut rig = Rig::connected(2);
    rig.shards = crate::rig::Shards::Hang;
    let (object, attribute) = ("nvme0c0n1".to_string(), "multipath_failover_count".to_string());
    let asked = [
        rig.verb(Verb::Watch),
        rig.verb(Verb::Attributes { object: None }),
        rig.verb(Verb::Get { object: object.clone(), attribute: attribute.clone() }),
        rig.verb(Verb::Set { object, attribute, value: "0".to_string() }),
        rig.verb(Verb::Explain { device: "nvme0n1".to_string() }),
    ];
    rig.advance(std::time::Duration::from_millis(1001));
    for id in asked {
        let Some(Reply::Error(why)) = rig.reply(id) else { panic!("they are told") };
        assert!(why.to_string().starts_with("workers [1, 2] have not told"), "{why}");
    }
    // Nobody has to count for these.
    for (object, attribute) in [("nvme0", "state"), ("nvme-subsys0", "iopolicy")] {
        assert!(rig.get(object, attribute).is_ok());
    }
}

#[test]
fn unknown_objects_and_attributes_are_refused_with_what_there_is() {
    let mut rig = Rig::connected(1);
    let error = rig.get("nvme9", "state").unwrap_err().to_string();
    assert!(error.ends_with("there is nvme0"), "{error}");
    let error = rig.get("sda", "state").unwrap_err().to_string();
    assert!(error.contains("nvme-subsysN"), "{error}");
    let error = rig.get("nvme0", "colour").unwrap_err().to_string();
    assert!(error.contains("reconnect_delay"), "{error}");
    let error = rig.set("nvme0", "state", "live").unwrap_err().to_string();
    assert!(error.contains("read-only"), "{error}");
}

#[test]
fn raw_structures_come_from_the_controller_now() {
    let mut rig = Rig::connected(1);
    let controller = || "nvme0".to_string();
    let id_ctrl = rig.fake(1).identify_controller();
    assert!(matches!(
        rig.ask(Verb::IdCtrl { controller: controller() }),
        Reply::Raw(bytes) if bytes == id_ctrl
    ));
    let log = rig.fake(1).ana_log();
    assert!(matches!(
        rig.ask(Verb::AnaLog { controller: controller() }),
        Reply::Raw(bytes) if bytes.starts_with(&log)
    ));
    assert!(matches!(
        rig.ask(Verb::IdNs { device: "nvme0n1".to_string() }),
        Reply::Raw(bytes) if bytes.len() == 4096 && bytes[130] == 9
    ));
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(1).then_some(Say::Nothing)));
    let id = rig.verb(Verb::IdCtrl { controller: controller() });
    rig.cut(1);
    assert!(matches!(rig.reply(id), Some(Reply::Error(_))), "answered when the queue is lost");
    assert!(matches!(rig.ask(Verb::IdCtrl { controller: controller() }), Reply::Error(_)));
    assert_eq!(rig.bufs.in_use_bytes(), 0);
}

#[test]
fn a_verb_about_a_device_is_about_that_one() {
    let mut rig = Rig::connected(1);
    rig.fake(1).spaces.insert(2, Space::new(0x22, 4096));
    rig.raise(1, NAMESPACES_CHANGED);
    let device = || "nvme0n2".to_owned();
    assert!(matches!(
        rig.ask(Verb::IdNs { device: device() }),
        Reply::Raw(bytes) if bytes[..8] == 4096_u64.to_le_bytes()
    ));
    let stopped = |rig: &Rig| rig.heads().iter().map(|head| head.quiesced).collect::<Vec<_>>();
    assert!(matches!(rig.ask(Verb::Quiesce { device: device() }), Reply::Done));
    assert_eq!(stopped(&rig), [0, 1]);
    assert!(matches!(rig.ask(Verb::Unquiesce { device: device() }), Reply::Done));
    assert_eq!(stopped(&rig), [0, 0]);
}

/// More than an admin queue has tags for callers (17 of 30), of a controller that answers none.
#[test]
fn raw_structures_beyond_the_tags_are_refused_at_once_and_leave_no_buffer_behind() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(1).then_some(Say::Nothing)));
    let asked: Vec<u64> =
        (0..40).map(|_| rig.verb(Verb::IdCtrl { controller: "nvme0".to_owned() })).collect();
    let refused = asked.iter().filter(|&&id| match rig.reply(id) {
        Some(Reply::Error(error)) => error.to_string().contains("no buffer or tag is free"),
        Some(other) => panic!("{other:?}"),
        None => false,
    });
    assert_eq!((refused.count(), rig.bufs.in_use_bytes()), (23, 17 * 4096));
    rig.cut(1);
    assert_eq!(rig.bufs.in_use_bytes(), 0);
    rig.assert_all_answered();
}

#[test]
fn b15_quiesce_and_freeze_nest() {
    let mut rig = Rig::connected(2);
    let device = || "nvme0n1".to_string();
    let done = |reply: Reply<_>| matches!(reply, Reply::Done);
    for count in 1..=2 {
        assert!(done(rig.ask(Verb::Quiesce { device: device() })));
        assert_eq!(rig.head("nvme0n1").unwrap().quiesced, count);
    }
    assert!(done(rig.ask(Verb::Unquiesce { device: device() })));
    assert!(done(rig.ask(Verb::Unquiesce { device: device() })));
    assert!(!done(rig.ask(Verb::Unquiesce { device: device() })), "not that often");

    let id = rig.verb(Verb::Freeze { device: device() });
    let view = rig.head("nvme0n1").unwrap();
    assert_eq!(view.frozen, 1);
    let (head, epoch) = (view.id, rig.topology.epoch);
    rig.post(WorkerId(1), ToControl::Frozen { head, epoch });
    rig.post(WorkerId(2), ToControl::Frozen { head, epoch: epoch - 1 });
    rig.run();
    assert!(rig.reply(id).is_none(), "the second one speaks of an older picture");
    rig.post(WorkerId(2), ToControl::Frozen { head, epoch });
    rig.run();
    assert!(rig.reply(id).is_some_and(done));
    assert!(done(rig.ask(Verb::Unfreeze { device: device() })));
    assert!(!done(rig.ask(Verb::Unfreeze { device: device() })));
}

#[test]
fn b15_a_freeze_that_does_not_end_is_undone_and_told() {
    let mut rig = Rig::connected(1);
    let id = rig.verb(Verb::Freeze { device: "nvme0n1".to_string() });
    rig.advance_s(61);
    assert!(matches!(rig.reply(id), Some(Reply::Error(_))));
    assert_eq!(rig.head("nvme0n1").unwrap().frozen, 0);
}

/// What was taken back before it took hold is over: it undoes nobody else's when its time is up.
#[test]
fn b15_a_freeze_that_was_taken_back_is_over() {
    let mut rig = Rig::connected(1);
    let device = || "nvme0n1".to_string();
    let frozen = |rig: &Rig| rig.head("nvme0n1").unwrap().frozen;
    let first = rig.verb(Verb::Freeze { device: device() });
    rig.advance_s(10);
    assert!(matches!(rig.ask(Verb::Unfreeze { device: device() }), Reply::Done));
    let why = rig.reply(first);
    assert!(format!("{why:?}").contains("told the device to go on"), "{why:?}");
    let second = rig.verb(Verb::Freeze { device: device() });
    let third = rig.verb(Verb::Freeze { device: device() });
    rig.advance_s(59);
    assert_eq!((rig.reply(second).is_none(), frozen(&rig)), (true, 2));
    assert!(matches!(rig.ask(Verb::Unfreeze { device: device() }), Reply::Done));
    assert!(rig.reply(third).is_some() && rig.reply(second).is_none());
    // One that has taken hold is held on its own.
    let (head, epoch) = (rig.head("nvme0n1").unwrap().id, rig.topology.epoch);
    rig.post(WorkerId(1), ToControl::Frozen { head, epoch });
    rig.run();
    assert!(matches!(rig.reply(second), Some(Reply::Done)));
    rig.advance_s(100);
    assert_eq!(frozen(&rig), 1);
}

/// Beside tens of thousands of others that would be work for all workers, for each reader.
#[test]
fn an_attribute_asks_for_the_figures_of_its_device_alone() {
    let mut rig = Rig::connected(2);
    rig.fake(1).spaces.insert(2, Space::new(0x22, 2048));
    rig.raise(1, NAMESPACES_CHANGED);
    let ids = ["nvme0n1", "nvme0n2"].map(|name| rig.head(name).expect("a device").id);
    let mut asked = |object: &str, attribute: &str, value: Option<&str>| {
        let (object, attribute) = (object.to_string(), attribute.to_string());
        rig.asked_of.clear();
        let reply = rig.ask(match value {
            None => Verb::Get { object, attribute },
            Some(value) => Verb::Set { object, attribute, value: value.to_string() },
        });
        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
        rig.asked_of.clone()
    };
    let of_second = [ids[1]..=ids[1], ids[1]..=ids[1]];
    assert_eq!(asked("nvme0n1", "size", None), [ids[0]..=ids[0], ids[0]..=ids[0]]);
    assert_eq!(asked("nvme0c0n2", "command_error_count", None), of_second);
    assert_eq!(asked("nvme0c0n2", "command_error_count", Some("0")), of_second);
    for (object, attribute, value) in [
        ("nvme0", "state", None),
        ("nvme0", "reconnect_delay", Some("7")),
        ("nvme-subsys0", "iopolicy", Some("numa")),
    ] {
        assert_eq!(asked(object, attribute, value), [], "{object} {attribute}");
    }
}
