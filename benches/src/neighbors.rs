//! What trouble costs the requests with other keys: a slow row, a dead connection, a locked file.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use clap::Args;
use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection, postgres::PgConnectOptions};
use test_support::proxy::Proxy;
use tokio::runtime::Runtime;

use crate::{
    duration::seconds,
    environment::{Environment, StoreKind},
    load::{KeyPattern, Plan, Sample},
    report::{self, milliseconds, thousands},
    server::{self, Program, Server},
    spread::Spread,
};

/// How often a slow row is written, if the one before has ended, and how often the file is locked.
const INTERVAL: Duration = Duration::from_secs(7);
/// For how long another process locks the file.
const LOCKED: Duration = Duration::from_millis(500);
/// When the trouble begins.
const CALM: Duration = Duration::from_secs(3);

/// Rows of other principals than that of the load take seven seconds.
const POSTGRES_TRIGGER: &str = "CREATE OR REPLACE FUNCTION be_slow() RETURNS trigger
    LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.principal <> '\\x{principal}' THEN PERFORM pg_sleep(7); END IF;
        RETURN NEW;
    END $$;
    CREATE OR REPLACE TRIGGER be_slow BEFORE INSERT ON idempotency_records
    FOR EACH ROW EXECUTE FUNCTION be_slow()";
/// The same, with minutes of computing: SQLite cannot sleep.
const SQLITE_TRIGGER: &str = "CREATE TABLE many AS SELECT value FROM json_each('{numbers}');
    CREATE TRIGGER be_slow BEFORE INSERT ON idempotency_records
    WHEN NEW.principal <> x'{principal}'
    BEGIN SELECT count(*) FROM many AS a, many AS b, many AS c, many AS d; END";

/// The options of `neighbors`
#[derive(Args)]
pub(crate) struct Options {
    /// Seconds per run
    #[arg(long, value_parser = seconds, default_value = "15")]
    seconds: Duration,
    /// Runs of each row
    #[arg(long, default_value_t = 3)]
    runs: u64,
    /// The program of another build, for its servers
    #[arg(long)]
    program: Option<String>,
    /// Stores whose name contains this
    #[arg(long, default_value = "")]
    only: String,
}

/// What happens during a run.
#[derive(Clone, Copy, PartialEq)]
struct Trouble {
    slow_row: bool,
    /// A dead connection to Postgres; another process that locks the file of SQLite.
    other: bool,
}

const TROUBLES: [Trouble; 4] = [
    Trouble { slow_row: false, other: false },
    Trouble { slow_row: true, other: false },
    Trouble { slow_row: false, other: true },
    Trouble { slow_row: true, other: true },
];

impl Trouble {
    fn described(self, store: StoreKind) -> &'static str {
        match (self.slow_row, self.other, store) {
            (false, false, _) => "undisturbed",
            (true, false, _) => "a slow row",
            (false, true, StoreKind::Sqlite) => "a locked file",
            (false, true, _) => "a dead connection",
            (true, true, _) => "both",
        }
    }
}

/// Measures new keys with each trouble on each store. The rows of a store are measured in turn.
pub(crate) fn main(options: &Options) {
    let environment = Environment::new();
    // The proxy, in front of the database, has a thread of its own.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.unwrap();
    let mut text = format!(
        "New keys, 64 connections, {} s a run, {} runs; medians. The trouble begins after {} s. A \
         slow row is that of one further request, outside of the load, at a time, every {} s: on \
         Postgres it takes 7 s, on SQLite minutes of computing, during which it has the file's \
         lock. A dead connection is one of those to the database, on which nothing arrives any \
         more, without an error. A locked file is locked by another process, for {} ms every {} \
         s, in which no writer proceeds.\n\n\
         Neighbors are the requests of the load. Late are those that took longer than a second. \
         While its request is late, a connection of the load sends no other one; the share of the \
         undisturbed rate is therefore also given per connection that is not waiting so. On \
         SQLite it is given for the time in which the file was not locked by the other process.\
         \n\n\
         | store | trouble | neighbors /s | share | per free connection, or free time | p99 ms | \
         × | late | slowest, ms | other than 201 |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        options.seconds.as_secs(),
        options.runs,
        CALM.as_secs(),
        INTERVAL.as_secs(),
        LOCKED.as_millis(),
        INTERVAL.as_secs(),
    );
    for (store, name) in [(StoreKind::Postgres, "Postgres"), (StoreKind::Sqlite, "SQLite")] {
        if !name.contains(&options.only) {
            continue;
        }
        let rounds: Vec<_> = (1..=options.runs)
            .map(|seed| {
                TROUBLES.map(|trouble| {
                    let run = Run { store, trouble, seed, options };
                    run.measure(&environment, &runtime)
                })
            })
            .collect();
        for (index, trouble) in TROUBLES.into_iter().enumerate() {
            let line = line(&format!("{name} | {}", trouble.described(store)), index, &rounds);
            eprint!("{line}");
            text += &line;
        }
    }
    println!("{text}");
    report::save("neighbors.md", &text);
}

