//! The program `idempotency`. Its README describes the commands, the exit codes and the JSON.

use std::{io::Write as _, process::ExitCode};

use clap::Parser as _;

use self::{args::Arguments, failure::Failure, report::Report};

#[cfg(not(any(
    feature = "sqlite",
    feature = "postgres",
    feature = "mysql",
    feature = "redis",
    feature = "dynamodb"
)))]
compile_error!(
    "enable the feature of a store: `sqlite`, `postgres`, `mysql`, `redis`, `redis-tls` or \
     `dynamodb`"
);

mod args;
mod ask;
mod commands;
mod failure;
mod report;
mod select;
mod session;
mod text;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // There is nowhere to report that the message cannot be written.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let is_json = arguments.output.json;
    let code = match run(arguments) {
        Ok(report) => write_report(&report, is_json),
        Err(failure) => write_failure(&failure, is_json),
    };
    // Nothing waits for threads that still look up an address or wait for a server.
    std::process::exit(code.into())
}

fn run(arguments: Arguments) -> Result<Report, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::error("the program cannot start", &error))?;
    let result = runtime.block_on(commands::run(arguments));
    runtime.shutdown_background();
    result
}

/// Writes what a command has found. A reader that has seen enough is no error.
fn write_report(report: &Report, is_json: bool) -> u8 {
    let text = if is_json { format!("{:#}\n", report.json) } else { report.text.clone() };
    let mut out = anstream::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => 1,
        _ => report.exit_code,
    }
}

fn write_failure(failure: &Failure, is_json: bool) -> u8 {
    let text = if is_json { format!("{:#}\n", failure.json()) } else { failure.text() };
    // There is nowhere to report that the message cannot be written.
    let _ = anstream::stderr().write_all(text.as_bytes());
    failure.exit_code()
}
