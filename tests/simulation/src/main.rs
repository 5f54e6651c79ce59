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
    num::NonZeroUsize,
    ops::Range,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant,
};

use clap::Parser;

use self::oracle::Counts;

mod app;
mod breaks;
mod client;
mod cluster;
mod database;
mod health;
mod history;
mod operation;
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
    /// Runs each history twice, and reports whether the second differs from the first.
    #[arg(long)]
    twice: bool,
    /// Ends soon after the first violation.
    #[arg(long)]
    until_found: bool,
    /// Runs the simulation with deliberately broken code, and reports whether it finds each break.
    #[arg(long)]
    breaks: bool,
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
    if arguments.breaks {
        return ExitCode::from(u8::from(!breaks::run_all()));
    }
    let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = arguments.threads.unwrap_or_else(cores);
    let started = Instant::now();
    let seeds = arguments.first..arguments.first + arguments.seeds;
    let Summary { failed, counts } =
        run_all(seeds, threads, arguments.twice, arguments.until_found);
    let seconds = started.elapsed().as_secs_f64();
    println!("{} histories in {seconds:.0} s; {failed} with a violation", arguments.seeds);
    println!("in all: {counts:?}");
    ExitCode::from(u8::from(failed > 0))
}

/// The result of many histories.
#[derive(Default)]
struct Summary {
    failed: u64,
    counts: Counts,
}

/// Runs the histories of these seeds, and prints the first violation of each that has one.
fn run_all(seeds: Range<u64>, threads: usize, twice: bool, until_found: bool) -> Summary {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut summary = Summary::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return summary;
            }
            let mut report = history::run(seed, false);
            if twice && history::run(seed, false).hash != report.hash {
                report.violations.push("the same seed leads to another history".to_owned());
            }
            summary.counts += report.counts;
            if let Some(first) = report.violations.first() {
                summary.failed += 1;
                if until_found {
                    next.store(seeds.end, Ordering::Relaxed);
                }
                println!("seed {seed}: {first}");
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().fold(Summary::default(), |mut all, worker| {
            let one = worker.join().expect("a history does not panic");
            all.failed += one.failed;
            all.counts += one.counts;
            all
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of histories that the ordinary tests run.
    const SEEDS: u64 = 2_000;

    #[test]
    fn no_history_violates_an_invariant() {
        let summary = run_all(0..SEEDS, 2, false, false);
        assert_eq!(summary.failed, 0);
        let Counts { runs, takeovers, fenced, replays, held, effects, deferred, compared, .. } =
            summary.counts;
        println!("{:?}", summary.counts);
        // What the histories are for has happened often.
        for (count, least) in [
            (runs, 5_000),
            (takeovers, 200),
            (fenced, 1_000),
            (replays, 4_000),
            (held, 500),
            (effects, 2_000),
            (deferred, 20),
            (compared, 500),
        ] {
            assert!(count >= least, "{:?}", summary.counts);
        }
    }

    #[test]
    fn a_seed_determines_its_history() {
        let summary = run_all(0..SEEDS / 4, 2, true, false);
        assert_eq!(summary.failed, 0);
    }
}
