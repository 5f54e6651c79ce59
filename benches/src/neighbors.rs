//! What one slow row, and one dead connection, cost the requests with other keys.

use std::time::Duration;

use clap::Args;
use sqlx::postgres::PgConnectOptions;
use test_support::proxy::Proxy;
use tokio::runtime::Runtime;

use crate::{
    duration::seconds,
    environment::{Environment, StoreKind},
    load::{KeyPattern, Plan, Sample},
    report::{self, milliseconds, thousands},
    server::{self, Program, Server},
    spread::Spread,
};

/// Writing the record of about one of 16,384 keys takes seven seconds while the trigger is on.
const SLOW: &str = "CREATE OR REPLACE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF get_byte(NEW.id, 0) = 0 AND get_byte(NEW.id, 1) < 4 THEN PERFORM pg_sleep(7);\nEND IF;
        RETURN NEW;\nEND $$; \
    CREATE OR REPLACE TRIGGER be_slow BEFORE INSERT ON idempotency_records \
    FOR EACH ROW EXECUTE FUNCTION be_slow(); \
    ALTER TABLE idempotency_records DISABLE TRIGGER be_slow";

/// The options of `neighbors`
#[derive(Args)]
pub(crate) struct Options {
    /// Seconds per run
    #[arg(long, value_parser = seconds, default_value = "15")]
    seconds: Duration,
    /// Runs of each row
    #[arg(long, default_value_t = 3)]
    runs: u64,
}

/// What happens during a run.
#[derive(Clone, Copy, PartialEq)]
enum Disturbance {
    None,
    SlowRows,
    DeadConnection,
    Both,
}

impl Disturbance {
    const ALL: [(Self, &str); 4] = [
        (Self::None, "undisturbed"),
        (Self::SlowRows, "slow rows"),
        (Self::DeadConnection, "a dead connection"),
        (Self::Both, "both"),
    ];

    fn has_slow_rows(self) -> bool {
        matches!(self, Self::SlowRows | Self::Both)
    }

    fn has_dead_connection(self) -> bool {
        matches!(self, Self::DeadConnection | Self::Both)
    }
}

/// Measures new keys with each disturbance, with batches and without.
pub(crate) fn main(options: &Options) {
    let environment = Environment::new();
    let url = environment.clean(StoreKind::Postgres);
    environment.postgres().execute(&environment, SLOW);
    // The proxy, in front of the database, has a thread of its own.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.unwrap();
    let mut text = format!(
        "New keys in Postgres, 64 connections, {} s a run, through a proxy. A slow row is that of \
         one of 16,384 keys and takes 7 s; a connection to the database is dead, without an error, \
         from the third second on. Other: responses that are not 201.\n\n\
         | batches | | /s | p50 ms | p99 ms | slowest, ms | other |\n\
         |---|---|---|---|---|---|---|\n",
        options.seconds.as_secs()
    );
    for (kind, name) in [("layer", "yes"), ("layer-alone", "no")] {
        for (disturbance, described) in Disturbance::ALL {
            let runs: Vec<_> = (0..options.runs)
                .map(|run| {
                    measure(&environment, &runtime, &url, kind, disturbance, 1 + run, options)
                })
                .collect();
            let line = line(&format!("{name} | {described}"), &runs);
            eprint!("{line}");
            text += &line;
        }
    }
    println!("{text}");
    report::save("neighbors.md", &text);
}

fn measure(
    environment: &Environment,
    runtime: &Runtime,
    url: &str,
    kind: &str,
    disturbance: Disturbance,
    seed: u64,
    options: &Options,
) -> Sample {
    environment.clean(StoreKind::Postgres);
    let postgres = environment.postgres();
    let (proxy, proxied) = proxied(runtime, url);
    let words = ["--kind", kind].map(String::from).to_vec();
    let server = Server::start(&Program::BuiltIn(None, words), &proxied);
    let switch = if disturbance.has_slow_rows() { "ENABLE" } else { "DISABLE" };
    let trigger = format!("ALTER TABLE idempotency_records {switch} TRIGGER be_slow");
    postgres.execute(environment, &trigger);
    let plan = Plan::new(server.at, KeyPattern::Fresh);
    let warmup = Duration::from_secs(1);
    let load = server::start_load(&Plan { warmup, duration: options.seconds, seed, ..plan });
    if disturbance.has_dead_connection() {
        std::thread::sleep(Duration::from_secs(3));
        proxy.silence_next();
    }
    server::finish(load)
}

/// A proxy in front of the database, and its URL.
fn proxied(runtime: &Runtime, url: &str) -> (Proxy, String) {
    let options: PgConnectOptions = url.parse().unwrap();
    let proxy = runtime.block_on(Proxy::in_front_of(options.get_host(), options.get_port()));
    let address = format!("{}:{}", options.get_host(), options.get_port());
    let proxied = url.replace(&address, &format!("127.0.0.1:{}", proxy.port));
    (proxy, proxied)
}

fn line(name: &str, runs: &[Sample]) -> String {
    let median = |of: &dyn Fn(&Sample) -> f64| Spread::of(runs.iter().map(of)).median;
    let rate = thousands(median(&Sample::rate));
    let [p50, p99, slowest] =
        [0, 1, 3].map(|at| milliseconds(median(&|sample| sample.latency[at])));
    let other: u64 = runs
        .iter()
        .flat_map(|run| &run.statuses)
        .filter(|(status, _)| **status != 201)
        .map(|(_, count)| *count)
        .sum();
    format!("| {name} | {rate} | {p50} | {p99} | {slowest} | {other} |\n")
}
