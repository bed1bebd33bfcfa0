use crate::mail::{PeerMail, ToShard};
use crate::shard::fixture::{answered, carried, head, path, picture, shard};
use crate::shard::{Shard, ShardMail};
use crate::topology::{ControllerId, ControllerState, HeadId, HeadView, PathView};
use crate::user::{Request, RequestOp, Submit};
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::{Affinity, Parameters, Policy};
use anabranch_proto::machine::{Time, WorkerId};
use anabranch_proto::nvme::Status;
use anabranch_proto::testing::MemoryBuffers;

const NOW: Time = Time::from_ns(1_000_000_000);

/// A shard with one head, and a read of its.
struct Rig {
    shard: Shard,
    bufs: MemoryBuffers,
    now: Time,
}

impl Rig {
    fn new(parameters: Parameters, paths: Vec<PathView>) -> Rig {
        let mut rig = Rig { shard: shard(), bufs: MemoryBuffers::new(), now: NOW };
        let picture = picture(1, HeadView { parameters, ..head(paths) });
        rig.hears(WorkerId(0), ShardMail::Control(ToShard::Topology(picture)));
        let buf = rig.bufs.filled(&[0; 4096]);
        let op = RequestOp::Read { lba: 0, blocks: 8, buf };
        rig.shard.submit(NOW, Request { head: HeadId(0), op, tag: 0 }).expect("there is room");
        rig.shard.pump(NOW, &mut rig.bufs);
        rig
    }

    fn hears(&mut self, from: WorkerId, mail: ShardMail) {
        self.shard.mail(self.now, from, mail, &mut self.bufs);
        self.shard.pump(self.now, &mut self.bufs);
    }

    /// The next try of the read, after a pause where there is one.
    fn next_try(&mut self) -> Option<(ControllerId, u64)> {
        for _ in 0..64 {
            let mut users = carried(&mut self.shard).into_iter().filter(|(.., probe)| !probe);
            if let Some((controller, token, _)) = users.next() {
                return Some((controller, token));
            }
            self.now = self.shard.poll_timeout()?;
            self.shard.timeout(self.now, &mut self.bufs);
            self.shard.pump(self.now, &mut self.bufs);
        }
        None
    }

    /// Where the read goes, try by try, as long as what it is answered there is an error.
    fn tries(&mut self, mut answer: impl FnMut(usize, ControllerId) -> Status) -> Vec<u32> {
        let mut tries = Vec::new();
        while let Some((controller, token)) = self.next_try().filter(|_| tries.len() < 80) {
            let outcome = answered(answer(tries.len(), controller));
            tries.push(controller.0);
            self.hears(WorkerId(1), ShardMail::Peer(PeerMail::Done { token, outcome }));
        }
        tries
    }

    /// Only `good` takes commands: how often the read is tried, and for how many ms.
    fn is_taken_by(&mut self, good: Option<u32>) -> (u32, u64) {
        let (mut tries, mut last) = (0, NOW);
        while let Some((controller, token)) = self.next_try() {
            (tries, last) = (tries + 1, self.now);
            let outcome = answered(match good == Some(controller.0) {
                true => Status::SUCCESS,
                false => Status::ABORTED_SQ_DELETION,
            });
            self.hears(WorkerId(1), ShardMail::Peer(PeerMail::Done { token, outcome }));
        }
        (tries, (last.ns() - NOW.ns()) / 1_000_000)
    }

    /// A try is answered so; another controller does it then.
    fn is_done_elsewhere(&mut self, (controller, token): (ControllerId, u64), status: Status) {
        let mut answer = |token, status| {
            let outcome = answered(status);
            self.hears(WorkerId(1), ShardMail::Peer(PeerMail::Done { token, outcome }));
            self.next_try()
        };
        let (other, token) = answer(token, status).expect("it is tried elsewhere");
        assert_ne!(other, controller);
        assert!(answer(token, Status::SUCCESS).is_none());
        assert!(self.is_done());
    }

