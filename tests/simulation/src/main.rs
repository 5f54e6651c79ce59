//! Deterministic simulation of the shipped HTTP layer and runtime: several processes share a
//! database, and everything fails that can. A seed determines the whole history.
//!
//! `cargo run --release -p simulation -- --seeds 100000` runs that many histories on all cores.
//! `cargo run --release -p simulation -- --replay 4711` runs one of them and prints what happens.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant,
};

use clap::Parser;

mod app;
mod client;
mod cluster;
mod database;
mod history;
mod oracle;
mod process;
mod release;
mod store;
mod world;

/// Runs simulated histories.
#[derive(Parser)]
struct Arguments {
    /// How many histories are run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The seed of the first history.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// The number of threads; by default one for each core.
    #[arg(long)]
    threads: Option<usize>,
    /// Runs the history of one seed, and prints what happens.
    #[arg(long)]
    replay: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.replay {
        let report = history::run(seed, true);
        println!("{:?}", report.counts);
        report.violations.iter().for_each(|violation| println!("VIOLATION {violation}"));
        return ExitCode::from(u8::from(!report.violations.is_empty()));
    }
    let threads = arguments
        .threads
        .unwrap_or_else(|| thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get));
    let (next, end) = (AtomicU64::new(arguments.first), arguments.first + arguments.seeds);
    let started = Instant::now();
    let failed = thread::scope(|scope| {
        let worker = || {
            let mut failed = 0_u64;
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= end {
                    return failed;
                }
                let report = history::run(seed, false);
                if let Some(first) = report.violations.first() {
                    failed += 1;
                    println!("seed {seed}: {first}");
                }
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or(1)).sum::<u64>()
    });
    let seconds = started.elapsed().as_secs_f64();
    println!("{} histories in {seconds:.0} s; {failed} with a violation", arguments.seeds);
    ExitCode::from(u8::from(failed > 0))
}
