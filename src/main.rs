//! The `anabranch` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    anabranch::cli::main()
}
