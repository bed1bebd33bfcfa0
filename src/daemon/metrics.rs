//! What a running host counts, for Prometheus: `serve --metrics ADDR:PORT`.
//!
//! Each scrape is one look at the host through the same bounded mailbox as everyone's, with a time
//! limit, and is written from that look alone: nothing is counted here, and between scrapes nothing
//! runs. Scrapes at the same time share a look.

mod answer;
mod exposition;
mod families;
mod http;
mod look;
mod pace;
mod places;
mod plain;
mod server;

pub use exposition::{Format, exposition};
pub use http::MAX_HEAD_BYTES;
pub use look::{Look, Source, Unavailable};
pub use server::{BoundMetrics, Limits, MetricsServer};

use std::net::SocketAddr;

/// Where metrics are served, from its text.
///
/// # Errors
/// One sentence that says what would be right.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    super::listen::socket_address(text).map_err(|why| format!("the address {why}"))?.ok_or_else(
        || "ADDR:PORT is expected, in numbers, such as 127.0.0.1:9899 or [::1]:9899".to_owned(),
    )
}
