//! `top` as people run it: the program itself against a running host, as text, as JSON and on a
//! terminal.

mod batch;
mod stand;
mod terminal;
