//! Servers that are stopped in the middle of a transfer (SIGSTOP) past their lease, and continue
//! later.

use std::{thread, time::Duration};

use test_support::Pending;

use super::{LEASED, Load, WAITING, WITHIN, settle};
use crate::payments::{
    records::Records,
    server::{Files, Payments, await_that},
};

/// Transfers in flight when a server is stopped.
const AT_WORK: usize = 8;
/// Attempts that lose their key to another, at least.
const FENCED: i64 = 40;
/// Stops of a server that others wait for, at least.
const KEPT: u32 = 10;
/// The largest number of rounds.
const ROUNDS: u32 = 400;

#[test]
fn an_owner_on_sqlite_that_sleeps_past_its_lease_is_fenced_when_it_wakes() {
    past_its_lease(Records::Ledger);
}

#[test]
fn an_owner_on_postgres_that_sleeps_past_its_lease_is_fenced_when_it_wakes() {
    past_its_lease(Records::postgres());
}

#[test]
fn an_owner_on_sqlite_that_sleeps_in_its_transaction_continues_when_it_wakes() {
    in_its_transaction(Records::Ledger);
}

#[test]
fn an_owner_on_postgres_that_sleeps_in_its_transaction_continues_when_it_wakes() {
    in_its_transaction(Records::postgres());
}

/// Each attempt that was taken over belongs to a live server: it continues without its key, in a
/// transaction that may have moved the money already.
fn past_its_lease(records: Records) {
    let files = Files::with(records);
    let (sleeper, other, load) =
        (Payments::start(&files), Payments::start(&files), Load::new(LEASED));
    let fenced =
        || files.count_in_store("SELECT coalesce(sum(attempt - 1), 0) FROM idempotency_records");
    let taken_over = || {
        files.count_in_store(
            "SELECT count(*) FROM idempotency_records WHERE lease_until = 0 AND state = 1",
        )
    };
    let mut rounds = 0;
    while fenced() < FENCED {
        rounds += 1;
        assert!(rounds <= ROUNDS, "only {} were fenced", fenced());
        let first = send(&load, &sleeper);
        pause(&files, &sleeper);
        files.expire_leases();
        let second: Vec<_> = first
            .iter()
            .map(|(number, _)| (*number, load.post(other.address, *number).unwrap()))
            .collect();
        await_that(|| taken_over() == 0, "the other server takes over");
        sleeper.resume();
        receive(&load, &other, first.into_iter().chain(second));
    }
    eprintln!("{} fenced in {rounds} pauses: {}", fenced(), load.tally());
    settle(&files, &load);
}

/// No other attempt can get the key meanwhile: the retries wait, and then get the owner's response.
fn in_its_transaction(records: Records) {
    let files = Files::with(records);
    let (sleeper, other, load) =
        (Payments::start(&files), Payments::start(&files), Load::new(WITHIN));
    let (mut rounds, mut kept) = (0, 0);
    while kept < KEPT {
        rounds += 1;
        assert!(rounds <= ROUNDS, "only {kept} owners kept anyone waiting");
        let first = send(&load, &sleeper);
        sleeper.pause();
        let second: Vec<_> = first
            .iter()
            .map(|(number, _)| (*number, load.post(other.address, *number).unwrap()))
            .collect();
        kept += u32::from(keeps_waiting(&files, &second));
        sleeper.resume();
        receive(&load, &other, first.into_iter().chain(second));
    }
    eprintln!("{kept} owners kept others waiting in {rounds} pauses: {}", load.tally());
    assert_eq!(files.count_in_store("SELECT max(attempt) FROM idempotency_records"), 1);
    settle(&files, &load);
}

/// Sends new keys and lets the server work on them for a moment.
fn send(load: &Load, server: &Payments) -> Vec<(u64, Pending)> {
    let numbers: Vec<_> = (0..AT_WORK).map(|_| load.begin()).collect();
    let pending = numbers
        .into_iter()
        .map(|number| (number, load.post(server.address, number).unwrap()))
        .collect();
    thread::sleep(Duration::from_micros(fastrand::u64(..12_000)));
    pending
}

/// SQLite has one writer: while a stopped server has the lock, no key can be taken over. So it is
/// stopped at a moment when it is not writing.
fn pause(files: &Files, server: &Payments) {
    server.pause();
    while !files.is_postgres() && !files.can_write() {
        server.resume();
        thread::sleep(Duration::from_micros(fastrand::u64(..2_000)));
        server.pause();
    }
}

/// Whether a stopped server has a lock that others wait for.
fn keeps_waiting(files: &Files, others: &[(u64, Pending)]) -> bool {
    if !files.is_postgres() {
        return !files.can_write();
    }
    while !others.iter().all(|(_, pending)| pending.has_begun()) {
        if files.count_in_store(WAITING) > 0 {
            return true;
        }
    }
    false
}

fn receive(load: &Load, server: &Payments, pending: impl Iterator<Item = (u64, Pending)>) {
    for (number, pending) in pending {
        if !load.receive(number, pending) {
            load.send_until_final(server.address, number);
        }
    }
    load.tally();
}
