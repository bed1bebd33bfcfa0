//! A scripted NVMe/TCP controller: answers admin commands from a plain model, and does what a test
//! tells it to do otherwise. Written by hand on bytes, so that it shares no mistake with the crate.

use std::collections::{BTreeMap, BTreeSet};

/// The fields of a command that tests look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) opcode: u8,
    pub(crate) fctype: u8,
    pub(crate) cid: u16,
    pub(crate) nsid: u32,
    pub(crate) cdw10: u32,
    pub(crate) cdw11: u32,
    pub(crate) cdw12: u32,
    /// Data bytes that the command asks for or brings.
    pub(crate) length: u32,
    /// The first byte of the data in its capsule.
    pub(crate) first_byte: Option<u8>,
}

pub(crate) const GET_LOG: u8 = 0x02;
pub(crate) const IDENTIFY: u8 = 0x06;
pub(crate) const SET_FEATURES: u8 = 0x09;
pub(crate) const EVENT_REQUEST: u8 = 0x0c;
pub(crate) const KEEP_ALIVE: u8 = 0x18;
pub(crate) const FABRICS: u8 = 0x7f;

impl Command {
    /// From a capsule PDU.
    fn read(pdu: &[u8]) -> Command {
        let sqe = &pdu[8..72];
        let dword = |at: usize| u32::from_le_bytes(sqe[at..at + 4].try_into().unwrap());
        Command {
            opcode: sqe[0],
            fctype: sqe[4],
            cid: u16::from_le_bytes([sqe[2], sqe[3]]),
            nsid: dword(4),
            cdw10: dword(40),
            cdw11: dword(44),
            cdw12: dword(48),
            length: dword(32),
            first_byte: pdu.get(72).copied(),
        }
    }

    pub(crate) fn is_connect(&self) -> bool {
        self.opcode == FABRICS && self.fctype == 1
    }

    pub(crate) fn is_property_get(&self, offset: u32) -> bool {
        self.opcode == FABRICS && self.fctype == 4 && self.cdw11 == offset
    }

    pub(crate) fn is_property_set(&self) -> bool {
        self.opcode == FABRICS && self.fctype == 0
    }

    pub(crate) fn is_identify(&self, cns: u8) -> bool {
        self.opcode == IDENTIFY && self.cdw10 & 0xff == u32::from(cns)
    }

    pub(crate) fn is_log(&self, page: u8) -> bool {
        self.opcode == GET_LOG && self.cdw10 & 0xff == u32::from(page)
    }

    /// Byte offset of a log read.
    pub(crate) fn log_offset(&self) -> usize {
        self.cdw12 as usize
    }
}

/// What the controller says to a command.
#[derive(Clone, Debug)]
pub(crate) enum Say {
    /// Nothing, for ever.
    Nothing,
    /// A status (type and code as `sct << 8 | sc`, bit 14 DNR) and no data.
    Status(u16),
    /// A status with a result.
    Refusal(u16, u64),
    /// Success with this result.
    Result(u64),
    /// Success with data, cut or filled up with zeroes to what was asked for.
    Data(Vec<u8>),
    /// Success with this result, twice.
    Twice(u64),
    /// Garbage instead of a PDU.
    Garbage,
}

impl Say {
    /// A shared namespace of so many blocks of 512 bytes, in group 1.
    pub(crate) fn namespace(blocks: u64) -> Say {
        let mut data = vec![0; 4096];
        data[..16].copy_from_slice(&[blocks.to_le_bytes(); 2].concat());
        (data[30], data[92], data[130]) = (1, 1, 9);
        Say::Data(data)
    }
}

/// A namespace of the model.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    pub(crate) uuid: [u8; 16],
    pub(crate) nguid: [u8; 16],
    pub(crate) blocks: u64,
    /// NUSE.
    pub(crate) used: u64,
    pub(crate) lbads: u8,
    pub(crate) write_protected: bool,
    pub(crate) shared: bool,
    pub(crate) group: u32,
}

impl Space {
    pub(crate) fn new(uuid: u8, blocks: u64) -> Space {
        let (uuid, nguid) = ([uuid; 16], [0; 16]);
        let (used, write_protected) = (blocks, false);
        Space { uuid, nguid, blocks, used, lbads: 9, write_protected, shared: true, group: 1 }
    }
}

