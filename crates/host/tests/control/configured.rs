//! What subsystems, devices and paths are given at first, instead of the defaults.

use crate::fake::Fake;
use crate::rig::{NQN, Rig};
use anabranch_host::topology::ControllerState;
use anabranch_host::verb::{Selection, Verb};

const SUBSYSTEM: &str = "nvme-subsys0";

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
