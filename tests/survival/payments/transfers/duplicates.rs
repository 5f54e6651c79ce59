//! Many clients that send each key several times concurrently, to several servers.

use std::thread;

use super::{LEASED, Load, WITHIN, load::Tally, settle};
use crate::payments::{
    records::Records,
    server::{Files, Payments},
};

/// Keys in flight at any time.
const GROUPS: usize = 4;
/// Keys in total, each sent to all servers concurrently.
const KEYS: usize = 120;
const SERVERS: usize = 3;

pub(super) fn many_clients_at_several_servers_get_one_response_per_key(
    records: Records,
    path: &'static str,
) {
    let tally = on(&Files::with(records), path);
    // Without a 409 `in_flight` no two requests were concurrent.
    assert!(path != LEASED || tally.in_flight >= 20, "{tally}");
}

fn on(files: &Files, path: &'static str) -> Tally {
    let servers = Payments::start_all(SERVERS, files);
    let load = Load::new(path);
    thread::scope(|scope| {
        for _ in 0..GROUPS {
            scope.spawn(|| (0..KEYS / GROUPS).for_each(|_| send_everywhere(&load, &servers)));
        }
    });
    let tally = load.tally();
    assert_eq!((tally.ran, tally.replays), (KEYS as u64, (KEYS * (SERVERS - 1)) as u64), "{tally}");
    assert_eq!((tally.lost, load.completed().0), (0, KEYS), "{tally}");
    eprintln!("{path}: {tally}");
    settle(files, &load);
    tally
}

/// Where the database aborts one of two conflicting transactions, clients get 503 and retry.
fn on_a_serializable_database(path: &'static str) {
    let files = Files::with(Records::postgres());
    files.prepare_store(
        "DO $$ BEGIN
             EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', \
             current_database());
         END $$",
    );
    let tally = on(&files, path);
    assert!(tally.unavailable >= 10, "{tally}");
}

#[test]
fn a_serializable_database_makes_each_transfer_within_its_claim_once() {
    on_a_serializable_database(WITHIN);
}

#[test]
fn a_serializable_database_makes_each_leased_transfer_once() {
    on_a_serializable_database(LEASED);
}

fn send_everywhere(load: &Load, servers: &[Payments]) {
    let number = load.begin();
    thread::scope(|scope| {
        for server in servers {
            scope.spawn(|| load.send_until_final(server.address, number));
        }
    });
}
