use super::*;
use crate::daemon::config::Source;
use std::path::Path;

#[test]
fn whatever_is_drawn_a_controller_may_have_it_as_its_number() {
    let last = u64::from(MAX_CNTLID) - 1;
    let drawn = [0, last, last + 1, u64::MAX].map(first_cntlid);
    assert_eq!(drawn[..3], [1, MAX_CNTLID, 1]);
    assert!((1..=MAX_CNTLID).contains(&drawn[3]));
}

/// Another target may take the namespace over.
/// However long the system takes for what was begun there: nobody has to ask a second time.
/// Somebody else may add it before whoever removed the former one has let that one's file go.
/// The engine does what it was asked for after somebody stopped waiting for it, too.
/// Only a file that nobody can have written to goes with the namespace that it was made for.
/// As `status` has it, and as the command line hands on what was written.
#[test]
fn a_request_names_a_port_by_number_or_text() {
    let read = |port: &str| {
        let text = format!(r#"{{"port":{port}}}"#);
        Params::from_text(&text).read::<OnePort>().map(|one| one.port.text())
    };
    assert_eq!(read("2"), Ok("2".to_owned()));
    assert_eq!(read(r#""127.0.0.1:4420""#), Ok("127.0.0.1:4420".to_owned()));
    let told = read("-1").expect_err("no port").message;
    assert!(told.contains("a port: its place from 1"), "{told}");
}

#[test]
fn who_names_a_port_that_is_not_there_is_told_which_are() {
    let listeners = ["127.0.0.1:4420", "127.0.0.1:4421"];
    let listeners = listeners.map(|at| Endpoint::Tcp(at.parse().expect("an address")));
    for (count, told) in [
        (1, "there is no port '9': the only one is 1 (127.0.0.1:4420)"),
        (2, "there is no port '9': there are 1 (127.0.0.1:4420), 2 (127.0.0.1:4421)"),
    ] {
        assert_eq!(find_port("9", &listeners[..count]), Err(told.to_owned()));
    }
}

/// Whoever writes that does not mean that every host may.
#[test]
fn a_list_without_hosts_is_a_mistake() {
    let file = |hosts: &str| {
        let text = format!("[[port]]\nlisten = \"127.0.0.1:0\"\n[[subsystem]]\n{hosts}");
        Source::new(Path::new("t.toml"), text).parse::<TargetSetup>()
    };
    let told = file("allow_hosts = []\n").expect_err("for nobody?").to_string();
    assert!(told.starts_with("t.toml, line 4 (allow_hosts): is empty"), "{told}");
    assert_eq!(file("").expect("for all").subsystems[0].allow_hosts, [""; 0]);
    let one = file("allow_hosts = [\"nqn.2026-01.org.example:a\"]\n").expect("for one");
    assert_eq!(one.subsystems[0].allow_hosts, ["nqn.2026-01.org.example:a"]);
}

/// Whoever restores a port has one that listens, or is told why not.
#[test]
fn a_port_whose_address_was_taken_is_not_restored() {
    let port = PortSpec { listen: "127.0.0.1:0".to_owned(), ..PortSpec::default() };
    let subsystems = vec![SubsystemSpec::named("nqn.2026-01.org.example:restored")];
    let setup = TargetSetup { ports: vec![port], subsystems, cpus: None };
    let target = RunningTarget::start(&setup, |_| {}).expect("a target");
    let listener = target.listeners().expect("its address").remove(0);
    let restored = || target.call("restore", Params::from_text("{\"port\":1}"));
    target.cut(0).expect("it is cut");
    // Its listener ends a moment later.
    let other = std::iter::repeat_with(|| std::net::TcpListener::bind(listener.to_string()));
    let other = other.flatten().next().expect("the address is free");
    let told = restored().expect_err("it is taken").message;
    assert!(told.starts_with(&format!("cannot listen on {listener}: address already")), "{told}");
    let shown = || status_text(&status_json(&target.status().expect("a status")));
    assert!(shown().contains("not listening"), "{}", shown());
    drop(other);
    restored().expect("it is free again");
    std::net::TcpStream::connect(listener.to_string()).expect("somebody listens");
    assert!(!shown().contains("not listening"), "{}", shown());
    target.stop().expect("it ends");
}

#[test]
fn a_status_shows_what_was_damaged_on_its_way() {
    let port = PortSpec { listen: "127.0.0.1:0".to_owned(), ..PortSpec::default() };
    let subsystems = vec![SubsystemSpec::named("nqn.2026-01.org.example:damaged")];
    let setup = TargetSetup { ports: vec![port], subsystems, cpus: None };
    let target = RunningTarget::start(&setup, |_| {}).expect("a target");
    let mut status = target.status().expect("a status");
    target.stop().expect("it ends");
    status.ports[0].damaged_commands = 7531;
    let json = status_json(&status);
    assert_eq!(json["ports"][0]["damaged_commands"], 7531);
    let text = status_text(&json);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("Damaged") && lines[2].ends_with("7531"), "{text}");
    let controllers = lines.iter().find(|line| line.starts_with("Controller "));
    assert!(controllers.expect("their head").contains("Damaged"), "{text}");
}

/// TOML takes two spellings of one number for two keys.
#[test]
fn an_ana_group_has_one_state() {
    let text = "[[port]]\nlisten = \"127.0.0.1:0\"\n\
                ana = { 1 = \"optimized\", 01 = \"change\" }\n[[subsystem]]\n";
    let source = Source::new(Path::new("t.toml"), text.to_owned());
    let setup = source.parse::<TargetSetup>().expect("a configuration");
    let told = setup.config(&FileTable::new()).expect_err("which of them?").to_string();
    assert_eq!(told, "ana: group 1 stands here twice");
}

/// What is lost reads as zeroes once the file has its former length again, and nobody is told.
#[test]
fn a_file_that_has_lost_its_end_is_not_made_longer_for_its_namespace() {
    let path = std::env::temp_dir().join(format!("anabranch-lost-end-{}", std::process::id()));
    for (bs, left, whole) in [(512, 5000, 4608), (512, 4096, 4096), (4096, 13000, 12288)] {
        let file = std::fs::File::create(&path).expect("a file");
        file.set_len(1 << 20).expect("it grows");
        let port = PortSpec { listen: "127.0.0.1:0".to_owned(), ..PortSpec::default() };
        let namespace = format!("file:{},bs={bs}", path.display()).parse().expect("a namespace");
        let subsystem = SubsystemSpec {
            namespaces: vec![namespace],
            ..SubsystemSpec::named("nqn.2026-01.org.example:lost-end")
        };
        let setup = TargetSetup { ports: vec![port], subsystems: vec![subsystem], cpus: None };
        let target = RunningTarget::start(&setup, |_| {}).expect("a target");
        let resize = |bytes: u64| {
            let params = format!("{{\"nsid\":1,\"size\":{bytes}}}");
            target.call("ns_resize", Params::from_text(&params)).map(|_| ())
        };
        let length = || file.metadata().expect("it is there").len();
        file.set_len(left).expect("somebody cuts it off");
        for bytes in [1 << 20, 2 << 20, 512 << 10] {
            let told = resize(bytes).expect_err("blocks are lost").message;
            assert!(told.contains("has become shorter than its 1048576 bytes"), "{told}");
            assert!(told.contains(&format!("resize it to {left} bytes or less")), "{told}");
            assert_eq!(length(), left, "as it was");
        }
        resize(whole).expect("what is left is taken");
        assert_eq!(length(), left);
        resize(1 << 20).expect("the namespace grows as any other does");
        assert_eq!(length(), 1 << 20);
        // Whoever has cut it off has put its end back.
        file.set_len(left).expect("somebody cuts it off");
        file.set_len(1 << 20).expect("it grows");
        resize(1 << 20).expect("nothing is missing");
        target.stop().expect("it ends");
    }
    std::fs::remove_file(&path).expect("it goes");
}

/// What one of them has read of the namespace would not hold any more.
#[test]
fn a_namespace_that_is_worked_on_is_not_changed_by_another() {
    let port = PortSpec { listen: "127.0.0.1:0".to_owned(), ..PortSpec::default() };
    let name = "nqn.2026-01.org.example:worked-on";
    let setup =
        TargetSetup { ports: vec![port], subsystems: vec![SubsystemSpec::named(name)], cpus: None };
    let target = RunningTarget::start(&setup, |_| {}).expect("a target");
    let add = r#"{"namespace":{"backend":"mem:1m","nsid":1}}"#;
    let calls =
        [("ns_add", add), ("ns_resize", r#"{"nsid":1,"size":4096}"#), ("ns_rm", r#"{"nsid":1}"#)];
    for (method, params) in calls {
        let call = || target.call(method, Params::from_text(params)).map(|_| ());
        let claim = target.files.claim(&target.nqns[0], 1, None).expect("nobody works");
        assert_eq!(call().expect_err("somebody works").code, RpcError::BUSY, "{method}");
        drop(claim);
        call().unwrap_or_else(|why| panic!("{method}: {why:?}"));
    }
    target.stop().expect("it ends");
}