    fn is_done(&mut self) -> bool {
        self.shard.poll_done().is_some_and(|done| done.result.is_ok())
    }
}

/// For `io-affinity` the first of them is this worker's, the others are those of others.
fn paths(count: u32) -> Vec<PathView> {
    let of = |id| if id == 0 { Affinity::Own } else { Affinity::Mapped };
    (0..count).map(|id| PathView { affinity: [of(id); 2].into(), ..path(id) }).collect()
}

fn all_policies() -> impl Iterator<Item = Parameters> {
    let exact = |policy| Parameters { kernel_exact: true, ..Parameters::of(policy) };
    Policy::ALL.into_iter().flat_map(move |policy| [Parameters::of(policy), exact(policy)])
}

/// Two of three fail at once, and so look like the best ones to some policies.
#[test]
fn each_path_is_tried_before_one_is_tried_again() {
    for parameters in all_policies() {
        for good in 0..3 {
            let mut rig = Rig::new(parameters, paths(3));
            let tries = rig.tries(|_, controller| match controller.0 == good {
                true => Status::SUCCESS,
                false => Status::CONTROLLER_PATH_ERROR,
            });
            let policy = parameters.policy;
            assert!(rig.is_done(), "{policy}: {tries:?}");
            assert!(tries.len() <= 3, "{policy}: {tries:?}, {good} is good");
        }
    }
}

/// One that is good fails once: it is asked again before long.
#[test]
fn a_path_that_failed_once_is_tried_again() {
    for parameters in all_policies() {
        let mut rig = Rig::new(parameters, paths(2));
        let mut bad = 0;
        let tries = rig.tries(|_, controller| {
            bad += u32::from(controller.0 == 1);
            match (controller.0, bad) {
                (1, 2..) => Status::SUCCESS,
                _ => Status::CONTROLLER_PATH_ERROR,
            }
        });
        let policy = parameters.policy;
        assert!(rig.is_done(), "{policy}: {tries:?}");
        assert!(tries.len() <= 4, "{policy}: {tries:?}");
    }
}

#[test]
fn a_transport_error_that_stays_on_two_paths_is_none_of_the_third() {
    for parameters in all_policies() {
        let mut rig = Rig::new(parameters, paths(3));
        let mut failed = Vec::new();
        let tries = rig.tries(|_, controller| {
            if !failed.contains(&controller) && failed.len() < 2 {
                failed.push(controller);
            }
            match failed.contains(&controller) {
                true => Status::TRANSIENT_TRANSPORT_ERROR,
                false => Status::SUCCESS,
            }
        });
        assert!(rig.is_done(), "{}: {tries:?}", parameters.policy);
    }
}

/// However many there are, all of them are asked, and that it ends.
#[test]
fn a_transport_error_that_stays_on_all_paths_is_the_users() {
    let counts = [2, 3, 11, 12, 40, 70];
    for (parameters, count) in all_policies().flat_map(|it| counts.map(|count| (it, count))) {
        let mut rig = Rig::new(parameters, paths(count));
        let mut tries = rig.tries(|_, _| Status::TRANSIENT_TRANSPORT_ERROR);
        let policy = parameters.policy;
        assert!(tries.len() < count as usize + 8, "{policy}: {count} paths, {tries:?}");
        assert!(rig.shard.poll_done().is_some_and(|done| done.result.is_err()));
        tries.sort_unstable();
        tries.dedup();
        assert_eq!(tries.len(), count as usize, "{policy}");
    }
}

/// The other one can be used, and is one that the policy never takes.
#[test]
fn a_path_that_is_nobodys_keeps_no_command_from_its_own() {
    let mut paths = paths(2);
    paths[1].affinity = [Affinity::Unmapped; 2].into();
    let mut rig = Rig::new(Parameters::of(Policy::IoAffinity), paths);
    let tries = rig.tries(|count, _| match count {
        0 => Status::CONTROLLER_PATH_ERROR,
        _ => Status::SUCCESS,
    });
    assert!(rig.is_done(), "{tries:?}");
    assert_eq!(tries, [0, 0]);
}

