//! How close the layer is to the least that the work can cost. `benches/README.md` says what is measured, and how.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on stops")]
#![allow(clippy::indexing_slicing, reason = "a mistake stops the benchmark")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "numbers are rounded to be read"
)]

mod arguments;
mod bed;
mod compile;
mod counting;
mod cpu;
mod databases;
mod growth;
mod load;
mod micro;
mod plot;
mod purge;
mod report;
mod rows;
mod serve;
mod server;
mod soak;
mod table;

use arguments::Arguments;

/// Runs the command that the process was started with. `counted` is the program that counts allocations.
pub fn main(counted: &str) {
    run(counted, None);
}

/// The same for the program that counts allocations itself: `count` gives how many there were so far, and their bytes.
pub fn counted_main(count: fn() -> (usize, usize)) {
    run("", Some(count));
}

fn run(counted: &str, count: Option<fn() -> (usize, usize)>) {
    let arguments = Arguments::of_process();
    match arguments.command() {
        "serve" => serve::main(&arguments, count),
        "load" => load::main(&arguments),
        "compile" => compile::main(&arguments),
        "growth" => growth::main(&arguments),
        "micro" => micro::main(counted),
        "micro-counts" => micro::counts(count.expect("the program that counts")),
        "purge" => purge::main(&arguments),
        "soak" => soak::main(&arguments),
        "table" => table::main(&arguments, counted),
        other => {
            eprintln!("`{other}` is none of table, growth, micro, compile, purge, soak; see benches/README.md");
            std::process::exit(2);
        }
    }
}
