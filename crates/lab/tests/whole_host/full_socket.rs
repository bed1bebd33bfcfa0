//! A controller does not read: a batch that was given to its connection does not leave, and behind
//! it stand commands that have a tag. Nothing of them was sent, so nothing keeps them there.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::{Failure, Op};
use crate::setup;
use anabranch_host::user::IoError;
use anabranch_policy::Policy;
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::Uuid;
use anabranch_target::TargetVerb;
use anabranch_target::config::NamespaceConfig;

const LONG: std::time::Duration = SECOND;

/// The first worker's connection to the first port is full. One write is in the batch that does not
/// leave; those that are submitted from now on stand behind it.
fn fill_up(rig: &mut Rig, worker: u16) -> Vec<u64> {
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.block_stream(stream, LONG);
    let first = rig.submit_to(worker, "nvme0n1", writes(1, 1));
    rig.run(MS);
    first
}

/// What its user does not wait for any more is not sent when the batch leaves at last: that would
/// undo what the user has been answered meanwhile.
#[test]
fn what_was_withdrawn_before_it_left_never_leaves() {
    for shared_queue in [false, true] {
        let mut setup = Setup::new(1, 2);
        setup.host.shared_queue = shared_queue;
        let mut rig = setup.connect();
        let client = if shared_queue { 2 } else { 1 };
        let first = fill_up(&mut rig, client);
        let old = rig.submit_to(client, "nvme0n1", writes(20, 1));
        rig.run(MS);
        rig.submit_to(client, "nvme0n1", [Op::Withdraw]);
        rig.run(MS);
        let withdrawn = Err(Failure::Io(IoError::Withdrawn));
        assert_eq!(rig.answered(&old), old.len(), "{shared_queue}: nothing waits for the batch");
        assert!(rig.answers(&old).iter().all(|outcome| outcome.result == withdrawn));
        assert_eq!(rig.answered(&first), 0, "which is on its way");
        // The client is back, on the other worker.
        let new = rig.submit_to(3 - client, "nvme0n1", writes(20, 2));
        rig.run(2 * LONG);
        rig.succeed(&new);
        let reads = rig.io(reads(20));
        // The first block was in the batch.
        assert!(reads[1..].iter().all(|read| read.data.iter().all(|&byte| byte == 2)));
        rig.finish();
    }
}

/// Nor does it go to the namespace that has its NSID by the time the batch leaves.
#[test]
fn nothing_that_has_not_left_goes_to_the_next_namespace_with_the_same_number() {
    for shared_queue in [false, true] {
        let mut setup = Setup::new(1, 2);
        setup.host.shared_queue = shared_queue;
        let mut rig = setup.connect();
        let mut names = fill_up(&mut rig, 1);
        names.extend(rig.submit_to(1, "nvme0n1", writes(20, 1)));
        if shared_queue {
            names.extend(rig.submit_to(2, "nvme0n1", writes(20, 1)));
        }
        rig.run(MS);
        let subsystem = setup::subsystem();
        rig.target(TargetVerb::NamespaceRemove { subsystem: subsystem.clone(), nsid: 1 });
        rig.run(10 * MS);
        let config = NamespaceConfig { uuid: Some(Uuid([9; 16])), ..setup::namespace(1, 512) };
        rig.target(TargetVerb::NamespaceAdd { subsystem, config });
        rig.run(10 * MS);
        assert_eq!(rig.answered(&names), names.len() - 1, "{shared_queue}: the device has gone");
        rig.answers(&names);
        assert_eq!(rig.sent(0), 1, "{shared_queue}: what was in the batch");
        rig.finish();
    }
}

/// Under `finish-time` it leaves a path that has fallen silent, writes, too.
#[test]
fn what_has_not_left_is_rescued_from_a_silent_path() {
    let mut setup = Setup::new(2, 1);
    setup.host.default_policy = Policy::FinishTime;
    let mut rig = setup.connect();
    rig.io(writes(40, 1));
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.block_stream(stream, 10 * SECOND);
    let mut names = Vec::new();
    for _ in 0..10 {
        names.extend(rig.submit((0..4).map(|lba| Op::Write { lba, blocks: 1, fill: 2 })));
        rig.run(MS / 50);
    }
    rig.run(SECOND / 2);
    let batch = rig.path(0).in_flight as usize;
    assert!(batch > 0, "it was given some");
    assert_eq!(rig.answered(&names), names.len() - batch, "only what is in the batch waits");
    assert!(batch <= 4, "{batch}: the first of them");
    rig.succeed(&names);
    rig.finish();
}