/// Who takes no command any more may be another one when it is asked again.
#[test]
fn who_has_refused_all_commands_is_asked_again_in_turn() {
    for parameters in all_policies() {
        let mut rig = Rig::new(parameters, paths(2));
        let mut refused = false;
        let tries = rig.tries(|_, controller| match controller.0 {
            0 if core::mem::replace(&mut refused, true) => Status::SUCCESS,
            _ => Status::ABORTED_SQ_DELETION,
        });
        assert!(rig.is_done(), "{}: {tries:?}", parameters.policy);
        assert!(tries.len() <= 4, "{}: {tries:?}", parameters.policy);
    }
}

#[test]
fn a_path_far_down_the_list_is_left_as_well() {
    for parameters in all_policies() {
        let mut rig = Rig::new(parameters, paths(70));
        let mut last = None;
        let tries = rig.tries(|count, controller| {
            let again = last.replace(controller) == Some(controller);
            assert!(!again, "{}: {controller:?} twice", parameters.policy);
            if count < 66 { Status::CONTROLLER_PATH_ERROR } else { Status::SUCCESS }
        });
        assert!(rig.is_done(), "{}: {tries:?}", parameters.policy);
    }
}

/// As where a namespace was detached from all controllers but one: that one is found.
#[test]
fn one_path_that_has_the_namespace_is_found_however_many_have_lost_it() {
    let lost = |count: u32| [count - 4, count - 1, count].map(|lost| (count, lost));
    for parameters in all_policies() {
        for (count, lost) in [40, 100, 200].into_iter().flat_map(lost) {
            let mut rig = Rig::new(parameters, paths(count));
            let mut asked = Vec::new();
            while let Some((controller, token)) = rig.next_try() {
                assert!(!asked.contains(&controller), "{controller:?} is asked twice");
                asked.push(controller);
                let outcome = answered(match asked.len() as u32 {
                    it if it > lost => Status::SUCCESS,
                    _ => Status::INVALID_NAMESPACE.with_dnr(),
                });
                rig.hears(WorkerId(1), ShardMail::Peer(PeerMail::Done { token, outcome }));
            }
            let (policy, tries) = (parameters.policy, asked.len());
            assert_eq!(rig.is_done(), lost < count, "{policy}: {tries} of {count} asked");
        }
    }
}

/// So says who was told to shut down; the answer may be here before the picture. Or who has another
/// command under way, as it thinks, of the same identifier.
#[test]
fn who_takes_nothing_any_more_fails_nothing_whatever_it_says_of_retries() {
    let says = [Status::COMMAND_SEQUENCE_ERROR, Status::COMMAND_ID_CONFLICT];
    for (parameters, says) in all_policies().flat_map(|it| says.map(|says| (it, says))) {
        let mut rig = Rig::new(parameters, paths(2));
        let tries = rig.tries(|count, _| match count {
            0 => says.with_dnr(),
            _ => Status::SUCCESS,
        });
        assert!(rig.is_done(), "{}: {tries:?}", parameters.policy);
        assert_ne!(tries[0], tries[1], "{}", parameters.policy);
    }
}

#[test]
fn one_good_path_is_found_however_many_take_nothing_any_more() {
    let counts = [2, 4, 8, 11, 12, 16, 17, 23, 40, 200];
    for (parameters, count) in all_policies().flat_map(|it| counts.map(|count| (it, count))) {
        for good in [0, count / 2, count - 1] {
            let mut rig = Rig::new(parameters, paths(count));
            let (tries, waited) = rig.is_taken_by(Some(good));
            let policy = parameters.policy;
            assert!(rig.is_done(), "{policy}: {good} of {count} is good");
            assert!(tries <= count, "{policy}: {tries} tries of {count} paths");
            assert_eq!(waited, 0, "{policy}: ms, {good} of {count} is good");
        }
    }
}

