//! Servers that are paused (SIGSTOP) in the middle of transfers, and continue later.

use std::{thread, time::Duration};

use test_support::Pending;

use super::{CLAIM_LEASE, CLAIM_TRANSACTION, Load, WAITING, complete_and_check};
use crate::payments::{
    records::Records,
    server::{Files, Payments, await_that},
};

/// How many transfers are in flight when the server is paused.
const CONCURRENT_TRANSFERS: usize = 8;
/// The test continues until this many attempts were taken over.
const MIN_FENCED: i64 = 40;
/// The test continues until this many pauses have blocked other requests.
const MIN_BLOCKED: u32 = 10;
/// The test fails after this many rounds.
const MAX_ROUNDS: u32 = 400;

#[test]
fn on_sqlite_an_owner_that_is_paused_past_its_lease_is_fenced() {
    assert_fenced_after_pause(Records::Ledger);
}

#[test]
fn on_postgres_an_owner_that_is_paused_past_its_lease_is_fenced() {
    assert_fenced_after_pause(Records::postgres());
}

#[cfg(feature = "mysql")]
#[test]
fn on_mysql_an_owner_that_is_paused_past_its_lease_is_fenced() {
    assert_fenced_after_pause(Records::mysql());
}

#[test]
fn on_sqlite_an_owner_that_is_paused_in_its_transaction_continues() {
    assert_continues_after_pause(Records::Ledger);
}

#[test]
fn on_postgres_an_owner_that_is_paused_in_its_transaction_continues() {
    assert_continues_after_pause(Records::postgres());
}

/// The owner of each attempt that was taken over is still alive. It continues without its key, in a
/// transaction that may already have moved the money.
fn assert_fenced_after_pause(records: Records) {
    let files = Files::with(records);
    let (paused, other, load) =
        (Payments::start(&files), Payments::start(&files), Load::new(CLAIM_LEASE));
    let fenced =
        || files.count_in_store("SELECT coalesce(sum(attempt - 1), 0) FROM idempotency_records");
    let taken_over = || {
        files.count_in_store(
            "SELECT count(*) FROM idempotency_records WHERE lease_until = 0 AND state = 1",
        )
    };
    let mut rounds = 0;
    while fenced() < MIN_FENCED {
        rounds += 1;
        assert!(rounds <= MAX_ROUNDS, "only {} attempts were taken over", fenced());
        let first = send(&load, &paused);
        pause(&files, &paused);
        files.expire_leases();
        let second: Vec<_> = first
            .iter()
            .map(|(number, _)| (*number, load.post(other.address, *number).unwrap()))
            .collect();
        await_that(|| taken_over() == 0, "the other server takes over");
        paused.resume();
        receive(&load, &other, first.into_iter().chain(second));
    }
    eprintln!("{} attempts taken over in {rounds} pauses: {}", fenced(), load.tally());
    complete_and_check(&files, &load);
}

/// No other attempt can be granted the key meanwhile. The retries wait, and then get the owner's
/// response.
fn assert_continues_after_pause(records: Records) {
    let files = Files::with(records);
    let (paused, other, load) =
        (Payments::start(&files), Payments::start(&files), Load::new(CLAIM_TRANSACTION));
    let (mut rounds, mut blocked) = (0, 0);
    while blocked < MIN_BLOCKED {
        rounds += 1;
        assert!(rounds <= MAX_ROUNDS, "only {blocked} pauses blocked other requests");
        let first = send(&load, &paused);
        paused.pause();
        let second: Vec<_> = first
            .iter()
            .map(|(number, _)| (*number, load.post(other.address, *number).unwrap()))
            .collect();
        blocked += u32::from(blocks_others(&files, &second));
        paused.resume();
        receive(&load, &other, first.into_iter().chain(second));
    }
    eprintln!("{blocked} of {rounds} pauses blocked other requests: {}", load.tally());
    assert_eq!(files.count_in_store("SELECT max(attempt) FROM idempotency_records"), 1);
    complete_and_check(&files, &load);
}

/// Sends new keys, and lets the server process them for a moment.
fn send(load: &Load, server: &Payments) -> Vec<(u64, Pending)> {
    let numbers: Vec<_> = (0..CONCURRENT_TRANSFERS).map(|_| load.begin()).collect();
    let pending = numbers
        .into_iter()
        .map(|number| (number, load.post(server.address, number).unwrap()))
        .collect();
    thread::sleep(Duration::from_micros(fastrand::u64(..12_000)));
    pending
}

/// Pauses a server. On SQLite, at a moment when it is not writing: while a paused server has the
/// lock of the file's single writer, no key can be taken over.
fn pause(files: &Files, server: &Payments) {
    server.pause();
    while files.is_file() && !files.can_write() {
        server.resume();
        thread::sleep(Duration::from_micros(fastrand::u64(..2_000)));
        server.pause();
    }
}

/// Whether the paused server has a lock that other requests wait for.
fn blocks_others(files: &Files, others: &[(u64, Pending)]) -> bool {
    if files.is_file() {
        return !files.can_write();
    }
    while !others.iter().all(|(_, pending)| pending.response_has_begun()) {
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
