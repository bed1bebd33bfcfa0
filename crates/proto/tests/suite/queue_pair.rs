//! A host queue and a target queue, back to back: connect, writes in the capsule and by R2T, reads,
//! with and without digests and flow control, answers out of order, every way to cut the stream.

use anabranch_proto::host_queue::{Completion, HostData, HostQueue, HostQueueConfig};
use anabranch_proto::machine::{BufRef, Buffers, Gather};
use anabranch_proto::nvme::fabrics::{
    CNTLID_DYNAMIC, ConnectCommand, ConnectData, ConnectResponse,
};
use anabranch_proto::nvme::opcode::{self, Direction};
use anabranch_proto::nvme::{Nqn, Sqe, Status, Uuid, io};
use anabranch_proto::target_queue::{Slot, TargetEvent, TargetQueue, TargetQueueConfig};
use anabranch_proto::testing::{MemoryBuffers, VecGather};

const BLOCK: usize = 512;
const DEPTH: u16 = 8;

/// A disk behind a target queue, and a host queue in front of it.
struct Pair {
    host: HostQueue,
    target: TargetQueue,
    host_bufs: MemoryBuffers,
    target_bufs: MemoryBuffers,
    disk: Vec<u8>,
    waiting: Vec<Option<(Sqe, BufRef)>>,
    /// Commands to answer: held back when `hold` is set, then answered last first.
    held: Vec<(Slot, Sqe, Option<BufRef>)>,
    hold: bool,
    /// The stream is cut into pieces of at most this many bytes.
    piece: usize,
    /// PDU types that the target sent, in order.
    from_target: Vec<u8>,
    from_host: Vec<u8>,
    completions: Vec<Completion>,
    /// Receive straight into the buffer when the queue asks for it.
    aim: bool,
}

/// What a pair is made with.
#[derive(Clone, Copy, Default)]
struct Options {
    hdr_digest: bool,
    data_digest: bool,
    no_flow_control: bool,
    aim: bool,
}

impl Pair {
    fn new(options: Options) -> Pair {
        let host = HostQueue::new(HostQueueConfig {
            qid: 1,
            depth: DEPTH,
            hdr_digest: options.hdr_digest,
            data_digest: options.data_digest,
            in_capsule_bytes: 8192,
        });
        let target = TargetQueue::new(TargetQueueConfig {
            depth: DEPTH,
            in_capsule_bytes: 8192,
            max_h2c_data: 16 << 10,
            allow_hdr_digest: true,
            allow_data_digest: true,
            max_transfer_bytes: 1 << 20,
        });
        let mut pair = Pair {
            host,
            target,
            host_bufs: MemoryBuffers::new(),
            target_bufs: MemoryBuffers::new(),
            disk: vec![0; 1 << 20],
            waiting: vec![None; DEPTH.into()],
            held: Vec::new(),
            hold: false,
            piece: usize::MAX,
            from_target: Vec::new(),
            from_host: Vec::new(),
            completions: Vec::new(),
            aim: options.aim,
        };
        pair.host.connected();
        pair.run();
        assert!(pair.host.is_ready());
        pair.connect(options.no_flow_control);
        pair
    }

    fn connect(&mut self, no_flow_control: bool) {
        let command = ConnectCommand {
            qid: 1,
            sqsize: DEPTH - 1,
            disable_sq_flow: no_flow_control,
            kato_ms: 0,
        };
        let data = ConnectData {
            hostid: Uuid([7; 16]),
            cntlid: CNTLID_DYNAMIC,
            subnqn: "nqn.2024-01.io.example:disk".parse().expect("an NQN"),
            hostnqn: Nqn::from_uuid(Uuid([7; 16])),
        };
        let buf = self.host_bufs.filled(&data.to_bytes());
        self.host.submit(command.sqe(), HostData::Out(buf), 0).expect("a free tag");
        self.run();
        let done = self.completions.pop().expect("an answer");
        assert!(done.status.is_success(), "{}", done.status);
        assert_eq!(ConnectResponse::from_result(done.result).cntlid(), 17);
        self.host_bufs.free(buf);
    }

