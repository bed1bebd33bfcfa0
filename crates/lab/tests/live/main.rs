//! Live runs, for function: what was asked for arrives, without errors, and nothing is left behind.
//! How fast is nowhere asserted; only where links of 4:1 make one policy carry more than twice of
//! what another does, that it carries more.

mod cells;
mod changes;
mod rig;
mod sessions;
