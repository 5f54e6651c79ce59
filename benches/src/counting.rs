//! What a request costs, counted: round trips at the store's own server, statements of SQLite, allocations.

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

use crate::{
    bed::{Bed, Kept},
    load::{Plan, Watched, Work},
    server::{self, Program, Server},
};

/// Requests that are counted.
const REQUESTS: u64 = 2000;

/// What one request costs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Statements or commands that the store was sent.
    pub(crate) round_trips: Option<f64>,
    pub(crate) allocations: Option<f64>,
    pub(crate) allocated_bytes: Option<f64>,
}

/// Counts what a request costs one contestant.
pub(crate) fn cost(bed: &Bed, kept: Kept, work: Work, program: &Program, counted: &str) -> Cost {
    let Program::Own(_, words) = program else {
        let server = Server::start(program, &bed.clean(kept));
        return Cost { round_trips: round_trips(bed, kept, work, &server), ..Cost::default() };
    };
    let counting = |more: &[&str]| {
        let words = words.iter().cloned().chain(more.iter().map(|word| (*word).to_owned())).collect();
        Server::start(&Program::Own(Some(counted.to_owned()), words), &bed.clean(kept))
    };
    let server = counting(&[]);
    warm(&server, work, 0);
    let [allocations, bytes, _] = counts_of(&server, work, 1);
    let round_trips = match kept {
        Kept::Memory => None,
        Kept::Sqlite => {
            let server = counting(&["--statements", "yes"]);
            warm(&server, work, 0);
            Some(counts_of(&server, work, 2)[2])
        }
        Kept::Postgres | Kept::Redis => round_trips(bed, kept, work, &server),
    };
    Cost { round_trips, allocations: Some(allocations), allocated_bytes: Some(bytes) }
}

fn plan(server: &Server, work: Work, seed: u64, requests: u64) -> Plan {
    // What is replayed was answered when the server was warmed.
    let (seed, seeded) = if let Work::Replays(_) = work { (0, true) } else { (seed, false) };
    let (warmup, duration) = (Duration::ZERO, Duration::ZERO);
    let watched = Watched::default();
    Plan { to: server.at, work, connections: 8, warmup, duration, requests: Some(requests), seed, seeded, watched }
}

/// Opens pools, prepares statements, answers what is to be replayed.
fn warm(server: &Server, work: Work, seed: u64) {
    server::load(&Plan { connections: 64, seeded: false, ..plan(server, work, seed, REQUESTS) });
}

fn counts_of(server: &Server, work: Work, seed: u64) -> [f64; 3] {
    let counts = || serde_json::from_str::<[u64; 3]>(&server.get("/counts")).unwrap();
    let before = counts();
    server::load(&plan(server, work, seed, REQUESTS));
    let after = counts();
    std::array::from_fn(|at| (after[at] - before[at]) as f64 / REQUESTS as f64)
}

fn round_trips(bed: &Bed, kept: Kept, work: Work, server: &Server) -> Option<f64> {
    // Another seed: new keys are new once.
    warm(server, work, 4);
    let run = || server::load(&plan(server, work, 3, REQUESTS));
    let sent = match kept {
        Kept::Memory | Kept::Sqlite => return None,
        Kept::Postgres => {
            let postgres = bed.postgres();
            postgres.execute(bed, "SELECT pg_stat_statements_reset()");
            run();
            let calls =
                "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat%'";
            postgres.number(bed, calls).unsigned_abs()
        }
        Kept::Redis => commands(bed.redis().port, run),
    };
    Some(sent as f64 / REQUESTS as f64)
}

/// How many commands clients have sent to a Redis server while something ran; what a script calls is not among them, as it is in
/// `INFO commandstats`.
fn commands<T>(port: u16, run: impl FnOnce() -> T) -> u64 {
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
    run();
    let mut end = TcpStream::connect(("127.0.0.1", port)).unwrap();
    end.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    reader.join().unwrap();
    seen.load(Ordering::Relaxed)
}
