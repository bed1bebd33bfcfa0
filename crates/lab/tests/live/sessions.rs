//! Sessions: what they refuse, what they measure first, what they leave behind.

use super::rig::{MS, no_threads, scenario, session, threads, turn};
use anabranch_lab::live::{LiveError, LiveOptions, Session};
use anabranch_lab::scenario::{AnaState, Run};

#[test]
fn each_path_has_a_ceiling_and_the_scenario_is_back_afterwards() {
    let _turn = turn();
    let mut scenario = scenario();
    scenario.run = Run { ramp_ns: 50 * MS, window_ns: 100 * MS, runs: 1 };
    let mut session = session(&scenario);
    let ceilings = session.ceilings().unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<&str> = ceilings.iter().map(|ceiling| ceiling.path.as_str()).collect();
    assert_eq!(names, ["fast", "slow"]);
    for ceiling in &ceilings {
        assert!(ceiling.bytes_s > 0 && ceiling.delay_ns > 0, "{ceiling:?}");
    }
    // Of the links, 20 and 80 Mbit/s in both directions; PDU headers take their part.
    let asked: Vec<u64> = ceilings.iter().map(|ceiling| ceiling.asked_bytes_s).collect();
    assert_eq!(asked[0] / asked[1], 4, "{asked:?}");
    let circumstances = session.circumstances(&ceilings);
    assert_eq!(circumstances.scale_permille, 1000);
    assert_eq!(circumstances.ceilings, ceilings);
    let figures = session.run(&scenario.variants[0], 1).unwrap_or_else(|error| panic!("{error}"));
    assert!(figures.paths.iter().all(|path| path.bytes > 0), "{:?}", figures.paths);
    session.end().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn without_a_scale_one_is_found_and_said() {
    let _turn = turn();
    let mut scenario = scenario();
    // More than any machine carries.
    for path in &mut scenario.paths {
        path.shape.rate_out = path.shape.rate_out.map(|rate| rate * 10_000);
        path.shape.rate_in = None;
    }
    let session = Session::new(&scenario, &LiveOptions::default());
    let session = session.unwrap_or_else(|error| panic!("{error}"));
    assert!((1..1000).contains(&session.scale()), "{}", session.scale());
    let rate = u64::from(session.scale()) * 800_000_000;
    assert_eq!(session.scenario().paths[0].shape.rate_out, Some(rate));
    assert!(session.notes().iter().any(|note| note.contains("of the scenario's")));
    session.end().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn nothing_is_left_of_a_session_however_it_ends() {
    let _turn = turn();
    let scenario = scenario();
    let ended = session(&scenario);
    assert!(threads().len() >= 4, "target, control and data workers: {:?}", threads());
    ended.end().unwrap_or_else(|error| panic!("{error}"));
    no_threads();
    drop(session(&scenario));
    no_threads();
}

#[test]
fn what_is_out_of_bounds_is_refused_before_anything_starts() {
    let _turn = turn();
    for permille in [0, 1001] {
        let options = LiveOptions { scale_permille: Some(permille), ..LiveOptions::default() };
        let error = Session::new(&scenario(), &options).err().expect("out of range");
        assert!(matches!(error, LiveError::Option { name: "scale", .. }), "{error:?}");
    }
    let mut none = scenario();
    none.paths.clear();
    let error = Session::new(&none, &LiveOptions::default()).err().expect("no path");
    assert!(matches!(error, LiveError::Scenario(_)), "{error:?}");
    let mut closed = scenario();
    closed.paths.iter_mut().for_each(|path| path.ana = AnaState::Inaccessible);
    let error = Session::new(&closed, &LiveOptions::default()).err().expect("no device");
    assert!(error.to_string().starts_with("ana: every path begins inaccessible"), "{error}");
    no_threads();
}

/// Network namespaces of this process.
fn namespaces() -> Vec<String> {
    let ours = format!("anabranch-lab-{}-", std::process::id());
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&ours)).collect()
}

/// Making one is what a container without the right to does not let us.
fn can_make_namespaces() -> bool {
    let name = format!("anabranch-lab-{}-probe", std::process::id());
    let ip = |what| std::process::Command::new("ip").args(["netns", what, &name]).output();
    let made = ip("add").is_ok_and(|output| output.status.success());
    made && ip("delete").is_ok_and(|output| output.status.success())
}

#[test]
fn the_kernel_can_shape_the_links() {
    let _turn = turn();
    let scenario = scenario();
    let options =
        LiveOptions { scale_permille: Some(1000), kernel_shaping: true, ..LiveOptions::default() };
    let session = Session::new(&scenario, &options);
    if !can_make_namespaces() {
        let text = session.err().expect("nothing to run it on").to_string();
        assert!(text.starts_with("kernel-shaping: it needs root"), "{text}");
        eprintln!("not tested: this user cannot make network namespaces");
        return;
    }
    let mut session = session.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(namespaces().len(), 2);
    let figures = session.run(&scenario.variants[1], 1).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(figures.errors, 0);
    figures.books.check().unwrap_or_else(|text| panic!("{text}"));
    assert!(figures.paths.iter().all(|path| path.bytes > 0), "{:?}", figures.paths);
    // 100 Mbit/s in each direction; buckets are full at first.
    assert!(figures.bytes_per_second() < 40_000_000, "{}", figures.bytes_per_second());
    session.end().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(namespaces(), Vec::<String>::new());
    no_threads();
}
