//! That nothing carries the I/O of a device is told, and that something does again.

use crate::rig::{NAMESPACES_CHANGED, Rig};
use anabranch_host::verb::{Selection, Verb};

/// As Linux does, in the words of Linux; and that it is over.
#[test]
fn a_device_without_a_usable_path_is_told_of() {
    let mut rig = Rig::connected_twice(1);
    let told = |rig: &Rig| {
        [rig.event_count("nvme0n1: no usable path of 2"), rig.event_count("usable again")]
    };
    rig.cut(1);
    assert_eq!(told(&rig), [0, 0], "there is another one");
    rig.cut(2);
    assert_eq!(told(&rig), [1, 0]);
    rig.advance_s(11);
    assert_eq!(told(&rig), [1, 1]);
    for _ in 0..3 {
        rig.raise(1, NAMESPACES_CHANGED);
        rig.raise(2, NAMESPACES_CHANGED);
    }
    assert_eq!(told(&rig), [1, 1], "what is only looked at is there in a moment");
    rig.verb(Verb::Disconnect(Selection::All));
    rig.advance_s(2);
    assert!(rig.heads().is_empty());
    assert_eq!(told(&rig), [1, 1], "it was asked for");
}
