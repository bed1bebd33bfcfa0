use crate::mail::{CommandOutcome, PeerMail, ToShard};
use crate::shard::fixture::{answered, carried, head, path, picture, shard};
use crate::shard::{Shard, ShardMail};
use crate::topology::{ControllerId, HeadId};
use crate::user::{Request, RequestOp, Submit};
use alloc::vec;
use anabranch_proto::host_queue::Attempt;
use anabranch_proto::machine::{Time, WorkerId};
use anabranch_proto::nvme::Status;
use anabranch_proto::testing::MemoryBuffers;
use core::time::Duration;

/// So many writes of a user, one by one, beside probes that end as they are told to. Gives back how
/// many these were.
fn load(shard: &mut Shard, probe_ends: impl Fn() -> CommandOutcome) -> u64 {
    let mut bufs = MemoryBuffers::new();
    let mut now = Time::from_ns(1_000_000_000);
    let topology = picture(1, head(vec![path(0), path(1)]));
    shard.mail(now, WorkerId(0), ShardMail::Control(ToShard::Topology(topology)), &mut bufs);
    let room = shard.commands.room();
    let buf = bufs.filled(&[7; 4096]);
    let mut probes = 0;
    for tag in 0..20_000 {
        let op = RequestOp::Write { lba: 0, blocks: 8, buf, fua: false };
        shard.submit(now, Request { head: HeadId(0), op, tag }).expect("there is room");
        shard.pump(now, &mut bufs);
        let mail = carried(shard);
        assert!(!mail[0].2, "the user's command is first");
        assert_eq!(mail.iter().filter(|(.., probe)| !probe).count(), 1);
        probes += mail.len() as u64 - 1;
        // The second controller takes a hundred times as long.
        let far = mail[0].0 == ControllerId(1);
        now = now.after(Duration::from_micros(if far { 10_000 } else { 100 }));
        for (_, token, probe) in mail {
            let outcome = if probe { probe_ends() } else { answered(Status::SUCCESS) };
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
    let probes = load(&mut shard(), || answered(Status::SUCCESS));
    assert!(probes > 1, "there were probes: {probes}");
}

#[test]
fn a_probe_counts_as_an_error_when_it_was_sent_and_did_not_end_well() {
    let lost = |attempt| CommandOutcome::Lost { attempt, gone: None };
    let ends: [(&dyn Fn() -> CommandOutcome, u64); 4] = [
        (&|| answered(Status::SUCCESS), 0),
        (&|| lost(Attempt::NeverSent), 0),
        (&|| lost(Attempt::Uncertain), 1),
        (&|| answered(Status::INTERNAL_ERROR), 1),
    ];
    for (at, (ends, errors)) in ends.into_iter().enumerate() {
        let mut shard = shard();
        let probes = load(&mut shard, ends);
        assert!(probes > 0);
        let counted: u64 = shard.stats.paths.iter().map(|path| path.probe_errors).sum();
        assert_eq!(counted, errors * probes, "case {at}");
    }
}
