use crate::WrittenUnder;
use crate::mail::{CommandOutcome, PeerMail, ToShard};
use crate::shard::command::{Carried, Command, Origin};
use crate::shard::fixture::{answered, carried, head, path, picture, shard};
use crate::shard::picture::has_lost_its_path;
use crate::shard::{Shard, ShardMail};
use crate::topology::{
    Association, ControllerId, ControllerState, HeadId, HeadView, PathView, Topology,
};
use crate::user::{IoError, Request, RequestOp, Submit};
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::{Parameters, Policy};
use anabranch_proto::host_queue::{Attempt, HostData};
use anabranch_proto::machine::{Time, WorkerId};
use anabranch_proto::nvme::{AnaState, Status, io};
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

fn cached(paths: Vec<PathView>) -> HeadView {
    let parameters = Parameters::of(Policy::RoundRobin);
    let mut head = HeadView { parameters, ..head(paths) };
    head.limits.volatile_write_cache = true;
    head
}

fn controllers(sent: &[(ControllerId, u64)]) -> Vec<u32> {
    sent.iter().map(|(controller, _)| controller.0).collect()
}

/// All were out of reach. One comes back first; another one, whose namespace has not been looked at
/// yet, can be asked, too, and has acknowledged writes.
#[test]
fn a_flush_that_had_no_path_goes_to_each_controller_that_can_be_asked_then() {
    for under_way in [false, true] {
        let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
        let paths = |ana: [AnaState; 2], second_ready| {
            let [first, second] = ana;
            let first = PathView { ana_state: first, ..path(0) };
            let second = PathView { ana_state: second, ready: second_ready, ..path(1) };
            [first, second].to_vec()
        };
        let (good, out) = ([AnaState::Optimized; 2], [AnaState::Inaccessible; 2]);
        let writes = paths(good, true).into_iter().map(|path| path.writes).collect::<Vec<_>>();
        let with = |mut paths: Vec<PathView>| {
            let marks = writes.iter().map(Arc::clone);
            paths.iter_mut().zip(marks).for_each(|(path, marks)| path.writes = marks);
            cached(paths)
        };
        if under_way {
            hears(&mut shard, &picture(1, with(paths(good, true))), &mut bufs);
            let flush = submits(&mut shard, RequestOp::Flush, &mut bufs);
            assert_eq!(controllers(&flush), [0, 1]);
            hears(&mut shard, &picture(2, with(paths(out, true))), &mut bufs);
            for (_, token) in flush {
                let outcome = CommandOutcome::Lost { attempt: Attempt::Uncertain, gone: None };
                let done = PeerMail::Done { token, outcome };
                shard.mail(NOW, WorkerId(1), ShardMail::Peer(done), &mut bufs);
            }
            assert_eq!(sent(&mut shard), [], "there is no path");
        } else {
            hears(&mut shard, &picture(2, with(paths(out, true))), &mut bufs);
            assert_eq!(submits(&mut shard, RequestOp::Flush, &mut bufs), [], "there is no path");
        }
        hears(&mut shard, &picture(3, with(paths(good, false))), &mut bufs);
        let flush = sent(&mut shard);
        assert_eq!(controllers(&flush), [0, 1], "under way: {under_way}");
        succeed(&mut shard, &flush, &mut bufs);
    }
}

/// Controllers with these numbers are in this state, the others are live.
fn with_state(mut all: Arc<Topology>, of: &[u32], state: ControllerState) -> Arc<Topology> {
    let views = &mut Arc::get_mut(&mut all).expect("ours").controllers;
    for view in views.iter_mut().filter(|view| of.contains(&view.id.0)) {
        Arc::get_mut(view).expect("ours").state = state;
    }
    all
}

/// Two paths, each of which has acknowledged a write since its last flush.
fn both_written(shard: &mut Shard, bufs: &mut MemoryBuffers) -> Vec<PathView> {
    let paths = [path(0), path(1)].to_vec();
    hears(shard, &picture(1, cached(paths.clone())), bufs);
    let flush = submits(shard, RequestOp::Flush, bufs);
    succeed(shard, &flush, bufs);
    let buf = bufs.filled(&[7; 4096]);
    for place in 0..2 {
        let write = RequestOp::Write { lba: 0, blocks: 8, buf, fua: false };
        let write = submits(shard, write, bufs);
        assert_eq!(controllers(&write), [place], "in turn");
        succeed(shard, &write, bufs);
    }
    paths
}

