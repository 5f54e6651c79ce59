//! The size of a record, and the cost of a claim in a store with many records.

use std::{fmt::Write as _, fs, time::Instant};

use sqlx::AssertSqlSafe;

use super::{Growth, Run};
use crate::{
    cpu,
    environment::StoreKind,
    load::{KeyPattern, Plan},
    records::Fill,
    server::{self, Program, Server},
};

/// Inserts completed records with a response of 100 bytes and a ttl of one day.
const SQLITE: &str = "PRAGMA synchronous = OFF; PRAGMA cache_size = -1000000; \
    WITH RECURSIVE i(n) AS \
    (SELECT {from} UNION ALL SELECT n + 1 FROM i WHERE n < {to}) \
    INSERT INTO idempotency_records \
    (id, state, fingerprint, owner, attempt, abandoned, lease, lease_until, first_seen, \
    expires_at, recording) \
    SELECT randomblob(32), 2, zeroblob(36), zeroblob(16), 1, 0, 1, 1, 1, \
    unixepoch() * 1000 + 86400000 + n % 1000, zeroblob(100) FROM i";
const REDIS: &str = "for i = {from}, {to} do \
    redis.call('SET', 'idempotency:' .. redis.sha1hex(i), string.rep('x', 191), \
    'PX', 86400000) end";

/// Records per statement.
const BATCH: u64 = 100_000;

pub(super) fn records(growth: &Growth) -> String {
    let mut text = "\n## Records\n\nNew keys in a store that has records with a response of \
                    100 bytes; 64 connections.\n\n\
                    | store | records | /s | p50 µs | p99 µs | \
                    processor µs |\n|---|---|---|---|---|---|\n"
        .to_owned();
    let most = |store| match store {
        _ if growth.quick => 100_000,
        StoreKind::Redis => 1_000_000,
        StoreKind::Memory | StoreKind::Sqlite | StoreKind::Postgres => 10_000_000,
    };
    for store in growth.stores.iter().copied().filter(|store| *store != StoreKind::Memory) {
        let url = growth.environment.clean(store);
        let copies = (store == StoreKind::Postgres)
            .then(|| Fill::new(&growth.environment, &url, &growth.environment.postgres().pool));
        let mut filled = 0;
        for records in [1000, 100_000, 1_000_000, 10_000_000]
            .into_iter()
            .filter(|records| *records <= most(store))
        {
            let started = Instant::now();
            match &copies {
                Some(copies) => fill_postgres(growth, copies, filled, records),
                None => fill(growth, store, &url, filled + 1, records),
            }
            filled = records;
            eprintln!(
                "{}: filled to {records} records in {:.0} s",
                store.name(),
                started.elapsed().as_secs_f64()
            );
            text += &claims(growth, store, &url, records);
        }
    }
    text
}

/// Measures claims in a store with this number of records.
fn claims(growth: &Growth, store: StoreKind, url: &str, records: u64) -> String {
    let words = ["--kind", "layer"].map(String::from).to_vec();
    let server = Server::start(&Program::BuiltIn(None, words), url);
    let (pattern, connections, seed) = (KeyPattern::Fresh, 64, records);
    let sample = growth.run(&Run { store, server: &server, pattern, connections, seed });
    let ([p50, p99, ..], rate, cpu) =
        (sample.latency, sample.rate(), sample.cpu("server") + sample.cpu("store"));
    format!("| {} | {records} | {rate:.0} | {p50:.0} | {p99:.0} | {cpu:.1} |\n", store.name())
}

/// Inserts the records with the numbers `from` to `to`.
fn fill(growth: &Growth, store: StoreKind, url: &str, from: u64, to: u64) {
    let mut start = from;
    while start <= to {
        let end = to.min(start + BATCH - 1);
        let text = |template: &str| {
            template.replace("{from}", &start.to_string()).replace("{to}", &end.to_string())
        };
        match store {
            StoreKind::Memory | StoreKind::Postgres => {}
            StoreKind::Redis => {
                let mut connection = growth.environment.redis().client().get_connection().unwrap();
                redis::cmd("EVAL").arg(text(REDIS)).arg(0).query::<()>(&mut connection).unwrap();
            }
            StoreKind::Sqlite => growth.environment.wait(async {
                let pool = sqlx::SqlitePool::connect(url).await.unwrap();
                let mut connection = pool.acquire().await.unwrap();
                sqlx::raw_sql(AssertSqlSafe(text(SQLITE))).execute(&mut *connection).await.unwrap();
                drop(connection);
                pool.close().await;
            }),
        }
        start = end + 1;
    }
}

/// Inserts copies of a record of the layer.
fn fill_postgres(growth: &Growth, copies: &Fill, from: u64, to: u64) {
    let postgres = growth.environment.postgres();
    copies.live(&growth.environment, &postgres.pool, from..to);
    postgres.execute(&growth.environment, "VACUUM ANALYZE idempotency_records; CHECKPOINT");
}

/// The size of a record in each store, compared with the size of its response.
pub(super) fn bytes(growth: &Growth) -> String {
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
