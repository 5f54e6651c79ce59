//! How the cost of a request grows with response size and connections, and the size of a record.

use std::{fmt::Write as _, fs, time::Duration};

use clap::Args;

use crate::{
    cpu,
    duration::seconds,
    environment::{Environment, StoreKind},
    load::{KeyPattern, Plan, Sample},
    report,
    server::{self, Program, Server},
};

/// What all parts of the benchmark use.
struct Growth {
    environment: Environment,
    seconds: Duration,
    stores: Vec<StoreKind>,
}

type Part = fn(&Growth) -> String;

const PARTS: [(&str, Part); 3] =
    [("responses", response_sizes), ("connections", connections), ("bytes", bytes)];

/// The options of `growth`
#[derive(Args)]
pub(crate) struct Options {
    /// Shorter runs
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seconds per run; 2 by default, or 0.7 if quick
    #[arg(long, value_parser = seconds)]
    seconds: Option<Duration>,
    /// Only this store; may be repeated
    #[arg(long)]
    store: Vec<StoreKind>,
    /// Only this part; may be repeated
    #[arg(long, value_parser = PARTS.map(|(name, _)| name))]
    only: Vec<String>,
}

/// Measures every part, or those that `--only` names, prints the tables and writes them.
pub(crate) fn main(options: &Options) {
    let quick = options.quick;
    let growth = Growth {
        environment: Environment::new(),
        seconds: options.seconds.unwrap_or(Duration::from_millis(if quick { 700 } else { 2000 })),
        stores: StoreKind::select(&options.store),
    };
    let mut text = String::new();
    for (name, part) in PARTS {
        if options.only.is_empty() || options.only.iter().any(|only| only == name) {
            let table = part(&growth);
            println!("{table}");
            text += &table;
        }
    }
    report::save(if quick { "quick.growth.md" } else { "growth.md" }, &text);
}

impl Growth {
    /// Starts a server on an empty store, and runs a load of new keys on it.
    fn run(&self, store: StoreKind, words: &[&str], connections: usize) -> Sample {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let server = Server::start(&Program::BuiltIn(None, words), &self.environment.clean(store));
        server::load(&Plan {
            connections,
            warmup: self.seconds / 4,
            duration: self.seconds,
            watched: self.environment.watched(store, &server),
            busy_poll: self.environment.process(store).is_none() && cpu::can_pin(),
            ..Plan::new(server.at, KeyPattern::Fresh)
        })
    }
}

/// The kind of server that the layer is compared with. With the memory store it is the bare
/// handler.
fn floor(store: StoreKind) -> &'static str {
    if store == StoreKind::Memory { "bare" } else { "floor" }
}

/// The columns of a table that compares the layer with the floor.
const COLUMNS: &str = "layer /s | floor /s | share | layer p99 µs | floor p99 µs | \
    layer processor µs | floor processor µs |";
const RULE: &str = "|---|---|---|---|---|---|---|---|---|\n";

/// Adds a row that compares the layer with the floor, for one value of the parameter.
fn compare(text: &mut String, store: StoreKind, parameter: &str, layer: &Sample, floor: &Sample) {
    let cpu = |sample: &Sample| sample.cpu("server") + sample.cpu("store");
    let share = layer.rate() / floor.rate();
    let line = format!(
        "| {} | {parameter} | {:.0} | {:.0} | {share:.2} | {:.0} | {:.0} | {:.1} | {:.1} |",
        store.name(),
        layer.rate(),
        floor.rate(),
        layer.latency[1],
        floor.latency[1],
        cpu(layer),
        cpu(floor)
    );
    eprintln!("{line}");
    let _ = writeln!(text, "{line}");
}

fn response_sizes(growth: &Growth) -> String {
    let mut text = format!(
        "\n## Response size\n\nNew keys, 64 connections.\n\n\
         | store | bytes of a response | {COLUMNS}\n{RULE}"
    );
    for store in growth.stores.iter().copied() {
        // The layer does not record responses with more than 1 MiB of headers and body.
        for size in [0, 1 << 10, 16 << 10, 128 << 10, 1_000_000] {
            let bytes = size.to_string();
            let run = |kind| growth.run(store, &["--kind", kind, "--response", &bytes], 64);
            compare(&mut text, store, &bytes, &run("layer"), &run(floor(store)));
        }
    }
    text
}

fn connections(growth: &Growth) -> String {
    let mut text = format!(
        "\n## Connections\n\nNew keys, responses of 1 KiB.\n\n\
         | store | connections | {COLUMNS}\n{RULE}"
    );
    for store in growth.stores.iter().copied() {
        for connections in [1, 4, 16, 64, 512] {
            let run = |kind| growth.run(store, &["--kind", kind], connections);
            compare(&mut text, store, &connections.to_string(), &run("layer"), &run(floor(store)));
        }
    }
    text
}

/// The size of a record in each store, compared with the size of its response.
fn bytes(growth: &Growth) -> String {
    const RECORDS: u64 = 50_000;
    let mut text = "\n## Bytes per record\n\nMeasured with 50,000 keys sent through the layer.\n\n\
        | store | bytes of a response | bytes per record | times the response |\n\
        |---|---|---|---|\n"
        .to_owned();
    for store in growth.stores.iter().copied() {
        for size in [0_u64, 1024] {
            // `--records` is the limit of the memory store; the other stores ignore it.
            let words = ["--kind", "layer", "--response", &size.to_string(), "--records", "100000"]
                .map(String::from);
            let words = words.to_vec();
            let server =
                Server::start(&Program::BuiltIn(None, words), &growth.environment.clean(store));
            let send = |requests, seed| {
                let plan = Plan::new(server.at, KeyPattern::Fresh);
                server::load(&Plan { requests: Some(requests), seed, ..plan })
            };
            send(1000, 1);
            let before = used_bytes(growth, store, &server);
            let sample = send(RECORDS, 2);
            assert_eq!(sample.statuses.get(&201), Some(&RECORDS));
            let each = (used_bytes(growth, store, &server) - before) as f64 / RECORDS as f64;
            let times = if size == 0 { "–".into() } else { format!("{:.2}", each / size as f64) };
            let _ = writeln!(text, "| {} | {size} | {each:.0} | {times} |", store.name());
        }
    }
    text
}

/// The bytes that the store uses.
fn used_bytes(growth: &Growth, store: StoreKind, server: &Server) -> u64 {
    match store {
        StoreKind::Memory => cpu::resident_bytes(server.process()),
        StoreKind::Redis => {
            growth.environment.redis().info("used_memory").unwrap().parse().unwrap()
        }
        StoreKind::Postgres => {
            let size = "SELECT pg_total_relation_size('idempotency_records')";
            growth.environment.postgres().number(&growth.environment, size).unsigned_abs()
        }
        #[cfg(feature = "mysql")]
        StoreKind::MySql => {
            let size = "SELECT file_size FROM information_schema.innodb_sys_tablespaces \
                WHERE name = 'benches/idempotency_records'";
            growth.environment.mysql().number(&growth.environment, size).unsigned_abs()
        }
        StoreKind::Sqlite => growth.environment.wait(async {
            let pool = sqlx::SqlitePool::connect(&format!(
                "sqlite:{}",
                growth.environment.file().display()
            ))
            .await
            .unwrap();
            sqlx::raw_sql("PRAGMA wal_checkpoint(FULL)").execute(&pool).await.unwrap();
            pool.close().await;
            fs::metadata(growth.environment.file()).unwrap().len()
        }),
    }
}