/// One of two that have acknowledged writes comes back while nothing may be sent.
#[test]
fn a_flush_that_came_while_its_device_was_quiesced_goes_to_each_that_can_be_asked_then() {
    let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
    let paths = both_written(&mut shard, &mut bufs);
    let quiesced = |epoch| picture(epoch, HeadView { quiesced: 1, ..cached(paths.clone()) });
    let one_out = with_state(quiesced(2), &[0], ControllerState::Connecting);
    hears(&mut shard, &one_out, &mut bufs);
    assert_eq!(submits(&mut shard, RequestOp::Flush, &mut bufs), [], "it is quiesced");
    hears(&mut shard, &quiesced(3), &mut bufs);
    assert_eq!(sent(&mut shard), [], "still");
    hears(&mut shard, &picture(4, cached(paths)), &mut bufs);
    let flush = sent(&mut shard);
    assert_eq!(controllers(&flush), [0, 1]);
    succeed(&mut shard, &flush, &mut bufs);
}

/// Nobody knows what may have been written there before: the first flush goes to all.
#[test]
fn a_flush_of_a_device_without_any_path_goes_to_each_that_is_back_then() {
    let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
    let view = |paths| HeadView { queue_if_no_path: true, ..cached(paths) };
    hears(&mut shard, &picture(1, view(Vec::new())), &mut bufs);
    assert_eq!(submits(&mut shard, RequestOp::Flush, &mut bufs), [], "there is no path");
    hears(&mut shard, &picture(2, view([path(0), path(1)].to_vec())), &mut bufs);
    let flush = sent(&mut shard);
    assert_eq!(controllers(&flush), [0, 1]);
    succeed(&mut shard, &flush, &mut bufs);
}

/// A third one could be asked, has acknowledged nothing since, and is of another size.
#[test]
fn a_flush_that_one_could_do_who_is_owed_none_goes_to_each_that_is_owed_one() {
    let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
    let mut paths = both_written(&mut shard, &mut bufs);
    let third = PathView { ready: false, ..path(2) };
    third.writes.flushed(third.writes.pending().expect("the first flush"));
    paths.push(third);
    let both_out = picture(2, cached(paths.clone()));
    let both_out = with_state(both_out, &[0, 1], ControllerState::Connecting);
    hears(&mut shard, &both_out, &mut bufs);
    assert_eq!(submits(&mut shard, RequestOp::Flush, &mut bufs), [], "none can be used");
    hears(&mut shard, &picture(3, cached(paths)), &mut bufs);
    let flush = sent(&mut shard);
    assert_eq!(controllers(&flush), [0, 1]);
    succeed(&mut shard, &flush, &mut bufs);
}

