//! One controller whose namespaces change all the time, and that answers its commands in any order:
//! random scripts, each reproducible from its seed. `ANABRANCH_SEEDS` says how many,
//! `ANABRANCH_FIRST_SEED` which is the first.

use crate::fake::{Command, Say, Space};
use crate::rig::{NAMESPACES_CHANGED, Rig};
use crate::storm::Rng;
use anabranch_host::topology::{ControllerState, HeadView};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

const SEEDS: u64 = 60;
const STEPS: u32 = 300;

/// What is under an NSID now, if anything: the byte of its UUID, and how often that has changed.
#[derive(Clone, Copy)]
struct Shown {
    uuid: Option<u8>,
    version: u64,
}

/// What was executed, and which versions its answer names as changed.
type Executed = (Command, Say, Vec<(u32, u64)>);

/// The controller.
struct Model {
    shown: BTreeMap<u32, Shown>,
    /// The versions that the host was told to have changed.
    named: BTreeMap<u32, u64>,
    changed: BTreeSet<u32>,
    /// The event was sent, and the list not read since.
    masked: bool,
    /// Two changes are more than the list has room for.
    small_list: bool,
    asked: Vec<Command>,
    executed: Vec<Executed>,
    /// Everything is answered at once.
    prompt: bool,
}

impl Model {
    fn change(&mut self, nsid: u32, uuid: Option<u8>) {
        let Some(shown) = self.shown.get_mut(&nsid) else { return };
        if shown.uuid != uuid {
            *shown = Shown { uuid, version: shown.version + 1 };
            self.changed.insert(nsid);
        }
    }

    /// Two change places.
    fn swap(&mut self, one: u32, other: u32) {
        let [of_one, of_other] = [one, other].map(|nsid| self.shown.get(&nsid).map(|it| it.uuid));
        if let (Some(of_one), Some(of_other)) = (of_one, of_other) {
            self.change(one, of_other);
            self.change(other, of_one);
        }
    }

    /// A connection begins: its host will look at everything.
    fn connected(&mut self) {
        self.asked.clear();
        self.executed.clear();
        self.changed.clear();
        self.masked = false;
        self.named = self.shown.iter().map(|(nsid, shown)| (*nsid, shown.version)).collect();
    }

    fn execute(&mut self, command: &Command) -> (Say, Vec<(u32, u64)>) {
        let nsids =
            |list: Vec<u32>| Say::Data(list.into_iter().flat_map(u32::to_le_bytes).collect());
        if command.is_log(4) {
            let list: Vec<u32> = core::mem::take(&mut self.changed).into_iter().collect();
            self.masked = false;
            let named = list.iter().map(|nsid| (*nsid, self.shown[nsid].version)).collect();
            let all = self.small_list && list.len() > 2;
            return (nsids(if all { vec![u32::MAX] } else { list }), named);
        }
        let say = if command.is_identify(2) {
            let there = self.shown.iter().filter(|(_, shown)| shown.uuid.is_some());
            nsids(there.map(|(nsid, _)| *nsid).filter(|nsid| *nsid > command.nsid).collect())
        } else {
            match self.shown.get(&command.nsid).and_then(|shown| shown.uuid) {
                None => Say::Status(0x00b | 1 << 14),
                Some(uuid) if command.is_identify(3) => {
                    Say::Data([vec![3, 16, 0, 0], vec![uuid; 16]].concat())
                }
                Some(_) => Say::namespace(2048),
            }
        };
        (say, Vec::new())
    }

    /// Takes one of a list: often the oldest.
    fn one_of<T>(list: &mut Vec<T>, rng: &mut Rng) -> Option<T> {
        let any = rng.below(list.len().max(1) as u64) as usize;
        let at = if rng.below(2) == 0 { 0 } else { any };
        (at < list.len()).then(|| list.remove(at))
    }
}

/// A host with so many namespaces through one or two controllers, the first of which is the
/// model's.
struct Stand {
    rig: Rig,
    model: Rc<RefCell<Model>>,
    /// What each was at first: the device.
    first: BTreeMap<u32, u8>,
    rng: Rng,
    fails: bool,
    cuts: bool,
    moves: bool,
}

impl Stand {
    fn new(seed: u64) -> Stand {
        let mut rng = Rng(seed);
        let first: BTreeMap<u32, u8> =
            (1..=4 + rng.below(12) as u32).map(|nsid| (nsid, 0x10 + nsid as u8)).collect();
        let both = rng.below(2) == 0;
        let mut rig = if both { Rig::connected_twice(1) } else { Rig::connected(1) };
        for at in if both { 1..=2 } else { 1..=1 } {
            let spaces = first.iter().map(|(nsid, uuid)| (*nsid, Space::new(*uuid, 2048)));
            rig.fake(at).spaces = spaces.collect();
            rig.raise(at, NAMESPACES_CHANGED);
        }
        rig.advance_s(5);
        let shown = |uuid: &u8| Shown { uuid: Some(*uuid), version: 0 };
        let model = Rc::new(RefCell::new(Model {
            shown: first.iter().map(|(nsid, uuid)| (*nsid, shown(uuid))).collect(),
            named: first.keys().map(|nsid| (*nsid, 0)).collect(),
            changed: BTreeSet::new(),
            masked: false,
            small_list: rng.below(3) == 0,
            asked: Vec::new(),
            executed: Vec::new(),
            prompt: false,
        }));
        let of_hook = Rc::clone(&model);
        rig.fake(1).hook = Some(Box::new(move |c| {
            let mut model = of_hook.borrow_mut();
            if c.is_connect() {
                model.connected();
            }
            let looks = c.is_log(4) || [0, 2, 3].into_iter().any(|kind| c.is_identify(kind));
            if !looks {
                None
            } else if model.prompt {
                Some(model.execute(c).0)
            } else {
                model.asked.push(*c);
                Some(Say::Nothing)
            }
        }));
        if rng.below(3) == 0 {
            // A small admin queue (MAXCMD).
            let commands = 1 + rng.below(8) as u8;
            rig.fake(1).patch_identify = Some(Box::new(move |data| data[514] = commands));
        }
        let [fails, cuts, moves] = [(); 3].map(|()| rng.below(3) == 0);
        Stand { rig, model, first, rng, fails, cuts, moves }
    }

