//! Tests of the target, in one program: each further one would have to be built and linked.

mod ana;
mod commands;
mod common;
mod connect;
mod damage;
mod discovery;
mod event_kinds;
mod failed_flushes;
mod faults;
mod file_backend;
mod file_order;
mod fuzz_commands;
mod keep_alive;
mod link_model;
mod namespaces;
mod orders;
mod shaping;
mod shared_memory;
mod turns;
