//! Any event in any state: random scripts, each reproducible from its seed.

use crate::fake::{Fake, Say, Space};
use crate::rig::{ANA_CHANGED, NAMESPACES_CHANGED, NQN, Rig, Shards};
use anabranch_host::mail::{RequestFailed, ToControl};
use anabranch_host::topology::{Association, ControllerId, ControllerState, HeadId};
use anabranch_host::user::{IoError, RequestOp};
use anabranch_host::verb::{Selection, Verb};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::status::Status;
use std::time::Duration;

pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % limit
    }
}

fn some_mail(rng: &mut Rng) -> ToControl {
    let controller = ControllerId(rng.below(4) as u32);
    let association = Association(rng.below(5) as u32);
    let head = HeadId(rng.below(4) as u32);
    let qid = rng.below(5) as u16;
    let why = "storm".to_string();
    match rng.below(10) {
        0 => ToControl::QueueOpen { controller, association, qid },
        1 => ToControl::QueueFailed { controller, association, qid, why },
        2 => ToControl::QueueLost { controller, association, qid, why },
        3 => ToControl::QueueStopped { controller, association },
        4 => {
            let status = Status::ANA_TRANSITION;
            ToControl::AnaError { controller, association, head, status }
        }
        5 => ToControl::NamespaceSuspect { controller, association, head },
        6 => ToControl::Frozen { head, epoch: rng.below(100) },
        7 => ToControl::Stats { id: rng.below(20), stats: Box::default() },
        8 => {
            let (op, error) = (RequestOp::Flush, IoError::NoPath);
            let controller = Some(controller);
            let failed = RequestFailed { head, controller, op, error, flaw: None, untold: 1 };
            ToControl::RequestFailed(Box::new(failed))
        }
        _ => ToControl::Drained,
    }
}

fn some_verb(rig: &mut Rig, rng: &mut Rng) {
    let port = 1 + rng.below(2) as u16;
    let controller = format!("nvme{}", rng.below(4));
    let device = format!("nvme0n{}", 1 + rng.below(2));
    let verb = match rng.below(12) {
        0..=3 => {
            let mut request = Rig::request(port);
            request.keep_trying = rng.below(2) == 0;
            request.options.fast_io_fail_tmo = Some(Duration::from_secs(rng.below(20)));
            request.options.ctrl_loss_tmo = Some(Duration::from_secs(rng.below(60)));
            Verb::Connect(Box::new(request))
        }
        4 => Verb::Disconnect(Selection::Controller(controller)),
        5 => Verb::Disconnect(Selection::All),
        6 => Verb::Reset { controller },
        7 => Verb::Freeze { device },
        8 => Verb::Unfreeze { device },
        9 => Verb::AnaLog { controller },
        10 => Verb::Set {
            object: device,
            attribute: "delayed_removal_secs".to_string(),
            value: rng.below(30).to_string(),
        },
        _ => Verb::Snapshot,
    };
    rig.verb(verb);
}

fn some_change(rig: &mut Rig, rng: &mut Rng) {
    let port = 1 + rng.below(2) as u16;
    match rng.below(10) {
        0 => rig.cut(port),
        1 => rig.fake(port).refuse ^= true,
        2 => rig.fake(port).black_hole ^= true,
        3 => rig.fake(port).silent ^= true,
        4 => {
            let state = [1, 2, 3, 4, 15, 9][rng.below(6) as usize];
            rig.fake(port).ana = Some([(1, state)].into());
        }
        5 => {
            let uuid = 0x11 + rng.below(3) as u8;
            let space = Space::new(uuid, 1024 * (1 + rng.below(2)));
            rig.fake(port).spaces.insert(1 + rng.below(2) as u32, space);
        }
        6 => {
            rig.fake(port).spaces.remove(&1);
        }
        7 => {
            let event = [ANA_CHANGED, NAMESPACES_CHANGED, 0x77_77_07][rng.below(3) as usize];
            if rig.fake(port).has_event_request() {
                rig.raise(port, event);
            }
        }
        8 => {
            let (every, mut count) = (2 + rng.below(20), 0);
            let say = match rng.below(4) {
                0 => Say::Garbage,
                1 => Say::Nothing,
                2 => Say::Status(0x006),
                _ => Say::Data(vec![0xff; 64]),
            };
            rig.fake(port).hook = Some(Box::new(move |_| {
                count += 1;
                (count % every == 0).then(|| say.clone())
            }));
        }
        _ => {
            rig.shards = [Shards::Obey, Shards::Hang, Shards::FailToOpen][rng.below(3) as usize];
        }
    }
}

fn storm(seed: u64) {
    let mut rng = Rng(seed);
    let mut rig = Rig::new(2);
    for port in [1, 2] {
        rig.put(port, Fake::new(NQN, port));
    }
    for _ in 0..120 {
        match rng.below(4) {
            0 => some_verb(&mut rig, &mut rng),
            1 => {
                let from = WorkerId(1 + rng.below(2) as u16);
                rig.post(from, some_mail(&mut rng));
                rig.run();
            }
            2 => some_change(&mut rig, &mut rng),
            _ => rig.advance(Duration::from_millis(rng.below(20_000))),
        }
    }
    // Then the weather clears, and everything finds its way out.
    rig.shards = Shards::Obey;
    for port in [1, 2] {
        let cntlid = port;
        let connections = rig.fake(port).connections;
        let _ = connections;
        let mut fake = rig.fake(port);
        (fake.refuse, fake.black_hole, fake.silent) = (false, false, false);
        fake.hook = None;
        fake.cntlid = cntlid;
        fake.ana = Some([(1, 1)].into());
        fake.spaces = [(1, Space::new(0x11, 2048))].into();
    }
    rig.advance_s(300);
    for view in &rig.topology.controllers {
        assert_eq!(view.state, ControllerState::Live, "{} comes to rest", view.id.0);
    }
    for head in &rig.topology.heads {
        assert!(head.paths.iter().all(|path| path.ready && !path.ana_pending), "{}", head.name);
    }
    let id = rig.verb(Verb::Disconnect(Selection::All));
    rig.advance_s(100);
    assert!(rig.reply(id).is_some());
    assert_eq!(rig.topology.controllers.len(), 0);
    assert_eq!(rig.open_connections(), 0);
    assert_eq!(rig.bufs.in_use_bytes(), 0);
    rig.assert_all_answered();
}

#[test]
fn p17_every_event_in_every_state_is_harmless() {
    for seed in 0..2000 {
        let caught = std::panic::catch_unwind(|| storm(seed));
        assert!(caught.is_ok(), "seed {seed}");
    }
}
