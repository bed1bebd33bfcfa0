//! Attributes over the control socket's methods, on a host that has nothing connected.

use anabranch::daemon::control::Handler;
use anabranch::daemon::host::{Host, HostSetup};
use anabranch::daemon::identity::Identity;
use anabranch::daemon::rpc::{Params, RpcError};
use anabranch_policy::Policy;
use serde_json::{Value, json};

fn host() -> Host {
    let setup = HostSetup::new(Identity::fresh().expect("an identity"));
    Host::start(&setup, |_| {}).expect("a host")
}

fn call(host: &Host, method: &str, params: &Value) -> Result<Value, RpcError> {
    let answer = host.call(method, Params::from_text(&params.to_string()))?;
    Ok(serde_json::from_str(answer.text()).expect("JSON"))
}

#[test]
fn get_reads_one_attribute_or_all_that_an_object_shows() {
    let host = host();
    let one = call(&host, "get", &json!({ "object": "nvme_core", "attribute": "iopolicy" }));
    assert_eq!(one, Ok(json!({ "value": "queue-depth" })));
    let all = call(&host, "get", &json!({ "object": "nvme_core" })).expect("all of them");
    let iopolicy = json!({ "name": "iopolicy", "writable": true, "value": "queue-depth" });
    let shown = all["attributes"].as_array().expect("a list");
    assert!(shown.contains(&iopolicy), "{all}");
    let error = call(&host, "get", &json!({ "object": "nvme9" })).expect_err("not there");
    assert_eq!(error.message, "there is no controller nvme9, nor any other");
    host.stop().expect("it stops");
}

#[test]
fn what_is_refused_is_the_callers_mistake_and_says_what_is_right() {
    let host = host();
    for (params, says) in [
        (json!({ "object": "nvme_core", "attribute": "iopolicy", "value": "q" }), "round-robin"),
        (json!({ "object": "nvme_core", "attribute": "multipath", "value": "N" }), "read-only"),
        (json!({ "object": "nvme_core", "attribute": "iopolicy" }), "a value"),
        (json!({ "object": "nvme_core", "value": "numa" }), "an attribute"),
        (json!({ "object": "nvme_core", "attribute": "colour", "value": "1" }), "iopolicy"),
    ] {
        let error = call(&host, "set", &params).expect_err("it is refused");
        assert_eq!(error.code, RpcError::INVALID_PARAMS, "{params}");
        assert!(error.message.contains(says), "{params}: {}", error.message);
    }
    let adaptive = json!({ "object": "nvme_core", "attribute": "iopolicy", "value": "adaptive" });
    let error = call(&host, "set", &adaptive).expect_err("it has another name now");
    assert!(error.message.contains("now called latency"), "{}", error.message);
    let value = json!({ "object": "nvme_core", "attribute": "iopolicy", "value": "numa" });
    let error = call(&host, "get", &value).expect_err("get takes no value");
    assert_eq!(error.code, RpcError::INVALID_PARAMS);
    host.stop().expect("it stops");
}

#[test]
fn every_policy_can_be_the_default() {
    let host = host();
    for policy in Policy::ALL {
        let value =
            json!({ "object": "nvme_core", "attribute": "iopolicy", "value": policy.name() });
        assert_eq!(call(&host, "set", &value), Ok(json!({})));
        let get = json!({ "object": "nvme_core", "attribute": "iopolicy" });
        assert_eq!(call(&host, "get", &get), Ok(json!({ "value": policy.name() })));
    }
    host.stop().expect("it stops");
}
