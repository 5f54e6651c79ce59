//! Claims, replays, lists and purges in a partitioned Postgres table with many millions of records.

mod disk;
mod fill;

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use clap::Args;
use idempotent_actix::store::{PostgresStore, Store as _};
use idempotent_core::protocol::{ListedState, RecordFilter};
use sqlx::{PgPool, postgres::PgPoolOptions};

pub(crate) use self::fill::Fill;
use crate::{
    duration::seconds,
    environment::{Environment, StoreKind},
    load::{KeyPattern, Plan, Sample},
    report::{self, milliseconds, thousands},
    server::{self, Program, Server},
    spread::Spread,
};

/// The numbers of records at which the table is measured.
const LEVELS: [u64; 5] = [0, 1_000_000, 5_000_000, 20_000_000, 100_000_000];
/// Expired records that are purged at each level, and the batch size of the runtime.
const EXPIRED: u64 = 20_000;
const BATCH: u32 = 200;
/// Held records, the page of them that is listed, and how often.
const HELD: u64 = 500;
const PAGE: u32 = 50;
const LISTS: usize = 200;

/// The options of `records`
#[derive(Args)]
pub(crate) struct Options {
    /// 200,000 records, and shorter runs
    #[arg(long)]
    pub(crate) quick: bool,
    /// The largest number of records; 20,000,000 by default
    #[arg(long)]
    pub(crate) records: Option<u64>,
    /// Hash partitions of the table; 0 does not partition it
    #[arg(long, default_value_t = 64)]
    pub(crate) partitions: u16,
    /// Seconds per run; 4 by default, or 1 if quick
    #[arg(long, value_parser = seconds)]
    seconds: Option<Duration>,
    /// Runs at each number of records; 3 by default, or 1 if quick
    #[arg(long)]
    runs: Option<usize>,
}

impl Options {
    fn records(&self) -> u64 {
        self.records.unwrap_or(if self.quick { 200_000 } else { 20_000_000 })
    }

    /// The numbers of records to measure at, up to the largest.
    fn levels(&self) -> Vec<u64> {
        let most = self.records();
        LEVELS.into_iter().filter(|level| *level < most).chain([most]).collect()
    }
}

/// A database with the table.
struct Table {
    environment: Environment,
    url: String,
    pool: PgPool,
    seconds: Duration,
    runs: usize,
}

/// The measurements at one number of records.
#[derive(Default)]
struct Level {
    records: u64,
    claims: Vec<Sample>,
    replays: Vec<Sample>,
    /// The duration of each list.
    lists: Vec<Duration>,
    /// The duration of each purge of a batch.
    purges: Vec<Duration>,
    bytes: i64,
}

/// Fills the table step by step, measures it at each step, prints the table and writes it.
pub(crate) fn main(options: &Options) {
    disk::require(&std::env::temp_dir(), options.records());
    let table = Table::create(options);
    let fill = Fill::new(&table.environment, &table.url, &table.pool);
    fill.held(&table.environment, &table.pool, HELD);
    let (mut filled, mut text) = (0, head(options, &table));
    for records in options.levels() {
        let started = Instant::now();
        table.fill(&fill, filled, records);
        filled = records;
        eprintln!("filled to {records} records in {:.0} s", started.elapsed().as_secs_f64());
        let line = line(&table.measure(&fill, records));
        eprint!("{line}");
        text += &line;
    }
    println!("{text}");
    report::save(if options.quick { "quick.records.md" } else { "records.md" }, &text);
}

impl Table {
    fn create(options: &Options) -> Self {
        let environment = Environment::new();
        let postgres = environment.postgres();
        postgres.execute(&environment, "CREATE DATABASE records");
        let url = postgres.server.url("records");
        let pool = environment.wait(async {
            let options = PostgresStore::options().partitions(options.partitions);
            options.connect(&url).await.unwrap().migrate().await.unwrap();
            PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap()
        });
        let quick = options.quick;
        Self {
            url,
            pool,
            seconds: options.seconds.unwrap_or(Duration::from_secs(if quick { 1 } else { 4 })),
            runs: options.runs.unwrap_or(if quick { 1 } else { 3 }),
            environment,
        }
    }

    /// Inserts the records with the numbers `from` to `to`, with few checkpoints meanwhile.
    fn fill(&self, fill: &Fill, from: u64, to: u64) {
        let postgres = self.environment.postgres();
        let (more, reset) =
            ("ALTER SYSTEM SET max_wal_size = '4GB'", "ALTER SYSTEM RESET max_wal_size");
        let reload = "SELECT pg_reload_conf()";
        postgres.execute(&self.environment, &format!("{more}; {reload}"));
        fill.live(&self.environment, &self.pool, from..to);
        self.execute("VACUUM ANALYZE idempotency_records");
        postgres.execute(&self.environment, &format!("{reset}; {reload}; CHECKPOINT"));
    }

    fn execute(&self, statement: &'static str) {
        self.environment.wait(sqlx::raw_sql(statement).execute(&self.pool)).unwrap();
    }

