//! Every charge gives back exactly what it added.

use crate::support::{Path, Random, begin, paths};
use anabranch_policy::{
    Charge, ControllerLedger, Lane, Ledgers, Load, OpClass, Parameters, Policy, Scope, Selector,
    Shared, WorkerLedger, finish, sample, start, start_on_disk,
};
use std::cell::RefCell;
use std::rc::Rc;

fn any_parameters(random: &mut Random) -> Parameters {
    Parameters {
        kernel_exact: random.below(2) == 0,
        scope: Scope::ALL[random.below(Scope::ALL.len())],
        ..Parameters::of(Policy::ALL[random.below(Policy::ALL.len())])
    }
}

/// A command in flight: the path it was started on may have left the list since.
struct InFlight {
    path: Rc<RefCell<Path>>,
    charge: Charge,
}

impl InFlight {
    /// As the host does it: the counters live as long as a command that they count.
    fn end(self) {
        let path = self.path.borrow();
        let Load { controller, workers, worker, shared, lane, .. } = path.load();
        finish(self.charge, Ledgers { controller, workers, worker, shared, lane });
    }
}

/// A path in a list that can change while commands are in flight on it.
struct Listed(Rc<RefCell<Path>>);

#[test]
fn counters_return_to_zero_whatever_happens_between_start_and_end() {
    let mut random = Random::seeded();
    let rounds = if cfg!(miri) { 5 } else { 300 };
    for _ in 0..rounds {
        let new = |path: Path| Listed(Rc::new(RefCell::new(path)));
        let mut table: Vec<Listed> = paths("onoo").into_iter().map(new).collect();
        // Every path that ever was.
        let mut all: Vec<Rc<RefCell<Path>>> = table.iter().map(|path| path.0.clone()).collect();
        let mut selector = Selector::new();
        let mut parameters = Parameters::default();
        let mut in_flight: Vec<InFlight> = Vec::new();
        for now_ns in 1..200 {
            let index = random.below(table.len());
            match random.below(12) {
                // The policy is switched, or the scope, or kernel-exact.
                0 => parameters = any_parameters(&mut random),
                // The path fails with commands in flight, or comes back.
                1 => {
                    let mut path = table[index].0.borrow_mut();
                    path.usable = !path.usable;
                    selector.forget_path(index);
                }
                // A reconnect: fewer queue pairs, so this worker submits through another's.
                2 => table[index].0.borrow_mut().queue = random.below(2) as u16,
                3 => {
                    let path = table[index].0.borrow();
                    path.controller.set_relative_throughput(random.below(101) as u32);
                }
                4 if table.len() > 1 => {
                    table.remove(index);
                    selector.path_removed(index);
                }
                5 => {
                    let [drawn] = &random.paths(1)[..] else { unreachable!() };
                    let index = random.below(table.len() + 1);
                    table.insert(index, new(Path::new(drawn.usable, drawn.rank)));
                    selector.path_added(index);
                    all.push(table[index].0.clone());
                }
                6..9 if !in_flight.is_empty() => {
                    let ended = in_flight.swap_remove(random.below(in_flight.len()));
                    if random.below(2) == 0 {
                        // It ended well.
                        let path = ended.path.borrow();
                        sample(&parameters, ended.charge, path.load(), table.len(), now_ns);
                    }
                    ended.end();
                }
                _ => {
                    let bytes = 512 << random.below(12);
                    let op = OpClass::ALL[random.below(3)];
                    let view: Vec<_> = table.iter().map(|path| path.0.borrow()).collect();
                    let view: Vec<&Path> = view.iter().map(|path| &**path).collect();
                    let Some(choice) = selector.select(&parameters, &view, op, bytes, now_ns)
                    else {
                        continue;
                    };
                    let load = view[choice.index].load();
                    let charge = match random.below(8) {
                        0 => start_on_disk(&parameters, load, bytes, now_ns),
                        _ => start(&parameters, load, op, bytes, now_ns),
                    };
                    in_flight.push(InFlight { path: table[choice.index].0.clone(), charge });
                }
            }
        }
        in_flight.into_iter().for_each(InFlight::end);
        assert!(all.iter().all(|path| path.borrow().is_idle()));
    }
}

/// Which counters a path shows as used.
fn used(path: &Path) -> Vec<&'static str> {
    let mut used = Vec::new();
    let mut note = |name, value: u64| {
        if value > 0 {
            used.push(name);
        }
    };
    note("controller", path.controller.nr_active().into());
    note("bytes", path.controller.in_flight_bytes());
    note("path", path.shared.nr_active().into());
    note("work", path.shared.in_flight_work());
    note("queue", path.workers.iter().map(|w| u64::from(w.queue_active())).sum());
    note("worker", path.workers.iter().map(|w| u64::from(w.worker_active())).sum());
    used
}

