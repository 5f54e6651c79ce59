//! What a request costs, counted: round trips and statements at the store's own server, statements of SQLite, allocations.

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
    bed::{Bed, Kept},
    load::{Plan, Watched, Work},
    server::{self, Program, Server},
};

mod relay;

/// Requests that are counted.
const REQUESTS: u64 = 2000;

/// What one request costs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// How often the store was waited for.
    pub(crate) round_trips: Option<f64>,
    /// Statements that it ran for that.
    pub(crate) statements: Option<f64>,
    pub(crate) allocations: Option<f64>,
    pub(crate) allocated_bytes: Option<f64>,
}

/// Counts what a request costs one contestant.
pub(crate) fn cost(bed: &Bed, kept: Kept, work: Work, program: &Program, counted: &str) -> Cost {
    let (round_trips, statements) = match kept {
        Kept::Memory => (None, None),
        Kept::Redis => (Some(commands(bed, work, program)), None),
        Kept::Postgres => {
            let (round_trips, statements) = waited(bed, work, program);
            (Some(round_trips), Some(statements))
        }
        Kept::Sqlite => {
            (None, counting(bed, kept, program, counted, &["--statements", "yes"], work).map(|counts| counts[2]))
        }
    };
    let allocated = counting(bed, kept, program, counted, &[], work);
    let [allocations, allocated_bytes] = [0, 1].map(|at| allocated.map(|counts| counts[at]));
    Cost { round_trips, statements, allocations, allocated_bytes }
}

/// What a server of ours has counted itself: allocations, their bytes, statements.
fn counting(bed: &Bed, kept: Kept, program: &Program, counted: &str, more: &[&str], work: Work) -> Option<[f64; 3]> {
    let Program::Own(_, words) = program else { return None };
    let words = words.iter().cloned().chain(more.iter().map(|word| (*word).to_owned())).collect();
    let server = Server::start(&Program::Own(Some(counted.to_owned()), words), &bed.clean(kept));
    warm(&server, work, 0);
    let counts = || serde_json::from_str::<[u64; 3]>(&server.get("/counts")).unwrap();
    let before = counts();
    server::load(&plan(&server, work, 1, REQUESTS));
    let after = counts();
    Some(std::array::from_fn(|at| (after[at] - before[at]) as f64 / REQUESTS as f64))
}

fn plan(server: &Server, work: Work, seed: u64, requests: u64) -> Plan {
    // What is replayed was answered when the server was warmed.
    let (seed, seeded) = if let Work::Replays(_) = work { (0, true) } else { (seed, false) };
    let (warmup, duration) = (Duration::ZERO, Duration::ZERO);
    let watched = Watched::default();
    let requests = Some(requests);
    Plan { to: server.at, work, connections: 8, warmup, duration, requests, seed, seeded, watched, awake: false }
}

/// Opens pools, prepares statements, answers what is to be replayed.
fn warm(server: &Server, work: Work, seed: u64) {
    server::load(&Plan { connections: 64, seeded: false, ..plan(server, work, seed, REQUESTS) });
}

/// How often Postgres was waited for, and how many statements it ran.
fn waited(bed: &Bed, work: Work, program: &Program) -> (f64, f64) {
    let url = bed.clean(Kept::Postgres);
    let postgres = bed.postgres();
    let relay = Relay::to(postgres.server.port);
    let url = url.replace(&format!(":{}/", postgres.server.port), &format!(":{}/", relay.port));
    let server = Server::start(program, &format!("{url}?sslmode=disable"));
    warm(&server, work, 4);
    postgres.execute(bed, "SELECT pg_stat_statements_reset()");
    let before = relay.answers();
    server::load(&plan(&server, work, 3, REQUESTS));
    // What a pool does to a connection that comes back may come after the answer.
    thread::sleep(Duration::from_millis(100));
    let answers = relay.answers() - before;
    let calls = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat%'";
    let calls = postgres.number(bed, calls);
    (answers as f64 / REQUESTS as f64, calls as f64 / REQUESTS as f64)
}

/// How many commands clients have sent to a Redis server while something ran; what a script calls is not among them, as it is in
/// `INFO commandstats`.
fn commands(bed: &Bed, work: Work, program: &Program) -> f64 {
    let server = Server::start(program, &bed.clean(Kept::Redis));
    warm(&server, work, 4);
    let port = bed.redis().port;
    let mut monitor = TcpStream::connect(("127.0.0.1", port)).unwrap();
    monitor.write_all(b"MONITOR\r\n").unwrap();
    let mut lines = BufReader::new(monitor.try_clone().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "+OK");
    let seen = Arc::new(AtomicU64::new(0));
    let count = seen.clone();
    let reader = thread::spawn(move || {
        // Keys and answers are not all text; a line that is none would end the reading.
        for line in lines.map_while(Result::ok) {
            if line.contains("\"PING\"") {
                return;
            }
            count.fetch_add(u64::from(!line.contains(" lua]")), Ordering::Relaxed);
        }
    });
    server::load(&plan(&server, work, 3, REQUESTS));
    let mut end = TcpStream::connect(("127.0.0.1", port)).unwrap();
    end.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    reader.join().unwrap();
    seen.load(Ordering::Relaxed) as f64 / REQUESTS as f64
}
