//! Scenarios, load, evaluation and the NBD client, in one program: each further
//! one would have to be built and linked.

mod bare_exchange;
mod evaluate;
mod finish_time_nasty;
mod hundred_hosts;
mod load_abandoned;
mod nbd_load;
mod scenario_find;
mod scenario_fio;
mod scenario_fuzz;
mod scenario_library;
mod scenario_mistakes;
mod scenario_random;
