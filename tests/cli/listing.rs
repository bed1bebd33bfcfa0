//! What listings say about policies: the default, the one in force and where it was set stand
//! together, in nvme-cli's shapes.

use anabranch::cli::args::Cli;
use anabranch::cli::print::topology::Ranking;
use anabranch::cli::print::{attributes, list, subsys, topology};
use anabranch::daemon::view::{
    AttributeView, AwaitedView, ControllerView, HeadView, HostView, IgnoredView, PathView,
    SubsystemView,
};
use anabranch_policy::Policy;
use clap::{CommandFactory, Parser};
use serde_json::json;

fn host() -> HostView {
    HostView {
        host_nqn: "nqn.2026-01.org.example:host".into(),
        host_id: String::new(),
        subsystems: vec![SubsystemView {
            name: "nvme-subsys0".into(),
            nqn: "nqn.2026-01.org.example:a".into(),
            iopolicy: "service-time".into(),
            iopolicy_default: "queue-depth".into(),
            iopolicy_set_by: "attribute".into(),
            ..SubsystemView::default()
        }],
        ..HostView::default()
    }
}

#[test]
fn default_current_and_where_it_was_set_stand_together() {
    let heading = "\
nvme-subsys0 - NQN=nqn.2026-01.org.example:a
               hostnqn=nqn.2026-01.org.example:host
               iopolicy=service-time
               iopolicy_default=queue-depth iopolicy_set_by=attribute
";
    let host = host();
    let rankings = [Ranking::Namespace, Ranking::Ctrl, Ranking::Multipath];
    let texts = rankings.map(|ranking| topology::text(&host, None, ranking, false));
    for text in texts.iter().chain([&subsys::text(&host, None, false)]) {
        assert!(text.starts_with(heading), "{text}");
    }
    let listings = rankings.map(|ranking| topology::json(&host, None, ranking));
    for listing in listings.iter().chain([&subsys::json(&host, None)]) {
        let subsystem = &listing[0]["Subsystems"][0];
        assert_eq!(subsystem["IOPolicy"], "service-time");
        assert_eq!(subsystem["Diag"]["iopolicy_default"], "queue-depth");
        assert_eq!(subsystem["Diag"]["iopolicy_set_by"], "attribute");
    }
}

/// A device with a path through each of two controllers.
fn two_paths() -> HostView {
    let controller = |number: u32| ControllerView {
        name: format!("nvme{number}"),
        transport: "tcp".into(),
        traddr: format!("192.0.2.{number}"),
        trsvcid: "4420".into(),
        state: "live".into(),
        ..ControllerView::default()
    };
    let path = |number: u32| PathView {
        name: format!("nvme0c{number}n1"),
        controller: format!("nvme{number}"),
        ana_state: "optimized".into(),
        usable: true,
        ..PathView::default()
    };
    let paths = vec![path(0), path(1)];
    let head = HeadView { name: "nvme0n1".into(), nsid: 7, paths, ..HeadView::default() };
    let mut host = host();
    host.subsystems[0].controllers = vec![controller(0), controller(1)];
    host.subsystems[0].heads = vec![head];
    host
}

/// The trees of nvme-cli 2.16, which scripts read.
#[test]
fn states_stand_where_nvme_cli_has_them() {
    let tree = |ranking| {
        let text = topology::text(&two_paths(), None, ranking, false);
        text.split_once("\n\\\n").expect("a tree").1.to_owned()
    };
    let by_controller = " +- nvme0 tcp traddr=192.0.2.0,trsvcid=4420
 \\
  +- ns 7 live optimized
 +- nvme1 tcp traddr=192.0.2.1,trsvcid=4420
 \\
  +- ns 7 live optimized
";
    assert_eq!(tree(Ranking::Ctrl), by_controller);
    let by_namespace = " +- ns 7
 \\
  +- nvme0 tcp traddr=192.0.2.0,trsvcid=4420 live optimized
  +- nvme1 tcp traddr=192.0.2.1,trsvcid=4420 live optimized
";
    assert_eq!(tree(Ranking::Namespace), by_namespace);
}

