//! Tests of the runtime, in one program: each further one would have to be built and linked.

mod closing;
mod disk;
mod group;
mod handover;
mod idle;
mod interface;
mod listening;
mod mail;
mod options;
mod pause;
mod receive_into;
mod refused;
mod stop;
mod stream;
mod support;
mod timers;
mod topology;
mod unix_socket;
