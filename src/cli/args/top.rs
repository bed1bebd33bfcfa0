//! `top`: what flows over which path, live.

use crate::top::state::delay;
use clap::Args;
use std::time::Duration;

/// Options of `top`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = long_help())]
pub struct Top {
    /// Only this device, such as nvme0n1
    #[arg(value_name = "DEVICE", value_parser = super::device)]
    pub device: Option<String>,
    /// Time between two looks, in seconds or with a unit: 100ms to 1h
    #[arg(
        short = 'd', long, value_name = "SECONDS", default_value = "1",
        value_parser = delay, allow_negative_numbers = true
    )]
    pub delay: Duration,
    /// End after so many frames [default: go on]
    #[arg(
        short = 'n', long, value_name = "N",
        value_parser = super::whole::<u64>(1, u64::MAX), allow_negative_numbers = true
    )]
    pub iterations: Option<u64>,
    /// Print one frame after the other as text, no terminal needed; -o json prints each as one line
    /// of JSON. COLUMNS sets the width
    #[arg(short = 'b', long)]
    pub batch: bool,
}

fn long_help() -> String {
    format!("Keys and columns:\n{}", crate::top::screen::HELP)
}