#[test]
fn what_keeps_a_path_or_a_device_from_its_work_stands_in_brackets() {
    let mut host = two_paths();
    let subsystem = &mut host.subsystems[0];
    subsystem.heads[0].quiesced = 2;
    let [small, away] = &mut subsystem.heads[0].paths[..] else { panic!("two paths") };
    (small.usable, small.hindrance) = (false, Some("size-differs".into()));
    (away.usable, away.hindrance) = (false, Some("controller".into()));
    subsystem.controllers[1].state = "connecting".into();
    let text = |ranking| topology::text(&host, None, ranking, false);
    let tree = text(Ranking::Namespace);
    for line in [
        " +- ns 7 (quiesced)",
        "  +- nvme0 tcp traddr=192.0.2.0,trsvcid=4420 live optimized (size differs)",
        "  +- nvme1 tcp traddr=192.0.2.1,trsvcid=4420 connecting optimized",
    ] {
        assert!(tree.lines().any(|it| it == line), "{line} in:\n{tree}");
    }
    let tree = text(Ranking::Ctrl);
    assert!(tree.contains("  +- ns 7 (quiesced) live optimized (size differs)\n"), "{tree}");
    let table = text(Ranking::Multipath);
    for end in ["  live (size differs)", "  connecting (quiesced)"] {
        assert!(table.lines().any(|row| row.trim_end().ends_with(end)), "{end} in:\n{table}");
    }
    let json = topology::json(&host, None, Ranking::Namespace);
    let path = &json[0]["Subsystems"][0]["Namespaces"][0]["Paths"][0];
    assert_eq!(path["Diag"]["hindrance"], "size-differs");
    let device = &list::json(&host)["Devices"][0]["Diag"];
    assert_eq!((&device["quiesced"], &device["frozen"]), (&json!(2), &json!(0)));
}

/// Another policy counts nothing that it goes by: a 0 there would say that nothing is in flight.
#[test]
fn the_queue_depth_of_a_path_is_shown_where_the_policy_counts_it() {
    let mut host = two_paths();
    host.subsystems[0].heads[0].paths[0].queue_depth = 26;
    for (policy, shown) in [("queue-depth", "26"), ("round-robin", "-")] {
        host.subsystems[0].iopolicy = policy.into();
        let table = topology::text(&host, None, Ranking::Multipath, false);
        let row = table.lines().find(|row| row.starts_with("nvme0n1")).expect(&table);
        assert_eq!(row.split_whitespace().nth(5), Some(shown), "{policy}: {row}");
    }
}

/// One that is there for as long as `delayed_removal_secs` says.
#[test]
fn a_device_without_any_path_is_in_the_table() {
    let mut host = two_paths();
    host.subsystems[0].heads[0].paths.clear();
    let table = topology::text(&host, None, Ranking::Multipath, false);
    let row = table.lines().find(|row| row.starts_with("nvme0n1")).expect(&table);
    assert!(row.trim_end().ends_with("  no path"), "{row}");
}

