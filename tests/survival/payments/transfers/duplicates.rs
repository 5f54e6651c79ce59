//! Many clients that send each key to several servers concurrently.

use std::thread;

use super::{CLAIM_LEASE, CLAIM_TRANSACTION, Load, complete_and_check, load::Tally};
use crate::payments::{
    records::Records,
    server::{Files, Payments},
};

/// How many keys are in flight at a time.
const GROUPS: usize = 4;
/// How many keys are sent, each to all servers concurrently.
const KEYS: usize = 120;
const SERVERS: usize = 3;

pub(super) fn many_clients_at_several_servers_get_one_response_per_key(
    records: Records,
    path: &'static str,
) {
    let tally = run(&Files::with(records), path);
    // A 409 `in_flight` shows that requests were concurrent.
    assert!(path != CLAIM_LEASE || tally.in_flight >= 20, "{tally}");
}

fn run(files: &Files, path: &'static str) -> Tally {
    let servers = Payments::start_all(SERVERS, files);
    let load = Load::new(path);
    thread::scope(|scope| {
        for _ in 0..GROUPS {
            scope.spawn(|| (0..KEYS / GROUPS).for_each(|_| send_to_all(&load, &servers)));
        }
    });
    let tally = load.tally();
    assert_eq!((tally.ran, tally.replays), (KEYS as u64, (KEYS * (SERVERS - 1)) as u64), "{tally}");
    assert_eq!((tally.lost, load.completed().0), (0, KEYS), "{tally}");
    eprintln!("{path}: {tally}");
    complete_and_check(files, &load);
    tally
}

/// The database aborts one of two conflicting transactions, whose client gets 503 and retries.
fn check_on_a_serializable_database(path: &'static str) {
    let files = Files::with(Records::postgres());
    files.prepare_store(
        "DO $$ BEGIN
             EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', \
             current_database());
         END $$",
    );
    let tally = run(&files, path);
    assert!(tally.unavailable >= 10, "{tally}");
}

#[test]
fn with_claim_transaction_a_serializable_database_makes_each_transfer_once() {
    check_on_a_serializable_database(CLAIM_TRANSACTION);
}

#[test]
fn with_claim_lease_a_serializable_database_makes_each_transfer_once() {
    check_on_a_serializable_database(CLAIM_LEASE);
}

fn send_to_all(load: &Load, servers: &[Payments]) {
    let number = load.begin();
    thread::scope(|scope| {
        for server in servers {
            scope.spawn(|| load.send_until_final(server.address, number));
        }
    });
}
