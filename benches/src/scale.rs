//! Several server processes on one store: throughput, and the connections that they need.

mod fleet;

use std::time::Duration;

use clap::Args;

use self::fleet::Fleet;
use crate::{
    cpu,
    duration::seconds,
    environment::{Environment, StoreKind},
    load::Sample,
    report::{self, milliseconds, thousands},
    spread::Spread,
};

/// Connections of the load to each process.
const CONNECTIONS: usize = 64;

/// The options of `scale`
#[derive(Args)]
pub(crate) struct Options {
    /// Shorter runs, and fewer of them
    #[arg(long)]
    pub(crate) quick: bool,
    /// Runs of each fleet; 3 by default, or 1 if quick
    #[arg(long)]
    pub(crate) runs: Option<usize>,
    /// Seconds per run; 4 by default, or 1 if quick
    #[arg(long, value_parser = seconds)]
    seconds: Option<Duration>,
    /// Only this store, `postgres` or `redis`; may be repeated
    #[arg(long)]
    pub(crate) store: Vec<StoreKind>,
}

/// What all parts of the benchmark use.
struct Scale {
    environment: Environment,
    stores: Vec<StoreKind>,
    runs: usize,
    seconds: Duration,
    warmup: Duration,
    quick: bool,
}

/// How the processes of a fleet connect to the store.
#[derive(Clone, Copy)]
struct Setup {
    processes: usize,
    name: &'static str,
    words: &'static [&'static str],
}

/// The setups for Postgres. `layer-alone` executes each claim and each completion alone.
const OWN: (&str, &[&str]) = ("the store's own", &["--kind", "layer"]);
const ALONE: (&str, &[&str]) = ("the store's own, `layer-alone`", &["--kind", "layer-alone"]);
const POOLS: [(&str, &[&str]); 3] = [
    ("a pool of 2", &["--kind", "layer", "--pool", "2"]),
    ("a pool of 5", &["--kind", "layer", "--pool", "5"]),
    ("a pool of 10", &["--kind", "layer", "--pool", "10"]),
];

/// A run of a fleet: the load's sample, and the most connections to the store.
struct Run {
    sample: Sample,
    connections: i64,
}

/// Measures fleets, prints the table and writes it.
pub(crate) fn main(options: &Options) {
    let quick = options.quick;
    let stores = match options.store.as_slice() {
        [] => vec![StoreKind::Postgres, StoreKind::Redis],
        stores => stores.to_vec(),
    };
    for store in &stores {
        assert!(
            matches!(store, StoreKind::Postgres | StoreKind::Redis),
            "only Postgres and Redis are shared by several processes over a network"
        );
    }
    let scale = Scale {
        environment: Environment::new(),
        stores,
        runs: options.runs.unwrap_or(if quick { 1 } else { 3 }),
        seconds: options.seconds.unwrap_or(Duration::from_secs(if quick { 1 } else { 4 })),
        warmup: Duration::from_millis(if quick { 300 } else { 1000 }),
        quick,
    };
    let text = conditions(&scale) + &fleets(&scale);
    println!("{text}");
    report::save(if quick { "quick.scale.md" } else { "scale.md" }, &text);
}

fn conditions(scale: &Scale) -> String {
    format!(
        "{} processors ({}), on which server processes, load and store run together; nothing but \
         the load is pinned. Each process is an actix server with one worker. The load has \
         {CONNECTIONS} keep-alive connections to each process, with one request each in flight, \
         and one principal for each process. {} runs of {:.1} s each after {:.1} s to warm up, \
         setups in turn, on an empty store.\n",
        cpu::count(),
        report::processor(),
        scale.runs,
        scale.seconds.as_secs_f64(),
        scale.warmup.as_secs_f64()
    )
}

fn setups(store: StoreKind, quick: bool) -> Vec<Setup> {
    let mut setups = Vec::new();
    for processes in [1, 2, 4] {
        let mut add = |(name, words)| setups.push(Setup { processes, name, words });
        add(OWN);
        if store == StoreKind::Postgres && (!quick || processes == 4) {
            add(ALONE);
            POOLS.into_iter().for_each(add);
        }
    }
    setups
}

fn fleets(scale: &Scale) -> String {
    let mut text = String::from(
        "\n## New keys\n\n*Connections* is the largest number of connections to the store during \
         the load, of all processes together: sessions of Postgres, clients of Redis. Processor \
         time is that of all server processes and of the store for a request.\n\n\
         | store | processes | connections of a process | /s | p50 ms | p99 ms | connections \
         | processor µs |\n|---|---|---|---|---|---|---|---|\n",
    );
    for store in scale.stores.iter().copied() {
        let setups = setups(store, scale.quick);
        let mut runs: Vec<_> = setups.iter().map(|_| Vec::new()).collect();
        for _ in 0..scale.runs {
            for (setup, runs) in setups.iter().zip(&mut runs) {
                runs.push(run(scale, store, *setup));
            }
        }
        for (setup, runs) in setups.iter().zip(&runs) {
            let line = line(store, *setup, runs);
            eprint!("{line}");
            text += &line;
        }
    }
    text
}

fn run(scale: &Scale, store: StoreKind, setup: Setup) -> Run {
    let fleet = Fleet::start(scale, store, setup);
    let (sample, connections) = fleet.load(scale);
    assert_eq!(
        sample.statuses.keys().collect::<Vec<_>>(),
        [&201],
        "{}: unexpected statuses: {:?}",
        setup.name,
        sample.statuses
    );
    eprintln!(
        "{} {} × {}: {:.0}/s, p99 {:.1} ms",
        store.name(),
        setup.processes,
        setup.name,
        sample.rate(),
        sample.latency[1] / 1e3
    );
    Run { sample, connections }
}

fn line(store: StoreKind, setup: Setup, runs: &[Run]) -> String {
    let median =
        |of: &dyn Fn(&Sample) -> f64| Spread::of(runs.iter().map(|run| of(&run.sample))).median;
    let [p50, p99] = [0, 1].map(|at| milliseconds(median(&|sample| sample.latency[at])));
    let rate = thousands(median(&Sample::rate));
    let cpu = median(&|sample| sample.cpu("server") + sample.cpu("store"));
    let most = runs.iter().map(|run| run.connections).max().unwrap_or(0);
    format!(
        "| {} | {} | {} | {rate} | {p50} | {p99} | {most} | {cpu:.0} |\n",
        store.name(),
        setup.processes,
        setup.name,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_postgres_has_setups_with_pools() {
        let names = |store, quick| -> Vec<_> {
            setups(store, quick).iter().map(|setup| (setup.processes, setup.name)).collect()
        };
        let own = OWN.0;
        assert_eq!(names(StoreKind::Redis, false), [(1, own), (2, own), (4, own)]);
        assert_eq!(names(StoreKind::Postgres, false).len(), 15);
        assert_eq!(names(StoreKind::Postgres, true).len(), 7);
    }
}