/// Whoever looks for a device finds out why there is none.
#[test]
fn namespaces_that_are_no_devices_are_shown_with_the_reason() {
    let mut host = two_paths();
    let why = "Identify Namespace: LBAF MS is 8: metadata is not supported";
    let ignored = |nsid| IgnoredView { nsid, why: why.into() };
    host.subsystems[0].controllers[0].ignored = vec![ignored(9), ignored(12)];
    host.subsystems[0].controllers[1].ignored = vec![ignored(9)];
    let text = |ranking| topology::text(&host, None, ranking, false);
    let tree = text(Ranking::Namespace);
    let lines: Vec<&str> = tree.lines().skip_while(|line| !line.contains("ns 9")).collect();
    let by = |number: u32| {
        format!("  +- nvme{number} tcp traddr=192.0.2.{number},trsvcid=4420 live ({why})")
    };
    let [first, second] = [by(0), by(1)];
    let (nine, twelve) = (" +- ns 9 (ignored)", " +- ns 12 (ignored)");
    assert_eq!(lines, [nine, " \\", &first, &second, twelve, " \\", &first], "{tree}");
    let line = format!("  +- ns 9 (ignored: {why})");
    let tree = text(Ranking::Ctrl);
    assert_eq!(tree.lines().filter(|it| **it == line).count(), 2, "{tree}");
    let table = text(Ranking::Multipath);
    let row = table.lines().find(|row| row.contains(" 12 ")).expect(&table);
    assert!(row.trim_end().ends_with(&format!("live (ignored: {why})")), "{row}");
    let json = topology::json(&host, None, Ranking::Namespace);
    let ignored = &json[0]["Subsystems"][0]["Diag"]["ignored"];
    assert_eq!(ignored[1], json!({ "NSID": 9, "Controller": "nvme1", "why": why }));
}

/// All that is known of a namespace whose paths have not been usable so far.
#[test]
fn who_looks_for_a_device_that_is_not_there_yet_finds_its_paths() {
    let mut host = two_paths();
    let subsystem = &mut host.subsystems[0];
    subsystem.unborn = std::mem::take(&mut subsystem.heads);
    for path in &mut subsystem.unborn[0].paths {
        (path.usable, path.ana_state) = (false, "inaccessible".into());
        path.hindrance = Some("ana-state".into());
    }
    let text = |ranking| topology::text(&host, None, ranking, false);
    assert!(text(Ranking::Namespace).contains(" +- ns 7 (no device yet)\n"));
    assert!(text(Ranking::Ctrl).contains("  +- ns 7 (no device yet) live inaccessible\n"));
    let table = text(Ranking::Multipath);
    let rows = table.lines().filter(|row| row.trim_end().ends_with("live (no device yet)"));
    assert_eq!(rows.count(), 2, "{table}");
    let json = topology::json(&host, None, Ranking::Namespace);
    let subsystem = &json[0]["Subsystems"][0];
    assert_eq!(subsystem["Namespaces"], json!([]), "scripts take those for devices");
    let paths = &subsystem["Diag"]["without_device"][0]["Paths"];
    assert_eq!(paths.as_array().map(Vec::len), Some(2), "{json}");
    assert_eq!(list::json(&host)["Devices"], json!([]));
    let told = host.no_device("nvme0n1");
    assert!(told.contains("none of its 2 paths has been usable so far"), "{told}");
    assert!(host.no_device("nvme0n2").contains("'anabranch list' shows those that exist"));
}

