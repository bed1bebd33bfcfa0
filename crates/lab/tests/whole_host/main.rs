//! The whole host (control and shards) against the real target, in virtual time: one module per
//! behaviour, one test per statement that needs all of it. The wire between them is in view, and
//! rules on it play the peers and networks that our own target never is.

mod rig;
mod script;
mod setup;
mod wire;

mod accounting;
mod adversary;
mod all_paths_down;
mod ana_follow;
mod ana_table;
mod ana_truth;
mod answers_in_doubt;
mod crowd;
mod data_transfer;
mod digests;
mod doubted_paths;
mod explain;
mod failover;
mod fair_shares;
mod figures;
mod flush_fan_out;
mod freeze_quiesce;
mod full_socket;
mod io_affinity;
mod kernel_exact;
mod late_telling;
mod latency;
mod life_under_load;
mod namespace_changes;
mod one_way;
mod other_operations;
mod paths;
mod policy_switch;
mod probes;
mod queue_grants;
mod read_only;
mod requests;
mod rescue;
mod rescue_ends;
mod shared_queue;
mod shrinking_limits;
mod slow_flush;
mod slow_keep_alive;
mod split_queues;
mod stale_completion;
mod statuses;
mod steering;
mod suspended;
mod tag_exhaustion;
mod told_to_shut_down;
mod withdrawn;