/// One takes the place of the other, and is lost as well; both come back at once.
#[test]
fn a_flush_that_has_lost_its_second_path_too_goes_to_each_that_is_back_then() {
    for (first, at_rest) in [0, 1].into_iter().flat_map(|it| [false, true].map(|rest| (it, rest))) {
        let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
        let mut paths = both_written(&mut shard, &mut bufs);
        // No policy prefers it.
        paths[first as usize].ana_state = AnaState::NonOptimized;
        let quiesced =
            |epoch, count| picture(epoch, HeadView { quiesced: count, ..cached(paths.clone()) });
        let lost = |shard: &mut Shard, token, bufs: &mut MemoryBuffers| {
            let outcome = CommandOutcome::Lost { attempt: Attempt::Uncertain, gone: None };
            let done = PeerMail::Done { token, outcome };
            shard.mail(NOW, WorkerId(1), ShardMail::Peer(done), bufs);
            shard.pump(NOW, bufs);
            sent(shard)
        };
        let flush = submits(&mut shard, RequestOp::Flush, &mut bufs);
        assert_eq!(controllers(&flush), [0, 1]);
        let one_out = with_state(quiesced(2, 0), &[first], ControllerState::Connecting);
        hears(&mut shard, &one_out, &mut bufs);
        let instead = lost(&mut shard, flush[first as usize].1, &mut bufs);
        assert_eq!(controllers(&instead), [1 - first]);
        let rest = u32::from(at_rest);
        let both_out = with_state(quiesced(3, rest), &[0, 1], ControllerState::Connecting);
        hears(&mut shard, &both_out, &mut bufs);
        for token in [flush[1 - first as usize].1, instead[0].1] {
            assert_eq!(lost(&mut shard, token, &mut bufs), [], "there is no path");
        }
        hears(&mut shard, &quiesced(4, rest), &mut bufs);
        hears(&mut shard, &quiesced(5, 0), &mut bufs);
        let again = sent(&mut shard);
        let mut asked = controllers(&again);
        asked.sort_unstable();
        assert_eq!(asked, [0, 1], "{first} was lost first, at rest: {at_rest}");
        succeed(&mut shard, &again, &mut bufs);
        assert!(paths.iter().all(|path| !path.writes.owes()));
        assert_eq!((shard.poll_done().is_none(), shard.commands.len()), (true, 0));
    }
}

/// What waits behind it ends with it, too.
#[test]
fn a_flush_that_waits_ends_when_no_path_may_come_back() {
    for gone in [false, true] {
        let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
        let paths = both_written(&mut shard, &mut bufs);
        let state = |epoch, gone, state| {
            let view = HeadView { gone, ..cached(paths.clone()) };
            with_state(picture(epoch, view), &[0, 1], state)
        };
        hears(&mut shard, &state(2, false, ControllerState::Connecting), &mut bufs);
        let buf = bufs.filled(&[0; 4096]);
        for op in [RequestOp::Flush, RequestOp::Read { lba: 0, blocks: 8, buf }] {
            assert_eq!(submits(&mut shard, op, &mut bufs), [], "there is no path");
        }
        assert!(shard.poll_done().is_none());
        hears(&mut shard, &state(3, gone, ControllerState::Dead), &mut bufs);
        let done: Vec<_> = core::iter::from_fn(|| shard.poll_done()).map(|it| it.result).collect();
        let error = if gone { IoError::Gone } else { IoError::NoPath };
        assert_eq!(done, [Err(error); 2]);
    }
}

/// The worker with its queue pair may know the path a moment later than we do.
#[test]
fn a_flush_that_its_carrier_does_not_take_is_given_to_it_again() {
    let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
    hears(&mut shard, &picture(1, cached([path(0), path(1)].to_vec())), &mut bufs);
    let mut flush = submits(&mut shard, RequestOp::Flush, &mut bufs);
    assert_eq!(controllers(&flush), [0, 1]);
    let (_, token) = flush.pop().expect("the second");
    let outcome = CommandOutcome::Lost { attempt: Attempt::NeverSent, gone: None };
    let done = PeerMail::Done { token, outcome };
    shard.mail(NOW, WorkerId(1), ShardMail::Peer(done), &mut bufs);
    assert_eq!(sent(&mut shard), [], "it pauses");
    let now = shard.poll_timeout().expect("to try again");
    shard.timeout(now, &mut bufs);
    flush.extend(sent(&mut shard));
    assert_eq!(controllers(&flush), [0, 1], "nobody else can do it");
    succeed(&mut shard, &flush, &mut bufs);
}

/// What a worker submits for another one may be for a path of which it will hear in a moment.
#[test]
fn a_path_that_only_the_sender_knows_yet_is_not_lost() {
    let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
    hears(&mut shard, &picture(4, cached([path(0)].to_vec())), &mut bufs);
    let lost = |epoch, controller| {
        let carried = Carried {
            worker: WorkerId(1),
            token: 0,
            association: Association(1),
            epoch,
            sqe: io::flush(1),
            data: HostData::None,
        };
        let command = Command::new(Origin::Peer(carried), HeadId(0), NOW);
        has_lost_its_path(&Command { controller, ..command }, shard.known())
    };
    let (known, unknown) = (ControllerId(0), ControllerId(1));
    assert!(!lost(4, known));
    assert!(lost(4, unknown), "it is gone");
    assert!(!lost(5, unknown), "it may be new");
}

