//! Where I/O goes over real TCP: target and host in one process, on loopback.

mod stand;

#[path = "../../crates/lab/tests/whole_host/ana_table.rs"]
mod ana_table;
mod tunables;

mod ana_truth;
mod explain;
mod in_flight;
mod latency_weights;
mod size_buckets;
mod standby;
mod storm;
