//! Tests of policies, in one program: each further one would have to be built and linked.

mod charges;
mod device_mapper;
mod explained;
mod finish_time;
mod finish_time_bursts;
mod finish_time_limits;
mod finish_time_outliers;
mod finish_time_turns;
mod finish_time_unheard;
mod histogram;
mod historical;
mod instruction_snapshot;
mod kernel_exact;
mod latency_oracle;
mod latency_per_node;
mod latency_properties;
mod latency_statements;
mod measured;
mod model;
mod names;
mod policy_pages;
mod queue_depth;
mod selection_properties;
mod service_time;
mod statements;
mod support;
