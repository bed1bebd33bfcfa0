//! Fewer queue pairs than workers: tags and the list of those who wait are shared.

use super::rig::*;
use anabranch_lab::light::{Bound, limit_of_window};
use anabranch_lab::scenario::{Hosts, Job, Scenario, Target, Variant};
use anabranch_policy::{Parameters, Policy, Scope};

/// Reads of 1 ms with 8 open on each of two workers, of which a queue pair takes 4 at once.
fn crowded(io_queues: Option<u32>) -> Scenario {
    let target = Target { read_ns: MS, ..Target::default() };
    let hosts =
        Hosts { workers: 2, nodes: vec![0; 2], io_queues, queue_depth: 5, ..Hosts::default() };
    let only = anabranch_lab::scenario::Path::new("only");
    Scenario { target, hosts, ..scenario(vec![only], vec![reads(4096, 8, 2)]) }
}

fn with(io_queues: Option<u32>) -> Variant {
    Variant { io_queues, ..plain(Policy::QueueDepth, 1) }
}

#[test]
fn workers_that_share_a_queue_pair_share_its_tags() {
    // Per second: 4 tags at a time and queue pair, 1 ms each.
    for (host, variant, queues) in
        [(None, None, 2), (Some(1), None, 1), (None, Some(1), 1), (Some(1), Some(2), 2)]
    {
        let variant = with(variant);
        let scenario = Scenario { variants: vec![variant.clone()], ..crowded(host) };
        let figures = run_variant(&scenario, &variant, 1);
        assert_eq!(figures.requests, queues * 4 * 900, "{queues} queue pairs");
        let cell = anabranch_lab::light::Cell { scenario: &scenario, variant: &variant, seed: 1 };
        let limit = limit_of_window(cell);
        assert_eq!((limit.iops, limit.bound), (queues * 4000, Bound::Tags));
    }
}

/// A share of the limit says the same of each of them.
#[test]
fn variants_with_fewer_queue_pairs_are_measured_by_the_limit_of_the_others() {
    let variants = vec![with(Some(1)), with(Some(2))];
    let scenario = Scenario { variants, ..crowded(None) };
    for variant in &scenario.variants {
        let cell = anabranch_lab::light::Cell { scenario: &scenario, variant, seed: 1 };
        assert_eq!(limit_of_window(cell).iops, 8000);
    }
}

#[test]
fn one_tag_for_all_is_served_in_the_order_of_coming() {
    let base = crowded(Some(1));
    let hosts = Hosts { queue_depth: 2, ..base.hosts.clone() };
    let figures = run_variant(&Scenario { hosts, ..base }, &with(None), 1);
    // 16 take turns: nobody waits for longer or shorter.
    assert_eq!(figures.latency.min(), 16 * MS);
    assert_eq!(figures.latency.max(), 16 * MS);
}

#[test]
fn a_job_on_one_worker_reaches_one_queue_pair() {
    let base = crowded(None);
    let job = Job { workers: vec![1], ..reads(4096, 8, 2) };
    let scenario = Scenario { jobs: vec![job], ..base };
    let variant = with(None);
    let cell = anabranch_lab::light::Cell { scenario: &scenario, variant: &variant, seed: 1 };
    assert_eq!(limit_of_window(cell).iops, 4000);
    assert_eq!(run_variant(&scenario, &variant, 1).requests, 4 * 900);
}

#[test]
fn the_books_balance_with_shared_queue_pairs_through_cuts() {
    let scenario = super::books::eventful();
    for io_queues in [1, 2] {
        for scope in Scope::ALL {
            for mut variant in [plain(Policy::QueueDepth, 3), exact(Policy::QueueDepth, 3)] {
                variant.parameters = Parameters { scope, ..variant.parameters };
                variant.io_queues = Some(io_queues);
                let books = run_variant(&scenario, &variant, 1).books;
                assert!(books.commands_lost > 0 && books.requests_ended > 500, "{books:?}");
            }
        }
    }
}
