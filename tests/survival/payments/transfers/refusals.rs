//! Transfers that are refused or aborted, and their responses.

use test_support::{ClientResponse, Request};

use super::{CLAIM_LEASE, CLAIM_TRANSACTION};
use crate::payments::{
    post,
    records::Records,
    server::{Files, Payments},
};

fn accounts(server: &Payments) -> ClientResponse {
    server
        .send(&Request::new("GET", "/v1/accounts").header("Authorization", "Bearer sk_test_alice"))
}

fn code(response: &ClientResponse) -> (u16, String) {
    (response.status, response.json()["error"]["code"].as_str().unwrap().to_owned())
}

/// In the first transfer the receiving account comes first in the order of the accounts, so it is
/// credited before the other account turns out to have too little money.
pub(super) fn a_transfer_that_is_refused_moves_nothing_and_stays_refused(
    records: Records,
    path: &'static str,
) {
    let files = Files::with(records);
    let server = Payments::start(&files);
    let before = accounts(&server).json();
    for (key, order, refusal) in [
        ("too-much", "from=dave&to=alice&amount=100001", (402, "balance_insufficient")),
        ("no-such-sender", "from=eve&to=alice&amount=1", (404, "resource_missing")),
        ("no-such-receiver", "from=alice&to=eve&amount=1", (404, "resource_missing")),
    ] {
        let first = server.send(&post(path, key, order));
        assert_eq!(code(&first), (refusal.0, refusal.1.to_owned()));
        server.send(&post(path, key, order)).assert_replays(&first);
    }
    for order in [
        "from=alice&to=alice&amount=1",
        "from=alice&to=bob&amount=0",
        "from=alice&amount=1",
        "from=alice&to=bob",
    ] {
        assert_eq!(server.send(&post(path, "nonsense", order)).status, 400, "{order}");
    }
    assert_eq!(accounts(&server).json(), before);
    assert_eq!(files.count_in_store("SELECT count(*) FROM transfers"), 0);

    // The whole balance can be transferred.
    let made = server.send(&post(path, "everything", "from=dave&to=alice&amount=100000"));
    assert_eq!((made.status, &made.json()["balance"]), (200, &0.into()));
    assert_eq!(accounts(&server).json()["data"][0]["balance"], 200_000);
}

/// The first two transactions fail with errors of Postgres. A sequence counts them, because it is
/// not rolled back.
fn assert_conflicts_can_be_retried(path: &str) {
    let files = Files::with(Records::postgres());
    let server = Payments::start(&files);
    files.prepare_store(
        "CREATE SEQUENCE tries;
         CREATE FUNCTION fail_twice() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             CASE nextval('tries')
                 WHEN 1 THEN RAISE EXCEPTION 'a deadlock' USING ERRCODE = 'deadlock_detected';
                 WHEN 2 THEN RAISE EXCEPTION 'a conflict' USING ERRCODE = 'serialization_failure';
                 ELSE RETURN NEW;
             END CASE;
         END $$;
         CREATE TRIGGER fail_twice BEFORE INSERT ON transfers \
         FOR EACH ROW EXECUTE FUNCTION fail_twice()",
    );
    let transfer = post(path, "rent", "from=alice&to=bob&amount=2500");
    for _ in 0..2 {
        let refused = server.send(&transfer);
        assert_eq!(code(&refused), (503, "ledger_busy".to_owned()));
        assert_eq!(refused.header("stripe-should-retry"), Some("true"));
    }
    let made = server.send(&transfer);
    assert_eq!((made.status, made.is_replay()), (200, false));
    assert_eq!(made.json()["balance"], 97_500);
    assert_eq!(files.count_in_store("SELECT last_value FROM tries"), 3);
    assert_eq!(files.count_in_store("SELECT count(*) FROM transfers"), 1);
}

#[test]
fn with_claim_transaction_a_transfer_that_a_conflict_aborted_can_be_retried() {
    assert_conflicts_can_be_retried(CLAIM_TRANSACTION);
}

#[test]
fn with_claim_lease_a_transfer_that_a_conflict_aborted_can_be_retried() {
    assert_conflicts_can_be_retried(CLAIM_LEASE);
}

#[test]
fn transfers_need_a_store_with_transactions() {
    let files = Files::with(Records::redis());
    let server = Payments::start(&files);
    server.await_line("transfers none");
    assert_eq!(
        code(&server.send(&post(CLAIM_LEASE, "rent", "from=alice&to=bob&amount=1"))),
        (404, "url_unknown".to_owned())
    );
    assert_eq!(code(&accounts(&server)), (404, "url_unknown".to_owned()));
}