    /// Moves bytes and answers commands until nothing moves.
    fn run(&mut self) {
        loop {
            let moved = self.host_to_target() | self.target_to_host();
            while let Some(done) = self.host.poll_completion() {
                self.completions.push(done);
            }
            if !moved {
                break;
            }
        }
        assert_eq!(self.host.fault(), None);
        assert_eq!(self.target.fault(), None);
    }

    fn host_to_target(&mut self) -> bool {
        let mut batch = VecGather::with_room(3);
        self.host.poll_transmit(&mut batch, &mut self.host_bufs);
        let bytes = batch.take();
        self.host.transmitted();
        note_types(&bytes, &mut self.from_host);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if let Some(buf) = self.target.receive_hint().filter(|_| self.aim) {
                let len = rest.len().min(self.piece).min(buf.len() as usize);
                let (now, later) = rest.split_at(len);
                self.target_bufs.bytes_mut(buf.slice(0, len as u32)).copy_from_slice(now);
                self.target.received_into(len as u32, &mut self.target_bufs);
                rest = later;
            } else {
                let (now, later) = rest.split_at(rest.len().min(self.piece));
                self.target.received(now, &mut self.target_bufs);
                rest = later;
            }
            self.serve();
        }
        !bytes.is_empty()
    }

    fn target_to_host(&mut self) -> bool {
        let mut batch = VecGather::with_room(3);
        self.target.poll_transmit(&mut batch, &mut self.target_bufs);
        let bytes = batch.take();
        self.target.transmitted();
        while let Some(buf) = self.target.poll_released() {
            self.target_bufs.free(buf);
        }
        note_types(&bytes, &mut self.from_target);
        for piece in bytes.chunks(self.piece.min(1 << 30)) {
            self.host.received(piece, &mut self.host_bufs);
        }
        !bytes.is_empty()
    }

    fn serve(&mut self) {
        while let Some(event) = self.target.poll_event() {
            match event {
                TargetEvent::Command { slot } => {
                    let (sqe, data) = (*self.target.sqe(slot), self.target.take_data(slot));
                    self.command(slot, sqe, data);
                }
                TargetEvent::DataReady { slot } => {
                    let entry = self.waiting[usize::from(slot.index())].take();
                    let (sqe, buf) = entry.expect("a command that waits for data");
                    self.answer(slot, sqe, Some(buf));
                }
                TargetEvent::DataDigestError { slot } => {
                    let entry = self.waiting[usize::from(slot.index())].take();
                    self.target_bufs.free(entry.expect("a command that waits for data").1);
                    self.target.complete(slot, Status::TRANSIENT_TRANSPORT_ERROR, 0);
                }
            }
        }
    }

    fn command(&mut self, slot: Slot, sqe: Sqe, data: Option<BufRef>) {
        let writes = sqe.direction() == Direction::HostToController;
        if writes && data.is_none() && sqe.sgl().length() > 0 {
            let buf = self.target_bufs.alloc(sqe.sgl().length()).expect("memory");
            self.waiting[usize::from(slot.index())] = Some((sqe, buf));
            self.target.request_data(slot, buf);
        } else if self.hold {
            self.held.push((slot, sqe, data));
        } else {
            self.answer(slot, sqe, data);
        }
    }

    fn answer(&mut self, slot: Slot, sqe: Sqe, data: Option<BufRef>) {
        let range = || {
            let fields = io::BlockFields::of(&sqe);
            let at = fields.lba as usize * BLOCK;
            at..at + fields.blocks as usize * BLOCK
        };
        let mut result = 0;
        match sqe.opcode() {
            opcode::fabrics::FABRICS => {
                let command = ConnectCommand::parse(&sqe).expect("a good command");
                let bytes = self.target_bufs.bytes(data.expect("Connect has data"));
                ConnectData::parse(bytes).expect("good data");
                self.target.set_limits(command.sqsize + 1, 8192);
                self.target.set_sq_flow_control(!command.disable_sq_flow);
                result = 17;
            }
            opcode::io::WRITE => {
                let bytes = self.target_bufs.bytes(data.expect("a write has data"));
                self.disk[range()].copy_from_slice(bytes);
            }
            opcode::io::READ => {
                let buf = self.target_bufs.filled(&self.disk[range()]);
                self.target.send_data(slot, buf);
            }
            _ => {}
        }
        if let Some(buf) = data {
            self.target_bufs.free(buf);
        }
        self.target.complete(slot, Status::SUCCESS, result);
    }

    fn write(&mut self, lba: u64, bytes: &[u8], user: u64) -> BufRef {
        let buf = self.host_bufs.filled(bytes);
        let sqe = io::write(1, lba, (bytes.len() / BLOCK) as u32, false);
        self.host.submit(sqe, HostData::Out(buf), user).expect("a free tag");
        buf
    }

    fn read(&mut self, lba: u64, len: usize, user: u64) -> BufRef {
        let buf = self.host_bufs.alloc(len as u32).expect("memory");
        let sqe = io::read(1, lba, (len / BLOCK) as u32);
        self.host.submit(sqe, HostData::In(buf), user).expect("a free tag");
        buf
    }

    fn expect_done(&mut self, users: &[u64]) {
        let ended: Vec<u64> = self.completions.iter().map(|done| done.user).collect();
        assert_eq!(ended, users);
        for done in self.completions.drain(..) {
            assert!(done.status.is_success(), "{}: {}", done.user, done.status);
        }
    }
}