/// An array that starts anew in good order refuses everything on all paths for a moment.
#[test]
fn more_paths_do_not_wait_less_for_one_that_takes_something() {
    for parameters in all_policies() {
        let waits = [1, 2, 4, 8, 40, 300].map(|count| {
            let mut rig = Rig::new(parameters, paths(count));
            let (_, waited) = rig.is_taken_by(None);
            assert!(rig.shard.poll_done().is_some_and(|done| done.result.is_err()));
            waited
        });
        assert!(
            waits.iter().all(|it| (400..=500).contains(it)),
            "{}: {waits:?}",
            parameters.policy
        );
    }
}

/// What it had begun it may give up: that is nobody's error while it goes.
#[test]
fn what_is_given_up_by_who_was_told_to_shut_down_is_done_elsewhere() {
    for says in [Status::ABORT_REQUESTED, Status::ABORTED_POWER_LOSS] {
        let parameters = Parameters::of(Policy::RoundRobin);
        let mut rig = Rig::new(parameters, paths(2));
        let (controller, token) = rig.next_try().expect("sent");
        let mut picture = picture(2, HeadView { parameters, ..head(paths(2)) });
        let all = &mut Arc::get_mut(&mut picture).expect("ours").controllers;
        let view = all.iter_mut().find(|it| it.id == controller).expect("it is there");
        Arc::get_mut(view).expect("ours").state = ControllerState::Resetting;
        rig.hears(WorkerId(0), ShardMail::Control(ToShard::Topology(picture)));
        rig.is_done_elsewhere((controller, token), says.with_dnr());
    }
}

/// Another namespace may have the NSID by now, and have reservations of its own.
#[test]
fn an_error_of_a_path_in_doubt_is_no_error_of_the_device() {
    let parameters = Parameters::of(Policy::RoundRobin);
    let mut rig = Rig::new(parameters, paths(2));
    let (controller, token) = rig.next_try().expect("sent");
    let mut doubted = paths(2);
    let path = doubted.iter_mut().find(|path| path.controller == controller).expect("its path");
    (path.verified, path.ready, path.doubted) = (false, false, 1);
    let picture = picture(2, HeadView { parameters, ..head(doubted) });
    rig.hears(WorkerId(0), ShardMail::Control(ToShard::Topology(picture)));
    rig.is_done_elsewhere((controller, token), Status::RESERVATION_CONFLICT.with_dnr());
}

/// That one says nothing of where the namespace is.
#[test]
fn who_waits_for_a_look_may_have_met_a_path_error_before() {
    for earlier in [false, true] {
        let parameters = Parameters::of(Policy::RoundRobin);
        let mut rig = Rig::new(parameters, paths(2));
        let (mut controller, mut token) = rig.next_try().expect("sent");
        if earlier {
            let outcome = answered(Status::new(3, 3));
            let first = controller;
            rig.hears(WorkerId(1), ShardMail::Peer(PeerMail::Done { token, outcome }));
            (controller, token) = rig.next_try().expect("it is tried elsewhere");
            assert_ne!(first, controller);
        }
        // The other one has told that its namespaces have changed: it is looked at.
        let looked_at = |done: bool| {
            let mut all = paths(2);
            all.iter_mut().filter(|it| it.controller != controller).for_each(|it| {
                (it.ready, it.verified, it.doubted) = (done, done, 1);
            });
            all
        };
        let picture = |epoch, done| {
            let mut all = picture(epoch, HeadView { parameters, ..head(looked_at(done)) });
            let views = &mut Arc::get_mut(&mut all).expect("ours").controllers;
            for view in views {
                Arc::get_mut(view).expect("ours").ana_generation = epoch;
            }
            all
        };
        rig.hears(WorkerId(0), ShardMail::Control(ToShard::Topology(picture(2, false))));
        let outcome = answered(Status::INVALID_NAMESPACE.with_dnr());
        rig.hears(WorkerId(1), ShardMail::Peer(PeerMail::Done { token, outcome }));
        let done = rig.shard.poll_done();
        assert!(done.is_none(), "earlier path error {earlier}: {:?}", done.map(|it| it.result));
        rig.hears(WorkerId(0), ShardMail::Control(ToShard::Topology(picture(3, true))));
        let (other, token) = rig.next_try().expect("it was looked at");
        assert_ne!(other, controller);
        let outcome = answered(Status::SUCCESS);
        rig.hears(WorkerId(1), ShardMail::Peer(PeerMail::Done { token, outcome }));
        assert!(rig.is_done());
    }
}