struct Run<'a> {
    store: StoreKind,
    trouble: Trouble,
    seed: u64,
    options: &'a Options,
}

/// What a run has measured.
struct Measured {
    sample: Sample,
    /// Neighbors per second, and the same for connections that were free in a time that was free.
    rates: [f64; 2],
}

impl Run<'_> {
    fn measure(&self, environment: &Environment, runtime: &Runtime) -> Measured {
        let duration = self.options.seconds;
        let clean = environment.clean(self.store);
        let (proxy, url) = if self.store == StoreKind::Postgres {
            let (proxy, url) = proxied(runtime, &clean);
            (Some(proxy), url)
        } else {
            (None, clean.clone())
        };
        let words = ["--kind", "layer"].map(String::from).to_vec();
        let server = Server::start(&Program::BuiltIn(self.options.program.clone(), words), &url);
        let plan = Plan::new(server.at, KeyPattern::Fresh);
        // The trigger distinguishes the load by its principal.
        server::load(&Plan { connections: 1, requests: Some(1), seed: 0, ..plan.clone() });
        create_trigger(environment, runtime, self.store, &clean);
        let warmup = Duration::from_secs(1);
        let load = server::start_load(&Plan { warmup, duration, seed: self.seed, ..plan });
        thread::sleep(warmup + CALM);
        let stop = Arc::new(AtomicBool::new(false));
        let mut troubles: Vec<JoinHandle<Duration>> = Vec::new();
        if self.trouble.slow_row {
            let (at, stop) = (server.at, stop.clone());
            troubles.push(thread::spawn(move || send_slow_rows(at, &stop)));
        }
        match &proxy {
            Some(proxy) if self.trouble.other => proxy.silence_next(),
            None if self.trouble.other => {
                let (url, stop) = (clean, stop.clone());
                troubles.push(thread::spawn(move || lock_file(&url, &stop)));
            }
            _ => {}
        }
        let sample = server::finish(load);
        stop.store(true, Ordering::Relaxed);
        // Ends the slow request, which the other thread waits for.
        drop(server);
        let locked: Duration = troubles.into_iter().map(|trouble| trouble.join().unwrap()).sum();
        let seconds = duration.as_secs_f64();
        let rate = sample.in_time as f64 / seconds;
        let free = (seconds - sample.late_seconds / 64.0) / seconds;
        let free_time = (seconds - locked.as_secs_f64()) / seconds;
        let free = if self.store == StoreKind::Sqlite { free_time } else { free };
        Measured { sample, rates: [rate, rate / free] }
    }
}