/// Usage is NUSE of NSZE; `-v` has subsystems and controllers, too.
#[test]
fn lists_say_what_is_in_use_and_with_v_who_leads_there() {
    let mut host = two_paths();
    let second = &mut host.subsystems[0].controllers[1];
    second.cntlid = Some(2);
    // Its own: while a cluster is upgraded its controllers differ.
    second.firmware = "2.1".to_owned();
    let head = &mut host.subsystems[0].heads[0];
    (head.blocks, head.used_blocks, head.block_bytes) = (1 << 16, 250, 4096);
    let usage = "  1.02  MB / 268.44  MB    4 KiB +  0 B";
    assert!(list::text(&host).contains(usage), "{}", list::text(&host));
    assert_eq!(list::json(&host)["Devices"][0]["UsedBytes"], 1_024_000);
    assert_eq!(list::json(&host)["Devices"][0]["PhysicalSize"], 268_435_456);
    let table = "\
Subsystem     Subsystem-NQN              Controllers
------------  -------------------------  ------------
nvme-subsys0  nqn.2026-01.org.example:a  nvme0, nvme1

Device  Cntlid  SN  MN  FR   TxPort  Address                        Subsystem     Namespaces
------  ------  --  --  ---  ------  -----------------------------  ------------  ----------
nvme0                        tcp     traddr=192.0.2.0,trsvcid=4420  nvme-subsys0  nvme0n1
nvme1   2               2.1  tcp     traddr=192.0.2.1,trsvcid=4420  nvme-subsys0  nvme0n1

Device   NSID  Usage                    Format          Controllers
-------  ----  -----------------------  --------------  ------------
nvme0n1  0x7     1.02  MB / 268.44  MB    4 KiB +  0 B  nvme0, nvme1
";
    assert_eq!(list::detailed(&host), table);
    let json = list::detailed_json(&host);
    let subsystem = &json["Devices"][0]["Subsystems"][0];
    assert_eq!(subsystem["SubsystemNQN"], "nqn.2026-01.org.example:a");
    assert_eq!(subsystem["Controllers"][1]["Cntlid"], "2");
    assert_eq!(subsystem["Controllers"][1]["Paths"][0]["Path"], "nvme0c1n1");
    assert_eq!(subsystem["Namespaces"][0]["UsedBytes"], 1_024_000);
}

#[test]
fn every_ranking_has_the_namespaces_of_nvme_clis_json() {
    for ranking in [Ranking::Namespace, Ranking::Ctrl, Ranking::Multipath] {
        let json = topology::json(&two_paths(), None, ranking);
        let namespace = &json[0]["Subsystems"][0]["Namespaces"][0];
        assert_eq!(namespace["NSID"], 7, "{ranking:?}");
        assert_eq!(namespace["Paths"][1]["Controller"][0]["Name"], "nvme1", "{ranking:?}");
    }
}

/// `id-ctrl nvme0n1`: "The <device> parameter [...] may be either the NVMe character device (ex:
/// /dev/nvme0), or a namespace block device (ex: /dev/nvme0n1)".
#[test]
fn a_device_is_asked_about_its_controller_through_a_path_that_works() {
    let mut host = two_paths();
    host.subsystems[0].heads[0].paths.iter_mut().for_each(|path| path.usable = false);
    assert_eq!(host.controller_of("nvme0n1"), Some("nvme0"), "when none works");
    host.subsystems[0].heads[0].paths[1].usable = true;
    assert_eq!(host.controller_of("nvme0n1"), Some("nvme1"));
    assert_eq!(host.controller_of("nvme1"), None, "a controller, or nothing at all");
}

/// `list-subsys -v`, `show-topology -v`.
#[test]
fn more_is_told_of_a_subsystem_where_that_is_asked_for() {
    let mut host = two_paths();
    let subsystem = &mut host.subsystems[0];
    subsystem.model = "a model".into();
    subsystem.serial = "1234".into();
    subsystem.firmware = "5.6".into();
    let indent = " ".repeat(15);
    let told = ["model=a model", "serial=1234", "firmware=5.6", "type=nvm"];
    let told: String = told.iter().map(|line| format!("{indent}{line}\n")).collect();
    let tree = topology::text(&host, None, Ranking::Ctrl, true);
    for text in [subsys::text(&host, None, true), tree] {
        assert!(text.contains(&(told.clone() + "\\\n")), "{text}");
    }
    assert!(!subsys::text(&host, None, false).contains("model="));
    for json in [subsys::json(&host, None), topology::json(&host, None, Ranking::Ctrl)] {
        let subsystem = &json[0]["Subsystems"][0];
        let told = ["Model", "Serial", "Firmware", "Type"].map(|key| &subsystem[key]);
        assert_eq!(told, ["a model", "1234", "5.6", "nvm"]);
    }
    for verb in ["list-subsys", "show-topology"] {
        Cli::try_parse_from(["anabranch", verb, "-v", "nvme0n1", "--verbose"]).expect(verb);
    }
}

