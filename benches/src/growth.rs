//! How cost grows: with the size of answers, connections, duplicates, live leases, records; and how large a record is.

mod records;

use std::{fmt::Write as _, thread, time::Duration};

use crate::{
    arguments::Arguments,
    bed::{Bed, Kept},
    cpu,
    load::{Plan, Seen, Watched, Work},
    report,
    server::{self, Program, Server},
};

const STORES: [Kept; 4] = [Kept::Memory, Kept::Redis, Kept::Postgres, Kept::Sqlite];

/// What every part needs.
struct Growth {
    bed: Bed,
    seconds: Duration,
    stores: Vec<Kept>,
    quick: bool,
}

type Part = fn(&Growth) -> String;

/// Measures every part, or those that `--only` names, prints the tables and writes them.
pub(crate) fn main(arguments: &Arguments) {
    let quick = arguments.has("quick");
    let wanted = |store: &Kept| {
        arguments.all("store").next().is_none() || arguments.all("store").any(|name| name == store.name())
    };
    let growth = Growth {
        bed: Bed::new(),
        seconds: arguments.seconds("seconds", if quick { 0.7 } else { 2.0 }),
        stores: STORES.into_iter().filter(wanted).collect(),
        quick,
    };
    let parts: [(&str, Part); 6] = [
        ("answers", answers),
        ("connections", connections),
        ("duplicates", duplicates),
        ("leases", leases),
        ("bytes", records::bytes),
        ("records", records::records),
    ];
    let mut text = String::new();
    for (name, part) in parts {
        if arguments.all("only").next().is_none() || arguments.all("only").any(|only| only == name) {
            let table = part(&growth);
            println!("{table}");
            text += &table;
        }
    }
    report::save(if quick { "quick.growth.md" } else { "growth.md" }, &text);
}

/// A load on a server, and the store's process.
struct Step<'a> {
    kept: Kept,
    server: &'a Server,
    work: Work,
    connections: usize,
    seed: u64,
}

impl Growth {
    fn run(&self, step: &Step<'_>) -> Seen {
        let mut watched = vec![("server".to_owned(), step.server.process())];
        watched.extend(self.bed.process(step.kept).map(|process| ("store".to_owned(), process)));
        let warmup = self.seconds / 4;
        let (to, work, connections, duration) = (step.server.at, step.work, step.connections, self.seconds);
        let (requests, seeded, watched, seed) = (None, false, Watched(watched), step.seed);
        let awake = self.bed.process(step.kept).is_none() && cpu::can_pin();
        server::load(&Plan { to, work, connections, warmup, duration, requests, seed, seeded, watched, awake })
    }

    /// One run of a kind of server on an empty store.
    fn fresh(&self, kept: Kept, words: &[&str], work: Work, connections: usize) -> Seen {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let server = Server::start(&Program::Own(None, words), &self.bed.clean(kept));
        self.run(&Step { kept, server: &server, work, connections, seed: 1 })
    }
}

/// Where there is no store, the floor is the bare handler.
fn floor(kept: Kept) -> &'static str {
    if kept == Kept::Memory { "bare" } else { "floor" }
}

const BESIDE: &str =
    "layer /s | floor /s | share | layer p99 µs | floor p99 µs | layer processor µs | floor processor µs |";
const RULE: &str = "|---|---|---|---|---|---|---|---|---|\n";

fn beside(text: &mut String, kept: Kept, what: &str, layer: &Seen, floor: &Seen) {
    let cpu = |seen: &Seen| seen.cpu("server") + seen.cpu("store");
    let share = layer.rate() / floor.rate();
    let line = format!(
        "| {} | {what} | {:.0} | {:.0} | {share:.2} | {:.0} | {:.0} | {:.1} | {:.1} |",
        kept.name(),
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

fn answers(growth: &Growth) -> String {
    let mut text =
        format!("\n## Answers\n\nNew keys, 64 connections.\n\n| store | bytes of an answer | {BESIDE}\n{RULE}");
    for kept in growth.stores.iter().copied() {
        for size in [0, 1 << 10, 16 << 10, 128 << 10, 1 << 20] {
            let bytes = size.to_string();
            let run = |kind| growth.fresh(kept, &["--kind", kind, "--answer", &bytes], Work::Fresh, 64);
            beside(&mut text, kept, &bytes, &run("layer"), &run(floor(kept)));
        }
    }
    text
}

fn connections(growth: &Growth) -> String {
    let mut text =
        format!("\n## Connections\n\nNew keys, answers of 1 KiB.\n\n| store | connections | {BESIDE}\n{RULE}");
    for kept in growth.stores.iter().copied() {
        for connections in [1, 8, 64, 512] {
            let run = |kind| growth.fresh(kept, &["--kind", kind], Work::Fresh, connections);
            beside(&mut text, kept, &connections.to_string(), &run("layer"), &run(floor(kept)));
        }
    }
    text
}

fn duplicates(growth: &Growth) -> String {
    let mut text = "\n## Duplicates\n\nThe layer alone; 64 connections.\n\n| store | share that is sent again | /s | replayed | p50 µs | p99 µs | \
                    processor µs |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    for kept in growth.stores.iter().copied() {
        for share in [0.0, 0.3, 0.6, 0.9] {
            let seen = growth.fresh(kept, &["--kind", "layer"], Work::Mixed(share), 64);
            let replayed = seen.replayed as f64 / seen.requests as f64;
            assert!((replayed - share).abs() < 0.1, "{replayed} of the answers are replays, of {share} sent again");
            let cpu = seen.cpu("server") + seen.cpu("store");
            let [p50, p99, ..] = seen.latency;
            let rate = seen.rate();
            let _ = writeln!(
                text,
                "| {} | {share} | {rate:.0} | {replayed:.2} | {p50:.0} | {p99:.0} | {cpu:.1} |",
                kept.name()
            );
        }
    }
    text
}

/// Attempts at work under a lease of 3 s, each renewed every second.
fn leases(growth: &Growth) -> String {
    let mut text = "\n## Live leases under renewal\n\nAttempts at work with a lease of 3 s, so that each is renewed every second, while nothing else \
                    runs, and beside new keys on 64 connections.\n\n| store | live leases | server, % of a processor | store, % | \
                    /s beside them | p99 µs |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for kept in growth.stores.iter().copied().filter(|kept| *kept != Kept::Memory) {
        for leases in [10, 100, 1000, 10_000] {
            let words = ["--kind", "layer", "--leases", &leases.to_string()].map(String::from).to_vec();
            let server = Server::start(&Program::Own(None, words), &growth.bed.clean(kept));
            let processes = [Some(server.process()), growth.bed.process(kept)];
            let times = || processes.map(|process| process.map_or(Duration::ZERO, cpu::time_of_tree));
            let (before, idle) = (times(), Duration::from_secs(if growth.quick { 3 } else { 6 }));
            thread::sleep(idle);
            let after = times();
            let share = |at: usize| 100.0 * (after[at] - before[at]).as_secs_f64() / idle.as_secs_f64();
            let seen = growth.run(&Step { kept, server: &server, work: Work::Fresh, connections: 64, seed: 1 });
            let (renewing, storing, rate, p99) = (share(0), share(1), seen.rate(), seen.latency[1]);
            let _ =
                writeln!(text, "| {} | {leases} | {renewing:.1} | {storing:.1} | {rate:.0} | {p99:.0} |", kept.name());
        }
    }
    text
}
