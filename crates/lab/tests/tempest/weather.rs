//! What happens to a running pair, and how it ends.

use crate::Pair;
use crate::plan::{DEVICES, LARGEST, Plan, SAFE};
use crate::setup;
use anabranch_host::verb::{Selection, Verb};
use anabranch_policy::Policy;
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::{AnaState, Uuid};
use anabranch_target::TargetVerb;
use anabranch_target::config::NamespaceConfig;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// ANA groups that devices move between.
const GROUPS: u32 = DEVICES + 1;

/// One thing that happens.
pub(crate) fn fault(world: &mut Pair, plan: &mut Plan, loud: bool) {
    let port = plan.rng.below(u64::from(plan.ports)) as u16;
    // Slow streams, devices that grow or shrink, resets on request, devices at rest, no memory,
    // other settings.
    const FAIR: [u64; 7] = [7, 17, 20, 22, 23, 24, 25];
    let draw = match plan.fair {
        true => FAIR[plan.rng.below(FAIR.len() as u64) as usize],
        false => plan.rng.below(if plan.caches { 30 } else { 28 }),
    };
    if loud {
        println!("{:>12} ns  {draw} (port {port})", world.now().ns());
    }
    match draw {
        0..=7 => connection(world, plan, draw),
        8 => {
            world.target_verb(0, TargetVerb::Cut { port });
        }
        9 => {
            world.target_verb(0, TargetVerb::Stall { port });
        }
        10 => {
            world.target_verb(0, TargetVerb::Restore { port });
        }
        11..=15 => {
            let group = 1 + plan.rng.below(u64::from(GROUPS)) as u32;
            let state = AnaState::ALL[plan.rng.below(AnaState::ALL.len() as u64) as usize];
            world.target_verb(0, TargetVerb::Ana { port, group, state });
        }
        16..=19 => namespace(world, plan, draw),
        20..=23 => administer(world, plan, port, draw),
        24 => {
            let worker = WorkerId(1 + plan.rng.below(u64::from(plan.workers)) as u16);
            let exhausted = plan.rng.percent(50).then_some(worker);
            world.exhaust_pool(exhausted);
        }
        26 | 27 => suspend(world, plan),
        28 | 29 => cut_power(world, plan),
        _ => set(world, plan),
    }
}

/// Another policy, or something else that may be set at any time.
fn set(world: &mut Pair, plan: &mut Plan) {
    let [subsystem, may_go] = ["nvme-subsys0", "nvme0n3"];
    let draw = plan.rng.below(8);
    let (object, attribute, value) = match draw {
        0 => (subsystem, "kernel_exact", plan.rng.below(2).to_string()),
        1 => (subsystem, "finish_time_probes", plan.rng.below(2).to_string()),
        2 => (may_go, "delayed_removal_secs", plan.rng.below(2).to_string()),
        _ => {
            let policy = Policy::ALL[plan.rng.below(Policy::ALL.len() as u64) as usize];
            (subsystem, "iopolicy", policy.to_string())
        }
    };
    let (object, attribute) = (object.into(), attribute.into());
    plan.asked.push(world.host_verb(Verb::Set { object, attribute, value }));
}

/// One worker of the host, control too, or all of them do not run for a while, which may be longer
/// than any of their times.
fn suspend(world: &mut Pair, plan: &mut Plan) {
    let stretch = MS * (1 + plan.rng.below(2000) as u32);
    let workers = 0..=plan.workers;
    match plan.rng.below(2 * workers.len() as u64) as u16 {
        worker if workers.contains(&worker) => world.suspend(WorkerId(worker), stretch),
        _ => workers.for_each(|worker| world.suspend(WorkerId(worker), stretch)),
    }
    // Who does not run is told nothing.
    plan.linger = stretch;
}

/// The target loses its power, and is back; its limits may be others.
pub(crate) fn cut_power(world: &mut Pair, plan: &mut Plan) {
    let fresh = plan.fresh_target();
    world.cut_power(0, fresh);
    plan.power_cuts.fetch_add(1, Ordering::Relaxed);
}

