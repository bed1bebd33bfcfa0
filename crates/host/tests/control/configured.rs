//! What subsystems, devices and paths are given at first, instead of the defaults.

use crate::fake::{Fake, Space};
use crate::rig::{NAMESPACES_CHANGED, NQN, Rig, config};
use anabranch_host::attribute::{self, Attribute, ObjectKind};
use anabranch_host::config::SubsystemSettings;
use anabranch_host::topology::ControllerState;
use anabranch_host::verb::{PolicySource, Selection, Verb};
use std::collections::BTreeSet;

const SUBSYSTEM: &str = "nvme-subsys0";

/// What can be given, the default, and another value as it is written and as it is shown.
const SETTINGS: [(&str, &str, &str, &str); 14] = [
    ("kernel_exact", "0", "1", "1"),
    ("queue_depth_scope", "controller", "sum\n", "sum"),
    ("hst_base_weight", "972", "0x10", "16"),
    ("hst_threshold_multiplier", "0", "2", "2"),
    ("finish_time_tail", "0", "1", "1"),
    ("finish_time_compete", "0", "1", "1"),
    ("finish_time_probes", "1", "0", "0"),
    ("delayed_removal_secs", "0", "60", "60"),
    ("explain_sample", "64", "1", "1"),
    ("latency_ewma_shift", "3", "7", "7"),
    ("latency_batch_timeout", "15", "200ms", "200ms"),
    ("latency_size_buckets", "0", "1", "1"),
    ("latency_per_node", "0", "1", "1"),
    ("latency_ignore_ana", "0", "1", "1"),
];

fn given() -> impl Iterator<Item = &'static Attribute> {
    attribute::all().filter(|entry| entry.is_setting())
}

fn kind(name: &str) -> ObjectKind {
    given().find(|entry| entry.name == name).expect(name).object
}

/// All of the settings as a subsystem and one of its devices show them.
fn shown(rig: &mut Rig, subsystem: &str, device: &str) -> [String; 14] {
    SETTINGS.map(|(name, ..)| {
        let object = if kind(name) == ObjectKind::Subsystem { subsystem } else { device };
        rig.get(object, name).unwrap()
    })
}

fn settings() -> SubsystemSettings {
    let mut settings = SubsystemSettings::new(None, false);
    for (name, _, written, _) in SETTINGS {
        settings.set(name, written).unwrap();
    }
    settings
}

/// A host that knows [`NQN`], with a controller of it on port 1.
fn configured() -> Rig {
    let mut config = config(1);
    config.subsystems = vec![(NQN.parse().unwrap(), settings())];
    let mut rig = Rig::with(config);
    rig.put(1, Fake::new(NQN, 1));
    rig
}

fn weights(rig: &mut Rig) -> [String; 2] {
    ["nvme0c0n1", "nvme0c1n1"].map(|path| rig.get(path, "relative_throughput").unwrap())
}

/// A path that stands by and one of weight 4.
fn weighted() -> Rig {
    let mut rig = Rig::new(1);
    for (port, weight) in [(1, 0), (2, 4)] {
        rig.put(port, Fake::new(NQN, port));
        rig.connect_ok(port, |request| request.options.relative_throughput = weight);
    }
    rig.set(SUBSYSTEM, "iopolicy", "service-time").unwrap();
    rig
}

#[test]
fn a_weight_given_with_connect_is_what_workers_select_by_and_outlives_resets_and_losses() {
    let mut rig = weighted();
    assert_eq!(weights(&mut rig), ["0", "4"]);
    let ledgers = [0, 1].map(|id| rig.controller(id).unwrap().load.ledger.relative_throughput());
    assert_eq!(ledgers, [0, 4]);
    rig.verb(Verb::Reset { controller: "nvme0".to_owned() });
    rig.cut(2);
    rig.advance_s(11);
    assert_eq!([rig.state(0), rig.state(1)], [Some(ControllerState::Live); 2]);
    assert_eq!(weights(&mut rig), ["0", "4"]);
}

#[test]
fn a_weight_that_was_set_later_holds_until_the_path_is_connected_anew() {
    let mut rig = weighted();
    rig.set("nvme0c1n1", "relative_throughput", "7").unwrap();
    rig.cut(2);
    rig.advance_s(11);
    assert_eq!(weights(&mut rig), ["0", "7"], "over a reconnect");
    rig.verb(Verb::Disconnect(Selection::Controller("nvme1".to_owned())));
    rig.advance_s(1);
    rig.connect_ok(2, |request| request.options.relative_throughput = 4);
    assert_eq!(weights(&mut rig), ["0", "4"]);
}

#[test]
fn a_weight_beyond_100_is_refused() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    let why = rig.connect_fails(1, |request| request.options.relative_throughput = 101);
    assert_eq!(why, "relative_throughput must lie between 0 and 100");
}

