use crate::WrittenUnder;
use crate::mail::{PeerMail, ToShard};
use crate::shard::fixture::{answered, carried, head, path, picture, shard};
use crate::shard::{Shard, ShardMail};
use crate::topology::{ControllerId, HeadId, HeadView, PathView, Topology};
use crate::user::{Request, RequestOp, Submit};
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::{Parameters, Policy};
use anabranch_proto::machine::{Time, WorkerId};
use anabranch_proto::nvme::Status;
use anabranch_proto::testing::MemoryBuffers;

const NOW: Time = Time::from_ns(1_000_000_000);

fn hears(shard: &mut Shard, topology: &Arc<Topology>, bufs: &mut MemoryBuffers) {
    let mail = ShardMail::Control(ToShard::Topology(Arc::clone(topology)));
    shard.mail(NOW, WorkerId(0), mail, bufs);
    shard.pump(NOW, bufs);
}

fn submits(shard: &mut Shard, op: RequestOp, bufs: &mut MemoryBuffers) -> Vec<(ControllerId, u64)> {
    shard.submit(NOW, Request { head: HeadId(0), op, tag: 0 }).expect("there is room");
    shard.pump(NOW, bufs);
    sent(shard)
}

fn sent(shard: &mut Shard) -> Vec<(ControllerId, u64)> {
    let users = carried(shard).into_iter().filter(|(.., probe)| !probe);
    users.map(|(controller, token, _)| (controller, token)).collect()
}

fn succeed(shard: &mut Shard, sent: &[(ControllerId, u64)], bufs: &mut MemoryBuffers) {
    for &(_, token) in sent {
        let done = PeerMail::Done { token, outcome: answered(Status::SUCCESS) };
        shard.mail(NOW, WorkerId(1), ShardMail::Peer(done), bufs);
    }
    assert!(shard.poll_done().is_some_and(|done| done.result.is_ok()));
}

/// Pictures do not reach all workers at once: one of them may write through a path of which another
/// has not heard.
#[test]
fn a_flush_waits_for_the_picture_under_which_others_have_written() {
    let written = Arc::new(WrittenUnder::default());
    let cached = |paths: &[PathView]| {
        let parameters = Parameters::of(Policy::RoundRobin);
        let written = Arc::clone(&written);
        let mut head = HeadView { parameters, written, ..head(paths.to_vec()) };
        head.limits.volatile_write_cache = true;
        head
    };
    let paths = [path(0), path(1)];
    let (before, after) = (picture(1, cached(&paths[..1])), picture(2, cached(&paths)));
    let (mut ahead, mut behind) = (shard(), shard());
    let mut bufs = MemoryBuffers::new();
    hears(&mut ahead, &after, &mut bufs);
    hears(&mut behind, &before, &mut bufs);
    let flush = submits(&mut behind, RequestOp::Flush, &mut bufs);
    assert_eq!(flush.len(), 1, "what was known then");
    succeed(&mut behind, &flush, &mut bufs);

    let buf = bufs.filled(&[7; 4096]);
    let write = RequestOp::Write { lba: 0, blocks: 8, buf, fua: false };
    let sent_to = |(controller, _): &(ControllerId, u64)| controller.0;
    for _ in &paths {
        let write = submits(&mut ahead, write, &mut bufs);
        succeed(&mut ahead, &write, &mut bufs);
    }

    assert_eq!(submits(&mut behind, RequestOp::Flush, &mut bufs), [], "it waits");
    hears(&mut behind, &after, &mut bufs);
    let flush = sent(&mut behind);
    assert_eq!(flush.iter().map(sent_to).collect::<Vec<_>>(), [0, 1]);
    succeed(&mut behind, &flush, &mut bufs);
}