/// As the kernel's `address` attribute, which nvme-cli prints.
#[test]
fn an_address_names_the_interface_between_the_two_of_our_own() {
    let mut host = two_paths();
    let controller = &mut host.subsystems[0].controllers[0];
    controller.host_traddr = Some("192.0.2.8".into());
    controller.host_iface = Some("eth1".into());
    controller.src_addr = Some("192.0.2.9".into());
    let path = &subsys::json(&host, None)[0]["Subsystems"][0]["Paths"][0];
    let own = "host_traddr=192.0.2.8,host_iface=eth1,src_addr=192.0.2.9";
    assert_eq!(path["Address"], format!("traddr=192.0.2.0,trsvcid=4420,{own}"));
    assert_eq!(path["AddressDetails"]["host_iface"], "eth1");
}

#[test]
fn every_path_of_the_table_has_its_nsid() {
    let text = topology::text(&two_paths(), None, Ranking::Multipath, false);
    let rows: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    for row in [["nvme0n1", "7", "nvme0c0n1"], ["-->", "7", "nvme0c1n1"]] {
        assert!(rows.iter().any(|it| *it == row), "{row:?} in:\n{text}");
    }
}

#[test]
fn everything_that_an_object_shows_is_one_table() {
    let shown = [("iopolicy", true, "numa"), ("latency_stat", false, "a\nb"), ("uuid", false, "")];
    let shown = shown.map(|(name, writable, value)| AttributeView {
        name: name.into(),
        writable,
        value: value.into(),
    });
    let table = "\
Attribute     Mode  Value
------------  ----  -----
iopolicy      rw    numa
latency_stat  ro    a
                    b
uuid          ro
";
    assert_eq!(attributes::text(&shown), table);
    let json = attributes::json("nvme0n1", &shown);
    assert_eq!(json["object"], "nvme0n1");
    assert_eq!(json["attributes"][1]["value"], "a\nb");
}

#[test]
fn help_lists_every_policy() {
    let mut command = Cli::command();
    for verb in ["demo", "bench"] {
        let verb = command.find_subcommand_mut(verb).expect("a verb");
        let help = verb.render_long_help().to_string();
        for policy in Policy::ALL {
            assert!(help.contains(policy.name()), "{policy} in:\n{help}");
        }
    }
}

/// Whoever mistypes a number learns of which option, and what it takes.
#[test]
fn a_number_that_an_option_does_not_take_is_told_with_its_limits() {
    let connect = ["connect", "-a", "::1", "-n", "nqn.2026-01.a:b"];
    for (words, option, limits) in [
        (&[&connect[..], &["-Q", "15"]].concat()[..], "--queue-size", "from 16 to 1024"),
        (&[&connect[..], &["-Q", "x"]].concat()[..], "--queue-size", "from 16 to 1024"),
        (&[&connect[..], &["-Q", "-1"]].concat()[..], "--queue-size", "from 16 to 1024"),
        (&[&connect[..], &["-i", "0"]].concat()[..], "--nr-io-queues", "from 1 to 65535"),
        (&[&connect[..], &["-T", "-1"]].concat()[..], "--tos", "from 0 to 255"),
        (
            &[&connect[..], &["--relative-throughput", "101"]].concat()[..],
            "--relative-throughput",
            "from 0 to 100",
        ),
        (&[&connect[..], &["-s", "-1"]].concat()[..], "--trsvcid", "1 to 65535"),
        (&["serve", "--workers", "129"][..], "--workers", "from 1 to 128"),
        (&["bench", "--iodepth", "x"][..], "--iodepth", "from 1 to 4096"),
        (&["bench", "--runs", "99999999999999999999"][..], "--runs", "from 1 to 101"),
        (&["bench", "--offset", "-1"][..], "--offset", "not a size"),
        (&["top", "-n", "0"][..], "--iterations", "1 or more"),
        (&["explain", "nvme0n1", "--samples", "-1"][..], "--samples", "from 0 to 4096"),
        (&["lab", "compare", "a", "b", "--tolerance", "-1"][..], "--tolerance", "0 to 100"),
        (&["target", "ctl", "ana", "1", "129", "optimized"][..], "<GROUP>", "from 1 to 128"),
        (&["target", "ctl", "ns", "rm", "0"][..], "<NSID>", "from 1 to 1024"),
        (&["target", "ctl", "ns", "group", "x", "1"][..], "<NSID>", "from 1 to 1024"),
        (&["target", "ctl", "ns", "corrupt", "1", "-1"][..], "<LBA>", "0 or more"),
        (&["target", "ctl", "ns", "resize", "1", "100"][..], "<SIZE>", "multiple of 512"),
    ] {
        let told = Cli::try_parse_from([&["anabranch"], words].concat());
        let told = told.expect_err("a wrong number").to_string();
        assert!(told.contains(option) && told.contains(limits), "{words:?}: {told}");
    }
    Cli::try_parse_from([&["anabranch"], &connect[..], &["-Q", "16", "-T", "255"]].concat())
        .expect("the ends of their ranges");
}

