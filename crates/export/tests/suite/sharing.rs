//! Whatever clients of several devices ask for, and however little memory and room there is for
//! all of them: each request is answered once, nothing waits that nobody wakes, all comes back.

use crate::support::{Random, export};
use anabranch_export::fuzz::{Harness, client};
use anabranch_export::nbd::wire::command;
use anabranch_export::nbd::{CLOSE_TIMEOUT, Export, NbdConfig, NbdMail, RETRY_DELAY};
use anabranch_host::user::{Submit as _, User as _};
use anabranch_proto::machine::{ConnId, Input, ListenerId, WorkerId};
use std::collections::BTreeMap;

const DEVICES: u64 = 3;
const MIB: u64 = 1 << 20;
const DISK_BYTES: u64 = 4 * MIB;
const BLOCK: u64 = 4096;

struct Client {
    conn: ConnId,
    device: usize,
    /// It was told that the device trims and makes zeroes.
    able: bool,
    /// What was asked for: bytes that a read brings, by cookie.
    asked: BTreeMap<u64, u32>,
}

struct World {
    harness: Harness,
    clients: Vec<Client>,
    offered: Vec<bool>,
    /// Trims and makes zeroes, by device.
    able: Vec<bool>,
}

fn exports(offered: &[bool]) -> Vec<Export> {
    let name = |device: usize| format!("nvme0n{}", device + 1);
    let devices = (0..offered.len()).filter(|&device| offered[device]);
    devices.map(|device| export(&name(device), &name(device))).collect()
}

impl World {
    fn new(random: &mut Random) -> World {
        let offered = vec![true; DEVICES as usize];
        let config = NbdConfig { listen: None, exports: exports(&offered) };
        let mut harness = Harness::new(config, (2 + random.below(30)) * MIB);
        for device in 0..DEVICES {
            let name = format!("nvme0n{}", device + 1);
            harness.host.add_disk(
                &name,
                DISK_BYTES as usize,
                [512, BLOCK as u32][device as usize % 2],
            );
        }
        harness.complete_at_once = false;
        harness.hold_transmissions = random.below(2) == 0;
        harness.portion = 1 + random.below(1 << 18) as usize;
        harness.host.room = 1 + random.below(60) as usize;
        harness.host.share = 1 + random.below(30) as usize;
        World { harness, clients: Vec::new(), offered, able: vec![true; DEVICES as usize] }
    }

    fn connect(&mut self, random: &mut Random) {
        let device = random.below(DEVICES) as usize;
        // While it waits for what others have left behind, what it may ask for can change.
        if !self.offered[device] || self.harness.host.heads()[device].leftovers.any() {
            return;
        }
        let conn = self.harness.connect();
        let hello = client::negotiate(&format!("nvme0n{}", device + 1), random.below(3) > 0);
        self.harness.send(conn, &hello);
        self.harness.release_transmissions();
        self.harness.take(conn);
        let able = self.able[device];
        self.clients.push(Client { conn, device, able, asked: BTreeMap::new() });
    }

    fn ask(&mut self, random: &mut Random) {
        if self.clients.is_empty() {
            return;
        }
        let client = random.below(self.clients.len() as u64) as usize;
        let Client { conn, able, asked, .. } = &mut self.clients[client];
        let cookie = asked.len() as u64;
        let most = [4, 64, DISK_BYTES / BLOCK][random.below(3) as usize];
        let blocks = 1 + random.below(most);
        let offset = random.below(DISK_BYTES / BLOCK + 1 - blocks) * BLOCK;
        let bytes = (blocks * BLOCK) as u32;
        let (stream, read) = match random.below(if *able { 9 } else { 7 }) {
            0..4 => (client::request(command::READ, 0, cookie, offset, bytes), bytes),
            4..7 => (client::write(1, cookie, offset, &vec![7; bytes as usize]), 0),
            7 => (client::request(command::TRIM, 1, cookie, offset, bytes), 0),
            _ => (client::request(command::WRITE_ZEROES, 1, cookie, offset, bytes), 0),
        };
        asked.insert(cookie, read);
        self.harness.send(*conn, &stream);
    }

    fn offer(&mut self) {
        let exports = exports(&self.offered).into_iter().map(|export| (ListenerId(0), export));
        let mail = NbdMail::Offer { epoch: 1, exports: exports.collect::<Vec<_>>().into() };
        self.harness.input(Input::Mail { from: WorkerId(0), mail });
    }

    /// A path that can do less joins a device, or leaves it.
    fn change(&mut self, device: usize) {
        self.able[device] = !self.able[device];
        let most = u32::from(self.able[device]) << 16;
        self.harness.host.change_head(device, |head| {
            head.limits.max_write_zeroes_blocks = most;
            head.limits.max_discard_blocks = most;
        });
        self.harness.heads_changed();
    }

    fn step(&mut self, random: &mut Random) {
        match random.below(100) {
            0..3 => self.connect(random),
            3..45 => self.ask(random),
            45..80 => self.harness.complete_one(random.below(64) as usize),
            80..90 => self.harness.release_transmissions(),
            90..93 => self.harness.pass(RETRY_DELAY),
            93..95 => self.harness.heads_changed(),
            95..97 => self.harness.room_made(),
            97 if !self.clients.is_empty() => {
                let gone = random.below(self.clients.len() as u64) as usize;
                let gone = self.clients.swap_remove(gone);
                self.harness.disconnect(gone.conn);
            }
            98 if random.below(8) == 0 => {
                let device = random.below(DEVICES) as usize;
                self.offered[device] = !self.offered[device];
                self.offer();
            }
            99 => self.change(random.below(DEVICES) as usize),
            _ => {}
        }
    }

    /// Everything that can be done is done, without time passing where nobody asks for that.
    fn finish(&mut self) {
        for turn in 0.. {
            self.harness.complete_all();
            let unread: usize = self.clients.iter().map(|it| self.harness.unread(it.conn)).sum();
            if unread == 0 && self.harness.host.pending() == 0 && turn > 2 {
                break;
            }
            assert!(turn < 10_000, "{unread} bytes are not read");
            if self.harness.nbd.poll_timeout().is_some() {
                self.harness.pass(RETRY_DELAY);
            }
        }
    }
}

#[test]
fn every_request_is_answered_once_however_scarce_memory_and_room_are() {
    let mut random = Random::seeded();
    for _ in 0..60 {
        let mut world = World::new(&mut random);
        (0..1 + random.below(8)).for_each(|_| world.connect(&mut random));
        (0..random.below(400)).for_each(|_| world.step(&mut random));
        world.finish();
        let World { mut harness, clients, .. } = world;
        for Client { conn, device, asked, .. } in clients {
            let received = harness.take(conn);
            let (answers, rest) = client::answers(&received, &asked);
            if harness.is_connected(conn) {
                assert!(rest.is_empty());
                assert_eq!(answers.len(), asked.len(), "of device {device}");
                assert!(answers.values().all(|answer| answer.done && answer.errno == 0));
            }
            harness.disconnect(conn);
        }
        harness.pass(CLOSE_TIMEOUT);
        harness.complete_all();
        harness.pass(RETRY_DELAY);
        assert_eq!(harness.pool.in_use_bytes(), 0);
        assert_eq!(harness.nbd.clients(), 0);
    }
}
