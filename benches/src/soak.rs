//! A soak: minutes of load on every store, with records that expire after seconds. Memory, records and connections must stay flat.

use std::{
    fmt::Write as _,
    fs, thread,
    time::{Duration, Instant},
};

use crate::{
    arguments::Arguments,
    bed::{Bed, Kept},
    cpu,
    load::{Plan, Watched, Work},
    report::{self, Spread},
    server::{self, Program, Server},
};

/// How much the last third may exceed the second, beside what is nothing anyway.
const FLAT: f64 = 1.15;

/// What is looked at again and again: what it is called, what is next to nothing of it, and its values.
type Track = (&'static str, f64, Vec<f64>);

/// Loads every store, or those that `--store` names, for its part of the minutes; fails if something grows.
pub(crate) fn main(arguments: &Arguments) {
    let bed = Bed::new();
    let stores: Vec<_> = [Kept::Memory, Kept::Redis, Kept::Postgres, Kept::Sqlite]
        .into_iter()
        .filter(|kept| {
            arguments.all("store").next().is_none() || arguments.all("store").any(|name| name == kept.name())
        })
        .collect();
    let each = Duration::from_secs_f64(60.0 * arguments.number("minutes", 8.0) / stores.len() as f64);
    let mut text = format!(
        "Half of the requests are duplicates; records expire after 4 s and are purged every second; {:.0} s a store.\n\n\
         | store | requests | what | first third | second third | last third | |\n|---|---|---|---|---|---|---|\n",
        each.as_secs_f64()
    );
    let mut all_flat = true;
    for kept in stores {
        let (requests, tracks) = soak(&bed, kept, each);
        for (name, nothing, values) in tracks {
            let thirds: Vec<_> = values.chunks(values.len().div_ceil(3)).collect();
            let median = |third: usize| Spread::of(thirds[third].iter().copied()).median;
            let [first, second, last] = [0, 1, 2].map(median);
            let flat = last <= second * FLAT || last <= second + nothing;
            all_flat &= flat;
            let verdict = if flat { "flat" } else { "**grows**" };
            let line =
                format!("| {} | {requests} | {name} | {first:.0} | {second:.0} | {last:.0} | {verdict} |", kept.name());
            eprintln!("{line}");
            let _ = writeln!(text, "{line}");
        }
    }
    println!("{text}");
    report::save("soak.md", &text);
    assert!(all_flat, "something grows");
}

fn soak(bed: &Bed, kept: Kept, lasting: Duration) -> (u64, Vec<Track>) {
    let words = ["--kind", "layer-briefly", "--purge-every", "1"].map(String::from).to_vec();
    let server = Server::start(&Program::Own(None, words), &bed.clean(kept));
    let (work, watched, warmup, seeded) = (Work::Mixed(0.5), Watched::default(), Duration::ZERO, false);
    let (requests, connections, seed) = (None, 32, 1);
    let plan = Plan {
        to: server.at,
        work,
        connections,
        warmup,
        duration: lasting,
        requests,
        seed,
        seeded,
        watched,
        awake: false,
    };
    let load = server::start_load(&plan);
    let mut tracks: Vec<Track> = vec![("server's memory, MiB", 8.0, Vec::new())];
    let kept_tracks: &[(&str, f64)] = match kept {
        Kept::Memory => &[],
        Kept::Sqlite => &[("file, MiB", 4.0)],
        Kept::Postgres => &[("records", 5000.0), ("connections", 2.0), ("table, MiB", 4.0)],
        Kept::Redis => &[("records", 5000.0), ("connections", 2.0), ("memory, MiB", 4.0)],
    };
    tracks.extend(kept_tracks.iter().map(|(name, nothing)| (*name, *nothing, Vec::new())));
    let started = Instant::now();
    // The last look comes before the load ends, which takes its connections along.
    while started.elapsed() + Duration::from_secs(1) < lasting {
        thread::sleep(Duration::from_secs(1));
        let mut seen = vec![cpu::resident_bytes(server.process()) as f64 / 1048576.0];
        seen.extend(look(bed, kept));
        tracks.iter_mut().zip(seen).for_each(|(track, value)| track.2.push(value));
    }
    let seen = server::finish(load);
    // What expired between a choice of the load and its request is new again, and two that chose it may meet.
    let created = seen.statuses.get(&201).copied().unwrap_or(0);
    let met = seen.statuses.get(&409).copied().unwrap_or(0);
    assert!(created + met == seen.requests && met * 1000 <= created, "{:?}", seen.statuses);
    assert!(seen.replayed > 0, "nothing was replayed");
    (seen.requests, tracks)
}

/// As `kept_tracks` names it.
fn look(bed: &Bed, kept: Kept) -> Vec<f64> {
    match kept {
        Kept::Memory => Vec::new(),
        Kept::Sqlite => {
            let size =
                |suffix: &str| fs::metadata(format!("{}{suffix}", bed.file().display())).map_or(0, |file| file.len());
            vec![(size("") + size("-wal")) as f64 / 1048576.0]
        }
        Kept::Postgres => {
            let questions = [
                "SELECT count(*) FROM idempotency_records",
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'",
                "SELECT pg_total_relation_size('idempotency_records') / 1048576",
            ];
            questions.map(|question| bed.postgres().number(bed, question) as f64).to_vec()
        }
        Kept::Redis => {
            let info = |field| bed.redis().info(field).unwrap().parse::<f64>().unwrap();
            let records: u64 = bed.redis().ask("DBSIZE");
            vec![records as f64, info("connected_clients"), info("used_memory") / 1048576.0]
        }
    }
}
