//! A soak test: minutes of load on every store, with records that expire after seconds. Memory,
//! records and connections must not grow.

use std::{
    fmt::Write as _,
    fs, thread,
    time::{Duration, Instant},
};

use clap::Args;

use crate::{
    cpu,
    environment::{Environment, StoreKind},
    load::{KeyPattern, Plan},
    report,
    server::{self, Program, Server},
    spread::Spread,
};

/// The median of the last third of a track may exceed that of the second third by this factor, or
/// by the tolerance of the track.
const FLAT: f64 = 1.15;

/// A quantity that is sampled every second: its name, its tolerance and its values.
type Track = (&'static str, f64, Vec<f64>);

/// The options of `soak`
#[derive(Args)]
pub(crate) struct Options {
    /// Minutes in total, divided among the stores
    #[arg(long, default_value_t = 8.0)]
    minutes: f64,
    /// Only this store; may be repeated
    #[arg(long)]
    store: Vec<StoreKind>,
}

/// Runs a load on each store, or on those that `--store` names, for its share of the minutes. Fails
/// if a track grows.
pub(crate) fn main(options: &Options) {
    let (environment, stores) = (Environment::new(), StoreKind::select(&options.store));
    let each = Duration::from_secs_f64(60.0 * options.minutes / stores.len() as f64);
    let mut text = format!(
        "Half of the requests are duplicates; records expire after 4 s and are purged every \
         second; {:.0} s per store.\n\n\
         | store | requests | quantity | first third | second third | last third | |\n\
         |---|---|---|---|---|---|---|\n",
        each.as_secs_f64()
    );
    let mut all_flat = true;
    for store in stores {
        let (requests, tracks) = soak(&environment, store, each);
        for (name, tolerance, values) in tracks {
            let thirds: Vec<_> = values.chunks(values.len().div_ceil(3)).collect();
            let median = |third: usize| Spread::of(thirds[third].iter().copied()).median;
            let [first, second, last] = [0, 1, 2].map(median);
            let flat = last <= second * FLAT || last <= second + tolerance;
            all_flat &= flat;
            let verdict = if flat { "flat" } else { "**grows**" };
            let line = format!(
                "| {} | {requests} | {name} | {first:.0} | {second:.0} | {last:.0} | {verdict} |",
                store.name()
            );
            eprintln!("{line}");
            let _ = writeln!(text, "{line}");
        }
    }
    println!("{text}");
    report::save("soak.md", &text);
    assert!(all_flat, "a track grows");
}

fn soak(environment: &Environment, store: StoreKind, duration: Duration) -> (u64, Vec<Track>) {
    let words = ["--kind", "layer-short-ttl", "--purge-every", "1"].map(String::from).to_vec();
    let server = Server::start(&Program::BuiltIn(None, words), &environment.clean(store));
    let plan = Plan::new(server.at, KeyPattern::Mixed(0.5));
    let load = server::start_load(&Plan { connections: 32, duration, ..plan });
    let mut tracks: Vec<Track> = vec![("server's memory, MiB", 8.0, Vec::new())];
    let store_tracks: &[(&str, f64)] = match store {
        StoreKind::Memory => &[],
        StoreKind::Sqlite => &[("file, MiB", 4.0)],
        StoreKind::Postgres => &[("records", 5000.0), ("connections", 2.0), ("table, MiB", 4.0)],
        StoreKind::Redis => &[("records", 5000.0), ("connections", 2.0), ("memory, MiB", 4.0)],
        #[cfg(feature = "mysql")]
        StoreKind::MySql => &[("records", 5000.0), ("connections", 2.0)],
    };
    tracks.extend(store_tracks.iter().map(|(name, tolerance)| (*name, *tolerance, Vec::new())));
    let started = Instant::now();
    // The last sample is taken before the load ends and closes its connections.
    while started.elapsed() + Duration::from_secs(1) < duration {
        thread::sleep(Duration::from_secs(1));
        let mut sample = vec![cpu::resident_bytes(server.process()) as f64 / 1048576.0];
        sample.extend(store_values(environment, store));
        tracks.iter_mut().zip(sample).for_each(|(track, value)| track.2.push(value));
    }
    let sample = server::finish(load);
    // A key can expire after the load has chosen it and before the request arrives. Two requests
    // with that key may then overlap, and one of them gets 409.
    let created = sample.statuses.get(&201).copied().unwrap_or(0);
    let in_flight = sample.statuses.get(&409).copied().unwrap_or(0);
    assert!(
        created + in_flight == sample.requests && in_flight * 1000 <= created,
        "{:?}",
        sample.statuses
    );
    assert!(sample.replayed > 0, "no response was replayed");
    (sample.requests, tracks)
}

/// The current values of the store's tracks, in the order of `store_tracks`.
fn store_values(environment: &Environment, store: StoreKind) -> Vec<f64> {
    match store {
        StoreKind::Memory => Vec::new(),
        StoreKind::Sqlite => {
            let size = |suffix: &str| {
                fs::metadata(format!("{}{suffix}", environment.file().display()))
                    .map_or(0, |file| file.len())
            };
            vec![(size("") + size("-wal")) as f64 / 1048576.0]
        }
        StoreKind::Postgres => {
            let queries = [
                "SELECT count(*) FROM idempotency_records",
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'",
                "SELECT pg_total_relation_size('idempotency_records') / 1048576",
            ];
            queries.map(|query| environment.postgres().number(environment, query) as f64).to_vec()
        }
        #[cfg(feature = "mysql")]
        StoreKind::MySql => {
            let queries = [
                "SELECT count(*) FROM idempotency_records",
                "SELECT count(*) FROM information_schema.processlist WHERE user = 'test'",
            ];
            queries.map(|query| environment.mysql().number(environment, query) as f64).to_vec()
        }
        StoreKind::Redis => {
            let info = |field| environment.redis().info(field).unwrap().parse::<f64>().unwrap();
            let records: u64 = environment.redis().command("DBSIZE");
            vec![records as f64, info("connected_clients"), info("used_memory") / 1048576.0]
        }
    }
}