#[test]
fn q2_a_policy_writes_only_the_counter_that_it_reads() {
    let scoped = |scope| Parameters { scope, ..Parameters::of(Policy::QueueDepth) };
    for (parameters, expected) in [
        (Parameters::of(Policy::Numa), &[][..]),
        (Parameters::of(Policy::RoundRobin), &[]),
        (Parameters::of(Policy::IoAffinity), &[]),
        (scoped(Scope::Controller), &["controller"]),
        (scoped(Scope::Namespace), &["path"]),
        (scoped(Scope::QueuePair), &["queue"]),
        (scoped(Scope::Sum), &["queue"]),
        (scoped(Scope::Worker), &["worker"]),
        (Parameters::of(Policy::ServiceTime), &["bytes"]),
        (Parameters::of(Policy::QueueLength), &["path"]),
        (Parameters::of(Policy::HistoricalServiceTime), &["path"]),
        (Parameters::of(Policy::FinishTime), &["work", "worker"]),
    ] {
        let path = &paths("o")[0];
        let charge = start(&parameters, path.load(), OpClass::Write, 512, 0);
        assert_eq!(used(path), expected, "{parameters:?}");
        assert_eq!(charge.counts(), !expected.is_empty());
        finish(charge, path.load());
        assert!(path.is_idle());
    }
}

#[test]
fn what_waits_for_the_disk_is_no_work_of_finish_time_and_of_others_what_any_command_is() {
    for policy in Policy::ALL {
        let path = &paths("o")[0];
        let parameters = Parameters::of(policy);
        let charge = start(&parameters, path.load(), OpClass::Other, 16, 0);
        let counted = used(path);
        finish(charge, path.load());
        let charge = start_on_disk(&parameters, path.load(), 16, 0);
        match policy {
            Policy::FinishTime => assert_eq!(used(path), ["worker"]),
            _ => assert_eq!(used(path), counted, "{policy:?}"),
        }
        finish(charge, path.load());
        assert!(path.is_idle());
    }
}

#[test]
fn counters_return_to_zero_when_several_workers_share_a_controller() {
    let controllers = [ControllerLedger::new(), ControllerLedger::new()];
    let shared = [Shared::new(), Shared::new()];
    let workers: Vec<WorkerLedger> = (0..4).map(|_| WorkerLedger::new()).collect();
    let commands = if cfg!(miri) { 50 } else { 500_000 };
    let all_there = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (controllers, shared, workers, all_there) =
                (&controllers, &shared, &workers, &all_there);
            scope.spawn(move || {
                let path = &paths("o")[0];
                let lanes = [Lane::new(), Lane::new()];
                let load = |i: usize| Load {
                    controller: &controllers[i % 2],
                    shared: &shared[i % 2],
                    lane: &lanes[i % 2],
                    workers,
                    worker,
                    // Two workers share each queue pair.
                    queue: worker / 2,
                    ..path.load()
                };
                let mut held = [Charge::NONE; 8];
                all_there.wait();
                for i in 0..commands {
                    let slot = &mut held[i % 8];
                    let ended = slot.take();
                    finish(ended, load(i));
                    let learned = Parameters::of(Policy::HistoricalServiceTime);
                    sample(&learned, ended, load(i), 2, i as u64);
                    // All write the same counters at about the same time.
                    let at = i / 2000;
                    let parameters = Parameters {
                        scope: Scope::ALL[at % Scope::ALL.len()],
                        ..Parameters::of(Policy::ALL[at % Policy::ALL.len()])
                    };
                    *slot = start(&parameters, load(i), OpClass::Read, 4096, i as u64);
                }
                for (i, slot) in held.iter_mut().enumerate() {
                    finish(slot.take(), load(i));
                }
                assert!(path.is_idle());
            });
        }
    });
    for controller in &controllers {
        assert_eq!((controller.nr_active(), controller.in_flight_bytes()), (0, 0));
    }
    for path in &shared {
        assert_eq!((path.nr_active(), path.in_flight_work()), (0, 0));
    }
    for worker in &workers {
        assert_eq!((worker.queue_active(), worker.worker_active()), (0, 0));
    }
}

#[test]
fn a_charge_keeps_what_the_command_was() {
    let path = &paths("o")[0];
    let parameters = Parameters::of(Policy::QueueDepth);
    let charge = start(&parameters, path.load(), OpClass::Write, 4096, 500).in_epoch(9);
    assert_eq!((charge.bytes(), charge.start_ns()), (4096, 500));
    assert_eq!((charge.op(), charge.epoch()), (OpClass::Write, 9));
    assert_eq!(charge.elapsed_ns(700), 200);
    assert_eq!(charge.elapsed_ns(400), 0);
    assert!(size_of::<Charge>() <= 32);
    finish(charge, path.load());
    assert!(path.is_idle());
}

#[test]
fn a_taken_charge_can_not_be_returned_twice() {
    let path = &paths("o")[0];
    let mut charge = begin(path, Policy::QueueDepth);
    finish(charge.take(), path.load());
    finish(charge.take(), path.load());
    assert!(path.is_idle());
    assert_eq!(charge, Charge::NONE);
}

#[test]
fn q2_each_counter_has_cache_lines_of_its_own() {
    assert_eq!(align_of::<ControllerLedger>(), 128);
    assert_eq!(size_of::<ControllerLedger>(), 3 * 128);
    assert_eq!(align_of::<WorkerLedger>(), 128);
    assert_eq!(size_of::<WorkerLedger>(), 2 * 128);
    assert_eq!((align_of::<Lane>(), size_of::<Lane>()), (128, 128));
    assert_eq!(align_of::<Shared>(), 128);
    assert!(size_of::<Shared>() <= 2 * 128 + 1024);
}