/// How often a path was in doubt, whether it has been looked at since, and its blocks.
type Seen = (u32, bool, u64);

/// Whether a write that was sent before the second of these pictures, and is answered well under
/// the one at `answered_at`, is one when all of them have come.
fn is_acknowledged(all: &[Seen], answered_at: usize, ready: bool) -> bool {
    let parameters = Parameters::of(Policy::RoundRobin);
    let mut rig = Rig { shard: shard(), bufs: MemoryBuffers::new(), now: NOW };
    let seen = |(epoch, &(doubted, verified, blocks)): (u64, &Seen)| {
        let path = PathView { doubted, verified, ready: verified || ready, blocks, ..path(0) };
        picture(epoch, HeadView { parameters, ..head([path].to_vec()) })
    };
    let views: Vec<_> = (1..).zip(all).map(seen).collect();
    rig.hears(WorkerId(0), ShardMail::Control(ToShard::Topology(Arc::clone(&views[0]))));
    let buf = rig.bufs.filled(&[7; 4096]);
    let op = RequestOp::Write { lba: 0, blocks: 8, buf, fua: false };
    rig.shard.submit(NOW, Request { head: HeadId(0), op, tag: 0 }).expect("there is room");
    rig.shard.pump(NOW, &mut rig.bufs);
    let (_, token) = carried(&mut rig.shard).into_iter().map(|it| (it.0, it.1)).next().unwrap();
    for (at, view) in (0..).zip(&views) {
        rig.now = rig.now.after(core::time::Duration::from_millis(1));
        if at > 0 {
            rig.hears(WorkerId(0), ShardMail::Control(ToShard::Topology(Arc::clone(view))));
        }
        if at == answered_at {
            let outcome = answered(Status::SUCCESS);
            rig.hears(WorkerId(1), ShardMail::Peer(PeerMail::Done { token, outcome }));
        }
    }
    rig.is_done()
}

/// In doubt twice, seen once, with another size: that explains the second doubt alone.
#[test]
fn a_size_explains_no_doubt_before_the_last_one_to_a_write_that_waits() {
    let views = [(0, true, 8), (1, false, 8), (2, false, 8), (2, true, 16)];
    let all = [0, 1, 2, 3].map(|at| is_acknowledged(&views, at, false));
    // Before the first doubt it stands; else it may have been another namespace's.
    assert_eq!(all, [true, false, false, false]);
}

/// Its controller tells of another change before it was looked at: the size is known by then. Sent
/// again, the write could undo what comes after it.
#[test]
fn a_size_that_is_known_before_the_look_has_ended_explains_the_doubt() {
    for ready in [false, true] {
        let views = [(0, true, 8), (1, false, 8), (1, false, 16), (1, true, 16)];
        let all = [0, 1, 2, 3].map(|at| is_acknowledged(&views, at, ready));
        assert_eq!(all, [true; 4], "ready: {ready}");
        let views = [(0, true, 8), (1, false, 16), (1, true, 16)];
        let all = [0, 1, 2].map(|at| is_acknowledged(&views, at, ready));
        assert_eq!(all, [true; 3], "at once, ready: {ready}");
    }
}
