//! Records: how many bytes one takes, and what a claim costs beside many.

use std::{fmt::Write as _, fs, time::Instant};

use sqlx::AssertSqlSafe;

use super::{Growth, Step};
use crate::{
    bed::Kept,
    cpu,
    load::{Plan, Watched, Work},
    server::{self, Program, Server},
};

/// Completed records with an answer of 100 bytes, for a day: what grows here is the number.
const POSTGRES: &str = "INSERT INTO idempotency_records \
    (id, fingerprint, owner, attempt, lease, lease_until, first_seen, expires_at, state, abandoned, recording) \
    SELECT sha256(int8send(i)), decode(repeat('07', 36), 'hex'), decode(repeat('08', 16), 'hex'), 1, 1, 1, 1, \
    (extract(epoch FROM now()) * 1000)::bigint + 86400000 + i % 1000, 2, 0, decode(repeat('ab', 100), 'hex') \
    FROM generate_series({from}::bigint, {to}) AS i";
const SQLITE: &str = "PRAGMA synchronous = OFF; PRAGMA cache_size = -1000000; WITH RECURSIVE i(n) AS \
    (SELECT {from} UNION ALL SELECT n + 1 FROM i WHERE n < {to}) INSERT INTO idempotency_records \
    (id, state, fingerprint, owner, attempt, abandoned, lease, lease_until, first_seen, expires_at, recording) \
    SELECT randomblob(32), 2, zeroblob(36), zeroblob(16), 1, 0, 1, 1, 1, unixepoch() * 1000 + 86400000 + n % 1000, zeroblob(100) FROM i";
const REDIS: &str = "for i = {from}, {to} do redis.call('SET', 'idempotency:' .. redis.sha1hex(i), string.rep('x', 191), 'PX', 86400000) end";

/// So many are made in one statement.
const BATCH: u64 = 100_000;

pub(super) fn records(growth: &Growth) -> String {
    let mut text = "\n## Records\n\nNew keys beside records with an answer of 100 bytes; 64 connections.\n\n| store | records | /s | p50 µs | p99 µs | \
                    processor µs |\n|---|---|---|---|---|---|\n"
        .to_owned();
    let most = |kept| match kept {
        _ if growth.quick => 100_000,
        Kept::Redis => 1_000_000,
        Kept::Memory | Kept::Sqlite | Kept::Postgres => 10_000_000,
    };
    for kept in growth.stores.iter().copied().filter(|kept| *kept != Kept::Memory) {
        let url = growth.bed.clean(kept);
        let mut there = 0;
        for records in [1000, 100_000, 1_000_000, 10_000_000].into_iter().filter(|records| *records <= most(kept)) {
            let started = Instant::now();
            fill(growth, kept, &url, there + 1, records);
            there = records;
            eprintln!("{}: {records} records after {:.0} s", kept.name(), started.elapsed().as_secs_f64());
            let server = Server::start(&Program::Own(None, ["--kind", "layer"].map(String::from).to_vec()), &url);
            let seen = growth.run(&Step { kept, server: &server, work: Work::Fresh, connections: 64, seed: records });
            let ([p50, p99, ..], rate, cpu) = (seen.latency, seen.rate(), seen.cpu("server") + seen.cpu("store"));
            let _ = writeln!(text, "| {} | {records} | {rate:.0} | {p50:.0} | {p99:.0} | {cpu:.1} |", kept.name());
        }
    }
    text
}

fn fill(growth: &Growth, kept: Kept, url: &str, from: u64, to: u64) {
    let mut start = from;
    while start <= to {
        let end = to.min(start + BATCH - 1);
        let text = |template: &str| template.replace("{from}", &start.to_string()).replace("{to}", &end.to_string());
        match kept {
            Kept::Memory => {}
            Kept::Postgres => growth.bed.postgres().execute(&growth.bed, &text(POSTGRES)),
            Kept::Redis => {
                let mut connection = growth.bed.redis().client().get_connection().unwrap();
                redis::cmd("EVAL").arg(text(REDIS)).arg(0).query::<()>(&mut connection).unwrap();
            }
            Kept::Sqlite => growth.bed.wait(async {
                let pool = sqlx::SqlitePool::connect(url).await.unwrap();
                let mut connection = pool.acquire().await.unwrap();
                sqlx::raw_sql(AssertSqlSafe(text(SQLITE))).execute(&mut *connection).await.unwrap();
                drop(connection);
                pool.close().await;
            }),
        }
        start = end + 1;
    }
    if kept == Kept::Postgres {
        growth.bed.postgres().execute(&growth.bed, "VACUUM ANALYZE idempotency_records; CHECKPOINT");
    }
}

/// What a record of an answer takes in each store, and what the bytes of the answer alone would.
pub(super) fn bytes(growth: &Growth) -> String {
    const RECORDS: u64 = 50_000;
    let mut text =
        "\n## Bytes a record\n\nBy 50,000 keys through the layer.\n\n| store | bytes of an answer | bytes a record | times the answer |\n|---|---|---|---|\n"
            .to_owned();
    for kept in growth.stores.iter().copied() {
        for size in [0_u64, 1024] {
            // A store in memory is as large as it is said to be.
            let words = ["--kind", "layer", "--answer", &size.to_string(), "--records", "100000"].map(String::from);
            let words = words.to_vec();
            let server = Server::start(&Program::Own(None, words), &growth.bed.clean(kept));
            let send = |requests, seed| {
                let (to, work, watched, zero) = (server.at, Work::Fresh, Watched::default(), std::time::Duration::ZERO);
                let (requests, connections, seeded) = (Some(requests), 64, false);
                server::load(&Plan {
                    to,
                    work,
                    connections,
                    warmup: zero,
                    duration: zero,
                    requests,
                    seed,
                    seeded,
                    watched,
                    awake: false,
                })
            };
            send(1000, 1);
            let before = used(growth, kept, &server);
            let seen = send(RECORDS, 2);
            assert_eq!(seen.statuses.get(&201), Some(&RECORDS));
            let each = (used(growth, kept, &server) - before) as f64 / RECORDS as f64;
            let times = if size == 0 { "–".into() } else { format!("{:.2}", each / size as f64) };
            let _ = writeln!(text, "| {} | {size} | {each:.0} | {times} |", kept.name());
        }
    }
    text
}

fn used(growth: &Growth, kept: Kept, server: &Server) -> u64 {
    match kept {
        Kept::Memory => cpu::resident_bytes(server.process()),
        Kept::Redis => growth.bed.redis().info("used_memory").unwrap().parse().unwrap(),
        Kept::Postgres => {
            let size = "SELECT pg_total_relation_size('idempotency_records')";
            growth.bed.postgres().number(&growth.bed, size).unsigned_abs()
        }
        Kept::Sqlite => growth.bed.wait(async {
            let pool = sqlx::SqlitePool::connect(&format!("sqlite:{}", growth.bed.file().display())).await.unwrap();
            sqlx::raw_sql("PRAGMA wal_checkpoint(FULL)").execute(&pool).await.unwrap();
            pool.close().await;
            fs::metadata(growth.bed.file()).unwrap().len()
        }),
    }
}