/// It has what it has acknowledged, and says only that it is to be asked later.
#[test]
fn a_controller_that_is_not_ready_to_flush_is_asked_again() {
    let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
    let mut paths = [path(0), path(1)].to_vec();
    let marks = Arc::clone(&paths[0].writes);
    hears(&mut shard, &picture(1, cached(paths.clone())), &mut bufs);
    let first = submits(&mut shard, RequestOp::Flush, &mut bufs);
    succeed(&mut shard, &first, &mut bufs);
    for _ in &paths {
        let buf = bufs.filled(&[7; 4096]);
        let write = RequestOp::Write { lba: 0, blocks: 8, buf, fua: false };
        let write = submits(&mut shard, write, &mut bufs);
        succeed(&mut shard, &write, &mut bufs);
    }
    // Of another size now: no data goes there, but it is live, and gives access.
    paths[0].ready = false;
    hears(&mut shard, &picture(2, cached(paths)), &mut bufs);
    let mut flush = submits(&mut shard, RequestOp::Flush, &mut bufs);
    assert_eq!(controllers(&flush), [0, 1]);
    let (_, token) = flush.remove(0);
    let outcome = answered(Status::NAMESPACE_NOT_READY);
    shard.mail(NOW, WorkerId(1), ShardMail::Peer(PeerMail::Done { token, outcome }), &mut bufs);
    shard.pump(NOW, &mut bufs);
    flush.extend(sent(&mut shard));
    assert_eq!(controllers(&flush), [1, 0], "nobody else can do it");
    succeed(&mut shard, &flush, &mut bufs);
    assert!(!marks.owes());
}

/// What it has answered may have been another namespace's, and what it has acknowledged is its own.
#[test]
fn a_flush_that_says_nothing_is_asked_for_again_where_it_is_owed() {
    for status in [Status::SUCCESS, Status::INVALID_FIELD.with_dnr()] {
        let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
        let mut paths = [path(0), path(1)].to_vec();
        let marks = Arc::clone(&paths[0].writes);
        hears(&mut shard, &picture(1, cached(paths.clone())), &mut bufs);
        let mut flush = submits(&mut shard, RequestOp::Flush, &mut bufs);
        assert_eq!(controllers(&flush), [0, 1]);
        let (_, first) = flush.remove(0);
        paths[0] = PathView { doubted: 1, verified: false, ready: false, ..paths[0].clone() };
        hears(&mut shard, &picture(2, cached(paths.clone())), &mut bufs);
        paths[0] = PathView { verified: true, ready: true, ..paths[0].clone() };
        hears(&mut shard, &picture(3, cached(paths)), &mut bufs);
        let done = PeerMail::Done { token: first, outcome: answered(status) };
        shard.mail(NOW, WorkerId(1), ShardMail::Peer(done), &mut bufs);
        shard.pump(NOW, &mut bufs);
        flush.extend(sent(&mut shard));
        assert_eq!(controllers(&flush), [1, 0], "nobody else can do it");
        // It was sent behind the look, though in the same instant.
        succeed(&mut shard, &flush, &mut bufs);
        assert!(!marks.owes());
    }
}

