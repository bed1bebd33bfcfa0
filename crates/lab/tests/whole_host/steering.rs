//! Where I/O goes on unequal and on equal links, command by command: what is in flight on each path
//! whenever a path is chosen, as the wire shows it.

use crate::rig::{MS, Rig, Setup};
use crate::script::Op;
use crate::wire::{Pdu, kind};
use anabranch_lab::rng::Rng;
use anabranch_policy::Policy;
use anabranch_target::Shape;

/// Blocks of 512 bytes.
const SMALL: u32 = 8;
const LARGE: u32 = 256;
/// Requests at once.
const DEPTH: u32 = 400;
/// Requests of a run; the first that fill the paths do not count.
const REQUESTS: u64 = 2000;
/// Last data PDU of a read that needs no response (NVMe/TCP, C2HData flags: SUCCESS).
const SUCCESS: u8 = 1 << 3;

/// What was in flight on the two paths when one was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    port: u16,
    bytes: u64,
    in_flight_bytes: [u64; 2],
}

fn bytes(pdu: &Pdu) -> u64 {
    let blocks = pdu.sqe.map_or(0, |sqe| u64::from(sqe.cdw(12) & 0xffff) + 1);
    blocks * 512
}

fn ends(pdu: &Pdu) -> bool {
    let success = pdu.kind == kind::C2H_DATA && pdu.flags & SUCCESS != 0;
    pdu.worker > 0 && (pdu.kind == kind::CAPSULE_RESP || success)
}

/// All choices of a run, in order.
fn choices(rig: &Rig) -> Vec<Choice> {
    let mut in_flight_bytes = [0; 2];
    let mut choices = Vec::new();
    for pdu in rig.seen(|pdu| pdu.is_io() || ends(pdu)) {
        let bytes = bytes(&pdu);
        if pdu.is_io() {
            choices.push(Choice { port: pdu.port, bytes, in_flight_bytes });
            in_flight_bytes[usize::from(pdu.port)] += bytes;
        } else if pdu.sqe.is_some_and(|sqe| !sqe.is_fabrics()) {
            in_flight_bytes[usize::from(pdu.port)] -= bytes;
        }
    }
    assert_eq!(in_flight_bytes, [0; 2], "every command has ended");
    choices
}

/// Two ports of these shapes.
fn setup(shapes: [&str; 2]) -> Setup {
    let mut setup = Setup::new(2, 1);
    setup.host.max_requests = DEPTH;
    setup.options.queue_size = 1024;
    for (port, shape) in setup.target.ports.iter_mut().zip(shapes) {
        port.shape = shape.parse::<Shape>().expect("a shape");
    }
    setup
}

/// Random reads of these sizes, equally often; as many at once as the host takes.
fn run(rig: &mut Rig, sizes: &[u32]) -> Vec<Choice> {
    let mut rng = Rng::new(1);
    let mut op = || {
        let blocks = sizes[rng.below(sizes.len() as u64) as usize];
        Op::Read { lba: rng.below(u64::from(2048 - blocks)), blocks }
    };
    let ops: Vec<Op> = (0..REQUESTS).map(|_| op()).collect();
    let names = rig.submit(ops);
    rig.succeed(&names);
    let mut choices = choices(rig);
    assert_eq!(choices.len() as u64, REQUESTS);
    choices.drain(..DEPTH as usize);
    choices
}

/// Mean bytes in flight on the first path over those on the second, over all selections.
fn ratio(choices: &[Choice]) -> f64 {
    let sum = |port: usize| choices.iter().map(|c| c.in_flight_bytes[port] as f64).sum::<f64>();
    sum(0) / sum(1)
}

/// A run under a policy, with these weights of the two paths.
fn course(policy: &str, shapes: [&str; 2], sizes: &[u32], weights: [u32; 2]) -> Vec<Choice> {
    let mut rig = setup(shapes).connect();
    rig.set("nvme-subsys0", "iopolicy", policy);
    for (path, weight) in ["nvme0c0n1", "nvme0c1n1"].into_iter().zip(weights) {
        rig.set(path, "relative_throughput", &weight.to_string());
    }
    rig.run(MS);
    let choices = run(&mut rig, sizes);
    rig.finish();
    choices
}

const UNEQUAL: [&str; 2] = ["rate=400mbit", "rate=100mbit"];
const EQUAL: [&str; 2] = ["rate=200mbit", "rate=200mbit"];

#[test]
fn t1_bytes_in_flight_stand_in_the_ratio_of_the_weights() {
    for shapes in [UNEQUAL, EQUAL] {
        for sizes in [&[SMALL][..], &[SMALL, LARGE]] {
            for (weights, wanted) in [([4, 1], 4.0), ([1, 1], 1.0), ([1, 4], 0.25)] {
                let ratio = ratio(&course("service-time", shapes, sizes, weights));
                let within = (wanted * 0.95..wanted * 1.05).contains(&ratio);
                println!("{ratio}");
                assert!(within, "{weights:?} on {shapes:?} with {sizes:?} blocks: {ratio}");
            }
        }
    }
}

#[test]
fn t1_equal_weights_and_sizes_make_the_choices_of_queue_depth() {
    for shapes in [UNEQUAL, EQUAL] {
        let by_commands = course("queue-depth", shapes, &[SMALL], [1, 1]);
        let by_bytes = course("service-time", shapes, &[SMALL], [1, 1]);
        let differs = by_commands.iter().zip(&by_bytes).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{shapes:?}: one by one");
    }
}

/// As by `set`, from the first command on.
#[test]
fn weights_that_paths_were_connected_with_steer() {
    let mut setup = setup(UNEQUAL);
    setup.host.default_policy = Policy::ServiceTime;
    let mut rig = setup.build();
    for (port, weight) in [(0, 4), (1, 1)] {
        rig.options.relative_throughput = weight;
        rig.connect(port);
    }
    let ratio = ratio(&run(&mut rig, &[SMALL, LARGE]));
    assert!((3.8..4.2).contains(&ratio), "{ratio}");
    rig.finish();
}

#[test]
fn under_finish_time_none_waits_for_a_tag_that_a_path_farther_away_has() {
    let mut setup = setup(["delay=1ms", "delay=3ms"]);
    // 15 tags on each.
    setup.options.queue_size = 16;
    setup.host.max_requests = 24;
    let mut rig = setup.connect();
    rig.set("nvme-subsys0", "iopolicy", "finish-time");
    rig.set("nvme-subsys0", "finish_time_probes", "0");
    rig.run(MS);
    let choices = run(&mut rig, &[SMALL]);
    // All others are on the wire when one is sent, but for those that come with it.
    let settled = &choices[choices.len() / 2..];
    let sum: u64 = settled.iter().map(|choice| choice.in_flight_bytes.iter().sum::<u64>()).sum();
    let mean = sum as f64 / settled.len() as f64 / f64::from(SMALL * 512);
    assert!((19.5..=23.0).contains(&mean), "{mean} of 23");
    rig.finish();
}
