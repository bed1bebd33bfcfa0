//! Stations alone: who is served when.

use super::*;

fn service(servers: Option<u32>) -> Service {
    let us = Duration::from_micros;
    Service {
        servers,
        read: us(80),
        write: us(30),
        other: us(10),
        exponential: false,
        per_port: true,
    }
}

fn at_us(us: u64) -> Time {
    Time::from_ns(us * 1000)
}

/// Everything that is served until `end`, with the time in microseconds.
fn ends(stations: &mut Stations<u32>, end: Time, lost: &[u32]) -> Vec<(u64, u32)> {
    let mut rng = Rng::new(1);
    let mut found = Vec::new();
    while let Some(at) = stations.next().filter(|at| *at <= end) {
        while let Some(ticket) = stations.served(at, &mut rng, |ticket| !lost.contains(ticket)) {
            found.push((at.ns() / 1000, ticket));
        }
    }
    found
}

#[test]
fn without_a_limit_each_command_takes_its_time() {
    let mut stations = Stations::new(service(None), 1);
    let mut rng = Rng::new(1);
    for (ticket, work) in [(1, Work::Read), (2, Work::Write), (3, Work::Other), (4, Work::Read)] {
        stations.enter(at_us(5), 0, ticket, work, &mut rng);
    }
    let found = ends(&mut stations, at_us(1000), &[]);
    assert_eq!(found, [(15, 3), (35, 2), (85, 1), (85, 4)]);
}

#[test]
fn servers_are_of_a_port_and_serve_in_order() {
    let mut stations = Stations::new(service(Some(1)), 2);
    let mut rng = Rng::new(1);
    for (port, ticket) in [(0, 1), (0, 2), (1, 3), (0, 4)] {
        stations.enter(at_us(0), port, ticket, Work::Write, &mut rng);
    }
    assert_eq!(ends(&mut stations, at_us(1000), &[]), [(30, 1), (30, 3), (60, 2), (90, 4)]);
}

#[test]
fn what_was_lost_while_it_waited_takes_no_time() {
    let mut stations = Stations::new(service(Some(1)), 1);
    let mut rng = Rng::new(1);
    for ticket in 1..=4 {
        stations.enter(at_us(0), 0, ticket, Work::Write, &mut rng);
    }
    assert_eq!(ends(&mut stations, at_us(1000), &[2, 3]), [(30, 1), (60, 4)]);
    stations.enter(at_us(500), 0, 5, Work::Write, &mut rng);
    assert_eq!(ends(&mut stations, at_us(1000), &[]), [(530, 5)]);
}

#[test]
fn a_station_that_is_removed_gives_everything_back() {
    let mut stations = Stations::new(service(Some(1)), 1);
    let mut rng = Rng::new(1);
    for ticket in 1..=3 {
        stations.enter(at_us(0), 0, ticket, Work::Write, &mut rng);
    }
    assert_eq!(stations.drain(), [1, 2, 3]);
}