pub(crate) type Patch = Box<dyn Fn(&mut Vec<u8>)>;
pub(crate) type Hook = Box<dyn FnMut(&Command) -> Option<Say>>;

/// One controller at one address.
pub(crate) struct Fake {
    pub(crate) nqn: String,
    pub(crate) serial: String,
    pub(crate) model: String,
    pub(crate) cntlid: u16,
    pub(crate) queues: u16,
    pub(crate) mdts: u8,
    pub(crate) oncs: u16,
    pub(crate) vwc: u8,
    pub(crate) oaes: u32,
    pub(crate) discovery: bool,
    /// Group states; `None` = no ANA.
    pub(crate) ana: Option<BTreeMap<u32, u8>>,
    /// Groups that Identify has but the log does not list.
    pub(crate) ana_unlisted: BTreeSet<u32>,
    /// CHNGCNT of the log.
    pub(crate) ana_changes: u64,
    pub(crate) anatt: u8,
    pub(crate) spaces: BTreeMap<u32, Space>,
    /// TCP connects fail.
    pub(crate) refuse: bool,
    /// With this error number.
    pub(crate) refuse_with: i32,
    /// TCP connects are never answered.
    pub(crate) black_hole: bool,
    /// Resets a connection that begins with anything, as a port does that takes TLS only.
    pub(crate) wants_tls: bool,
    /// It does not end a connection that the host ends in an orderly way.
    pub(crate) never_closes: bool,
    /// No command is answered (and no ICReq).
    pub(crate) silent: bool,
    /// Overrides the model.
    pub(crate) hook: Option<Hook>,
    /// Changes Identify Controller before it goes out.
    pub(crate) patch_identify: Option<Patch>,
    /// Every command, in order.
    pub(crate) seen: Vec<Command>,
    /// CC as last written.
    pub(crate) cc: u32,
    /// Connections that were opened.
    pub(crate) connections: u32,
    event_request: Option<u16>,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
}

impl Fake {
    pub(crate) fn new(nqn: &str, cntlid: u16) -> Fake {
        Fake {
            nqn: nqn.to_string(),
            serial: "SER1".to_string(),
            model: "Fake".to_string(),
            cntlid,
            queues: 128,
            mdts: 0,
            oncs: 1 << 3 | 1 << 2,
            vwc: 1,
            oaes: 1 << 8 | 1 << 11,
            discovery: false,
            ana: Some(BTreeMap::from([(1, 1)])),
            ana_unlisted: BTreeSet::new(),
            ana_changes: 0,
            anatt: 10,
            spaces: BTreeMap::from([(1, Space::new(0x11, 2048))]),
            refuse: false,
            refuse_with: 111,
            black_hole: false,
            wants_tls: false,
            never_closes: false,
            silent: false,
            hook: None,
            patch_identify: None,
            seen: Vec::new(),
            cc: 0,
            connections: 0,
            event_request: None,
            inbox: Vec::new(),
            outbox: Vec::new(),
        }
    }

    /// A new TCP connection.
    pub(crate) fn connected(&mut self) {
        self.connections += 1;
        self.inbox.clear();
        self.outbox.clear();
        self.event_request = None;
        self.cc = 0;
    }

