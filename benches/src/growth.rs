//! How the cost of a request grows with response size, connections, duplicates, live leases and
//! records.

mod records;

use std::{fmt::Write as _, thread, time::Duration};

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
    quick: bool,
}

type Part = fn(&Growth) -> String;

const PARTS: [(&str, Part); 6] = [
    ("responses", response_sizes),
    ("connections", connections),
    ("duplicates", duplicates),
    ("leases", leases),
    ("bytes", records::bytes),
    ("records", records::records),
];

/// The options of `growth`
#[derive(Args)]
pub(crate) struct Options {
    /// Shorter runs, and fewer records
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
        quick,
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

/// A load on a running server.
struct Run<'a> {
    store: StoreKind,
    server: &'a Server,
    pattern: KeyPattern,
    connections: usize,
    seed: u64,
}

impl Growth {
    fn run(&self, run: &Run<'_>) -> Sample {
        server::load(&Plan {
            connections: run.connections,
            warmup: self.seconds / 4,
            duration: self.seconds,
            seed: run.seed,
            watched: self.environment.watched(run.store, run.server),
            busy_poll: self.environment.process(run.store).is_none() && cpu::can_pin(),
            ..Plan::new(run.server.at, run.pattern)
        })
    }

    /// Starts a server on an empty store, and runs a load on it.
    fn run_on_new_server(
        &self,
        store: StoreKind,
        words: &[&str],
        pattern: KeyPattern,
        connections: usize,
    ) -> Sample {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let server = Server::start(&Program::BuiltIn(None, words), &self.environment.clean(store));
        self.run(&Run { store, server: &server, pattern, connections, seed: 1 })
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
            let run = |kind| {
                growth.run_on_new_server(
                    store,
                    &["--kind", kind, "--response", &bytes],
                    KeyPattern::Fresh,
                    64,
                )
            };
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
            let run = |kind| {
                growth.run_on_new_server(store, &["--kind", kind], KeyPattern::Fresh, connections)
            };
            compare(&mut text, store, &connections.to_string(), &run("layer"), &run(floor(store)));
        }
    }
    text
}

fn duplicates(growth: &Growth) -> String {
    let mut text = "\n## Duplicates\n\nWithout a floor; 64 connections.\n\n\
                    | store | share of duplicates | /s | replayed | p50 µs | p99 µs | \
                    processor µs |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    for store in growth.stores.iter().copied() {
        for share in [0.0, 0.3, 0.6, 0.9] {
            let sample =
                growth.run_on_new_server(store, &["--kind", "layer"], KeyPattern::Mixed(share), 64);
            let replayed = sample.replayed as f64 / sample.requests as f64;
            assert!(
                (replayed - share).abs() < 0.1,
                "the share of replays is {replayed}, but that of duplicates is {share}"
            );
            let cpu = sample.cpu("server") + sample.cpu("store");
            let [p50, p99, ..] = sample.latency;
            let rate = sample.rate();
            let _ = writeln!(
                text,
                "| {} | {share} | {rate:.0} | {replayed:.2} | {p50:.0} | {p99:.0} | {cpu:.1} |",
                store.name()
            );
        }
    }
    text
}

/// The cost of renewing leases: attempts in flight with a lease of 3 s, each renewed every second.
fn leases(growth: &Growth) -> String {
    let mut text = "\n## Live leases under renewal\n\nAttempts in flight with a lease \
                    of 3 s, so that each is renewed every second: without a load, and with new \
                    keys on 64 connections.\n\n\
                    | store | live leases | server, % of a processor | store, % | \
                    /s of the load | p99 µs |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for store in growth.stores.iter().copied().filter(|store| *store != StoreKind::Memory) {
        for leases in [10, 100, 1000, 10_000] {
            let words =
                ["--kind", "layer", "--leases", &leases.to_string()].map(String::from).to_vec();
            let server =
                Server::start(&Program::BuiltIn(None, words), &growth.environment.clean(store));
            let processes = [Some(server.process()), growth.environment.process(store)];
            let times =
                || processes.map(|process| process.map_or(Duration::ZERO, cpu::time_of_tree));
            let (before, idle) = (times(), Duration::from_secs(if growth.quick { 3 } else { 6 }));
            thread::sleep(idle);
            let after = times();
            let share =
                |at: usize| 100.0 * (after[at] - before[at]).as_secs_f64() / idle.as_secs_f64();
            let sample = growth.run(&Run {
                store,
                server: &server,
                pattern: KeyPattern::Fresh,
                connections: 64,
                seed: 1,
            });
            let (renewing, storing, rate, p99) =
                (share(0), share(1), sample.rate(), sample.latency[1]);
            let _ = writeln!(
                text,
                "| {} | {leases} | {renewing:.1} | {storing:.1} | {rate:.0} | {p99:.0} |",
                store.name()
            );
        }
    }
    text
}
