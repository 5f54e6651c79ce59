//! The store's server is killed under load and started again.

use std::{
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use sqlx::{Connection, PgConnection};
#[cfg(feature = "mysql")]
use test_support::servers::mariadb::{MariaDb, database_on};
use test_support::{
    ClientResponse, Request, WAIT_LIMIT,
    servers::{
        postgres::Postgres,
        redis::{DURABLE, Server},
    },
};

use crate::payments::{
    pay,
    records::Records,
    server::{Files, Payments, wait},
};

const CLIENTS: usize = 6;
/// The time limit from when the database accepts connections until a payment succeeds.
const RECOVERY: Duration = Duration::from_secs(10);
/// Ends the sessions of the store. `CASE`, because the conditions of a `WHERE` may be evaluated in
/// any order.
const END_SESSIONS: &str = "SELECT pid FROM pg_stat_activity \
     WHERE CASE application_name WHEN 'idempotency' THEN pg_terminate_backend(pid) ELSE false END";

#[test]
fn postgres_killed_under_load_loses_and_duplicates_no_payment() {
    let server = Postgres::start();
    let files = Files::with(Records::External(server.url("postgres")));
    kill_under_load(&files, 9, |kill, load| match kill % 3 {
        0 => kill_postmaster(&server, || {
            // In one round Postgres stays down until requests have been refused. In the others the
            // requests wait until it is up again.
            if kill == 0 {
                load.await_more(&load.unavailable, 2 * CLIENTS);
            }
        }),
        1 => kill_session(&server),
        _ => {
            let ended = numbers(&server, END_SESSIONS);
            assert!(!ended.is_empty());
        }
    });
}

#[test]
fn redis_with_a_log_killed_under_load_loses_and_duplicates_no_payment() {
    let mut server = Server::start(DURABLE);
    let files = Files::with(Records::External(server.url()));
    kill_under_load(&files, 6, |_, load| {
        server.kill();
        load.await_more(&load.unavailable, 2 * CLIENTS);
        server.restart();
    });
}

/// In every second round all sessions are killed, in the others the server is, and started again.
#[cfg(feature = "mysql")]
#[test]
fn mysql_killed_under_load_loses_and_duplicates_no_payment() {
    let server = MariaDb::start();
    let url = wait(database_on(&server.url("mysql")));
    let files = Files::with(Records::External(url.clone()));
    kill_under_load(&files, 6, |kill, load| {
        if kill % 2 == 1 {
            return wait(end_sessions(&url));
        }
        server.stop();
        // As for Postgres.
        if kill == 0 {
            load.await_more(&load.unavailable, 2 * CLIENTS);
        }
        server.start_again();
    });
}

/// Kills all other sessions of the database of a URL.
#[cfg(feature = "mysql")]
async fn end_sessions(url: &str) {
    let mut connection = sqlx::MySqlConnection::connect(url).await.unwrap();
    let sessions = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist
        WHERE db = DATABASE() AND id <> CONNECTION_ID()";
    let sessions: Vec<i64> = sqlx::query_scalar(sessions).fetch_all(&mut connection).await.unwrap();
    assert!(!sessions.is_empty());
    for session in sessions {
        let kill = sqlx::AssertSqlSafe(format!("KILL {session}"));
        // It may have ended by itself.
        let _ = sqlx::raw_sql(kill).execute(&mut connection).await;
    }
    connection.close().await.unwrap();
}

/// Clients that send payments without pause to two servers.
struct Load {
    servers: Vec<Payments>,
    over: AtomicBool,
    paid: AtomicUsize,
    unavailable: AtomicUsize,
    in_flight: AtomicUsize,
}

/// A request and its first response.
struct Paid {
    request: Request,
    response: ClientResponse,
}

fn kill_under_load(files: &Files, kills: usize, mut kill: impl FnMut(usize, &Load)) {
    let load = Load {
        servers: Payments::start_all(2, files),
        over: AtomicBool::new(false),
        paid: AtomicUsize::new(0),
        unavailable: AtomicUsize::new(0),
        in_flight: AtomicUsize::new(0),
    };
    let mut all = Vec::new();
    let mut recoveries = Vec::new();
    let at = &load;
    thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| scope.spawn(move || at.pay_until_stopped(client))).collect();
        let _stop = StopOnDrop(&load.over);
        for number in 0..kills {
            load.await_more(&load.paid, 2 * CLIENTS);
            kill(number, &load);
            let started = Instant::now();
            all.push(load.pay_twice(pay(&format!("after-{number}"), "pm_card_visa"), number));
            recoveries.push(started.elapsed());
        }
        load.over.store(true, Ordering::Relaxed);
        all.extend(clients.into_iter().flat_map(|client| client.join().unwrap()));
    });
    let count = |counted: &AtomicUsize| counted.load(Ordering::Relaxed);
    println!(
        "{} payments, {kills} kills; recovered within {:?}",
        all.len(),
        recoveries.iter().max()
    );
    println!(
        "refused as unavailable: {}, in flight: {}",
        count(&load.unavailable),
        count(&load.in_flight)
    );
    assert!(recoveries.iter().all(|recovery| *recovery < RECOVERY), "{recoveries:?}");
    assert!(count(&load.unavailable) >= 2 * CLIENTS);
    load.check(files, &all);
}