/// Sends requests of another principal, one after the other, until the server ends.
fn send_slow_rows(to: SocketAddr, stop: &AtomicBool) -> Duration {
    for key in 0.. {
        let began = Instant::now();
        let Ok(stream) = TcpStream::connect(to) else { break };
        let request = format!(
            "POST /work HTTP/1.1\r\nhost: {to}\r\nauthorization: Bearer bob\r\n\
             content-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\
             idempotency-key: slow-{key}\r\n\r\n{{}}"
        );
        let sent = (&stream).write_all(request.as_bytes());
        let mut line = String::new();
        let mut response = BufReader::new(stream);
        if sent.is_err() || response.read_line(&mut line).is_err() {
            break;
        }
        let _ = response.read_to_end(&mut Vec::new());
        if !stop.load(Ordering::Relaxed) {
            eprintln!("slow row: {:?}, {}", began.elapsed(), line.trim());
        }
        while began.elapsed() < INTERVAL && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Duration::ZERO
}

/// Locks the file again and again; returns for how long it was locked.
fn lock_file(url: &str, stop: &AtomicBool) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut connection = runtime.block_on(SqliteConnection::connect(url)).unwrap();
    let mut execute = |text: &'static str| {
        runtime.block_on(sqlx::raw_sql(text).execute(&mut connection)).unwrap();
    };
    let mut locked = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        execute("BEGIN IMMEDIATE");
        let has_lock = Instant::now();
        thread::sleep(LOCKED);
        execute("COMMIT");
        locked += has_lock.elapsed();
        while began.elapsed() < INTERVAL && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
    }
    // Before the file is removed.
    runtime.block_on(connection.close()).unwrap();
    locked
}

/// Makes the rows of other principals slow: those of another one than the record in the table has.
fn create_trigger(environment: &Environment, runtime: &Runtime, store: StoreKind, url: &str) {
    const PRINCIPAL: &str = "SELECT principal FROM idempotency_records LIMIT 1";
    let hex = |principal: Vec<u8>| -> String {
        principal.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    if store == StoreKind::Postgres {
        let pool = &environment.postgres().pool;
        let principal = environment.wait(sqlx::query_scalar(PRINCIPAL).fetch_one(pool)).unwrap();
        let trigger = AssertSqlSafe(POSTGRES_TRIGGER.replace("{principal}", &hex(principal)));
        environment.wait(sqlx::raw_sql(trigger).execute(pool)).unwrap();
        return;
    }
    runtime.block_on(async {
        let mut connection = SqliteConnection::connect(url).await.unwrap();
        let principal = sqlx::query_scalar(PRINCIPAL).fetch_one(&mut connection).await.unwrap();
        let numbers = serde_json::to_string(&(0..1000).collect::<Vec<_>>()).unwrap();
        let trigger =
            SQLITE_TRIGGER.replace("{numbers}", &numbers).replace("{principal}", &hex(principal));
        sqlx::raw_sql(AssertSqlSafe(trigger)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    });
}

/// A proxy in front of the database, and its URL.
fn proxied(runtime: &Runtime, url: &str) -> (Proxy, String) {
    let options: PgConnectOptions = url.parse().unwrap();
    let proxy = runtime.block_on(Proxy::in_front_of(options.get_host(), options.get_port()));
    let address = format!("{}:{}", options.get_host(), options.get_port());
    let proxied = url.replace(&address, &format!("127.0.0.1:{}", proxy.port));
    (proxy, proxied)
}

/// The row of the trouble with this index. Ratios are computed within a round.
fn line(name: &str, index: usize, rounds: &[[Measured; TROUBLES.len()]]) -> String {
    let median = |of: &dyn Fn(&Measured) -> f64| {
        Spread::of(rounds.iter().map(|round| of(&round[index]))).median
    };
    let ratio = |of: &dyn Fn(&Measured) -> f64| {
        Spread::of(rounds.iter().map(|round| of(&round[index]) / of(&round[0])))
    };
    let rate = thousands(median(&|run| run.rates[0]));
    let [all, free] = [0, 1].map(|which| ratio(&|run| run.rates[which]));
    let [p99, slowest] = [1, 3].map(|at| milliseconds(median(&|run| run.sample.latency[at])));
    let times = ratio(&|run| run.sample.latency[1]);
    let late = median(&|run| run.sample.late * run.sample.requests as f64);
    let other: u64 = rounds
        .iter()
        .flat_map(|round| &round[index].sample.statuses)
        .filter(|(status, _)| **status != 201)
        .map(|(_, count)| *count)
        .sum();
    format!(
        "| {name} | {rate} | {all} | {free} | {p99} | {times} | {late:.0} | {slowest} | {other} |\n"
    )
}