    pub(crate) fn take_outbox(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outbox)
    }

    pub(crate) fn has_event_request(&self) -> bool {
        self.event_request.is_some()
    }

    pub(crate) fn count(&self, is: impl Fn(&Command) -> bool) -> usize {
        self.seen.iter().filter(|command| is(command)).count()
    }

    /// Completes the outstanding event request with this result.
    pub(crate) fn raise(&mut self, result: u64) {
        let cid = self.event_request.take().expect("an event request is outstanding");
        self.complete(cid, 0, result);
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        while self.inbox.len() >= 8 {
            let length = u32::from_le_bytes(self.inbox[4..8].try_into().unwrap()) as usize;
            if self.inbox.len() < length {
                return;
            }
            let pdu: Vec<u8> = self.inbox.drain(..length).collect();
            self.pdu(&pdu);
        }
    }

    fn pdu(&mut self, pdu: &[u8]) {
        if self.silent {
            return;
        }
        match pdu[0] {
            0 => {
                let mut response = vec![0; 128];
                response[0] = 1;
                response[2] = 128;
                response[4] = 128;
                response[12..16].copy_from_slice(&131_072_u32.to_le_bytes());
                self.outbox.extend(response);
            }
            4 => self.command(Command::read(pdu)),
            2 => {}
            other => panic!("the host sent PDU type {other}"),
        }
    }

    fn command(&mut self, command: Command) {
        self.seen.push(command);
        let said = self.hook.as_mut().and_then(|hook| hook(&command));
        let said = said.unwrap_or_else(|| self.model(&command));
        self.say(&command, said);
    }

    /// Answers a command, now or later.
    pub(crate) fn say(&mut self, command: &Command, said: Say) {
        match said {
            Say::Nothing => {}
            Say::Status(status) => self.complete(command.cid, status, 0),
            Say::Refusal(status, result) => self.complete(command.cid, status, result),
            Say::Result(result) => self.complete(command.cid, 0, result),
            Say::Twice(result) => {
                self.complete(command.cid, 0, result);
                self.complete(command.cid, 0, result);
            }
            Say::Garbage => self.outbox.extend([0xff; 64]),
            Say::Data(mut data) => {
                data.resize(command.length as usize, 0);
                let mut pdu = vec![0; 24];
                pdu[0] = 7;
                pdu[1] = 0x04;
                pdu[2] = 24;
                pdu[3] = 24;
                pdu[4..8].copy_from_slice(&(24 + command.length).to_le_bytes());
                pdu[8..10].copy_from_slice(&command.cid.to_le_bytes());
                pdu[16..20].copy_from_slice(&command.length.to_le_bytes());
                self.outbox.extend(pdu);
                self.outbox.extend(data);
                self.complete(command.cid, 0, 0);
            }
        }
    }

    fn complete(&mut self, cid: u16, status: u16, result: u64) {
        let mut pdu = vec![0; 24];
        pdu[0] = 5;
        pdu[2] = 24;
        pdu[4] = 24;
        pdu[8..16].copy_from_slice(&result.to_le_bytes());
        pdu[20..22].copy_from_slice(&cid.to_le_bytes());
        pdu[22..24].copy_from_slice(&(status << 1).to_le_bytes());
        self.outbox.extend(pdu);
    }

    fn model(&mut self, command: &Command) -> Say {
        match (command.opcode, command.fctype) {
            (FABRICS, 1) => Say::Result(self.cntlid.into()),
            (FABRICS, 0) => {
                self.cc = command.cdw12;
                Say::Result(0)
            }
            (FABRICS, 4) => self.property(command.cdw11),
            (IDENTIFY, _) => self.identify(command),
            (SET_FEATURES, _) if command.cdw10 & 0xff == 7 => {
                let count = u32::from(self.queues) - 1;
                Say::Result((count | count << 16).into())
            }
            (SET_FEATURES | KEEP_ALIVE, _) => Say::Result(0),
            (EVENT_REQUEST, _) => {
                assert_eq!(self.event_request, None, "one event request at a time (B14)");
                self.event_request = Some(command.cid);
                Say::Nothing
            }
            (GET_LOG, _) => match command.cdw10 & 0xff {
                0x0c => {
                    let log = self.ana_log();
                    Say::Data(log.get(command.log_offset()..).unwrap_or_default().to_vec())
                }
                0x04 => Say::Data(Vec::new()),
                _ => Say::Status(0x109 | 1 << 14),
            },
            _ => Say::Status(0x001 | 1 << 14),
        }
    }

    fn property(&self, offset: u32) -> Say {
        match offset {
            // MQES 1023, CQR, TO 1 s, NVM command set.
            0 => Say::Result(1023 | 1 << 16 | 2 << 24 | 1 << 37),
            8 => Say::Result(0x0002_0000),
            0x1c => {
                let shutdown = if self.cc >> 14 & 3 == 1 { 2 << 2 } else { 0 };
                Say::Result(u64::from(self.cc & 1) | shutdown)
            }
            _ => Say::Status(0x002 | 1 << 14),
        }
    }

    fn identify(&self, command: &Command) -> Say {
        let space = self.spaces.get(&command.nsid);
        match (command.cdw10 & 0xff, space) {
            (1, _) => Say::Data(self.identify_controller()),
            (2, _) => {
                let after = self.spaces.keys().filter(|&&nsid| nsid > command.nsid);
                Say::Data(after.take(1024).flat_map(|nsid| nsid.to_le_bytes()).collect())
            }
            (3, Some(space)) => {
                let mut data = Vec::new();
                for (kind, id) in [(3, space.uuid), (2, space.nguid)] {
                    if id != [0; 16] {
                        data.extend([kind, 16, 0, 0]);
                        data.extend(id);
                    }
                }
                Say::Data(data)
            }
            (0, Some(space)) => {
                let mut data = vec![0; 4096];
                for (at, blocks) in [(0, space.blocks), (8, space.blocks), (16, space.used)] {
                    data[at..at + 8].copy_from_slice(&blocks.to_le_bytes());
                }
                data[99] = u8::from(space.write_protected);
                data[30] = u8::from(space.shared);
                data[92..96].copy_from_slice(&space.group.to_le_bytes());
                data[130] = space.lbads;
                Say::Data(data)
            }
            (0, None) => Say::Data(Vec::new()),
            (6, _) => Say::Data(Vec::new()),
            _ => Say::Status(0x00b | 1 << 14),
        }
    }

    pub(crate) fn identify_controller(&self) -> Vec<u8> {
        let mut data = vec![0; 4096];
        let text = |data: &mut [u8], text: &str| {
            data.fill(b' ');
            data[..text.len()].copy_from_slice(text.as_bytes());
        };
        text(&mut data[4..24], &self.serial);
        text(&mut data[24..64], &self.model);
        text(&mut data[64..72], "1.0");
        data[76] = 2 | u8::from(self.ana.is_some()) << 3;
        data[77] = self.mdts;
        data[78..80].copy_from_slice(&self.cntlid.to_le_bytes());
        data[80..84].copy_from_slice(&0x0002_0000_u32.to_le_bytes());
        data[92..96].copy_from_slice(&self.oaes.to_le_bytes());
        data[111] = if self.discovery { 2 } else { 1 };
        data[320] = 10;
        data[342] = self.anatt;
        data[343] = 0x1f;
        data[344..348].copy_from_slice(&64_u32.to_le_bytes());
        data[348..352].copy_from_slice(&64_u32.to_le_bytes());
        data[512] = 0x66;
        data[513] = 0x44;
        data[516..520].copy_from_slice(&2048_u32.to_le_bytes());
        data[520..522].copy_from_slice(&self.oncs.to_le_bytes());
        data[525] = self.vwc;
        data[536..540].copy_from_slice(&0x0030_0001_u32.to_le_bytes());
        data[540..544].copy_from_slice(&2048_u32.to_le_bytes());
        data[768..768 + self.nqn.len()].copy_from_slice(self.nqn.as_bytes());
        data[1792..1796].copy_from_slice(&516_u32.to_le_bytes());
        data[1796..1800].copy_from_slice(&1_u32.to_le_bytes());
        data[1803] = 1;
        if let Some(patch) = &self.patch_identify {
            patch(&mut data);
        }
        data
    }

    pub(crate) fn ana_log(&self) -> Vec<u8> {
        let groups: Vec<(u32, u8)> = self
            .ana
            .iter()
            .flatten()
            .map(|(&id, &state)| (id, state))
            .filter(|(id, _)| !self.ana_unlisted.contains(id))
            .collect();
        let mut log = vec![0; 16];
        log[..8].copy_from_slice(&self.ana_changes.to_le_bytes());
        log[8..10].copy_from_slice(&(groups.len() as u16).to_le_bytes());
        for (id, state) in groups {
            let spaces = self.spaces.iter().filter(|(_, space)| space.group == id);
            let nsids: Vec<u32> = spaces.map(|(&nsid, _)| nsid).collect();
            let mut descriptor = vec![0; 32];
            descriptor[..4].copy_from_slice(&id.to_le_bytes());
            descriptor[4..8].copy_from_slice(&(nsids.len() as u32).to_le_bytes());
            descriptor[16] = state;
            log.extend(descriptor);
            log.extend(nsids.iter().flat_map(|nsid| nsid.to_le_bytes()));
        }
        log
    }
}
