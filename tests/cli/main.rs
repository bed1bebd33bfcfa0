//! Tests of the command line, in one program: each further one would have to be built and linked.

mod attributes;
mod bench;
mod bench_peer;
mod configuration;
mod configured_attributes;
mod configured_texts;
mod connect_all;
mod control_socket;
mod default_workers;
mod explain;
mod export_access;
mod hostile_text;
mod identity;
mod lab;
mod lab_report;
mod lab_results;
mod late_names;
mod listing;
mod namespace_files;
mod nbd_stale_socket;
mod no_memory;
mod service_manager;
mod top_frames;
mod usage;