    fn step(&mut self) {
        match self.rng.below(20) {
            0..=2 => {
                let [nsid, other] =
                    [(); 2].map(|()| 1 + self.rng.below(self.first.len() as u64) as u32);
                if self.moves && self.rng.below(2) == 0 {
                    return self.model.borrow_mut().swap(nsid, other);
                }
                let uuid = match self.rng.below(4) {
                    0 => None,
                    1 => Some(0x80 + nsid as u8),
                    _ => Some(self.first[&nsid]),
                };
                self.model.borrow_mut().change(nsid, uuid);
            }
            3..=7 => self.execute(),
            8..=13 => self.deliver(),
            14 => drop(self.rig.set("nvme0", "rescan_controller", "1")),
            15 if self.cuts && self.rng.below(6) == 0 => self.rig.cut(1),
            _ => self.rig.advance(Duration::from_millis(1 + self.rng.below(150))),
        }
        if self.rng.below(3) > 0 {
            self.raise();
        }
    }

    fn execute(&mut self) {
        let model = &mut *self.model.borrow_mut();
        let Some(command) = Model::one_of(&mut model.asked, &mut self.rng) else { return };
        let fails = self.fails && !command.is_log(4) && self.rng.below(40) == 0;
        let (say, named) = match fails {
            true => (Say::Status(0x006), Vec::new()),
            false => model.execute(&command),
        };
        model.executed.push((command, say, named));
    }

    fn deliver(&mut self) {
        let of_model = Model::one_of(&mut self.model.borrow_mut().executed, &mut self.rng);
        let Some((command, say, named)) = of_model else { return };
        self.rig.fake(1).say(&command, say);
        self.model.borrow_mut().named.extend(named);
        self.rig.deliver(1);
        self.rig.run();
    }

    /// The event, if there is one to send.
    fn raise(&mut self) {
        let due = {
            let model = self.model.borrow();
            !model.masked && !model.changed.is_empty() && self.rig.fake(1).has_event_request()
        };
        if due {
            self.model.borrow_mut().masked = true;
            self.rig.raise(1, NAMESPACES_CHANGED);
        }
    }

    /// What is used through the model's controller: the device's identifier, by NSID.
    fn used(&self) -> BTreeMap<u32, String> {
        let live = self.rig.state(0) == Some(ControllerState::Live);
        let heads = self.rig.heads().into_iter().filter(|_| live);
        let path = |head: &HeadView| self.rig.path(&head.name, 0).filter(|path| path.ready);
        heads.filter_map(|head| Some((path(&head)?.nsid, head.wwid.clone()))).collect()
    }

    /// No device is used through an NSID that the host knows to be another one's, or has two paths
    /// through one controller.
    fn check(&mut self, at: (u64, u32)) {
        for head in self.rig.heads() {
            let by: BTreeSet<_> = head.paths.iter().map(|path| path.controller).collect();
            assert_eq!(by.len(), head.paths.len(), "{at:?}: {} twice", head.name);
        }
        let model = self.model.borrow();
        for (nsid, used_as) in self.used() {
            let shown = model.shown[&nsid];
            let known = model.named[&nsid] == shown.version;
            let right = shown.uuid.is_some_and(|uuid| wwid(uuid) == used_as);
            assert!(!known || right, "{at:?}: nsid {nsid} is {:x?}: {used_as}", shown.uuid);
        }
    }

    /// All is as it was first, and the controller does what it should.
    fn calm(&mut self, seed: u64) {
        self.model.borrow_mut().prompt = true;
        let asked = core::mem::take(&mut self.model.borrow_mut().asked);
        for command in asked {
            let (say, named) = self.model.borrow_mut().execute(&command);
            self.model.borrow_mut().executed.push((command, say, named));
        }
        while !self.model.borrow().executed.is_empty() {
            self.deliver();
        }
        for (nsid, uuid) in &self.first {
            self.model.borrow_mut().change(*nsid, Some(*uuid));
        }
        for _ in 0..100 {
            self.raise();
            self.rig.advance_s(3);
        }
        let model = self.model.borrow();
        assert!(!model.masked && model.changed.is_empty(), "{seed}: no news is read any more");
        let used = self.used();
        let is_idle = |nsid: &u32, uuid: u8| used.get(nsid) != Some(&wwid(uuid));
        let idle: Vec<_> = self.first.iter().filter(|(nsid, uuid)| is_idle(nsid, **uuid)).collect();
        assert!(idle.is_empty(), "{seed}: {idle:?} stay idle: {:#?}", self.rig.events.last());
    }
}

/// The identifier of a device of this UUID, all of whose bytes are one.
fn wwid(uuid: u8) -> String {
    let hex = format!("{uuid:02x}").repeat(16);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &hex[part]);
    format!("uuid.{}", parts.join("-"))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn f13_no_namespace_is_used_for_another_one_however_they_change() {
    let first = number("ANABRANCH_FIRST_SEED").unwrap_or(1);
    for seed in first..first + number("ANABRANCH_SEEDS").unwrap_or(SEEDS) {
        let mut stand = Stand::new(seed.wrapping_mul(7919));
        for step in 0..STEPS {
            stand.step();
            stand.check((seed, step));
        }
        stand.calm(seed);
    }
}
