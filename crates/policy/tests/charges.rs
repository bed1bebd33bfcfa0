//! Every charge gives back exactly what it added.

mod support;

use anabranch_policy::{Charge, ControllerLedger, OpClass, Policy, Selector, finish, start};
use support::{Random, paths, read};

#[test]
fn counters_return_to_zero_under_random_start_finish_and_switch() {
    let mut random = Random::seeded();
    let rounds = if cfg!(miri) { 10 } else { 300 };
    for _ in 0..rounds {
        let mut table = paths("onoo");
        let mut selector = Selector::new();
        let mut policy = Policy::default();
        let mut in_flight: Vec<(usize, Charge)> = Vec::new();
        let mut counted = [0_u32; 4];
        for _ in 0..200 {
            match random.below(10) {
                0 => policy = Policy::ALL[random.below(3)],
                // A path fails with commands in flight.
                1 => {
                    let index = random.below(4);
                    table[index].usable = !table[index].usable;
                }
                2..6 if !in_flight.is_empty() => {
                    let (index, charge) = in_flight.swap_remove(random.below(in_flight.len()));
                    counted[index] -= u32::from(charge.counts());
                    finish(charge, &table[index].controller);
                }
                _ => {
                    let exact = random.below(2) == 0;
                    let Some(index) = read(&mut selector, policy, exact, &table) else { continue };
                    let charge = start(policy, &table[index].controller, 512, 7);
                    assert_eq!(charge.counts(), policy == Policy::QueueDepth);
                    counted[index] += u32::from(charge.counts());
                    in_flight.push((index, charge));
                }
            }
            for (path, counted) in table.iter().zip(counted) {
                assert_eq!(path.controller.nr_active(), counted);
            }
        }
        for (index, charge) in in_flight {
            finish(charge, &table[index].controller);
        }
        assert!(table.iter().all(|path| path.controller.nr_active() == 0));
    }
}

#[test]
fn counters_return_to_zero_when_several_workers_share_a_controller() {
    let ledgers = [ControllerLedger::new(), ControllerLedger::new()];
    let commands = if cfg!(miri) { 50 } else { 20_000 };
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let ledgers = &ledgers;
            scope.spawn(move || {
                let mut held = [Charge::NONE; 8];
                for i in 0..commands {
                    let ledger = &ledgers[i % 2];
                    let slot = &mut held[i % 8];
                    finish(slot.take(), ledger);
                    let policy = Policy::ALL[(i / 100 + worker) % 3];
                    *slot = start(policy, ledger, 4096, i as u64);
                }
                for (i, slot) in held.iter_mut().enumerate() {
                    finish(slot.take(), &ledgers[i % 2]);
                }
            });
        }
    });
    assert_eq!(ledgers.each_ref().map(ControllerLedger::nr_active), [0, 0]);
}

#[test]
fn a_charge_keeps_what_the_command_was() {
    let ledger = ControllerLedger::new();
    let charge = start(Policy::QueueDepth, &ledger, 4096, 500).for_op(OpClass::Write).in_epoch(9);
    assert_eq!((charge.bytes(), charge.start_ns()), (4096, 500));
    assert_eq!((charge.op(), charge.epoch()), (OpClass::Write, 9));
    assert_eq!(charge.elapsed_ns(700), 200);
    assert_eq!(charge.elapsed_ns(400), 0);
    assert!(size_of::<Charge>() <= 16);
    finish(charge, &ledger);
    assert_eq!(ledger.nr_active(), 0);
}

#[test]
fn a_taken_charge_can_not_be_returned_twice() {
    let ledger = ControllerLedger::new();
    let mut charge = start(Policy::QueueDepth, &ledger, 4096, 0);
    finish(charge.take(), &ledger);
    finish(charge.take(), &ledger);
    assert_eq!(ledger.nr_active(), 0);
    assert_eq!(charge, Charge::NONE);
}

#[test]
fn a_ledger_has_cache_lines_of_its_own() {
    assert_eq!(align_of::<ControllerLedger>(), 128);
    assert_eq!(size_of::<ControllerLedger>(), 128);
}
