//! What Prometheus reads of a running host: the text, its figures, and the server that gives it.

mod daemon;
mod documented;
mod figures;
mod hostile;
mod http;
mod looks;
mod stand;
mod text;
