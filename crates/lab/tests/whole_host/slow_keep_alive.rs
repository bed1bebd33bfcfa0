//! A controller whose admin queue is slow while it answers I/O: that one is not silent.

use crate::rig::{MS, Rig, SECOND, Setup, reads};
use crate::setup;
use anabranch_proto::machine::WorkerId;

const KATO: std::time::Duration = std::time::Duration::from_secs(4);

/// One path. What its controller says on the admin queue takes three quarters of KATO.
fn slow_admin() -> Rig {
    let mut setup = Setup::new(1, 1);
    setup.options.keep_alive_tmo = KATO;
    let mut rig = setup.connect();
    let admin = rig.world.stream(WorkerId(0), &setup::port(0)).expect("open");
    rig.world.slow_stream(admin, KATO * 3 / 8);
    rig
}

/// Reads something each half second.
fn reads_for(rig: &mut Rig, stretch: std::time::Duration) {
    let end = rig.now().after(stretch);
    while rig.now() < end {
        rig.io(reads(1));
        rig.run(SECOND / 2);
    }
}

#[test]
fn a_controller_that_answers_io_has_all_of_kato_for_keep_alive() {
    let mut rig = slow_admin();
    let begin = rig.now();
    reads_for(&mut rig, 10 * KATO);
    assert_eq!(rig.event(begin, "resetting"), None);
    rig.finish();
    // Without I/O nothing says that it is there.
    let mut rig = slow_admin();
    let begin = rig.now();
    rig.run(KATO);
    let told = "resetting (no answer to Keep Alive in 2s, half of its time-out)";
    assert!(rig.event(begin, told).is_some(), "{:?}", rig.events());
    rig.wait_live(0);
    rig.finish();
}

/// Also when it has answered I/O until then.
#[test]
fn a_controller_that_falls_silent_under_io_is_noticed_within_kato() {
    for part in 0..8 {
        let mut setup = Setup::new(2, 1);
        setup.options.keep_alive_tmo = KATO;
        let mut rig = setup.connect();
        reads_for(&mut rig, KATO + KATO / 8 * part);
        rig.wire().rule(|pdu| {
            if pdu.port == 0 {
                pdu.bytes.clear();
            }
        });
        let silent = rig.now();
        rig.run(KATO + 20 * MS);
        assert!(rig.event(silent, "nvme0: live -> resetting").is_some(), "{:?}", rig.events());
        rig.wire().clear_rules();
        rig.wait_live(0);
        rig.finish();
    }
}
