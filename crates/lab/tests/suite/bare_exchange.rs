//! The bare exchange, in virtual time: it keeps its depth, counts and measures.

use anabranch_lab::bare::{BareClient, BareJob, BareReply, BareServer, BareVerb, Exchange};
use anabranch_lab::sim::{LinkTimes, World};
use anabranch_proto::machine::Endpoint;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn run(exchange: Exchange, depth: u32, connections: usize) -> anabranch_lab::bare::BareReport {
    let at = Endpoint::Tcp(([127, 0, 0, 1], 9).into());
    let server = BareServer::new(at.clone(), exchange);
    let hosts = vec![BareClient::new()];
    let mut world = World::new(hosts, vec![server], LinkTimes::default(), 7);
    let job = BareJob { to: vec![at; connections], depth, exchange };
    world.host_verb(BareVerb::Start(Box::new(job)));
    world.run(MS * 2);
    world.host_verb(BareVerb::Reset);
    world.run(MS * 50);
    let id = world.host_verb(BareVerb::Stop);
    let BareReply::Report(report) = world.host_answer(id, MS).expect("a report") else {
        panic!("a report")
    };
    *report
}

#[test]
fn exchanges_are_counted_and_measured_in_both_directions() {
    for read in [true, false] {
        let report = run(Exchange { bytes: 4096, read }, 8, 2);
        assert_eq!(report.lost, 0);
        assert!(report.exchanges > 100, "{}", report.exchanges);
        assert_eq!(report.latency_ns.count(), report.exchanges);
        // Bytes travel 5 to 50 us each way, and a send takes its time.
        assert!(report.latency_ns.min() >= 10_000, "{}", report.latency_ns.min());
    }
}

#[test]
fn depth_one_does_one_exchange_per_latency() {
    let report = run(Exchange { bytes: 512, read: true }, 1, 1);
    let busy_ns = report.latency_ns.mean() * report.exchanges;
    let elapsed_ns = report.elapsed.as_nanos() as u64;
    assert!(busy_ns.abs_diff(elapsed_ns) < elapsed_ns / 20, "{busy_ns} of {elapsed_ns} ns");
}