/// This worker has met that there is no such namespace, and control has not heard of it yet.
#[test]
fn what_a_suspected_path_has_flushed_while_its_controller_goes_is_nothing_of_its_own() {
    for state in [ControllerState::Live, ControllerState::Resetting, ControllerState::Deleting] {
        let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
        let paths = both_written(&mut shard, &mut bufs);
        let buf = bufs.filled(&[7; 4096]);
        let write = RequestOp::Write { lba: 0, blocks: 8, buf, fua: false };
        let refused = submits(&mut shard, write, &mut bufs);
        assert_eq!(controllers(&refused), [0]);
        let outcome = answered(Status::INVALID_NAMESPACE.with_dnr());
        let done = PeerMail::Done { token: refused[0].1, outcome };
        shard.mail(NOW, WorkerId(1), ShardMail::Peer(done), &mut bufs);
        let again = sent(&mut shard);
        assert_eq!(controllers(&again), [1]);
        succeed(&mut shard, &again, &mut bufs);
        let goes = with_state(picture(2, cached(paths.clone())), &[0], state);
        hears(&mut shard, &goes, &mut bufs);
        let flush = submits(&mut shard, RequestOp::Flush, &mut bufs);
        assert_eq!(controllers(&flush), [0, 1]);
        for (_, token) in flush {
            let done = PeerMail::Done { token, outcome: answered(Status::SUCCESS) };
            shard.mail(NOW, WorkerId(1), ShardMail::Peer(done), &mut bufs);
        }
        assert!(paths[0].writes.owes(), "{state:?}: whoever has the number by now has flushed");
        assert!(!paths[1].writes.owes());
    }
}

/// How often the first one was asked says nothing of the one that flushes in its place.
#[test]
fn who_flushes_in_the_place_of_one_that_is_never_ready_has_all_its_tries() {
    let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
    let mut paths = [path(0), path(1)].to_vec();
    hears(&mut shard, &picture(1, cached(paths.clone())), &mut bufs);
    let first = submits(&mut shard, RequestOp::Flush, &mut bufs);
    succeed(&mut shard, &first, &mut bufs);
    let buf = bufs.filled(&[7; 4096]);
    let write = RequestOp::Write { lba: 0, blocks: 8, buf, fua: false };
    let write = submits(&mut shard, write, &mut bufs);
    assert_eq!(controllers(&write), [0]);
    succeed(&mut shard, &write, &mut bufs);
    paths[0].ready = false;
    hears(&mut shard, &picture(2, cached(paths)), &mut bufs);
    let mut flush = submits(&mut shard, RequestOp::Flush, &mut bufs);
    let mut asked = Vec::new();
    while let Some((controller, token)) = flush.pop() {
        asked.push(controller.0);
        let status = match asked.len() {
            8 => Status::SUCCESS,
            _ => Status::NAMESPACE_NOT_READY,
        };
        let done = PeerMail::Done { token, outcome: answered(status) };
        shard.mail(NOW, WorkerId(1), ShardMail::Peer(done), &mut bufs);
        shard.pump(NOW, &mut bufs);
        flush.extend(sent(&mut shard));
    }
    assert_eq!(asked, [0, 0, 0, 0, 0, 0, 1, 1]);
    assert!(shard.poll_done().is_some_and(|done| done.result.is_ok()));
}

/// A flush is a command for each path, and a device that comes late finds room for them, however
/// many places others hold.
#[test]
fn a_flush_of_a_device_that_comes_late_finds_room_for_all_its_paths() {
    let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
    let stuck = |head| {
        let path = PathView { ana_state: AnaState::Inaccessible, ..path(0) };
        let mut stuck = HeadView { id: HeadId(head), ..cached([path].to_vec()) };
        // A command for each block.
        stuck.limits.max_transfer_bytes = 512;
        Arc::new(stuck)
    };
    let late = HeadView { id: HeadId(99), ..cached((0..10).map(path).collect()) };
    let controllers = picture(1, late.clone()).controllers.clone();
    let mut heads: Vec<_> = (0..16).map(stuck).collect();
    let topology = |epoch, heads: &[Arc<HeadView>]| {
        let (controllers, heads) = (controllers.clone(), heads.to_vec());
        Arc::new(Topology { epoch, controllers, heads })
    };
    hears(&mut shard, &topology(1, &heads), &mut bufs);
    let buf = bufs.filled(&alloc::vec![0; 4096 * 512]);
    for head in 0..16 {
        let op = RequestOp::Write { lba: 0, blocks: 4096, buf, fua: false };
        shard.submit(NOW, Request { head: HeadId(head), op, tag: 0 }).expect("there is room");
        shard.pump(NOW, &mut bufs);
    }
    heads.push(Arc::new(late));
    hears(&mut shard, &topology(2, &heads), &mut bufs);
    let buf = bufs.filled(&[0; 4096]);
    for op in [RequestOp::Flush, RequestOp::Read { lba: 0, blocks: 8, buf }] {
        shard.submit(NOW, Request { head: HeadId(99), op, tag: 1 }).expect("there is room");
    }
    shard.pump(NOW, &mut bufs);
    let flush = sent(&mut shard);
    assert_eq!(flush.len(), 10);
    succeed(&mut shard, &flush, &mut bufs);
    shard.pump(NOW, &mut bufs);
    assert_eq!(sent(&mut shard).len(), 1, "the read behind it");
}