#[test]
fn a_subsystem_and_its_devices_have_what_they_are_given_those_that_come_later_too() {
    let mut rig = configured();
    rig.connect_ok(1, |_| ());
    let wanted = SETTINGS.map(|(.., text)| text.to_owned());
    assert_eq!(shown(&mut rig, SUBSYSTEM, "nvme0n1"), wanted);
    rig.fake(1).spaces.insert(2, Space::new(0x22, 64));
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(shown(&mut rig, SUBSYSTEM, "nvme0n2"), wanted);
    for head in ["nvme0n1", "nvme0n2"] {
        let view = rig.head(head).unwrap();
        assert!(view.queue_if_no_path && view.explain_sample == 1, "{head}");
        let parameters = view.parameters;
        assert!(parameters.kernel_exact && parameters.latency.size_buckets, "{head}");
        assert!(parameters.finish_time.tail && !parameters.finish_time.probes, "{head}");
    }
    assert_eq!(rig.event_count("changed from"), 0, "nobody has changed anything");
}

#[test]
fn other_subsystems_have_the_defaults() {
    let mut rig = configured();
    let other = "nqn.2024-01.test:two";
    rig.put(2, Fake::new(other, 1));
    rig.connect_ok(2, |request| request.subsystem_nqn = other.parse().unwrap());
    let defaults = SETTINGS.map(|(_, default, ..)| default.to_owned());
    assert_eq!(shown(&mut rig, SUBSYSTEM, "nvme0n1"), defaults);
}

#[test]
fn what_is_set_later_holds_until_the_subsystem_is_seen_anew() {
    let mut rig = configured();
    rig.connect_ok(1, |_| ());
    let given = shown(&mut rig, SUBSYSTEM, "nvme0n1");
    for (name, default, ..) in SETTINGS {
        let object = if kind(name) == ObjectKind::Subsystem { SUBSYSTEM } else { "nvme0n1" };
        rig.set(object, name, default).unwrap();
    }
    rig.cut(1);
    rig.advance_s(11);
    let set = shown(&mut rig, SUBSYSTEM, "nvme0n1");
    assert_eq!(set, SETTINGS.map(|(_, default, ..)| default.to_owned()), "over a reconnect");
    rig.verb(Verb::Disconnect(Selection::All));
    rig.advance_s(1);
    rig.connect_ok(1, |_| ());
    assert_eq!(shown(&mut rig, SUBSYSTEM, "nvme0n1"), given);
}

/// As `list-subsys` shows it.
#[test]
fn a_subsystem_that_has_not_answered_is_listed_with_what_it_will_have() {
    let mut rig = configured();
    rig.fake(1).refuse = true;
    rig.connect(1, |request| request.keep_trying = true);
    let listed = rig.snapshot().subsystems.remove(0);
    assert_eq!((listed.kernel_exact, &*listed.queue_depth_scope), (true, "sum"));
    let policy = (&*listed.iopolicy, listed.iopolicy_source);
    assert_eq!(policy, ("queue-depth", PolicySource::Default), "it was given none");
}

#[test]
fn what_a_subsystem_is_given_goes_before_what_all_are_given() {
    let mut config = config(1);
    config.kernel_exact = true;
    let mut own = SubsystemSettings::new(None, true);
    own.set("kernel_exact", "0").unwrap();
    config.subsystems = vec![(NQN.parse().unwrap(), own)];
    let mut rig = Rig::with(config);
    rig.put(1, Fake::new(NQN, 1));
    rig.connect_ok(1, |_| ());
    assert_eq!(rig.get(SUBSYSTEM, "kernel_exact"), Ok(String::from("0")));
}

#[test]
fn a_value_is_refused_with_the_words_of_whoever_writes_the_attribute() {
    let names: BTreeSet<&str> = given().map(|entry| entry.name).collect();
    assert_eq!(names, SETTINGS.map(|(name, ..)| name).into(), "each is looked at here");
    assert_eq!(given().count(), SETTINGS.len(), "no name stands for two");
    let mut rig = Rig::connected(1);
    for entry in given() {
        let object = if entry.object == ObjectKind::Subsystem { SUBSYSTEM } else { "nvme0n1" };
        for value in ["", "x", "-1", "1\n\n", " 1", "4294967296", "99999999999s"] {
            let mut settings = settings();
            let refused = settings.set(entry.name, value).expect_err(entry.name);
            assert_eq!(settings, self::settings(), "{}: as it was", entry.name);
            let told = rig.set(object, entry.name, value).expect_err(entry.name);
            assert_eq!(told.to_string(), format!("{object} {}: {refused}", entry.name));
        }
    }
}

#[test]
fn what_is_no_setting_is_refused_with_what_there_is() {
    let mut settings = SubsystemSettings::new(None, false);
    for (name, why) in [
        ("colour", "is no attribute"),
        ("kernel-exact", "is no attribute"),
        ("model", "is read-only"),
        ("io_affinity_map_misses", "is read-only"),
        ("io_fail_no_available_path_count", "is a counter"),
        ("reset_count", "is an attribute of a controller (nvmeN)"),
        ("reset_controller", "is an attribute of a controller (nvmeN)"),
        ("relative_throughput", "is an attribute of a path (nvmeXcYnZ)"),
    ] {
        let told = settings.set(name, "0").expect_err(name).to_string();
        let rest = told.strip_prefix(why).expect(&told);
        let list = "; what a subsystem and its devices can be given is kernel_exact, ";
        assert!(rest.starts_with(list) && rest.contains(", explain_sample"), "{told}");
    }
    let told = settings.set("iopolicy", "numa").expect_err("not here").to_string();
    assert_eq!(told, "stands beside these, as a key of the subsystem itself");
    assert_eq!(settings, SubsystemSettings::new(None, false));
}
