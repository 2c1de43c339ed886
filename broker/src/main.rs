//! The `corelog` command: reads the configuration, starts the shards, waits for signals.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use corelog_broker::check::Report;
use corelog_broker::config::cli::{Action, Cli, ServeArgs};
use corelog_broker::config::log_filter::LogFilter;
use corelog_broker::config::{Host, load};
use corelog_broker::export;
use corelog_broker::import::{self, ImportError};
use corelog_broker::start;
use tracing::{error, warn};
use tracing_subscriber::EnvFilter;

/// The configuration is wrong (also clap's code for a wrong command line).
const EXIT_CONFIG: u8 = 2;

fn main() -> ExitCode {
    match Cli::parse().into_action() {
        Action::Print(text) => {
            // A closed pipe (`| head`) is no failure.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Action::Refuse(text) => {
            say(&text.trim_end());
            ExitCode::from(EXIT_CONFIG)
        }
        Action::Check { args, json } => check_machine(&args, json),
        Action::Import(args) => convert(|out| import::run(&args, std::env::vars_os(), Host::of_this_machine(), out)),
        Action::Export(args) => convert(|out| export::run(&args, out)),
        Action::Serve(args) => {
            let loaded = match load::load(&args, std::env::vars_os(), Host::of_this_machine()) {
                Ok(loaded) => loaded,
                Err(problems) => {
                    say(&problems);
                    return ExitCode::from(EXIT_CONFIG);
                }
            };
            log_to_stderr(&loaded.log_filter);
            for warning in &loaded.warnings {
                warn!("{warning}");
            }
            match start::run(loaded.config) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => {
                    error!("{failure}");
                    ExitCode::from(failure.exit_code())
                }
            }
        }
    }
}

/// Prints what the machine has against a broker.
fn check_machine(args: &ServeArgs, json: bool) -> ExitCode {
    let loaded = match load::load(args, std::env::vars_os(), Host::of_this_machine()) {
        Ok(loaded) => loaded,
        Err(problems) => {
            say(&problems);
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    for warning in &loaded.warnings {
        say(&warning);
    }
    let report = Report::new(&loaded.config);
    let text = if json { report.json() } else { report.text() };
    // A closed pipe (`| head`) is no failure.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::from(report.exit_code())
}

/// Makes one data folder of another.
fn convert(work: impl FnOnce(&mut std::io::Stderr) -> Result<String, ImportError>) -> ExitCode {
    log_to_stderr(&LogFilter::default());
    match work(&mut std::io::stderr()) {
        Ok(text) => {
            // A closed pipe (`| head`) is no failure.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            say(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Says it on standard error. One that can't be written to (a closed pipe, a full disk) is no reason to die.
fn say(text: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "corelog: {text}");
}

/// What `CORELOG_LOG` asks for, on standard error.
fn log_to_stderr(filter: &LogFilter) {
    let filter = EnvFilter::new(filter.as_str());
    let colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Without its own complaints: it would print them where printing just failed, and that panics.
    log.with_target(false).with_ansi(colours).log_internal_errors(false).init();
}