    fn measure(&self, fill: &Fill, records: u64) -> Level {
        let words = ["--kind", "layer", "--response", fill::RESPONSE].map(String::from).to_vec();
        let server = Server::start(&Program::BuiltIn(None, words), &self.url);
        let mut level = Level { records, ..Level::default() };
        for run in 0..self.runs as u64 {
            let seed = records + run + 1;
            level.claims.push(self.load(&server, KeyPattern::Fresh, seed, false));
            // Of the inserted records if there are any, otherwise of new ones.
            let (keys, seed, seeded) =
                if records == 0 { (1000, seed << 32, false) } else { (records, fill::SEED, true) };
            let replays = self.load(&server, KeyPattern::Replays(keys), seed, seeded);
            assert_eq!(replays.replayed, replays.requests, "number of replays");
            level.replays.push(replays);
        }
        drop(server);
        level.lists = self.environment.wait(list(&self.url));
        fill.expired(&self.environment, &self.pool, EXPIRED);
        self.execute("CHECKPOINT");
        level.purges = self.environment.wait(purge(&self.url));
        let size = "SELECT sum(pg_total_relation_size(relid))::bigint \
            FROM pg_partition_tree('idempotency_records')";
        level.bytes =
            self.environment.wait(sqlx::query_scalar(size).fetch_one(&self.pool)).unwrap();
        level
    }

    fn load(&self, server: &Server, pattern: KeyPattern, seed: u64, seeded: bool) -> Sample {
        let sample = server::load(&Plan {
            warmup: self.seconds / 4,
            duration: self.seconds,
            seed,
            seeded,
            watched: self.environment.watched(StoreKind::Postgres, server),
            ..Plan::new(server.at, pattern)
        });
        assert_eq!(sample.statuses, [(201, sample.requests)].into());
        sample
    }
}

/// Lists held records again and again; returns the duration of each list.
async fn list(url: &str) -> Vec<Duration> {
    let store = PostgresStore::connect(url).await.unwrap();
    let administration = store.administration().unwrap();
    let filter = RecordFilter::of_state(ListedState::Held);
    let mut lists = Vec::with_capacity(LISTS);
    for _ in 0..LISTS {
        let began = Instant::now();
        let page = administration.watched(&filter, None, PAGE).await.unwrap();
        lists.push(began.elapsed());
        assert_eq!(page.records.len(), PAGE as usize, "the table has {HELD} held records");
    }
    lists
}

/// Purges the expired records batch by batch; returns the duration of each purge.
async fn purge(url: &str) -> Vec<Duration> {
    let store = PostgresStore::connect(url).await.unwrap();
    let (mut purges, mut removed) = (Vec::new(), 0);
    while removed < EXPIRED {
        let began = Instant::now();
        let batch = store.purge(BATCH).await.unwrap();
        purges.push(began.elapsed());
        assert!(batch > 0, "{removed} of {EXPIRED} expired records were removed");
        removed += batch;
    }
    assert_eq!(store.purge(BATCH).await.unwrap(), 0, "only expired records are removed");
    purges
}

fn head(options: &Options, table: &Table) -> String {
    let partitions = match options.partitions {
        0 => "without partitions".to_owned(),
        number => format!("with {number} hash partitions"),
    };
    format!(
        "A Postgres table {partitions}, filled with completed records whose response is {} bytes \
         and whose ttl is a day. 64 keep-alive connections; new keys, then replays of random \
         records of the table; {} runs of {:.1} s each, medians. Then, without a load, a page of \
         {PAGE} of {HELD} held records is listed {LISTS} times, and {EXPIRED} expired records are \
         purged, {BATCH} at a time as the runtime does, but without its pauses. \
         `shared_buffers` is the default, 128 MiB.\n\n\
         | records | table and indexes, GiB | claims /s | p50 ms | p99 ms | replays /s | p50 ms \
         | p99 ms | list p50 ms | list p99 ms | purged /s | purge p50 ms | purge p99 ms |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        fill::RESPONSE,
        table.runs,
        table.seconds.as_secs_f64()
    )
}

fn line(level: &Level) -> String {
    let mut line = String::new();
    let _ = write!(line, "| {} | {:.2} |", level.records, level.bytes as f64 / (1 << 30) as f64);
    for runs in [&level.claims, &level.replays] {
        let median = |of: &dyn Fn(&Sample) -> f64| Spread::of(runs.iter().map(of)).median;
        let [p50, p99] = [0, 1].map(|at| milliseconds(median(&|sample| sample.latency[at])));
        let _ = write!(line, " {} | {p50} | {p99} |", thousands(median(&Sample::rate)));
    }
    let [list, slow_list] = percentiles(&level.lists);
    let rate = EXPIRED as f64 / level.purges.iter().sum::<Duration>().as_secs_f64();
    let [purge, slow_purge] = percentiles(&level.purges);
    let rate = thousands(rate);
    let _ = writeln!(line, " {list} | {slow_list} | {rate} | {purge} | {slow_purge} |");
    line
}

/// The median and the 99th percentile, in milliseconds.
fn percentiles(durations: &[Duration]) -> [String; 2] {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    [0.5, 0.99].map(|share| {
        let index = ((sorted.len() - 1) as f64 * share).round() as usize;
        milliseconds(sorted[index].as_secs_f64() * 1e6)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_of_records_is_the_last_level() {
        let levels = |records| {
            let options =
                Options { quick: false, records, partitions: 64, seconds: None, runs: None };
            options.levels()
        };
        assert_eq!(levels(None), [0, 1_000_000, 5_000_000, 20_000_000]);
        assert_eq!(levels(Some(5_000_000)), [0, 1_000_000, 5_000_000]);
        assert_eq!(levels(Some(7)), [0, 7]);
    }
}