/// The worker that has the queue pair has heard of the reset first.
#[test]
fn a_controller_that_is_reset_is_flushed_though_its_carrier_takes_no_write_any_more() {
    for picture_is_here in [false, true] {
        let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
        let paths = [path(0), path(1)];
        let view = || cached(paths.to_vec());
        hears(&mut shard, &picture(1, view()), &mut bufs);
        let flush = submits(&mut shard, RequestOp::Flush, &mut bufs);
        succeed(&mut shard, &flush, &mut bufs);
        let buf = bufs.filled(&[7; 4096]);
        let write = RequestOp::Write { lba: 0, blocks: 8, buf, fua: false };
        for place in 0..2 {
            let sent = submits(&mut shard, write, &mut bufs);
            assert_eq!(controllers(&sent), [place], "in turn");
            succeed(&mut shard, &sent, &mut bufs);
        }
        let bounced = submits(&mut shard, write, &mut bufs);
        assert_eq!(controllers(&bounced), [0]);
        let outcome = CommandOutcome::TooLate { association: Association(1) };
        let done = PeerMail::Done { token: bounced[0].1, outcome };
        shard.mail(NOW, WorkerId(1), ShardMail::Peer(done), &mut bufs);
        let again = sent(&mut shard);
        assert_eq!(controllers(&again), [1]);
        succeed(&mut shard, &again, &mut bufs);
        for _ in 0..4 {
            let next = submits(&mut shard, write, &mut bufs);
            assert_eq!(controllers(&next), [1], "what is bounced once is not tried again");
            succeed(&mut shard, &next, &mut bufs);
        }
        if picture_is_here {
            let mut resetting = picture(2, view());
            let all = &mut Arc::get_mut(&mut resetting).expect("ours").controllers;
            Arc::get_mut(&mut all[0]).expect("ours").state = ControllerState::Resetting;
            hears(&mut shard, &resetting, &mut bufs);
        }
        let flush = submits(&mut shard, RequestOp::Flush, &mut bufs);
        assert_eq!(controllers(&flush), [0, 1], "picture is here: {picture_is_here}");
    }
}

/// In its next association it takes everything again.
#[test]
fn a_controller_that_has_taken_no_write_any_more_is_used_again_after_its_reset() {
    let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
    let view = || head([path(0)].to_vec());
    let buf = bufs.filled(&[7; 4096]);
    let write = RequestOp::Write { lba: 0, blocks: 8, buf, fua: false };
    hears(&mut shard, &picture(1, view()), &mut bufs);
    let bounced = submits(&mut shard, write, &mut bufs);
    let outcome = CommandOutcome::TooLate { association: Association(1) };
    let done = PeerMail::Done { token: bounced[0].1, outcome };
    shard.mail(NOW, WorkerId(1), ShardMail::Peer(done), &mut bufs);
    assert_eq!(sent(&mut shard), [], "it waits");
    assert_eq!(shard.poll_done().map(|done| done.tag), None);
    let mut again = picture(2, view());
    let all = &mut Arc::get_mut(&mut again).expect("ours").controllers;
    Arc::get_mut(&mut all[0]).expect("ours").association = Association(2);
    hears(&mut shard, &again, &mut bufs);
    assert_eq!(controllers(&sent(&mut shard)), [0]);
}

