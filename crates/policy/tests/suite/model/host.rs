//! The host of the model: clients, selection, completions.

use super::{Answers, Change, Line, Outcome, Scene};
use crate::support::{Path, Random, paths};
use anabranch_policy::{
    AnaRank, AsCandidate, Candidate, Charge, Load, OpClass, Parameters, Policy, Reason, Selector,
    finish, finish_time_report, rejoined, sample, start, start_probe,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Change(usize),
    /// A client has thought.
    Wake(usize),
    /// The answer is at the host.
    Answer(usize),
    /// The host is told of what has gathered.
    Tell {
        path: usize,
        round: u64,
    },
}

#[derive(Clone, Copy)]
struct Command {
    /// Nobody for a probe.
    client: Option<usize>,
    head: usize,
    worker: usize,
    path: usize,
    charge: Charge,
    began_ns: u64,
    failed: bool,
    done: bool,
}

/// A line in use.
struct Wire {
    line: Line,
    free_ns: u64,
    commands: u32,
    /// What the host was not told of yet.
    held: Vec<usize>,
    round: u64,
    /// What will be answered when the line changes.
    stuck: Vec<usize>,
}

/// A path as one worker sees it.
struct Seen<'a>(&'a Path, u16);

impl Seen<'_> {
    fn load(&self) -> Load<'_> {
        let lane = &self.0.lanes[usize::from(self.1)];
        Load { worker: self.1, queue: self.1, lane, ..self.0.load() }
    }
}

impl AsCandidate for Seen<'_> {
    fn candidate(&self) -> Candidate<'_> {
        Candidate { load: self.load(), ..self.0.candidate() }
    }
}

struct Host<'a> {
    scene: &'a Scene,
    parameters: Parameters,
    random: Random,
    heads: Vec<Vec<Path>>,
    /// By head, then worker.
    selectors: Vec<Vec<Selector>>,
    wires: Vec<Wire>,
    commands: Vec<Command>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    planned: u64,
    now_ns: u64,
    offset_ns: i64,
    /// Clients that found no usable path.
    waiting: Vec<(usize, OpClass, u32, u64)>,
    latency_ns: u128,
    outcome: Outcome,
}

/// Runs the scene. Panics when a choice is against the rules, or a ledger does not come back to
/// zero.
pub(crate) fn run(scene: &Scene, parameters: Parameters) -> Outcome {
    let mut host = Host::new(scene, parameters);
    for (place, (at_ns, _)) in scene.changes.iter().enumerate() {
        host.plan(*at_ns, Event::Change(place));
    }
    for client in 0..scene.clients {
        host.plan(0, Event::Wake(client));
    }
    while let Some(Reverse((at_ns, _, event))) = host.events.pop() {
        assert!(at_ns >= host.now_ns, "the model's own time");
        host.now_ns = at_ns;
        host.happen(event);
    }
    host.end()
}

