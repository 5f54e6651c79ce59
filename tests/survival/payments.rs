//! The payments server as its users run it: several processes on one store, killed, stopped, and
//! disconnected by their clients.

mod api;
mod contention;
mod getting_started;
mod kills_in_turn;
mod operators;
mod outages;
mod page;
pub(crate) mod records;
pub(crate) mod server;
mod suspended;
mod transfers;
mod two_servers;

use std::net::TcpStream;

use server::{Files, Payments, await_that};
use test_support::Request;

fn pay(key: &str, card: &str) -> Request {
    let body = format!("amount=2000&currency=usd&payment_method={card}&confirm=true");
    post("/v1/payment_intents", key, &body)
}

fn post(path: &str, key: &str, body: &str) -> Request {
    Request::post(path)
        .header("Authorization", "Bearer sk_test_alice")
        .header("Content-Type", "application/x-www-form-urlencoded")
        .key(key)
        .body(body)
}

fn payments_of_alice(server: &Payments) -> usize {
    let list =
        Request::new("GET", "/v1/payment_intents").header("Authorization", "Bearer sk_test_alice");
    server.send(&list).json()["data"].as_array().unwrap().len()
}

#[test]
fn a_payment_whose_server_is_killed_succeeds_after_the_lease_and_is_charged_once() {
    let files = Files::new();
    let server = Payments::start(&files);
    let lost = server.begin(&pay("order-1", "pm_card_slow_500"));
    files.await_count_at_bank("SELECT count(*) FROM bank_transfers", 1);
    server.kill();
    assert!(lost.try_response().is_err(), "the server was killed too late");

    let server = Payments::start(&files);
    let early = server.send(&pay("order-1", "pm_card_slow_500"));
    assert_eq!((early.status, &early.json()["code"]), (409, &"in_flight".into()));
    assert!(early.header("retry-after").is_some());
    files.end_leases();
    let response = server.send(&pay("order-1", "pm_card_slow_500"));
    assert_eq!((response.status, &response.json()["status"]), (200, &"succeeded".into()));
    assert!(!response.is_replay());
    server.send(&pay("order-1", "pm_card_slow_500")).assert_replays(&response);

    // The second attempt asks the bank, and finds the charge of the first.
    assert_eq!(files.count_at_bank("SELECT count(*) FROM bank_transfers"), 1);
    assert_eq!(files.count_at_bank("SELECT sum(requests) FROM bank_transfers"), 1);
    assert_eq!(payments_of_alice(&server), 1);
}

#[test]
fn a_payment_whose_charge_is_still_in_progress_at_the_bank_is_held() {
    let files = Files::new();
    let bank = Payments::start_bank(&files);
    let start = || Payments::start_with(&files, &files.store(), bank.address, &[]);
    let request = pay("order-1", "pm_card_visa");
    let (server, held) = files.while_bank_locked(|| {
        let server = start();
        let lost = server.begin(&request);
        files.await_count("SELECT count(*) FROM payment_intents", 1);
        let key = files.query_store("SELECT charge_key FROM payment_intents").remove(0);
        let look_up = Request::new("GET", &format!("/charges/{key}"));
        await_that(|| bank.send(&look_up).json()["status"] == "unknown", "the bank works on it");
        server.kill();
        assert!(lost.try_response().is_err(), "the server was killed too late");
        let server = start();
        files.end_leases();
        let held = server.send(&request);
        (server, held)
    });
    assert_eq!(held.problem(), (409, "outcome_unknown".to_owned()));
    files.await_count_at_bank("SELECT count(*) FROM bank_transfers", 1);
    let held = server.send(&request);
    assert_eq!(held.problem(), (409, "outcome_unknown".to_owned()));
    let look_up = Request::new("GET", "/idempotency/keys/order-1")
        .header("Authorization", "Bearer sk_test_alice");
    let found = server.send(&look_up).json();
    assert_eq!((&found["state"], &found["reference"]), (&"held".into(), &held.json()["reference"]));
    assert!(found["reference"].as_str().is_some_and(|payment| payment.starts_with("pi_")));
}

#[test]
fn a_refund_whose_server_is_killed_never_runs_again() {
    let files = Files::new();
    let server = Payments::start(&files);
    let paid = server.send(&pay("order-1", "pm_card_slow_500"));
    let order = format!("payment_intent={}", paid.json()["id"].as_str().unwrap());
    let refund = post("/v1/refunds", "refund-1", &order);
    let lost = server.begin(&refund);
    files.await_count_at_bank("SELECT count(*) FROM bank_transfers WHERE kind = 'refund'", 1);
    server.kill();
    assert!(lost.try_response().is_err(), "the server was killed too late");

    let server = Payments::start(&files);
    files.end_leases();
    for _ in 0..2 {
        let response = server.send(&refund);
        assert_eq!((response.status, &response.json()["code"]), (409, &"outcome_unknown".into()));
        assert_eq!(response.header("retry-after"), None);
        assert_eq!(response.header("stripe-should-retry"), Some("false"));
        // Not even after its ttl.
        files.end_ttls();
    }
    assert_eq!(
        files.count_at_bank("SELECT sum(requests) FROM bank_transfers WHERE kind = 'refund'"),
        1
    );
}

#[test]
fn a_client_that_disconnects_during_a_payment_and_retries_pays_once() {
    let files = Files::new();
    let server = Payments::start(&files);
    disconnect_during_payment(&server, &files);
    files.await_count("SELECT count(*) FROM idempotency_records WHERE state = 2", 1);
    let response = server.send(&pay("order-1", "pm_card_slow_500"));
    assert!(response.is_replay());
    assert_eq!((response.status, &response.json()["status"]), (200, &"succeeded".into()));
    assert_eq!(files.count_at_bank("SELECT sum(requests) FROM bank_transfers"), 1);
    assert_eq!(payments_of_alice(&server), 1);
}

#[test]
fn a_payment_whose_client_disconnected_is_finished_before_the_server_stops() {
    let files = Files::new();
    let server = Payments::start(&files);
    disconnect_during_payment(&server, &files);
    assert_eq!(
        files.count("SELECT count(*) FROM idempotency_records WHERE state = 2"),
        0,
        "the payment completed before the disconnect"
    );
    assert!(server.stop().success());
    assert_eq!(files.count("SELECT count(*) FROM idempotency_records WHERE state = 2"), 1);
    let server = Payments::start(&files);
    assert!(server.send(&pay("order-1", "pm_card_slow_500")).is_replay());
    assert_eq!(files.count_at_bank("SELECT sum(requests) FROM bank_transfers"), 1);
}

/// Sends a payment, and resets the connection once the bank has received it.
fn disconnect_during_payment(server: &Payments, files: &Files) {
    use std::io::Write;
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(&pay("order-1", "pm_card_slow_500").bytes()).unwrap();
    files.await_count_at_bank("SELECT count(*) FROM bank_transfers", 1);
    socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(stream);
    server.await_line("hung up");
}