/// It has met five doubts before. The sixth path leads to another namespace by now, as control has
/// seen: what that answers is nothing of this device's, however often there was a doubt.
#[test]
fn what_a_path_answers_that_has_left_is_no_success_after_many_doubts() {
    for write in [true, false] {
        let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
        let mut paths: Vec<PathView> = (0..8).map(path).collect();
        let mut epoch = 1;
        hears(&mut shard, &picture(epoch, cached(paths.clone())), &mut bufs);
        let buf = bufs.filled(&[7; 4096]);
        let op = match write {
            true => RequestOp::Write { lba: 0, blocks: 8, buf, fua: false },
            false => RequestOp::Read { lba: 0, blocks: 8, buf },
        };
        let mut now_at = submits(&mut shard, op, &mut bufs);
        for _ in 0..5 {
            let (controller, token) = now_at[0];
            // It was named as changed, and is looked at.
            let at = paths.iter().position(|path| path.controller == controller).unwrap();
            paths[at].doubted += 1;
            (paths[at].verified, paths[at].ready) = (false, false);
            epoch += 1;
            hears(&mut shard, &picture(epoch, cached(paths.clone())), &mut bufs);
            let done = PeerMail::Done { token, outcome: answered(Status::SUCCESS) };
            shard.mail(NOW, WorkerId(1), ShardMail::Peer(done), &mut bufs);
            shard.pump(NOW, &mut bufs);
            // It is the same.
            (paths[at].verified, paths[at].ready) = (true, true);
            epoch += 1;
            hears(&mut shard, &picture(epoch, cached(paths.clone())), &mut bufs);
            assert!(shard.poll_done().is_none(), "it is done again");
            now_at = sent(&mut shard);
            assert_eq!(now_at.len(), 1);
        }
        let (controller, token) = now_at[0];
        // There is another namespace under its NSID: the path has left.
        let left = paths.clone().into_iter().filter(|path| path.controller != controller);
        let heads = picture(1, cached(left.collect())).heads.clone();
        let controllers = picture(1, cached(paths.clone())).controllers.clone();
        let after = Topology { epoch: epoch + 1, controllers, heads };
        hears(&mut shard, &Arc::new(after), &mut bufs);
        let done = PeerMail::Done { token, outcome: answered(Status::SUCCESS) };
        shard.mail(NOW, WorkerId(1), ShardMail::Peer(done), &mut bufs);
        shard.pump(NOW, &mut bufs);
        let done = shard.poll_done();
        assert!(done.is_none(), "write {write}: {done:?} of another namespace");
    }
}

/// A flush is asked for while the ANA log of a controller is read, and there is no such namespace.
/// When the log has come nothing is sent there before it was looked at: it may be another one.
#[test]
fn a_flush_that_meets_no_namespace_puts_its_path_in_doubt() {
    for pending in [false, true] {
        let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
        let mut paths = [path(0), path(1)].to_vec();
        hears(&mut shard, &picture(1, cached(paths.clone())), &mut bufs);
        paths[0].ana_pending = pending;
        hears(&mut shard, &picture(2, cached(paths.clone())), &mut bufs);
        let flush = submits(&mut shard, RequestOp::Flush, &mut bufs);
        assert_eq!(controllers(&flush), [0, 1]);
        let outcome = answered(Status::INVALID_NAMESPACE.with_dnr());
        let done = PeerMail::Done { token: flush[0].1, outcome };
        shard.mail(NOW, WorkerId(1), ShardMail::Peer(done), &mut bufs);
        shard.pump(NOW, &mut bufs);
        let again = sent(&mut shard);
        assert_eq!(controllers(&again), [1]);
        succeed(&mut shard, &[flush[1], again[0]], &mut bufs);
        // The log has come.
        paths[0].ana_pending = false;
        hears(&mut shard, &picture(3, cached(paths.clone())), &mut bufs);
        for _ in 0..2 {
            let buf = bufs.filled(&[7; 4096]);
            let write = RequestOp::Write { lba: 0, blocks: 8, buf, fua: false };
            let write = submits(&mut shard, write, &mut bufs);
            assert_eq!(controllers(&write), [1], "pending {pending}");
            succeed(&mut shard, &write, &mut bufs);
        }
    }
}
