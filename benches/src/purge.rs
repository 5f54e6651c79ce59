//! A million expired records removed by four purgers beside live load.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use idempotent_actix::store::{PostgresStore, Store as _};

use crate::{
    arguments::Arguments,
    bed::{Bed, Kept},
    load::{Plan, Seen, Watched, Work},
    report,
    server::{self, Program, Server},
};

const PURGERS: usize = 4;
/// As the runtime's own purger has it; so are the pauses, since a batch takes longer than its turn here.
const BATCH: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);
const REST: u32 = 4;

/// Expired records with an answer of 1 KiB.
pub(crate) const EXPIRED: &str = "INSERT INTO idempotency_records \
    (id, fingerprint, owner, attempt, lease, lease_until, first_seen, expires_at, state, abandoned, recording) \
    SELECT sha256(int8send(i)), decode(repeat('07', 36), 'hex'), decode(repeat('08', 16), 'hex'), 1, 1, 1, 1, 2 + i % 1000, 2, 0, \
    decode(repeat('ab', 1024), 'hex') FROM generate_series(1::bigint, {count}) AS i";

const LIVE: &str = "SELECT count(*) FROM idempotency_records WHERE expires_at > 1000000";

/// Measures claims without and beside purgers, in turn, and what was removed.
pub(crate) fn main(arguments: &Arguments) {
    let (bed, count) = (Bed::new(), arguments.number("records", 1_000_000_i64));
    let url = bed.clean(Kept::Postgres);
    let postgres = bed.postgres();
    let started = Instant::now();
    postgres.execute(&bed, &EXPIRED.replace("{count}", &count.to_string()));
    postgres.execute(&bed, "VACUUM ANALYZE idempotency_records; CHECKPOINT");
    eprintln!("{count} expired records after {:.0} s", started.elapsed().as_secs_f64());

    let server = Server::start(&Program::Own(None, ["--kind", "layer"].map(String::from).to_vec()), &url);
    let seconds = arguments.seconds("seconds", 8.0);
    let load = |seed, seconds| run(&server, seed, seconds);
    load(1, Duration::from_secs(2));
    let (mut alone, mut beside, mut removed) = (Vec::new(), Vec::new(), vec![0; PURGERS]);
    for turn in 0..arguments.number("runs", 3) {
        alone.push(load(10 + turn, seconds));
        let (seen, by_purger) = while_purging(&url, || load(20 + turn, seconds));
        beside.push(seen);
        removed.iter_mut().zip(by_purger).for_each(|(sum, more)| *sum += more);
    }
    let live = postgres.number(&bed, LIVE);
    let answered =
        postgres.number(&bed, "SELECT count(*) FROM idempotency_records WHERE state = 2 AND expires_at > 1000000");
    let left = postgres.number(&bed, "SELECT count(*) FROM idempotency_records WHERE expires_at <= 1000000");
    let sum: u64 = removed.iter().sum();
    assert_eq!(sum + left.unsigned_abs(), count.unsigned_abs(), "each record was removed by one purger, or is left");
    assert!(removed.iter().all(|removed| *removed > 0), "every purger had its part: {removed:?}");
    let sent: u64 = alone.iter().chain(&beside).map(|seen| seen.requests).sum();
    assert!(live.unsigned_abs() >= sent && answered == live, "live records are there, and all have their answer");
    let text = report(&alone, &beside, &removed, left, live);
    println!("{text}");
    report::save("purge.md", &text);
}

fn run(server: &Server, seed: u64, duration: Duration) -> Seen {
    let (work, watched) = (Work::Fresh, Watched(vec![("server".into(), server.process())]));
    let (warmup, requests, seeded) = (Duration::ZERO, None, false);
    // Few enough that the machine has room for both, or the load would only measure its own queue.
    let plan =
        Plan { to: server.at, work, connections: 8, warmup, duration, requests, seed, seeded, watched, awake: false };
    server::load(&plan)
}

/// Runs four purgers, each with a connection of its own, until the work is done; says how many records each has removed.
fn while_purging<T>(url: &str, work: impl FnOnce() -> T) -> (T, Vec<u64>) {
    let done = Arc::new(AtomicBool::new(false));
    let purgers: Vec<_> = (0..PURGERS)
        .map(|_| {
            let (url, done) = (url.to_owned(), done.clone());
            thread::spawn(move || purge(&url, &done))
        })
        .collect();
    let seen = work();
    done.store(true, Ordering::Relaxed);
    (seen, purgers.into_iter().map(|purger| purger.join().unwrap()).collect())
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

fn report(alone: &[Seen], beside: &[Seen], removed: &[u64], left: i64, live: i64) -> String {
    let spread = |seen: &[Seen], of: fn(&Seen) -> f64| report::Spread::of(seen.iter().map(of));
    let ratio =
        report::Spread::of(alone.iter().zip(beside).map(|(alone, beside)| beside.latency[1] / alone.latency[1]));
    let line = |name: &str, seen: &[Seen]| {
        let (rate, p50) = (spread(seen, Seen::rate).median, spread(seen, |seen| seen.latency[0]).median);
        format!("| {name} | {rate:.0} | {p50:.0} | {:.0} |\n", spread(seen, |seen| seen.latency[1]).median)
    };
    format!(
        "| new keys in Postgres, 8 connections | /s | p50 µs | p99 µs |\n|---|---|---|---|\n{}{}\n\
         p99 beside {PURGERS} purgers ÷ alone: **{ratio}** (goal: below 2). Removed by each: {removed:?}; expired and left: {left}; live \
         records: {live}, every one with its answer.\n",
        line("alone", alone),
        line("beside four purgers", beside)
    )
}
