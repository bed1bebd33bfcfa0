//! The control half of the host against a scripted controller, in virtual time: one module per
//! behaviour. The statements B and M in the names are those of the multipath reference.

mod fake;
mod rig;

mod connect;
