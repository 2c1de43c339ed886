//! The command `corelog-bench`. Holds: nothing but the way in; see the library for the rooms.

use std::process::ExitCode;

use clap::Parser;
use corelog_bench::cli::Cli;

fn main() -> ExitCode {
    match corelog_bench::run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corelog-bench: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
