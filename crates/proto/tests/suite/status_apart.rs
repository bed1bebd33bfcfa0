//! Data whose status comes in a PDU of its own: the host knows that it waits for that alone.

use crate::read_buffer_taken_back::Rig;

#[test]
fn it_is_told_once_and_only_until_the_status_comes() {
    for digests in [false, true] {
        let all = Rig::sent(digests).answer();
        let status = 24 + if digests { 4 } else { 0 };
        let data = all.len() - status;
        for before in (data - 100)..=all.len() {
            let mut rig = Rig::sent(digests);
            rig.feed(&all[..before]);
            let expected = (data..all.len()).contains(&before);
            assert_eq!(rig.queue.awaits_status(), expected, "{before} of {}", all.len());
            assert!(!rig.queue.awaits_status(), "once");
            rig.feed(&all[before..]);
            assert!(!rig.queue.awaits_status());
            assert!(rig.queue.poll_completion().is_some_and(|done| done.cid == rig.cid));
        }
    }
}
