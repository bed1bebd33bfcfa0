//! A path that carries bytes in one direction alone.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};

/// Two ports; from now on one direction of everything to the first one is lost.
fn one_way(to_target_is_lost: bool) -> Rig {
    let mut setup = Setup::new(2, 1);
    setup.options.keep_alive_tmo = 5 * SECOND;
    let mut rig = setup.connect();
    rig.io(writes(20, 7));
    rig.wire().rule(move |pdu| {
        if pdu.port == 0 && pdu.to_target == to_target_is_lost {
            pdu.bytes.clear();
        }
    });
    rig
}

/// What was on its way there moves within KATO, nothing goes there any more, and when both
/// directions are back so is the path.
fn is_left_and_comes_back(mut rig: Rig) {
    let begin = rig.now();
    let names = rig.submit(reads(20));
    rig.run(10 * MS);
    assert_eq!(rig.answered(&names), 10, "the other path goes on");
    for outcome in rig.succeed(&names) {
        assert!(outcome.data.iter().all(|&byte| byte == 7), "{:?}", outcome.data);
        assert!(outcome.at.since(begin) < 5 * SECOND + 100 * MS, "{:?}", outcome.at);
    }
    let sent = rig.sent(0);
    rig.run(20 * SECOND);
    rig.io(reads(20));
    assert_eq!(rig.sent(0), sent, "what cannot be connected carries nothing");
    rig.wire().clear_rules();
    rig.wait_live(0);
    rig.io(reads(20));
    assert!(rig.sent(0) > sent);
    rig.finish();
}

#[test]
fn f4_a_path_on_which_nobody_hears_us_is_left_within_keep_alive() {
    is_left_and_comes_back(one_way(true));
}

#[test]
fn f4_a_path_on_which_we_hear_nobody_is_left_within_keep_alive() {
    is_left_and_comes_back(one_way(false));
}
