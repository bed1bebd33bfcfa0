//! One run of the bare exchange, on the same driver, CPUs and number of connections.

use super::plan::Plan;
use super::report::Figures;
use crate::failure::Failure;
use anabranch_lab::bare::{
    BareClient, BareJob, BareReply, BareReport, BareServer, BareVerb, Exchange,
};
use anabranch_lab::load::LatencySummary;
use anabranch_proto::machine::{Endpoint, WorkerId};
use anabranch_rt::{Config, Group};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long the local parts may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

pub(super) fn run(plan: &Plan, exchange: Exchange, connections: u32) -> Result<Figures, Failure> {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let any = Endpoint::Tcp(([127, 0, 0, 1], 0).into());
    let config = |name: &str, cpus: &Option<Vec<usize>>| Config {
        cpus: cpus.clone(),
        pin: cpus.is_some(),
        ..Config::named(name)
    };
    let server = vec![BareServer::new(any, exchange)];
    let events = Box::new(move |_, at| {
        if let Ok(tell) = tell.lock() {
            // Nobody listens any more once the address is known.
            let _ = tell.send(at);
        }
    });
    let server = Group::start(config("bare-target", &plan.placement.target), server, events)
        .map_err(broken)?;
    let at = told.recv_timeout(ANSWER).map_err(|_| broken("it does not listen"))?;
    // As the host's: each worker has its connections, and its part of what is under way.
    let workers = plan.workers();
    let clients = (0..workers).map(|_| BareClient::new()).collect();
    let client = Group::start(
        config("bare-host", &plan.placement.host),
        clients,
        Box::new(|_, never: std::convert::Infallible| match never {}),
    )
    .map_err(broken)?;
    let ask = |worker, verb| client.verb(WorkerId(worker), verb, ANSWER).map_err(broken);
    for worker in 0..workers {
        let part = |all: u32| {
            all / u32::from(workers) + u32::from(u32::from(worker) < all % u32::from(workers))
        };
        let to = vec![at.clone(); part(connections) as usize];
        let job = BareJob { to, depth: part(plan.depth()), exchange };
        ask(worker, BareVerb::Start(Box::new(job)))?;
    }
    std::thread::sleep(plan.runtime);
    let mut report = BareReport::default();
    for worker in 0..workers {
        let BareReply::Report(part) = ask(worker, BareVerb::Stop)? else {
            return Err(broken("it gives no report"));
        };
        report.merge(&part);
    }
    client.stop().map_err(broken)?;
    server.stop().map_err(broken)?;
    if report.lost > 0 || report.exchanges == 0 {
        return Err(broken(format!("{} connections were lost", report.lost)));
    }
    let latency = LatencySummary::of(&report.latency_ns);
    let iops = report.exchanges as f64 / report.elapsed.as_secs_f64().max(1e-9);
    Ok(Figures {
        iops,
        bytes_per_s: iops * f64::from(exchange.bytes),
        mean_ns: latency.mean,
        p50_ns: latency.p50,
        p99_ns: latency.p99,
        p999_ns: latency.p999,
        max_ns: latency.max,
    })
}

fn broken(why: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("the bare exchange: {why}"))
}