/// Notes the types of whole PDUs.
fn note_types(bytes: &[u8], types: &mut Vec<u8>) {
    let mut rest = bytes;
    while let [kind, _, _, _, a, b, c, d, ..] = rest {
        types.push(*kind);
        rest = &rest[u32::from_le_bytes([*a, *b, *c, *d]) as usize..];
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

fn every_way() -> impl Iterator<Item = Options> {
    (0..16_u8).map(|bits| Options {
        hdr_digest: bits & 1 != 0,
        data_digest: bits & 2 != 0,
        no_flow_control: bits & 4 != 0,
        aim: bits & 8 != 0,
    })
}

#[test]
fn what_is_written_is_read_back() {
    for options in every_way() {
        let mut pair = Pair::new(options);
        for (lba, len) in [(0, 512), (8, 8192), (100, 8704), (512, 256 << 10)] {
            let bytes = pattern(len, lba as u8);
            let out = pair.write(lba, &bytes, 1);
            pair.run();
            pair.expect_done(&[1]);
            let back = pair.read(lba, len, 2);
            pair.run();
            pair.expect_done(&[2]);
            assert!(pair.host_bufs.bytes(back) == bytes, "{len} bytes at {lba}");
            pair.host_bufs.free(out);
            pair.host_bufs.free(back);
        }
        assert_eq!(pair.target_bufs.in_use_bytes(), 0);
        assert_eq!((pair.target.in_flight(), pair.host.in_flight()), (0, 0));
    }
}

#[test]
fn what_goes_into_the_sink_is_read_to_the_end_and_kept_nowhere() {
    for options in every_way() {
        for piece in [usize::MAX, 7, 4096] {
            let mut pair = Pair::new(options);
            pair.piece = piece;
            let bytes = pattern(64 << 10, 3);
            let out = pair.write(0, &bytes, 1);
            pair.run();
            let in_use = pair.host_bufs.in_use_bytes();
            let sqe = io::read(1, 0, 128);
            pair.host.submit(sqe, HostData::Sink(64 << 10), 2).expect("a free tag");
            let back = pair.read(0, 64 << 10, 3);
            pair.run();
            assert_eq!(pair.completions.iter().map(|done| done.bytes).sum::<u32>(), 3 * (64 << 10));
            pair.expect_done(&[1, 2, 3]);
            assert!(pair.host_bufs.bytes(back) == bytes, "what others read is not touched");
            pair.host_bufs.free(back);
            assert_eq!(pair.host_bufs.in_use_bytes(), in_use, "no memory was asked for");
            pair.host_bufs.free(out);
        }
    }
}

#[test]
fn data_travels_in_the_capsule_up_to_the_limit_and_by_r2t_above() {
    let mut pair = Pair::new(Options::default());
    pair.from_target.clear();
    pair.from_host.clear();
    pair.write(0, &pattern(8192, 1), 1);
    pair.run();
    assert_eq!((&pair.from_host[..], &pair.from_target[..]), (&[4][..], &[5][..]));
    pair.from_target.clear();
    pair.from_host.clear();
    pair.write(0, &pattern(8192 + BLOCK, 1), 2);
    pair.run();
    assert_eq!((&pair.from_host[..], &pair.from_target[..]), (&[4, 6][..], &[9, 5][..]));
    pair.from_host.clear();
    pair.write(0, &pattern(256 << 10, 1), 3);
    pair.run();
    assert_eq!(pair.from_host.len(), 1 + 16, "H2CData of at most MAXH2CDATA: {:?}", pair.from_host);
    pair.expect_done(&[1, 2, 3]);
}

#[test]
fn the_success_flag_is_used_exactly_without_flow_control() {
    for no_flow_control in [false, true] {
        let mut pair = Pair::new(Options { no_flow_control, ..Options::default() });
        pair.from_target.clear();
        pair.read(0, 256 << 10, 1);
        pair.run();
        pair.expect_done(&[1]);
        let expected: &[u8] = if no_flow_control { &[7] } else { &[7, 5] };
        assert_eq!(pair.from_target, expected);
    }
}

#[test]
fn answers_may_come_in_any_order_and_depth_is_reached() {
    for options in every_way() {
        let mut pair = Pair::new(options);
        pair.hold = true;
        let bytes = pattern(4096, 9);
        for user in 0..DEPTH.into() {
            if user % 2 == 0 {
                pair.write(user * 8, &bytes, user);
            } else {
                pair.read(user * 8, 4096, user);
            }
        }
        pair.run();
        assert_eq!((pair.host.in_flight(), pair.target.in_flight()), (DEPTH, DEPTH));
        assert_eq!(pair.host.free_tags(), 0);
        let mut expected = Vec::new();
        while let Some((slot, sqe, data)) = pair.held.pop() {
            expected.push(u64::from(slot.index()));
            pair.answer(slot, sqe, data);
        }
        pair.run();
        pair.expect_done(&expected);
    }
}

#[test]
fn transfers_of_several_commands_interleave() {
    let mut pair = Pair::new(Options { data_digest: true, ..Options::default() });
    let all: Vec<Vec<u8>> = (0..4).map(|seed| pattern(64 << 10, seed * 40)).collect();
    for (user, bytes) in all.iter().enumerate() {
        pair.write(user as u64 * 128, bytes, user as u64);
    }
    pair.run();
    pair.completions.sort_by_key(|done| done.user);
    pair.expect_done(&[0, 1, 2, 3]);
    assert!(pair.disk[..256 << 10] == all.concat());
}

#[test]
fn the_stream_may_be_cut_anywhere() {
    for piece in [1, 2, 3, 7, 23, 24, 71, 72, 73, 127, 128, 1000, 4096, 16384, 20000] {
        for options in [0, 3, 8, 11].map(|bits| every_way().nth(bits).expect("sixteen ways")) {
            let mut small = Pair::new(options);
            small.piece = piece;
            let bytes = pattern(40 << 10, piece as u8);
            small.write(3, &bytes, 1);
            small.write(200, &bytes[..4096], 2);
            small.run();
            small.completions.sort_by_key(|done| done.user);
            small.expect_done(&[1, 2]);
            let back = small.read(3, bytes.len(), 3);
            small.run();
            small.expect_done(&[3]);
            assert!(small.host_bufs.bytes(back) == bytes, "pieces of {piece}");
        }
    }
}

#[test]
fn an_error_status_reaches_the_host_without_data() {
    let mut pair = Pair::new(Options::default());
    pair.hold = true;
    pair.read(0, 4096, 5);
    pair.run();
    let (slot, _, _) = pair.held.pop().expect("a command");
    let buf = pair.target_bufs.alloc(4096).expect("memory");
    pair.target.send_data(slot, buf);
    pair.target.complete(slot, Status::UNRECOVERED_READ_ERROR.with_dnr(), 0);
    pair.run();
    let done = pair.completions.pop().expect("an answer");
    assert_eq!(done.status, Status::UNRECOVERED_READ_ERROR.with_dnr());
    assert_eq!(pair.target_bufs.in_use_bytes(), 0, "the unused buffer came back");
    let mut batch = VecGather::new();
    pair.target.poll_transmit(&mut batch, &mut pair.target_bufs);
    assert!(batch.has_room() && batch.is_empty());
}