/// Stops the clients when it is dropped, also if the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Load {
    fn pay_until_stopped(&self, client: usize) -> Vec<Paid> {
        let mut all = Vec::new();
        while !self.over.load(Ordering::Relaxed) {
            let turn = all.len();
            let card = if turn % 2 == 0 { "pm_card_visa" } else { "pm_card_slow_60" };
            all.push(self.pay_twice(pay(&format!("order-{client}-{turn}"), card), turn + client));
            self.paid.fetch_add(1, Ordering::Relaxed);
        }
        all
    }

    /// Sends a payment to one server, and then the same request to the other server.
    fn pay_twice(&self, request: Request, turn: usize) -> Paid {
        let response = self.send(&request, turn);
        let again = self.send(&request, turn + 1);
        assert_eq!(again.body, response.body);
        Paid { request, response }
    }

    /// Sends a request to the servers in turn until it has a final response.
    fn send(&self, request: &Request, turn: usize) -> ClientResponse {
        let until = Instant::now() + 2 * WAIT_LIMIT;
        for server in self.servers.iter().cycle().skip(turn % self.servers.len()) {
            let response = server.send(request);
            match (response.status, response.json()["code"].as_str()) {
                (200, None) => return response,
                // The second is the failure of a statement of the handler's own.
                (503, Some("store_unavailable")) | (500, Some("ledger_unavailable")) => {
                    self.unavailable.fetch_add(1, Ordering::Relaxed)
                }
                (409, Some("in_flight")) => self.in_flight.fetch_add(1, Ordering::Relaxed),
                _ => panic!("{response:?}"),
            };
            assert!(Instant::now() < until, "timed out: {request:?}");
            thread::sleep(Duration::from_millis(20));
        }
        unreachable!("the iterator is endless");
    }

    /// Waits until a counter has increased by `more`.
    fn await_more(&self, counted: &AtomicUsize, more: usize) {
        let (enough, until) =
            (counted.load(Ordering::Relaxed) + more, Instant::now() + 2 * WAIT_LIMIT);
        while counted.load(Ordering::Relaxed) < enough {
            assert!(Instant::now() < until, "timed out while waiting for {more} more");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Checks that each key has one transfer, and that every retry gets the first response.
    fn check(&self, files: &Files, all: &[Paid]) {
        for Paid { request, response } in all {
            let replay = self.send(request, 0);
            assert!(replay.is_replay(), "{replay:?}");
            assert_eq!(replay.body, response.body);
        }
        let keys = i64::try_from(all.len()).unwrap();
        assert_eq!(files.count_at_bank("SELECT count(*) FROM bank_transfers"), keys);
        assert_eq!(
            files.count("SELECT count(*) FROM payment_intents WHERE status = 'succeeded'"),
            keys
        );
        assert_eq!(files.count("SELECT count(*) FROM payment_intents"), keys);
        println!(
            "the bank was called {} times",
            files.count_at_bank("SELECT sum(requests) FROM bank_transfers")
        );
    }
}

/// Kills the postmaster, and later starts Postgres again. `while_down` runs in between.
fn kill_postmaster(server: &Postgres, while_down: impl FnOnce()) {
    let postmaster =
        numbers(server, r"SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)::int");
    let rest = numbers(server, "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()");
    kill_9(postmaster[0]);
    // A new server does not start until the other processes have ended, which they do by
    // themselves.
    for process in rest {
        await_that(|| !PathBuf::from(format!("/proc/{process}")).exists());
    }
    while_down();
    server.start_again();
}

/// Kills one session. The server then ends all others and recovers.
fn kill_session(server: &Postgres) {
    let sessions =
        numbers(server, "SELECT pid FROM pg_stat_activity WHERE application_name = 'idempotency'");
    let checkpointer = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
    let before = numbers(server, checkpointer);
    kill_9(sessions[0]);
    await_that(|| {
        wait(query_numbers(server, checkpointer))
            .is_ok_and(|after| !after.is_empty() && after != before)
    });
}

fn kill_9(process: i32) {
    let killed = Command::new("kill").args(["-9", &process.to_string()]).status().unwrap();
    assert!(killed.success());
}

fn await_that(holds: impl Fn() -> bool) {
    let until = Instant::now() + WAIT_LIMIT;
    while !holds() {
        assert!(Instant::now() < until, "timed out");
        thread::sleep(Duration::from_millis(5));
    }
}

fn numbers(server: &Postgres, query: &'static str) -> Vec<i32> {
    wait(query_numbers(server, query)).unwrap()
}

async fn query_numbers(server: &Postgres, query: &'static str) -> Result<Vec<i32>, sqlx::Error> {
    let mut connection = PgConnection::connect(&server.url("postgres")).await?;
    let numbers = sqlx::query_scalar(query).fetch_all(&mut connection).await?;
    connection.close().await?;
    Ok(numbers)
}
