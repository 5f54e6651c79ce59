//! Many clients that send each key several times at once, to several servers.

use std::thread;

use super::{LEASED, Load, WITHIN, load::Heard, settle};
use crate::{
    payments::{Files, Payments},
    records::Records,
};

/// How many keys are at work at once.
const GROUPS: usize = 4;
/// How many keys there are in all, each sent at once to each server.
const KEYS: usize = 120;
const SERVERS: usize = 3;

pub(super) fn many_clients_at_several_servers_get_one_answer_a_key(records: Records, path: &'static str) {
    let heard = on(&Files::with(records), path);
    // Who does not wait is told that another is at work; without that, nothing here was at once.
    assert!(path != LEASED || heard.in_flight >= 20, "{heard}");
}

fn on(files: &Files, path: &'static str) -> Heard {
    let servers = Payments::start_all(SERVERS, files);
    let load = Load::new(path);
    thread::scope(|scope| {
        for _ in 0..GROUPS {
            scope.spawn(|| (0..KEYS / GROUPS).for_each(|_| send_everywhere(&load, &servers)));
        }
    });
    let heard = load.heard();
    assert_eq!((heard.ran, heard.replays), (KEYS as u64, (KEYS * (SERVERS - 1)) as u64), "{heard}");
    assert_eq!((heard.lost, load.answered().0), (0, KEYS), "{heard}");
    eprintln!("{path}: {heard}");
    settle(files, &load);
    heard
}

/// Where the database ends one of two transactions that read what the other writes, clients are told to send again, and do.
fn on_a_serializable_database(path: &'static str) {
    let files = Files::with(Records::postgres());
    files.prepare_store(
        "DO $$ BEGIN
             EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database());
         END $$",
    );
    let heard = on(&files, path);
    assert!(heard.unavailable >= 10, "{heard}");
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
            scope.spawn(|| load.send_until_answered(server.address, number));
        }
    });
}
