//! Compares the layer with the least that the same work can cost; see `benches/README.md`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark that fails stops"
)]
#![allow(clippy::indexing_slicing, reason = "a benchmark that fails stops")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "numbers are rounded for display"
)]

mod arguments;
mod compile;
mod counting;
mod cpu;
mod duration;
mod environment;
mod growth;
mod load;
mod measured;
mod neighbors;
mod open_loop;
mod plot;
mod purge;
mod records;
mod release;
mod report;
mod rows;
mod scale;
mod serve;
mod server;
mod soak;
mod spread;
mod table;

use arguments::{Arguments, Command};
use clap::Parser as _;

/// Runs the command that the arguments name. `counted` is the path of the program that counts
/// allocations.
pub fn main(counted: &str) {
    run(counted, None);
}

/// Runs the command in the program that counts allocations. `count` returns the number of
/// allocations and of allocated bytes so far.
pub fn counted_main(count: fn() -> (usize, usize)) {
    run("", Some(count));
}

fn run(counted: &str, count: Option<fn() -> (usize, usize)>) {
    match Arguments::parse().into_command() {
        Command::Table(options) => table::main(&options, counted),
        Command::Growth(options) => growth::main(&options),
        Command::OpenLoop(options) => open_loop::main(&options),
        Command::Scale(options) => scale::main(&options),
        Command::Records(options) => records::main(&options),
        Command::Neighbors(options) => neighbors::main(&options),
        Command::Purge(options) => purge::main(&options),
        Command::Compile(options) => compile::main(&options),
        Command::Soak(options) => soak::main(&options),
        Command::Serve(options) => serve::main(&options, count),
        Command::Load(options) => load::main(&options.plan),
    }
}