fn connection(world: &mut Pair, plan: &mut Plan, draw: u64) {
    let Some(stream) = world.any_stream() else { return };
    let stretch = MS * (1 + plan.rng.below(100) as u32);
    match draw {
        0 | 1 => world.break_stream(stream),
        2 => {
            // Long enough for what is stuck there to be rescued, and answered there later.
            let stretch = stretch * (1 + plan.rng.below(4) as u32);
            plan.linger = if plan.rng.percent(50) { stretch + MS * 5 } else { Duration::ZERO };
            world.stall_stream(stream, stretch);
        }
        3 | 4 => {
            world.silence_stream(stream);
            // Long enough for what is stuck there to be rescued.
            plan.linger = MS * plan.rng.below(120) as u32;
        }
        5 => world.tear_stream(stream, stretch),
        6 => {
            // What stands behind a batch that does not leave was never sent.
            plan.linger = MS * plan.rng.below(120) as u32;
            world.block_stream(stream, stretch * (1 + plan.rng.below(4) as u32));
        }
        _ => world.slow_stream(stream, MS * (1 + plan.rng.below(5) as u32)),
    }
}

fn namespace(world: &mut Pair, plan: &mut Plan, draw: u64) {
    let subsystem = setup::subsystem();
    let nsid = 1 + plan.rng.below(u64::from(DEVICES)) as u32;
    let may_go = (SAFE as u32 + 1..=DEVICES).last().expect("one of them may go");
    let verb = match draw {
        16 => {
            let group = 1 + plan.rng.below(u64::from(GROUPS)) as u32;
            TargetVerb::NamespaceGroup { subsystem, nsid, group }
        }
        17 => {
            let bytes = plan.used_bytes() * (1 + plan.rng.below(LARGEST));
            TargetVerb::NamespaceResize { subsystem, nsid, bytes }
        }
        18 => TargetVerb::NamespaceRemove { subsystem, nsid: may_go },
        _ => {
            // The same one again, in other blocks perhaps, or another one under its NSID.
            let uuid = plan.rng.percent(50).then(|| Uuid([2 + plan.rng.below(200) as u8; 16]));
            let namespace = plan.namespace(may_go);
            let formatted = !plan.caches && plan.rng.percent(30);
            let block_bytes = match namespace.block_bytes {
                512 if formatted => 4096,
                4096 if formatted => 512,
                same => same,
            };
            let config = NamespaceConfig { uuid, block_bytes, ..namespace };
            TargetVerb::NamespaceAdd { subsystem, config }
        }
    };
    world.target_verb(0, verb);
}

fn administer(world: &mut Pair, plan: &mut Plan, port: u16, draw: u64) {
    // Controllers are numbered in the order of their ports.
    let controller = format!("nvme{port}");
    let device = plan.rng.below(u64::from(DEVICES)) as usize;
    let name = format!("nvme0n{}", device + 1);
    let verb = match draw {
        20 => Verb::Reset { controller },
        21 if plan.removed[usize::from(port)] => plan.connect(port),
        // While another one stays, nothing may fail.
        21 if plan.removed.iter().filter(|&&removed| !removed).count() > 1 => {
            plan.removed[usize::from(port)] = true;
            Verb::Disconnect(Selection::Controller(controller))
        }
        21 => return,
        22 => {
            plan.stopped[device].0 += 1;
            Verb::Quiesce { device: name }
        }
        _ => {
            plan.stopped[device].1 += 1;
            Verb::Freeze { device: name }
        }
    };
    plan.asked.push(world.host_verb(verb));
}

/// The weather becomes fine: whatever was done is undone.
pub(crate) fn heal(world: &mut Pair, plan: &mut Plan) {
    plan.quiet.set(true);
    world.exhaust_pool(None);
    for port in 0..plan.ports {
        world.target_verb(0, TargetVerb::Restore { port });
        for group in 1..=GROUPS {
            let state = AnaState::Optimized;
            world.target_verb(0, TargetVerb::Ana { port, group, state });
        }
        if plan.removed[usize::from(port)] {
            let verb = plan.connect(port);
            plan.asked.push(world.host_verb(verb));
        }
    }
    for (device, (quiesced, frozen)) in (1..).zip(std::mem::take(&mut plan.stopped)) {
        let device = || format!("nvme0n{device}");
        for _ in 0..quiesced {
            plan.asked.push(world.host_verb(Verb::Unquiesce { device: device() }));
        }
        for _ in 0..frozen {
            plan.asked.push(world.host_verb(Verb::Unfreeze { device: device() }));
        }
    }
}
