use super::*;
use anabranch_export::fuzz::{MemoryHost, client};
use anabranch_export::nbd::wire::command;
use anabranch_export::nbd::{Export, NbdConfig};
use anabranch_lab::load::{BlockSize, Job};
use anabranch_proto::machine::{CloseCause, ListenerId, Peer};
use anabranch_proto::testing::MemoryBuffers;
use std::time::Duration;

/// Places in the host.
const ROOM: usize = 4;
const CLIENT: ConnId = ConnId::accepted(0);

struct Rig {
    front: Front,
    host: MemoryHost,
    pool: MemoryBuffers,
}

impl Rig {
    /// One device, and a client that has opened it.
    fn new() -> Rig {
        Rig::with_memory(MemoryBuffers::new())
    }

    fn with_memory(pool: MemoryBuffers) -> Rig {
        let export = Export { name: "disk".into(), device: "nvme0n1".into(), ..Export::default() };
        let nbd = Nbd::new(NbdConfig { listen: None, exports: vec![export] });
        let mut host = MemoryHost::new(1);
        host.add_disk("nvme0n1", 1 << 20, 512);
        host.room = ROOM;
        let front = Front::new(nbd, Load::new(), Arc::default());
        let mut rig = Rig { front, host, pool };
        rig.input(Input::Start);
        rig.input(Input::Accepted { listener: ListenerId(0), conn: CLIENT, peer: None });
        rig.receive(&client::negotiate("disk", true));
        rig
    }

    fn input(&mut self, input: Input<'_, FrontVerb, FrontMail>) {
        self.front.handle(Time::ZERO, input, &mut self.host, &mut self.pool);
        // Clients are there, and the other worker has none.
        while let Some(output) = self.front.poll_output() {
            match output {
                Output::Look { conn } => self.input(Input::Looked { conn }),
                Output::Mail { to, mail: FrontMail::Nbd(NbdMail::Look { round, .. }) } => {
                    let mail = FrontMail::Nbd(NbdMail::Looked { round });
                    self.input(Input::Mail { from: to, mail });
                }
                _ => {}
            }
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.input(Input::Received { conn: CLIENT, bytes });
    }

    /// More reads of the client than there are places.
    fn client_reads(&mut self) {
        let reads = (0..100).flat_map(|cookie| client::request(command::READ, 0, cookie, 0, 4096));
        self.receive(&reads.collect::<Vec<u8>>());
    }

    /// A load that would take all places.
    fn load_reads(&mut self) {
        self.load_reads_of(4096, ROOM as u32);
    }

    /// A load of so many requests at once of so many bytes.
    fn load_reads_of(&mut self, bytes: u32, depth: u32) {
        let job = Job {
            device: "nvme0n1".into(),
            read_percent: 100,
            random: true,
            sizes: vec![BlockSize { bytes, weight: 1 }],
            // On each of two data workers.
            depth: 2 * depth,
            jobs: 1,
            offset: 0,
            size: None,
            number_ios: None,
            thinktime: Duration::ZERO,
            verify: false,
            seed: 1,
        };
        let mail = FrontMail::Load(LoadMail::Start(Box::new(job)));
        self.input(Input::Mail { from: WorkerId(0), mail });
    }

    fn complete_first(&mut self) {
        let done = self.host.complete(0, &mut self.pool).expect("something is pending");
        self.front.completed(Time::ZERO, done, &mut self.host, &mut self.pool);
        assert_eq!(self.host.pending(), ROOM, "the place is used again at once");
    }

    /// How many of the places are the load's.
    fn of_load(&self) -> usize {
        self.host.tags().filter(|tag| tag & OF_LOAD != 0).count()
    }
}

#[test]
fn a_load_that_begins_when_clients_hold_all_places_gets_some() {
    let mut rig = Rig::new();
    rig.client_reads();
    rig.load_reads();
    assert_eq!((rig.host.pending(), rig.of_load()), (ROOM, 0));
    rig.complete_first();
    assert_eq!(rig.of_load(), 1);
}

#[test]
fn clients_that_come_when_a_load_holds_all_places_get_some() {
    let mut rig = Rig::new();
    rig.load_reads();
    rig.client_reads();
    assert_eq!((rig.host.pending(), rig.of_load()), (ROOM, ROOM));
    rig.complete_first();
    assert_eq!(rig.of_load(), ROOM - 1);
}

#[test]
fn a_load_leaves_memory_to_clients() {
    const MIB: u32 = 1 << 20;
    let mut rig = Rig::with_memory(MemoryBuffers::with_limit(16 * u64::from(MIB)));
    rig.host.room = 200;
    rig.load_reads_of(MIB, 32);
    assert_eq!(rig.of_load(), 12, "three quarters of it");
    rig.client_reads();
    assert_eq!(rig.host.pending(), 12 + 100, "the client goes on");
}

#[test]
fn neither_keeps_all_places_in_the_long_run() {
    for load_first in [false, true] {
        let mut rig = Rig::new();
        if load_first {
            rig.load_reads();
            rig.client_reads();
        } else {
            rig.client_reads();
            rig.load_reads();
        }
        let mut of_load = 0;
        for _ in 0..10 * ROOM {
            rig.complete_first();
            of_load += rig.of_load();
        }
        let all = 10 * ROOM * ROOM;
        assert!((all / 4..=all * 3 / 4).contains(&of_load), "{of_load} of {all}");
    }
}

#[test]
fn the_clients_of_an_export_are_known_by_its_name() {
    let mut rig = Rig::new();
    let clients = Arc::clone(&rig.front.clients);
    let told = || (clients.connected(), clients.of("disk"), clients.of("other").len());
    assert_eq!(told(), (1, vec![None], 0));
    let (second, peer) = (ConnId::accepted(1), Some(Peer::Process(7)));
    rig.input(Input::Accepted { listener: ListenerId(0), conn: second, peer });
    assert_eq!(told(), (2, vec![None], 0), "it has not said what it wants");
    let bytes = client::negotiate("disk", true);
    rig.input(Input::Received { conn: second, bytes: &bytes });
    assert_eq!(told(), (2, vec![None, peer], 0));
    for (conn, then) in [(CLIENT, (1, vec![peer], 0)), (second, (0, vec![], 0))] {
        rig.input(Input::Closed { conn, cause: CloseCause::PeerClosed });
        assert_eq!(told(), then);
    }
}
