//! Transfers, which are committed together with their record: each key moves its money exactly
//! once, whatever happens to the servers.

mod audit;
mod duplicates;
mod kills;
mod load;
mod pauses;
mod refusals;

use duplicates::many_clients_at_several_servers_get_one_response_per_key;
use kills::{
    a_server_that_is_killed_leaves_its_transfers_to_the_other_one,
    hostile_servers_that_are_killed_under_load_make_each_transfer_once,
    servers_that_are_killed_under_load_make_each_transfer_once,
};
use load::Load;
use refusals::a_transfer_that_is_refused_moves_nothing_and_stays_refused;

use crate::payments::server::{Files, Payments, await_that};

/// The route with `claim = "transaction"`.
const CLAIM_TRANSACTION: &str = "/v1/transfers";
/// The route with `claim = "lease"`.
const CLAIM_LEASE: &str = "/v1/transfers/leased";

/// The number of database sessions that wait for a lock.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
    AND wait_event_type = 'Lock'";

macro_rules! on_each_database_with_each_claim {
    ($($test:ident)*) => {
        mod sqlite_claim_transaction {
            use crate::payments::records::Records;
            $(#[test] fn $test() { super::$test(Records::Ledger, super::CLAIM_TRANSACTION); })*
        }
        mod sqlite_claim_lease {
            use crate::payments::records::Records;
            $(#[test] fn $test() { super::$test(Records::Ledger, super::CLAIM_LEASE); })*
        }
        mod postgres_claim_transaction {
            use crate::payments::records::Records;
            $(#[test] fn $test() { super::$test(Records::postgres(), super::CLAIM_TRANSACTION); })*
        }
        mod postgres_claim_lease {
            use crate::payments::records::Records;
            $(#[test] fn $test() { super::$test(Records::postgres(), super::CLAIM_LEASE); })*
        }
        #[cfg(feature = "mysql")]
        mod mysql_claim_transaction {
            use crate::payments::records::Records;
            $(#[test] fn $test() { super::$test(Records::mysql(), super::CLAIM_TRANSACTION); })*
        }
        #[cfg(feature = "mysql")]
        mod mysql_claim_lease {
            use crate::payments::records::Records;
            $(#[test] fn $test() { super::$test(Records::mysql(), super::CLAIM_LEASE); })*
        }
    };
}

on_each_database_with_each_claim! {
    a_transfer_that_is_refused_moves_nothing_and_stays_refused
    many_clients_at_several_servers_get_one_response_per_key
    servers_that_are_killed_under_load_make_each_transfer_once
    hostile_servers_that_are_killed_under_load_make_each_transfer_once
    a_server_that_is_killed_leaves_its_transfers_to_the_other_one
}

/// Completes all open keys at one server, and compares the accounts with the responses that the
/// clients got.
fn complete_and_check(files: &Files, load: &Load) {
    let server = Payments::start(files);
    load.set_servers(&[server.address]);
    for number in load.open() {
        load.send_until_final(server.address, number);
    }
    let before = load.tally();
    let again = load.some_completed(200);
    for number in &again {
        load.send_until_final(server.address, *number);
    }
    let tally = load.tally();
    assert_eq!((tally.ran, tally.replays), (before.ran, before.replays + again.len() as u64));

    let (completed, moved) = load.completed();
    assert!(
        moved > 0 && moved < completed,
        "{moved} of {completed} transfers were made, so none was made or none was refused"
    );
    assert_eq!(files.query_store("SELECT id FROM transfers ORDER BY id"), load.transfers());
    assert_eq!(
        files.query_store("SELECT id || ' ' || CAST(balance AS text) FROM accounts ORDER BY id"),
        load.balances()
    );
    let count = |number: &str| usize::try_from(files.count_in_store(number)).unwrap();
    assert_eq!(count("SELECT count(DISTINCT record) FROM transfers"), moved);
    assert_eq!(count("SELECT count(*) FROM idempotency_records"), completed);
    assert_eq!(count("SELECT count(*) FROM idempotency_records WHERE state = 2"), completed);
    if let Some(idle) = files.open_transactions() {
        await_that(|| count(idle) == 0, "no transaction is left open");
    } else {
        assert_eq!(files.query_store("PRAGMA integrity_check"), ["ok"]);
        assert_eq!(
            files.query_store("SELECT parent FROM pragma_foreign_key_check"),
            Vec::<String>::new()
        );
    }
}
