//! Servers that are killed under load, repeatedly. `TRANSFER_KILLS=1000 tests/run kills` makes a
//! longer run, and writes `tests/survival/RESULTS.md`.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    CLAIM_LEASE, Load,
    audit::{Audit, audit, in_flight},
    complete_and_check,
};
use crate::{
    payments::{
        records::Records,
        server::{Files, Payments, await_that},
    },
    results::{self, Table, required_kills},
};

const CLIENTS: usize = 8;
/// The number of kills, unless `TRANSFER_KILLS` is set.
const KILLS: u64 = 20;
const KILLS_WITH_TWO_SERVERS: u64 = 12;
/// How long a server runs at most before it is killed.
const MAX_LIFETIME_MILLIS: u64 = 60;

/// What the kills have hit.
#[derive(Clone, Copy, Default)]
struct Hits {
    kills: u64,
    /// Kills after which at least one request got no response.
    interrupted: u64,
    /// How often a handler has misused its transaction.
    acts: usize,
}

/// One server runs at a time; interrupted clients wait for the next one.
pub(super) fn servers_that_are_killed_under_load_make_each_transfer_once(
    records: Records,
    path: &'static str,
) {
    let (files, load, started) = (Files::with(records), Load::new(path), Instant::now());
    let hits = kill_single_servers(&files, &load, path);
    complete_and_check(&files, &load);
    check(&files, &load, hits, "as documented", started);
}

/// The same, with handlers that end their transaction, ignore errors and drop statements.
pub(super) fn hostile_servers_that_are_killed_under_load_make_each_transfer_once(
    records: Records,
    path: &'static str,
) {
    let (files, load, started) = (Files::hostile(records), Load::hostile(path), Instant::now());
    let hits = kill_single_servers(&files, &load, path);
    // How many of them are reached before a kill depends on the machine.
    assert!(hits.acts > 0, "no handler misused its transaction in {} kills", hits.kills);
    let server = Payments::start(&files);
    for number in load.open() {
        load.send_until_final(server.address, number);
    }
    check(&files, &load, hits, "hostile", started);
}

fn kill_single_servers(files: &Files, load: &Load, path: &'static str) -> Hits {
    let mut hits = Hits::default();
    kill_under_load(load, KILLS, || {
        // The last kills may leave no record in flight.
        kill_single_server(files, load, &mut hits);
        path == CLAIM_LEASE && in_flight(files) == 0
    });
    files.purge_in_flight();
    // A claim that its handler has committed stays, and is held when its key is sent again.
    let left = "SELECT count(*) FROM idempotency_records WHERE state = 1 AND abandoned = 0";
    assert_eq!(files.count_in_store(left), 0);
    hits
}

fn kill_single_server(files: &Files, load: &Load, hits: &mut Hits) {
    let (server, before) = (Payments::start(files), load.tally().lost);
    load.set_servers(&[server.address]);
    let_server_work(load);
    let lines = server.kill();
    hits.acts += lines.iter().filter(|line| line.starts_with("act:")).count();
    load.set_servers(&[]);
    load.await_idle();
    hits.kills += 1;
    hits.interrupted += u64::from(load.tally().lost > before);
    // So that the test need not wait until they expire by themselves.
    files.expire_leases();
}

/// Two servers run. One is killed and restarted later; the other gets the retries at once.
pub(super) fn a_server_that_is_killed_leaves_its_transfers_to_the_other_one(
    records: Records,
    path: &'static str,
) {
    let (files, load) = (Files::with(records), Load::new(path));
    let mut servers = Payments::start_all(2, &files);
    let mut kills = 0;
    kill_under_load(&load, KILLS_WITH_TWO_SERVERS, || {
        load.set_servers(&[servers[0].address, servers[1].address]);
        let_server_work(&load);
        let killed = servers.remove(0);
        load.set_servers(&[servers[0].address]);
        killed.kill();
        kills += 1;
        // This includes the leases of the other server, which renews them or loses them to a retry.
        files.expire_leases();
        servers.push(Payments::start(&files));
        false
    });
    files.expire_leases();
    complete_and_check(&files, &load);
    let tally = load.tally();
    assert!(tally.lost >= kills / 2, "too few requests were interrupted: {tally}");
    assert!(tally.ran >= kills / 2 && tally.replays >= kills / 10, "{tally}");
    eprintln!("{path}: {kills} kills: {tally}");
}

/// Lets a server work for some milliseconds, in half of the cases after it has sent a response.
fn let_server_work(load: &Load) {
    if fastrand::bool() {
        let before = load.tally().completed();
        await_that(|| load.tally().completed() > before, "a response");
    }
    thread::sleep(Duration::from_millis(fastrand::u64(..MAX_LIFETIME_MILLIS)));
}

/// Calls `kill` while the clients send requests: as often as required, and as long as it returns
/// true.
fn kill_under_load(load: &Load, kills: u64, mut kill: impl FnMut() -> bool) {
    let kills = required_kills().unwrap_or(kills);
    thread::scope(|scope| {
        let stop = load.stop();
        for _ in 0..CLIENTS {
            scope.spawn(|| load.run());
        }
        let mut done = 0;
        while kill() || done + 1 < kills {
            done += 1;
            assert!(done < kills + 400, "no kill leaves a record in flight");
        }
        drop(stop);
    });
}

/// Checks the database and the counts, and writes them to `RESULTS.md` after a long run.
fn check(files: &Files, load: &Load, hits: Hits, handlers: &str, started: Instant) {
    let (tally, audit) = (load.tally(), audit(files, load));
    let Hits { kills, interrupted, acts } = hits;
    eprintln!("{kills} kills, {interrupted} interrupted requests: {tally}; {audit:?}");
    let held = audit.held;
    let clean = Audit {
        duplicates: 0,
        without_record: 0,
        without_effect: 0,
        unreported: 0,
        wrong_balances: 0,
        held,
        in_flight: 0,
    };
    assert_eq!(audit, clean);
    assert!(interrupted >= kills / 2 && tally.lost >= kills / 2, "{interrupted}: {tally}");
    // On a busy machine a hostile server completes few keys that are sent again.
    let replays = if acts == 0 { kills / 10 } else { 0 };
    assert!(tally.ran >= kills / 2 && tally.replays >= replays, "{tally}");
    let Some(_) = required_kills() else { return };
    let (store, claim) =
        (files.database(), if load.path() == CLAIM_LEASE { "lease" } else { "transaction" });
    let facts = [
        ("kills", kills.to_string()),
        ("interrupted", interrupted.to_string()),
        ("requests", tally.sent.to_string()),
        ("lost", tally.lost.to_string()),
        ("ran", tally.ran.to_string()),
        ("replays", tally.replays.to_string()),
        ("in progress (409)", tally.in_flight.to_string()),
        ("hostile acts", acts.to_string()),
        ("held", held.to_string()),
        ("duplicates", audit.duplicates.to_string()),
        ("completed without effect", audit.without_effect.to_string()),
        ("in flight after lease and purge", audit.in_flight.to_string()),
        ("time", format!("{} s", started.elapsed().as_secs())),
    ];
    let combination = [format!("`{store}`"), format!("`{claim}`"), handlers.to_owned()];
    results::write(Table::UnderLoad, &combination, &facts);
}