/// As a controller that is being connected, which it is to a reader of nvme-cli's JSON.
#[test]
fn a_path_without_an_address_stands_with_its_subsystem() {
    let mut host = two_paths();
    let (name, traddr) = ("nvme2".into(), "array.example".into());
    host.subsystems[0].awaited = vec![AwaitedView { name, traddr, trsvcid: "4421".into() }];
    let line = " +- nvme2 tcp traddr=array.example,trsvcid=4421 connecting (no address yet)";
    let texts = [Ranking::Namespace, Ranking::Ctrl]
        .map(|ranking| topology::text(&host, None, ranking, false));
    for text in texts.iter().chain([&subsys::text(&host, None, false)]) {
        assert_eq!(text.lines().last(), Some(line), "{text}");
    }
    let table = topology::text(&host, None, Ranking::Multipath, false);
    let row: Vec<&str> = table.lines().last().expect("a row").split_whitespace().collect();
    let (address, state) = ("traddr=array.example,trsvcid=4421", "connecting (no address yet)");
    assert_eq!(row[6..9], ["nvme2", "tcp", address]);
    assert_eq!(row[9..].join(" "), state);
    let one = subsys::json(&host, Some("nvme2"));
    let paths = one[0]["Subsystems"][0]["Paths"].as_array().expect("paths");
    let [path] = &paths[..] else { panic!("what was asked for: {one}") };
    assert_eq!([&path["Name"], &path["State"]], ["nvme2", "connecting"]);
    assert_eq!(path["Diag"]["last_error"], "no address yet");
    assert!(!subsys::text(&host, Some("nvme0n1"), false).contains("nvme2"));
    let all = topology::json(&host, None, Ranking::Namespace);
    let late = &all[0]["Subsystems"][0]["Diag"]["without_address"];
    assert_eq!(late[0]["AddressDetails"], json!({ "traddr": "array.example", "trsvcid": "4421" }));
}

/// Under other policies nothing is counted, which is not the same as that nothing is in flight.
#[test]
fn bytes_in_flight_are_told_under_the_policy_that_counts_them() {
    let mut host = two_paths();
    host.subsystems[0].heads[0].paths[0].in_flight_bytes = 4096;
    for (policy, shown) in [("service-time", json!(4096)), ("queue-depth", json!(null))] {
        host.subsystems[0].iopolicy = policy.into();
        let listing = topology::json(&host, None, Ranking::Namespace);
        let path = &listing[0]["Subsystems"][0]["Namespaces"][0]["Paths"][0];
        let diag = path["Diag"].as_object().expect("an object");
        assert_eq!(diag.get("in_flight_bytes"), Some(&shown), "{policy}");
    }
}