impl<'a> Host<'a> {
    fn new(scene: &'a Scene, parameters: Parameters) -> Host<'a> {
        let wire = |&line: &Line| Wire {
            line,
            free_ns: 0,
            commands: 0,
            held: Vec::new(),
            round: 0,
            stuck: Vec::new(),
        };
        let count = scene.lines.len();
        Host {
            scene,
            parameters,
            random: Random::seeded(),
            heads: (0..scene.heads).map(|_| paths(&scene.letters)).collect(),
            selectors: vec![vec![Selector::new(); scene.workers]; scene.heads],
            wires: scene.lines.iter().map(wire).collect(),
            commands: Vec::new(),
            events: BinaryHeap::new(),
            planned: 0,
            now_ns: 0,
            offset_ns: 0,
            waiting: Vec::new(),
            latency_ns: 0,
            outcome: Outcome { by_path: vec![0; count], ..Outcome::default() },
        }
    }

    fn plan(&mut self, at_ns: u64, event: Event) {
        self.planned += 1;
        self.events.push(Reverse((at_ns, self.planned, event)));
    }

    /// What the policy is told that the time is.
    fn clock(&self) -> u64 {
        self.scene.begin_ns.saturating_add(self.now_ns).saturating_add_signed(self.offset_ns)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Change(place) => self.change(self.scene.changes[place].1),
            Event::Wake(client) => self.wake(client),
            Event::Answer(command) => self.answered(command),
            Event::Tell { path, round } if self.wires[path].round == round => self.tell(path),
            Event::Tell { .. } => {}
        }
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Clock(by_ns) => self.offset_ns += by_ns,
            Change::Parameters(parameters) => self.parameters = parameters,
            Change::Rank(path, rank) => {
                self.heads.iter_mut().for_each(|head| head[path].rank = rank);
            }
            Change::Rejoined(path) => {
                for head in &self.heads {
                    rejoined(&self.parameters, head[path].load());
                }
            }
            Change::Usable(path, usable) => {
                self.heads.iter_mut().for_each(|head| head[path].usable = usable);
                if usable {
                    for (client, op, bytes, began_ns) in std::mem::take(&mut self.waiting) {
                        self.submit(client, op, bytes, began_ns);
                    }
                } else {
                    self.fail_all(path);
                }
            }
            Change::Line(path, line) => {
                self.wires[path].line = line;
                self.wires[path].free_ns = self.now_ns;
                for command in std::mem::take(&mut self.wires[path].stuck) {
                    self.plan(self.now_ns + line.delay_ns, Event::Answer(command));
                }
            }
        }
    }

    /// What is on a path that is lost goes to another one.
    fn fail_all(&mut self, path: usize) {
        let lost = |command: &&mut Command| command.path == path && !command.done;
        let mut again = Vec::new();
        for command in self.commands.iter_mut().filter(lost) {
            command.done = true;
            let seen = Seen(&self.heads[command.head][path], command.worker as u16);
            let charge = command.charge.take();
            finish(charge, seen.load());
            if let Some(client) = command.client {
                again.push((client, charge.op(), charge.bytes(), command.began_ns));
            }
        }
        let wire = &mut self.wires[path];
        (wire.commands, wire.free_ns) = (0, self.now_ns);
        wire.held.clear();
        wire.stuck.clear();
        wire.round += 1;
        for (client, op, bytes, began_ns) in again {
            self.submit(client, op, bytes, began_ns);
        }
    }

    fn wake(&mut self, client: usize) {
        if self.now_ns < self.scene.end_ns {
            let (op, bytes) = (self.scene.mix)(&mut self.random, self.now_ns);
            self.outcome.asked_bytes += u64::from(bytes);
            self.submit(client, op, bytes, self.now_ns);
        }
    }

    fn submit(&mut self, client: usize, op: OpClass, bytes: u32, began_ns: u64) {
        let head = client % self.scene.heads;
        let worker = client / self.scene.heads % self.scene.workers;
        let (parameters, now_ns) = (self.parameters, self.clock());
        let rows: Vec<Seen<'_>> =
            self.heads[head].iter().map(|path| Seen(path, worker as u16)).collect();
        let selector = &mut self.selectors[head][worker];
        let choice = selector.select(&parameters, &rows, op, bytes, now_ns);
        let probe = selector.take_probe();
        assert_eq!(selector.take_probe(), None, "a probe is asked for once");
        let Some(choice) = choice else {
            assert!(rows.iter().all(|row| !row.0.usable), "a usable path was not used");
            assert_eq!(probe, None);
            self.outcome.waited += 1;
            self.waiting.push((client, op, bytes, began_ns));
            return;
        };
        check(&parameters, &rows, choice.index, choice.reason, op, probe);
        let charge = start(&parameters, rows[choice.index].load(), op, bytes, now_ns);
        let asked = probe.filter(|&probe| self.wires[probe].line.answers != Answers::NoProbes);
        let probing = asked.map(|probe| (probe, start_probe(rows[probe].load(), bytes, now_ns)));
        drop(rows);
        let command = Command {
            client: Some(client),
            head,
            worker,
            path: choice.index,
            charge,
            began_ns,
            failed: false,
            done: false,
        };
        self.send(command);
        if let Some((path, charge)) = probing {
            assert!(charge.is_probe() && charge.op() == OpClass::Read);
            self.outcome.probes += 1;
            self.outcome.probe_bytes += u64::from(bytes);
            let failed = self.wires[path].line.answers == Answers::ErrorsToProbes;
            self.send(Command { client: None, path, charge, failed, ..command });
        }
    }

    fn send(&mut self, command: Command) {
        let number = self.commands.len();
        let wire = &mut self.wires[command.path];
        wire.commands += 1;
        let Line { delay_ns, jitter_ns, answers, .. } = wire.line;
        let jitter = if jitter_ns == 0 { 0 } else { self.random.next() % jitter_ns };
        let arrives_ns = self.now_ns + delay_ns / 2;
        let served_ns = wire.line.service_ns(command.charge.bytes(), wire.commands);
        wire.free_ns = wire.free_ns.max(arrives_ns) + served_ns;
        let at_ns = wire.free_ns + delay_ns / 2 + jitter;
        self.commands.push(command);
        if answers == Answers::Nothing {
            self.wires[command.path].stuck.push(number);
        } else {
            self.plan(at_ns, Event::Answer(number));
        }
    }

    fn answered(&mut self, number: usize) {
        let command = self.commands[number];
        if command.done {
            return;
        }
        let path = command.path;
        let wire = &mut self.wires[path];
        wire.held.push(number);
        if wire.held.len() >= wire.line.burst {
            self.tell(path);
        } else if wire.held.len() == 1 {
            let at_ns = self.now_ns + wire.line.hold_ns;
            let round = wire.round;
            self.plan(at_ns, Event::Tell { path, round });
        }
    }

    /// All completions that have gathered, then what they lead to.
    fn tell(&mut self, path: usize) {
        self.wires[path].round += 1;
        let held = std::mem::take(&mut self.wires[path].held);
        for &number in &held {
            self.complete(number);
        }
        for number in held {
            let Some(client) = self.commands[number].client else { continue };
            match self.now_ns.checked_div(self.scene.think_ns) {
                None => self.wake(client),
                Some(beat) => self.plan((beat + 1) * self.scene.think_ns, Event::Wake(client)),
            }
        }
    }

    fn complete(&mut self, number: usize) {
        let now_ns = self.clock();
        let count = self.scene.lines.len();
        let command = &mut self.commands[number];
        command.done = true;
        let charge = command.charge.take();
        let command = *command;
        self.wires[command.path].commands -= 1;
        let seen = Seen(&self.heads[command.head][command.path], command.worker as u16);
        finish(charge, seen.load());
        if !command.failed {
            let _ = sample(&self.parameters, charge, seen.load(), count, now_ns);
        }
        let counts = self.now_ns > self.scene.ramp_ns && self.now_ns <= self.scene.end_ns;
        if counts && command.client.is_some() {
            self.outcome.commands += 1;
            self.outcome.bytes += u64::from(charge.bytes());
            self.outcome.by_path[command.path] += 1;
            self.latency_ns += u128::from(self.now_ns - command.began_ns);
        }
    }

    fn end(mut self) -> Outcome {
        assert!(self.waiting.is_empty(), "clients still wait for a path");
        let stuck = self.wires.iter().map(|wire| wire.stuck.len()).sum::<usize>();
        assert_eq!(stuck, 0, "a scene in which a path never answers again");
        assert!(self.heads.iter().flatten().all(Path::is_idle), "a ledger is not back at zero");
        let now_ns = self.clock();
        let reports =
            self.heads.iter().flatten().map(|path| finish_time_report(path.load(), now_ns));
        let (probes, bytes) = reports.fold((0, 0), |(probes, bytes), report| {
            (probes + report.probes, bytes + report.probe_bytes)
        });
        assert_eq!((probes, bytes), (self.outcome.probes, self.outcome.probe_bytes));
        let mean = self.latency_ns.checked_div(u128::from(self.outcome.commands)).unwrap_or(0);
        self.outcome.mean_ns = mean as u64;
        self.outcome
    }
}

/// What holds for every choice of every scene.
fn check(
    parameters: &Parameters,
    rows: &[Seen<'_>],
    chosen: usize,
    reason: Reason,
    op: OpClass,
    probe: Option<usize>,
) {
    assert!(rows[chosen].0.usable, "an unusable path was chosen");
    let optimized = rows.iter().any(|row| row.0.usable && row.0.rank == AnaRank::Optimized);
    let by_rank = parameters.policy != Policy::FinishTime || !parameters.finish_time.compete;
    let fits = |path: usize| !(by_rank && optimized) || rows[path].0.rank == AnaRank::Optimized;
    assert!(fits(chosen), "an optimized path was passed over");
    if reason == Reason::WriteProbe {
        assert_eq!(op, OpClass::Write);
    }
    if parameters.finish_time.tail {
        assert_ne!(reason, Reason::Spill, "tails were preferred");
    }
    let Some(probe) = probe else { return };
    assert!(parameters.policy == Policy::FinishTime && parameters.finish_time.probes);
    assert!(probe != chosen, "what is used shows itself");
    assert!(rows[probe].0.usable && fits(probe), "a probe of a path that may not be used");
}
