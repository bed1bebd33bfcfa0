//! Paths whose names have no address yet.

use anabranch::daemon::control::Handler;
use anabranch::daemon::host::{Host, HostSetup};
use anabranch::daemon::identity::Identity;
use anabranch::daemon::names::{failures, follow};
use anabranch::daemon::rpc::{Params, RpcError};
use serde_json::{Value, json};
use std::sync::Arc;

const NQN: &str = "nqn.2026-01.org.test:late";

/// One that follows the names of its paths, as `serve` does.
fn host() -> Arc<Host> {
    let setup = HostSetup::new(Identity::fresh().expect("an identity"));
    let host = Arc::new(Host::start(&setup, |_| {}).expect("a host"));
    follow(&host, failures().1).expect("a thread");
    host
}

fn call(host: &Host, method: &str, params: &Value) -> Result<Value, RpcError> {
    let answer = host.call(method, Params::from_text(&params.to_string()))?;
    Ok(serde_json::from_str(answer.text()).expect("JSON"))
}

/// Nobody has that name, which takes no name service to say; it is not looked up again meanwhile.
fn connect(host: &Host, nqn: &str, keep_trying: bool) -> Result<Value, RpcError> {
    connect_to(host, nqn, 4420, keep_trying)
}

fn connect_to(host: &Host, nqn: &str, port: u16, keep_trying: bool) -> Result<Value, RpcError> {
    let path = json!({ "traddr": "array..invalid", "trsvcid": port, "reconnect_delay": "1h" });
    call(host, "connect", &json!({ "nqn": nqn, "path": path, "keep_trying": keep_trying }))
}

/// As a path of the configuration is.
#[test]
fn who_keeps_trying_a_name_has_it_looked_up_again() {
    let host = host();
    let told = connect(&host, NQN, false).expect_err("nobody has that name").message;
    assert!(told.contains("'array..invalid' cannot be looked up"), "{told}");
    let answer = connect(&host, NQN, true).expect("it is kept trying");
    assert_eq!(answer["controller"], "nvme0");
    let why = answer["waits_for"].as_str().expect("why").to_owned();
    assert!(why.starts_with("traddr 'array..invalid' cannot be looked up: "), "{why}");
    assert!(why.ends_with("; it is looked up again every 3600 s"), "{why}");
    let discovery = "nqn.2014-08.org.nvmexpress.discovery";
    let told = connect(&host, discovery, true).expect_err("it has no namespaces").message;
    assert!(told.contains("use discover or connect-all"), "{told}");
    call(&host, "disconnect", &json!({ "all": true })).expect("nobody wants it any more");
}

#[test]
fn a_path_without_an_address_is_seen_until_it_is_given_up() {
    let host = host();
    let other = "nqn.2026-01.org.test:other";
    for (nqn, port) in [(NQN, 4420), (other, 4420), (NQN, 4421)] {
        connect_to(&host, nqn, port, true).expect("it is kept trying");
    }
    let awaited = || {
        let view = call(&host, "snapshot", &json!({})).expect("a view");
        let subsystems = view["subsystems"].as_array().expect("subsystems").clone();
        let of = |subsystem: &Value| (subsystem["nqn"].clone(), subsystem["awaited"].clone());
        subsystems.iter().map(of).collect::<Vec<_>>()
    };
    let at = |name: &str, port: &str| -> Value {
        let traddr = "array..invalid";
        json!({ "name": name, "traddr": traddr, "trsvcid": port })
    };
    let late = |name: &str| at(name, "4420");
    let second = (json!(other), json!([late("nvme1")]));
    let both = json!([late("nvme0"), at("nvme2", "4421")]);
    assert_eq!(awaited(), [(json!(NQN), both), second.clone()]);
    let given_up = |which: Value| call(&host, "disconnect", &which);
    let counts = |count| Ok(json!({ "disconnected": 0, "given_up": count }));
    assert_eq!(given_up(json!({ "device": "nvme2" })), counts(1));
    assert_eq!(awaited(), [(json!(NQN), json!([late("nvme0")])), second.clone()]);
    assert!(given_up(json!({ "device": "nvme2" })).is_err(), "it is gone");
    assert_eq!(given_up(json!({ "nqn": NQN })), counts(1));
    assert_eq!(awaited(), [second]);
    assert_eq!(given_up(json!({ "all": true })), counts(1));
    assert_eq!(awaited(), []);
}

/// As one that is connected: whoever asks again has asked for nothing new.
#[test]
fn a_path_without_an_address_is_not_had_twice() {
    let host = host();
    connect(&host, NQN, true).expect("it is kept trying");
    for keep_trying in [true, false] {
        let told = connect(&host, NQN, keep_trying).expect_err("it is to come already");
        assert_eq!(told.code, RpcError::CONNECTED);
        let is = format!("already being connected: nvme0 is going to be {NQN} at array..invalid");
        assert!(told.message.starts_with(&is), "{}", told.message);
    }
    call(&host, "disconnect", &json!({ "device": "nvme0" })).expect("it is given up");
    let again = connect(&host, NQN, true).expect("it is kept trying again");
    assert_eq!(again["controller"], "nvme0");
}

/// One that fails to start goes at once, with its sockets and locks, whatever it looks for.
#[test]
fn a_look_up_keeps_no_host_that_nobody_else_has() {
    let host = host();
    connect(&host, NQN, true).expect("it is kept trying");
    assert_eq!(Arc::strong_count(&host), 1);
}

/// Wherever it is: there may be an address of the same name that nobody has.
#[test]
fn a_name_with_several_addresses_is_one_path_however_often_it_is_connected() {
    let host = host();
    let connect = |name: &str| {
        let path = json!({ "traddr": name, "trsvcid": 1, "ctrl_loss_tmo": "off" });
        call(&host, "connect", &json!({ "nqn": NQN, "path": path, "keep_trying": true }))
    };
    assert_eq!(connect("localhost").expect("it is kept trying")["controller"], "nvme0");
    let again = connect("localhost").expect_err("it is there");
    assert_eq!(again.code, RpcError::CONNECTED);
    assert!(again.message.starts_with("already being connected: nvme0"), "{}", again.message);
    call(&host, "disconnect", &json!({ "device": "nvme0" })).expect("it goes");
    assert_eq!(connect("localhost").expect("it is new")["controller"], "nvme0");
}
