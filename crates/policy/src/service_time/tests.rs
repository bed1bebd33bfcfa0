//! `service-time` against long arithmetic on decimal digits.

use crate::random::Random;
use crate::{
    Affinity, AnaRank, Candidate, ControllerLedger, LOCAL_DISTANCE, Lane, Load, Local, NodeLatency,
    OpClass, Parameters, Policy, Selector, Shared, WorkerLedger,
};
use core::cmp::Ordering;

/// A natural number, its decimal digits from the lowest.
type Long = [u8; 24];

fn long(mut number: u64) -> Long {
    let mut digits = [0; 24];
    for digit in &mut digits {
        *digit = (number % 10) as u8;
        number /= 10;
    }
    digits
}

fn plus(a: Long, b: Long) -> Long {
    let mut sum = [0; 24];
    let mut carry = 0;
    for (digit, (a, b)) in sum.iter_mut().zip(a.into_iter().zip(b)) {
        *digit = (a + b + carry) % 10;
        carry = (a + b + carry) / 10;
    }
    assert_eq!(carry, 0, "24 digits are enough");
    sum
}

fn times(a: Long, factor: u32) -> Long {
    let mut product = [0; 24];
    let mut carry = 0;
    for (digit, a) in product.iter_mut().zip(a) {
        let sum = u32::from(a) * factor + carry;
        *digit = (sum % 10) as u8;
        carry = sum / 10;
    }
    assert_eq!(carry, 0, "24 digits are enough");
    product
}

fn compare(a: Long, b: Long) -> Ordering {
    a.iter().rev().cmp(b.iter().rev())
}

/// One path: bytes in flight, weight.
type Side = (u64, u32);

/// Which of two optimized paths is better, by the rules; `Equal` when they are equal in all.
fn oracle(a: Side, b: Side, incoming: u32) -> Ordering {
    match (a.1, b.1) {
        (0, 0) => {}
        (0, _) => return Ordering::Greater,
        (_, 0) => return Ordering::Less,
        _ => {
            let bytes = |side: Side| plus(long(side.0), long(u64::from(incoming)));
            let by_time = compare(times(bytes(a), b.1), times(bytes(b), a.1));
            return by_time.then(b.1.cmp(&a.1));
        }
    }
    a.0.cmp(&b.0)
}

/// What is chosen from two paths, in both orders and both modes.
struct Rig {
    controllers: [ControllerLedger; 2],
    workers: [[WorkerLedger; 1]; 2],
    shared: [Shared; 2],
    lanes: [Lane; 2],
    nodes: [NodeLatency; 2],
    local: [Local; 2],
}

impl Rig {
    fn new() -> Rig {
        Rig {
            controllers: Default::default(),
            workers: Default::default(),
            shared: Default::default(),
            lanes: Default::default(),
            nodes: Default::default(),
            local: Default::default(),
        }
    }

    fn candidate(&self, i: usize) -> Candidate<'_> {
        Candidate {
            usable: true,
            rank: AnaRank::Optimized,
            numa_distance: LOCAL_DISTANCE,
            affinity: Affinity::Own,
            load: Load {
                controller: &self.controllers[i],
                workers: &self.workers[i],
                worker: 0,
                queue: 0,
                tags: 0,
                shared: &self.shared[i],
                lane: &self.lanes[i],
                node: Some(&self.nodes[i]),
                local: Some(&self.local[i]),
            },
        }
    }

    fn check(&self, a: Side, b: Side, incoming: u32) {
        for (controller, (bytes, weight)) in self.controllers.iter().zip([a, b]) {
            controller.set_in_flight_bytes(bytes);
            controller.set_relative_throughput(weight);
        }
        for kernel_exact in [false, true] {
            let parameters = Parameters { kernel_exact, ..Parameters::of(Policy::ServiceTime) };
            let expected = match (kernel_exact, a.1, b.1) {
                // As posted: standby paths are not compared.
                (true, 0, 0) => Ordering::Equal,
                (true, ..) => oracle(a, b, 0),
                (false, ..) => oracle(a, b, incoming),
            };
            for order in [[0, 1], [1, 0]] {
                let paths = order.map(|i| self.candidate(i));
                let choice =
                    Selector::new().select(&parameters, &paths, OpClass::Read, incoming, 0);
                let chosen = order[choice.expect("two paths").index];
                let best = match expected {
                    Ordering::Less => 0,
                    Ordering::Greater => 1,
                    Ordering::Equal => order[0],
                };
                assert_eq!(chosen, best, "{a:?} {b:?} + {incoming}, exact {kernel_exact}");
            }
        }
    }
}

impl Random {
    /// Any magnitude up to 2^63 is as likely.
    fn bytes(&mut self) -> u64 {
        (self.next() >> 1) >> (self.next() % 63)
    }
}

const MOST: u64 = 1 << 63;
const INCOMING: [u32; 6] = [0, 1, 512, 4096, 1 << 20, u32::MAX];

#[test]
fn every_pair_of_weights_agrees_with_long_arithmetic() {
    let (step, rounds) = if cfg!(miri) { (33, 1) } else { (1, 3) };
    let rig = Rig::new();
    // A fixed seed: it is named when the comparison fails, by the numbers themselves.
    let mut random = Random(2026);
    for a in (0..=100_u32).step_by(step) {
        for b in (0..=100_u32).step_by(step) {
            for _ in 0..rounds {
                let incoming = INCOMING[(random.next() % 6) as usize];
                rig.check((random.bytes(), a), (random.bytes(), b), incoming);
                // As close as two service times can be: k * a + d against k * b.
                let k = random.bytes() / 101;
                for d in [0, 1, 2] {
                    let less = u64::from(incoming).min(k * u64::from(a.min(b)));
                    let side = |weight: u32, d: u64| k * u64::from(weight) + d - less;
                    rig.check((side(a, d), a), (side(b, 1), b), less as u32);
                    rig.check((side(a, 1), a), (side(b, d), b), less as u32);
                }
            }
        }
    }
}

#[test]
fn the_largest_numbers_agree_with_long_arithmetic() {
    let rig = Rig::new();
    let edges = [
        0,
        1,
        4096,
        (1 << 31) - 1,
        1 << 31,
        1 << 32,
        (1 << 57) - 1,
        1 << 57,
        MOST / 100,
        MOST / 2,
        MOST - 1,
        MOST,
    ];
    let weights: &[u32] = if cfg!(miri) { &[0, 99, 100] } else { &[0, 1, 2, 3, 50, 99, 100] };
    for a in edges {
        for b in edges {
            for &wa in weights {
                for &wb in weights {
                    for incoming in [0, 4096, u32::MAX] {
                        rig.check((a, wa), (b, wb), incoming);
                    }
                }
            }
        }
    }
}

#[test]
fn long_arithmetic_is_right_where_it_can_be_checked() {
    let digits = long(9_876_543_210);
    assert_eq!(digits[..11], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0]);
    assert_eq!(plus(long(999), long(1)), long(1000));
    assert_eq!(times(long(123_456_789), 100), long(12_345_678_900));
    assert_eq!(compare(long(1000), long(999)), Ordering::Greater);
    assert_eq!(compare(long(7), long(7)), Ordering::Equal);
}
