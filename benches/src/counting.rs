//! Counts what a request costs: round trips, statements and allocations.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use self::relay::Relay;
use crate::{
    environment::{Environment, StoreKind},
    load::{KeyPattern, Plan},
    server::{self, Program, Server},
};

mod relay;

/// The number of requests to count.
const REQUESTS: u64 = 2000;

/// The cost of one request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// How often the server waited for the store.
    pub(crate) round_trips: Option<f64>,
    /// Statements that the store ran.
    pub(crate) statements: Option<f64>,
    pub(crate) allocations: Option<f64>,
    pub(crate) allocated_bytes: Option<f64>,
}

/// Counts the cost of a request for one contestant.
pub(crate) fn cost(
    environment: &Environment,
    store: StoreKind,
    pattern: KeyPattern,
    program: &Program,
    counted: &str,
) -> Cost {
    let (round_trips, statements) = match store {
        StoreKind::Memory => (None, None),
        StoreKind::Redis => (Some(redis_commands(environment, pattern, program)), None),
        StoreKind::Postgres => {
            let (round_trips, statements) = postgres_costs(environment, pattern, program);
            (Some(round_trips), Some(statements))
        }
        #[cfg(feature = "mysql")]
        StoreKind::MySql => (None, Some(mysql_statements(environment, pattern, program))),
        StoreKind::Sqlite => (
            None,
            server_counts(environment, store, program, counted, &["--statements"], pattern)
                .map(|counts| counts[2]),
        ),
    };
    let allocated = server_counts(environment, store, program, counted, &[], pattern);
    let [allocations, allocated_bytes] = [0, 1].map(|at| allocated.map(|counts| counts[at]));
    Cost { round_trips, statements, allocations, allocated_bytes }
}

/// The counters of a built-in server: allocations, allocated bytes and statements, per request.
fn server_counts(
    environment: &Environment,
    store: StoreKind,
    program: &Program,
    counted: &str,
    more: &[&str],
    pattern: KeyPattern,
) -> Option<[f64; 3]> {
    let Program::BuiltIn(_, words) = program else { return None };
    let words = words.iter().cloned().chain(more.iter().map(|word| (*word).to_owned())).collect();
    let server = Server::start(
        &Program::BuiltIn(Some(counted.to_owned()), words),
        &environment.clean(store),
    );
    warm_up(&server, pattern, 0);
    let counts = || serde_json::from_str::<[u64; 3]>(&server.get("/counts")).unwrap();
    let before = counts();
    server::load(&plan(&server, pattern, 1, REQUESTS));
    let after = counts();
    Some(std::array::from_fn(|at| (after[at] - before[at]) as f64 / REQUESTS as f64))
}

fn plan(server: &Server, pattern: KeyPattern, seed: u64, requests: u64) -> Plan {
    // `warm_up` has completed the keys to replay, with seed 0.
    let (seed, seeded) =
        if let KeyPattern::Replays(_) = pattern { (0, true) } else { (seed, false) };
    let requests = Some(requests);
    Plan { connections: 8, requests, seed, seeded, ..Plan::new(server.at, pattern) }
}

/// Opens pools, prepares statements and completes the keys to replay.
fn warm_up(server: &Server, pattern: KeyPattern, seed: u64) {
    server::load(&Plan { connections: 64, seeded: false, ..plan(server, pattern, seed, REQUESTS) });
}

/// Counts the round trips to Postgres and its statements.
fn postgres_costs(environment: &Environment, pattern: KeyPattern, program: &Program) -> (f64, f64) {
    let url = environment.clean(StoreKind::Postgres);
    let postgres = environment.postgres();
    let relay = Relay::to(postgres.server.port);
    let url = url.replace(&format!(":{}/", postgres.server.port), &format!(":{}/", relay.port));
    let server = Server::start(program, &format!("{url}?sslmode=disable"));
    warm_up(&server, pattern, 4);
    postgres.execute(environment, "SELECT pg_stat_statements_reset()");
    let before = relay.round_trips();
    server::load(&plan(&server, pattern, 3, REQUESTS));
    // A pool may still use a connection that was returned to it after the response.
    thread::sleep(Duration::from_millis(100));
    let round_trips = relay.round_trips() - before;
    let calls = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements \
                 WHERE query NOT LIKE '%pg_stat%'";
    let calls = postgres.number(environment, calls);
    (round_trips as f64 / REQUESTS as f64, calls as f64 / REQUESTS as f64)
}

/// Counts the statements that clients send to MariaDB.
#[cfg(feature = "mysql")]
fn mysql_statements(environment: &Environment, pattern: KeyPattern, program: &Program) -> f64 {
    let server = Server::start(program, &environment.clean(StoreKind::MySql));
    warm_up(&server, pattern, 4);
    let count = || environment.mysql().statements(environment);
    let before = count();
    server::load(&plan(&server, pattern, 3, REQUESTS));
    thread::sleep(Duration::from_millis(100));
    // One of them is the count itself.
    (count() - before - 1) as f64 / REQUESTS as f64
}

/// Counts the commands that clients send to Redis. `INFO commandstats` would include the commands
/// that scripts run.
fn redis_commands(environment: &Environment, pattern: KeyPattern, program: &Program) -> f64 {
    let server = Server::start(program, &environment.clean(StoreKind::Redis));
    warm_up(&server, pattern, 4);
    let port = environment.redis().port;
    let mut monitor = TcpStream::connect(("127.0.0.1", port)).unwrap();
    monitor.write_all(b"MONITOR\r\n").unwrap();
    let mut lines = BufReader::new(monitor.try_clone().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "+OK");
    let sample = Arc::new(AtomicU64::new(0));
    let count = sample.clone();
    let reader = thread::spawn(move || {
        // A line that is not UTF-8 would end the iteration, but `MONITOR` escapes keys and
        // responses.
        for line in lines.map_while(Result::ok) {
            // The command that marks the end.
            if line.contains("\"PING\"") {
                return;
            }
            count.fetch_add(u64::from(!line.contains(" lua]")), Ordering::Relaxed);
        }
    });
    server::load(&plan(&server, pattern, 3, REQUESTS));
    let mut end = TcpStream::connect(("127.0.0.1", port)).unwrap();
    end.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    reader.join().unwrap();
    sample.load(Ordering::Relaxed) as f64 / REQUESTS as f64
}
