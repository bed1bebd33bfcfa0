extern crate std;
use crate::mail::{CommandOutcome, PeerMail, ToShard};
use crate::shard::fixture::{answered, carried, head, path, picture, shard};
use crate::shard::{Shard, ShardMail};
use crate::topology::{ControllerId, HeadId};
use crate::user::{Request, RequestOp, Submit};
use anabranch_proto::host_queue::Attempt;
use anabranch_proto::machine::{Time, WorkerId};
use anabranch_proto::nvme::Status;
use anabranch_proto::testing::MemoryBuffers;
use core::time::Duration;

/// How long a write takes on the first path.
const NEAR: Duration = Duration::from_micros(100);

/// So many writes of a user, one by one, beside probes that end as they are told to. Gives back how
/// many these were on each path.
fn load<const PATHS: usize>(
    shard: &mut Shard,
    near: Duration,
    probe_ends: impl Fn(ControllerId) -> CommandOutcome,
) -> [u64; PATHS] {
    let mut bufs = MemoryBuffers::new();
    let mut now = Time::from_ns(1_000_000_000);
    let topology = picture(1, head((0..PATHS as u32).map(path).collect()));
    shard.mail(now, WorkerId(0), ShardMail::Control(ToShard::Topology(topology)), &mut bufs);
    let room = shard.commands.room();
    let buf = bufs.filled(&[7; 4096]);
    let mut probes = [0; PATHS];
    for tag in 0..20_000 {
        let op = RequestOp::Write { lba: 0, blocks: 8, buf, fua: false };
        shard.submit(now, Request { head: HeadId(0), op, tag }).expect("there is room");
        shard.pump(now, &mut bufs);
        let mail = carried(shard);
        assert!(!mail[0].2, "the user's command is first");
        assert_eq!(mail.iter().filter(|(.., probe)| !probe).count(), 1);
        // The others take a hundred times as long.
        let far = mail[0].0 != ControllerId(0);
        now = now.after(if far { 100 * near } else { near });
        for (controller, token, probe) in mail {
            let mut outcome = answered(Status::SUCCESS);
            if probe {
                outcome = probe_ends(controller);
                probes[controller.0 as usize] += 1;
            }
            let done = PeerMail::Done { token, outcome };
            shard.mail(now, WorkerId(1), ShardMail::Peer(done), &mut bufs);
        }
        assert!(shard.poll_done().is_some_and(|done| done.result.is_ok()));
    }
    assert_eq!((shard.probes, shard.commands.room()), (0, room), "all places are free again");
    probes
}

#[test]
fn the_users_command_is_mailed_before_the_probe_beside_it() {
    let probes = load::<2>(&mut shard(), NEAR, |_| answered(Status::SUCCESS));
    assert!(probes[1] > 1, "there were probes: {probes:?}");
}

#[test]
fn a_probe_counts_as_an_error_when_it_was_sent_and_did_not_end_well() {
    let lost = |attempt| CommandOutcome::Lost { attempt, gone: None };
    let ends: [(&dyn Fn(ControllerId) -> CommandOutcome, u64); 4] = [
        (&|_| answered(Status::SUCCESS), 0),
        (&|_| lost(Attempt::NeverSent), 0),
        (&|_| lost(Attempt::Uncertain), 1),
        (&|_| answered(Status::INTERNAL_ERROR), 1),
    ];
    for (at, (ends, errors)) in ends.into_iter().enumerate() {
        let mut shard = shard();
        let probes: u64 = load::<2>(&mut shard, NEAR, ends).into_iter().sum();
        assert!(probes > 0);
        let counted: u64 = shard.stats.paths.iter().map(|path| path.probe_errors).sum();
        assert_eq!(counted, errors * probes, "case {at}");
    }
}

#[test]
fn probes_that_move_no_data_leave_others_their_share() {
    let ends = [
        answered(Status::INTERNAL_ERROR),
        CommandOutcome::Lost { attempt: Attempt::NeverSent, gone: None },
    ];
    let [_, alone] = load::<2>(&mut shard(), 20 * NEAR, |_| answered(Status::SUCCESS));
    for outcome in ends {
        let probes = load::<3>(&mut shard(), 20 * NEAR, |controller| match controller {
            ControllerId(1) => outcome,
            _ => answered(Status::SUCCESS),
        });
        std::println!("{outcome:?}: {probes:?}, {alone} without it");
        assert!(probes[1] > 10 && probes[2] > alone * 3 / 4, "{outcome:?}: {probes:?}");
    }
}
