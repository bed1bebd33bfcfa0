use super::*;
use alloc::vec;

fn pipe(text: &str) -> Pipe {
    let shape: Shape = text.parse().unwrap();
    Pipe::new(Link::inbound(&shape, Time::ZERO))
}

/// Runs a pipe until it is empty; returns the arrivals with their times.
fn run(pipe: &mut Pipe, late_ns: u64) -> Vec<(Time, u32, u16)> {
    let mut rng = Rng::new(1);
    let mut arrivals = Vec::new();
    let mut now = Time::ZERO;
    loop {
        pipe.serve(now, &mut rng);
        while let Some((lane, slot)) = pipe.arrived(now) {
            arrivals.push((now, lane, slot));
        }
        match pipe.next() {
            Some(next) => now = Time::from_ns(next.ns().max(now.ns()) + late_ns),
            None => return arrivals,
        }
    }
}

#[test]
fn a_deep_connection_does_not_starve_a_shallow_one() {
    let mut pipe = pipe("rate=800mbit");
    pipe.attach(0, 128);
    pipe.attach(1, 1);
    for slot in 0..100 {
        pipe.push(Time::ZERO, 0, slot, 100_000, Duration::ZERO);
    }
    pipe.push(Time::ZERO, 1, 0, 100_000, Duration::ZERO);
    let arrivals = run(&mut pipe, 0);
    let place = arrivals.iter().position(|(_, lane, _)| *lane == 1).unwrap();
    assert!(place <= 3, "the shallow connection came {place}th");
    assert_eq!(arrivals.len(), 101);
}

#[test]
fn small_replies_of_two_connections_come_in_turn() {
    let mut pipe = pipe("rate=800mbit");
    pipe.attach(0, 64);
    pipe.attach(1, 64);
    for (lane, slot) in (0..64).map(|slot| (0, slot)).chain((0..64).map(|slot| (1, slot))) {
        pipe.push(Time::ZERO, lane, slot, 4096 + 48, Duration::ZERO);
    }
    let lanes: Vec<u32> = run(&mut pipe, 0).iter().map(|(_, lane, _)| *lane).collect();
    let longest = lanes.chunk_by(|a, b| a == b).map(<[u32]>::len).max().unwrap();
    assert!(longest <= 2, "{longest} in a row of one connection");
}

#[test]
fn late_timers_do_not_cost_rate() {
    let mut pipe = pipe("rate=800mbit");
    pipe.attach(0, 1000);
    for slot in 0..1000 {
        pipe.push(Time::ZERO, 0, slot, 10_000, Duration::ZERO);
    }
    let arrivals = run(&mut pipe, 60_000);
    // 10 MB at 100 MB/s are 100 ms; the last timer may be late, the sum of them may not.
    let end = arrivals.last().unwrap().0.ns();
    assert!((100_000_000..100_400_000).contains(&end), "{end}");
}

#[test]
fn lanes_share_by_bytes_not_by_commands() {
    let mut pipe = pipe("rate=1gbit");
    pipe.attach(0, 1024);
    pipe.attach(1, 1024);
    for slot in 0..40 {
        pipe.push(Time::ZERO, 0, slot, 1 << 20, Duration::ZERO);
    }
    for slot in 0..1000 {
        pipe.push(Time::ZERO, 1, slot, 4096, Duration::ZERO);
    }
    let arrivals = run(&mut pipe, 0);
    let mut bytes = vec![0_u64; 2];
    for (_, lane, _) in &arrivals {
        bytes[*lane as usize] += if *lane == 0 { 1 << 20 } else { 4096 };
        if bytes[1] == 4096 * 1000 {
            break;
        }
    }
    assert!(bytes[0] <= bytes[1] + (2 << 20), "{bytes:?}");
    assert!(bytes[0] + (2 << 20) >= bytes[1], "{bytes:?}");
}

#[test]
fn a_connection_that_goes_takes_its_entries_along() {
    let mut pipe = pipe("delay=10ms");
    pipe.attach(0, 4);
    pipe.attach(1, 4);
    pipe.push(Time::ZERO, 0, 0, 100, Duration::ZERO);
    pipe.push(Time::ZERO, 1, 7, 100, Duration::ZERO);
    pipe.serve(Time::ZERO, &mut Rng::new(0));
    pipe.push(Time::ZERO, 0, 1, 100, Duration::ZERO);
    pipe.detach(0);
    pipe.attach(0, 4);
    let arrivals = run(&mut pipe, 0);
    assert_eq!(arrivals, [(Time::from_ns(10_000_000), 1, 7)]);
    assert!(!pipe.is_transparent());
}

#[test]
fn extra_delay_comes_on_top() {
    let mut pipe = pipe("delay=1ms");
    pipe.attach(0, 4);
    pipe.push(Time::ZERO, 0, 0, 100, Duration::from_millis(5));
    pipe.push(Time::ZERO, 0, 1, 100, Duration::ZERO);
    let arrivals = run(&mut pipe, 0);
    assert_eq!(arrivals[0], (Time::from_ns(1_000_000), 0, 1));
    assert_eq!(arrivals[1], (Time::from_ns(6_000_000), 0, 0));
}
