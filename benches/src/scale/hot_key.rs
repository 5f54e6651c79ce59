//! One key from 512 clients of four processes.

use super::{Fleet, Scale, Setup};
use crate::{
    environment::StoreKind,
    load::{KeyPattern, Sample},
    report::{milliseconds, thousands},
    spread::Spread,
};

const PROCESSES: usize = 4;
/// Connections of the load to each process.
const CONNECTIONS: usize = 128;

/// All requests are replays of one key.
const REPLAYS: Setup = Setup { processes: PROCESSES, name: "replays", words: &["--kind", "layer"] };
/// First requests: each round sends one new key on all connections at the same time.
const FIRST: [Setup; 2] = [
    Setup { processes: PROCESSES, name: "no duplicate waits", words: &["--kind", "layer-slow"] },
    Setup {
        processes: PROCESSES,
        name: "all duplicates wait",
        words: &["--kind", "layer-slow", "--waiters", "512"],
    },
];

const FIRST_HEAD: &str = "\nFirst requests: all clients send the same new key at the same time; \
    the handler takes 50 ms. In each round it runs once. The other requests get 409, or wait and \
    get a replay; latencies are those of all requests.\n\n\
    | store | duplicates | rounds | runs of the handler | replays | 409 | p50 ms | p99 ms \
    | slowest, ms |\n|---|---|---|---|---|---|---|---|---|\n";

/// Measures replays and first requests of a hot key.
pub(super) fn tables(scale: &Scale) -> String {
    let clients = PROCESSES * CONNECTIONS;
    let mut text = format!(
        "\n## A hot key\n\n{clients} clients with one principal, {PROCESSES} processes. Replays \
         of one key:\n\n\
         | store | /s | p50 ms | p99 ms | connections |\n|---|---|---|---|---|\n"
    );
    for store in scale.stores.iter().copied() {
        text += &replays(scale, store);
    }
    text += FIRST_HEAD;
    for store in scale.stores.iter().copied() {
        text.extend(FIRST.map(|setup| first(scale, store, setup)));
    }
    text
}

fn replays(scale: &Scale, store: StoreKind) -> String {
    let runs: Vec<_> = (0..scale.runs)
        .map(|_| {
            let fleet = Fleet::start(scale, store, REPLAYS);
            let (sample, connections) =
                fleet.load(scale, KeyPattern::Replays(1), CONNECTIONS, false);
            assert_eq!(sample.statuses, [(201, sample.requests)].into());
            assert_eq!(sample.replayed, sample.requests, "number of replays");
            (sample, connections)
        })
        .collect();
    let median =
        |of: &dyn Fn(&Sample) -> f64| Spread::of(runs.iter().map(|(run, _)| of(run))).median;
    let rate = thousands(median(&Sample::rate));
    let [p50, p99] = [0, 1].map(|at| milliseconds(median(&|sample| sample.latency[at])));
    let most = runs.iter().map(|(_, connections)| *connections).max().unwrap_or(0);
    let line = format!("| {} | {rate} | {p50} | {p99} | {most} |\n", store.name());
    eprint!("{line}");
    line
}

fn first(scale: &Scale, store: StoreKind, setup: Setup) -> String {
    let fleet = Fleet::start(scale, store, setup);
    let (sample, _) = fleet.load(scale, KeyPattern::Together, CONNECTIONS, false);
    let rounds = sample.requests / (PROCESSES * CONNECTIONS) as u64;
    let count = |status: u16| sample.statuses.get(&status).copied().unwrap_or(0);
    let (created, in_flight) = (count(201), count(409));
    let ran = created - sample.replayed;
    assert_eq!(created + in_flight, sample.requests, "other statuses: {:?}", sample.statuses);
    assert_eq!(ran, rounds, "the handler runs once in each round");
    let [p50, p99, _, slowest] = sample.latency.map(milliseconds);
    let line = format!(
        "| {} | {} | {rounds} | {ran} | {} | {in_flight} | {p50} | {p99} | {slowest} |\n",
        store.name(),
        setup.name,
        sample.replayed
    );
    eprint!("{line}");
    line
}
