//! The ceiling of the data plane: requests of 72 bytes, answers of 24 + 4096, no protocol.
//!
//! `cargo run --release -p anabranch-rt --example exchange [seconds] [depth…]` prints, for both
//! placements (client and server on one CPU, on two), exchanges per second, CPU time and system
//! calls per exchange. `SPIN_US=20` lets workers spin that long before they sleep.

use anabranch_proto::machine::{
    BufRef, Buffers, ConnId, Endpoint, Gather, Input, ListenerId, Machine, Output, SocketOptions,
    Time, VerbId, WorkerId,
};
use anabranch_rt::{Config, Error, Group};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const CONN: ConnId = ConnId::opened(0);
const REQUEST: usize = 72;
const HEADER: usize = 24;
const PAYLOAD: u32 = 4096;
const LIMIT: Duration = Duration::from_secs(30);

type Out = Output<u64, u64, Option<Endpoint>>;

enum Ask {
    Listen,
    Connect(Endpoint),
    Start(usize),
    Count,
}

/// Either end of the exchange.
struct End {
    server: bool,
    partial: usize,
    owed: usize,
    done: u64,
    buf: Option<BufRef>,
    outputs: VecDeque<Out>,
}

impl End {
    fn new(server: bool) -> End {
        let outputs = VecDeque::with_capacity(64);
        End { server, partial: 0, owed: 0, done: 0, buf: None, outputs }
    }

    fn came(&mut self, conn: ConnId, bytes: &[u8], bufs: &mut dyn Buffers) {
        let unit = if self.server { REQUEST } else { HEADER + PAYLOAD as usize };
        if let (false, Some(buf)) = (self.server, self.buf) {
            // A client moves the payload to where its user wants it.
            for part in bytes.chunks(PAYLOAD as usize) {
                bufs.bytes_mut(buf)[..part.len()].copy_from_slice(part);
            }
        }
        self.partial += bytes.len();
        self.owed += self.partial / unit;
        self.done += (self.partial / unit) as u64;
        self.partial %= unit;
        if self.owed > 0 {
            self.outputs.push_back(Output::Transmit { conn });
        }
    }

    fn verb(&mut self, id: VerbId, ask: Ask) {
        let options = SocketOptions::default();
        match ask {
            Ask::Listen => {
                let at = Endpoint::Tcp(([127, 0, 0, 1], 0).into());
                self.outputs.push_back(Output::Listen { listener: ListenerId(0), at, options });
            }
            Ask::Connect(to) => {
                self.outputs.push_back(Output::Connect { conn: CONN, to, options });
            }
            Ask::Start(depth) => {
                self.owed += depth;
                self.outputs.push_back(Output::Transmit { conn: CONN });
            }
            Ask::Count => {}
        }
        self.outputs.push_back(Output::Reply { id, reply: self.done });
    }
}

impl Machine for End {
    type Mail = u64;
    type Verb = Ask;
    type Reply = u64;
    type Event = Option<Endpoint>;

    fn handle(&mut self, _: Time, input: Input<'_, Ask, u64>, bufs: &mut dyn Buffers) {
        match input {
            Input::Start => self.buf = bufs.alloc(PAYLOAD),
            Input::Listening { at, .. } => self.outputs.push_back(Output::Event(Some(at))),
            Input::Connected { .. } => self.outputs.push_back(Output::Event(None)),
            Input::Received { conn, bytes } => self.came(conn, bytes, bufs),
            Input::Verb { id, verb } => self.verb(id, verb),
            _ => {}
        }
    }

    fn poll_output(&mut self) -> Option<Out> {
        self.outputs.pop_front()
    }

    fn poll_transmit(
        &mut self,
        _: Time,
        _: ConnId,
        batch: &mut dyn Gather,
        bufs: &mut dyn Buffers,
    ) {
        while self.owed > 0 && batch.has_room() {
            self.owed -= 1;
            match (self.server, self.buf) {
                (true, Some(buf)) => {
                    batch.copy(&[1; HEADER]);
                    batch.payload(buf, &*bufs);
                }
                _ => batch.copy(&[2; REQUEST]),
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        None
    }
}

fn cpu_seconds() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// One measurement: exchanges per second, CPU seconds per second, system calls per exchange.
fn measure(cpus: Vec<usize>, depth: usize, time: Duration) -> Result<(f64, f64, f64), Error> {
    let spin = std::env::var("SPIN_US").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let spin = Duration::from_micros(spin);
    let config = Config { cpus: Some(cpus), pin: true, spin, ..Config::named("exchange") };
    let (send, events) = channel();
    let send = Mutex::new(send);
    let sink = Box::new(move |_, event| {
        let _ = send.lock().map(|send| send.send(event));
    });
    let group = Group::start(config, vec![End::new(true), End::new(false)], sink)?;
    let ask = |worker, ask| group.verb(WorkerId(worker), ask, LIMIT);
    ask(0, Ask::Listen)?;
    let at = events.recv_timeout(LIMIT).ok().flatten().ok_or(Error::Stopped)?;
    ask(1, Ask::Connect(at))?;
    events.recv_timeout(LIMIT).map_err(|_| Error::Stopped)?;
    ask(1, Ask::Start(depth))?;
    std::thread::sleep(time / 10);
    let calls = || -> Result<u64, Error> {
        Ok(group.stats(WorkerId(0))?.system_calls + group.stats(WorkerId(1))?.system_calls)
    };
    let (start, cpu, before, first) =
        (Instant::now(), cpu_seconds(), calls()?, ask(1, Ask::Count)?);
    std::thread::sleep(time);
    let done = (ask(1, Ask::Count)? - first) as f64;
    let (wall, cpu, calls) =
        (start.elapsed().as_secs_f64(), cpu_seconds() - cpu, calls()? - before);
    group.stop()?;
    Ok((done / wall, cpu / wall, calls as f64 / done))
}

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1).flat_map(|a| a.parse::<usize>());
    let time = Duration::from_secs(args.next().unwrap_or(3) as u64);
    let mut depths: Vec<usize> = args.collect();
    if depths.is_empty() {
        depths = vec![1, 32, 128];
    }
    println!("placement depth  exchanges/s      us  CPU  calls/exchange");
    for depth in depths {
        for (name, cpus) in [("one CPU", vec![0]), ("two CPUs", vec![0, 1])] {
            let (rate, cpu, calls) = measure(cpus, depth, time)?;
            let us = depth as f64 / rate * 1e6;
            println!("{name:9} {depth:5} {rate:12.0} {us:7.1} {cpu:4.2} {calls:15.3}");
        }
    }
    Ok(())
}
