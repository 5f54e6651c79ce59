//! The latency of claims while four purgers remove a million expired records.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use idempotent_actix::store::{PostgresStore, Store as _};

use crate::{
    duration::seconds,
    environment::{Environment, StoreKind},
    load::{KeyPattern, Plan, Sample, Watched},
    report,
    server::{self, Program, Server},
    spread::Spread,
};

const PURGERS: usize = 4;
/// The batch size and the pauses are those of the purger in the runtime.
const BATCH: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);
const REST: u32 = 4;

/// Inserts expired records with a response of 1 KiB.
pub(crate) const EXPIRED: &str = "INSERT INTO idempotency_records \
    (id, fingerprint, owner, attempt, lease, lease_until, first_seen, expires_at, state, \
    abandoned, recording) \
    SELECT sha256(int8send(i)), decode(repeat('07', 36), 'hex'), \
    decode(repeat('08', 16), 'hex'), 1, 1, 1, 1, 2 + i % 1000, 2, 0, \
    decode(repeat('ab', 1024), 'hex') FROM generate_series(1::bigint, {count}) AS i";

const LIVE: &str = "SELECT count(*) FROM idempotency_records WHERE expires_at > 1000000";

/// The options of `purge`
#[derive(Args)]
pub(crate) struct Options {
    /// Expired records before the first run
    #[arg(long, default_value_t = 1_000_000)]
    records: i64,
    /// Seconds per run
    #[arg(long, value_parser = seconds, default_value = "8")]
    seconds: Duration,
    /// Runs without purgers, and runs with purgers
    #[arg(long, default_value_t = 3)]
    runs: u64,
}

/// Measures claims without and with purgers in turn, and counts the removed records.
pub(crate) fn main(options: &Options) {
    let (environment, count) = (Environment::new(), options.records);
    let url = environment.clean(StoreKind::Postgres);
    let postgres = environment.postgres();
    let started = Instant::now();
    postgres.execute(&environment, &EXPIRED.replace("{count}", &count.to_string()));
    postgres.execute(&environment, "VACUUM ANALYZE idempotency_records; CHECKPOINT");
    eprintln!("inserted {count} expired records in {:.0} s", started.elapsed().as_secs_f64());

    let server = Server::start(
        &Program::BuiltIn(None, ["--kind", "layer"].map(String::from).to_vec()),
        &url,
    );
    let seconds = options.seconds;
    let load = |seed, seconds| run(&server, seed, seconds);
    load(1, Duration::from_secs(2));
    let (mut without, mut with, mut removed) = (Vec::new(), Vec::new(), vec![0; PURGERS]);
    for turn in 0..options.runs {
        without.push(load(10 + turn, seconds));
        let (sample, by_purger) = while_purging(&url, || load(20 + turn, seconds));
        with.push(sample);
        removed.iter_mut().zip(by_purger).for_each(|(sum, more)| *sum += more);
    }
    let live = postgres.number(&environment, LIVE);
    let completed = postgres.number(
        &environment,
        "SELECT count(*) FROM idempotency_records WHERE state = 2 AND expires_at > 1000000",
    );
    let left = postgres.number(
        &environment,
        "SELECT count(*) FROM idempotency_records WHERE expires_at <= 1000000",
    );
    let sum: u64 = removed.iter().sum();
    assert_eq!(
        sum + left.unsigned_abs(),
        count.unsigned_abs(),
        "each expired record was removed by exactly one purger, or still exists"
    );
    assert!(removed.iter().all(|removed| *removed > 0), "a purger removed no record: {removed:?}");
    let sent: u64 = without.iter().chain(&with).map(|sample| sample.requests).sum();
    assert!(
        live.unsigned_abs() >= sent && completed == live,
        "a live record is missing or not completed"
    );
    let text = report(&without, &with, &removed, left, live);
    println!("{text}");
    report::save("purge.md", &text);
}

fn run(server: &Server, seed: u64, duration: Duration) -> Sample {
    let watched = Watched(vec![("server".into(), server.process())]);
    let plan = Plan::new(server.at, KeyPattern::Fresh);
    // Few connections: with more, latency would mostly be time in the queue of the load.
    server::load(&Plan { connections: 8, duration, seed, watched, ..plan })
}

/// Runs four purgers, each on a separate connection, while `work` runs. Returns the number of
/// records that each purger removed.
fn while_purging<T>(url: &str, work: impl FnOnce() -> T) -> (T, Vec<u64>) {
    let done = Arc::new(AtomicBool::new(false));
    let purgers: Vec<_> = (0..PURGERS)
        .map(|_| {
            let (url, done) = (url.to_owned(), done.clone());
            thread::spawn(move || purge(&url, &done))
        })
        .collect();
    let sample = work();
    done.store(true, Ordering::Relaxed);
    (sample, purgers.into_iter().map(|purger| purger.join().unwrap()).collect())
}

fn purge(url: &str, done: &AtomicBool) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (store, mut removed) = (PostgresStore::connect(url).await.unwrap(), 0);
        while !done.load(Ordering::Relaxed) {
            let began = Instant::now();
            removed += store.purge(BATCH).await.unwrap();
            tokio::time::sleep(PAUSE.max(began.elapsed() * REST)).await;
        }
        removed
    })
}

fn report(without: &[Sample], with: &[Sample], removed: &[u64], left: i64, live: i64) -> String {
    let spread = |sample: &[Sample], of: fn(&Sample) -> f64| Spread::of(sample.iter().map(of));
    let ratio = Spread::of(
        without.iter().zip(with).map(|(without, with)| with.latency[1] / without.latency[1]),
    );
    let line = |name: &str, sample: &[Sample]| {
        let (rate, p50) = (
            spread(sample, Sample::rate).median,
            spread(sample, |sample| sample.latency[0]).median,
        );
        format!(
            "| {name} | {rate:.0} | {p50:.0} | {:.0} |\n",
            spread(sample, |sample| sample.latency[1]).median
        )
    };
    format!(
        "| new keys in Postgres, 8 connections | /s | p50 µs | p99 µs |\n\
         |---|---|---|---|\n{}{}\n\
         p99 with {PURGERS} purgers ÷ p99 without purgers: **{ratio}** (goal: below 2). \
         Removed by each: {removed:?}; expired records left: {left}; \
         live records: {live}, each with its response.\n",
        line("without purgers", without),
        line("with four purgers", with)
    )
}
