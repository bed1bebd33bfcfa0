//! The control half of the host against a scripted controller, in virtual time: one module per
//! behaviour. The statements B and M in the names are those of the multipath reference, C of the
//! bad-input catalogue.

mod ana;
mod ana_parts;
mod ana_random;
mod attributes;
mod bad_input;
mod callers;
mod come_back;
mod configured;
mod connect;
mod contradicted;
mod devices;
mod discovery;
mod events;
mod fake;
mod first_look;
mod fuzz;
mod identity;
mod keep_alive;
mod life;
mod lost_queue;
mod many;
mod news;
mod policies;
mod refused;
mod removal;
mod renaming;
mod renumbered;
mod rig;
mod served;
mod sizes;
mod sizes_upheld;
mod storm;
mod twins;
