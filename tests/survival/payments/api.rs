//! The API's responses, in the form that Stripe's client libraries expect.

use std::{
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use serde_json::json;
use test_support::{ClientResponse, Request};

use crate::payments::{
    pay, post,
    server::{Files, Payments},
};

fn get(path: &str, user: &str) -> Request {
    Request::new("GET", path).header("Authorization", format!("Bearer sk_test_{user}"))
}

/// The status, the type and code of the error, and whether Stripe's libraries retry.
fn refusal(response: &ClientResponse) -> (u16, String, String, String) {
    let error = &response.json()["error"];
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    let again = response.header("stripe-should-retry").unwrap_or_default().to_owned();
    (response.status, text("type"), text("code"), again)
}

fn refused(status: u16, kind: &str, code: &str, again: &str) -> (u16, String, String, String) {
    (status, kind.to_owned(), code.to_owned(), again.to_owned())
}

#[test]
fn a_declined_card_is_final_and_is_replayed() {
    let files = Files::new();
    let server = Payments::start(&files);
    let first = server.send(&pay("order-1", "pm_card_chargeDeclined"));
    assert_eq!(refusal(&first), refused(402, "card_error", "card_declined", "false"));
    server.send(&pay("order-1", "pm_card_chargeDeclined")).assert_replays(&first);
    server.await_line("402  replayed");
}

#[test]
fn a_payment_whose_processor_is_down_releases_its_key() {
    let files = Files::new();
    let server = Payments::start(&files);
    for _ in 0..2 {
        let response = server.send(&pay("order-1", "pm_card_processorDown"));
        assert_eq!(refusal(&response), refused(503, "api_error", "processor_unavailable", "true"));
        assert!(!response.is_replay());
    }
    assert_eq!(files.count_at_bank("SELECT count(*) FROM bank_transfers"), 0);
}

#[test]
fn a_handler_that_panics_is_taken_over_and_finds_its_charge() {
    let files = Files::new();
    let server = Payments::start(&files);
    let response = server.send(&pay("order-1", "pm_card_crash"));
    assert_eq!(refusal(&response), refused(500, "api_error", "handler_failed", "true"));
    let response = server.send(&pay("order-1", "pm_card_crash"));
    assert_eq!((response.status, &response.json()["status"]), (200, &"succeeded".into()));
    assert_eq!(files.count_at_bank("SELECT sum(requests) FROM bank_transfers"), 1);
    server.await_line("500  handler_failed");
}

#[test]
fn json_equals_a_form_with_the_same_fields_and_another_payload_is_refused() {
    let files = Files::new();
    let server = Payments::start(&files);
    let order = json!({
        "amount": 2000,
        "currency": "usd",
        "payment_method": "pm_card_visa",
        "confirm": true
    });
    let request = |key: &str, body: &serde_json::Value| {
        let request = Request::post("/v1/payment_intents")
            .header("Authorization", "Bearer sk_test_alice")
            .key(key);
        request.json(body.to_string())
    };
    let paid = server.send(&request("order-1", &order));
    assert_eq!((paid.status, &paid.json()["status"]), (200, &"succeeded".into()));
    let other = json!({ "amount": 1, "currency": "usd" });
    let response = server.send(&request("order-1", &other));
    assert_eq!(refusal(&response), refused(422, "idempotency_error", "key_reused", "false"));
    let response =
        server.send(&request("order-1", &other).header("X-Stripe-Client-User-Agent", "{}"));
    assert_eq!(refusal(&response), refused(400, "idempotency_error", "key_reused", "false"));
    let response = server.send(&request("order-2", &json!({ "amount": 0, "currency": "usd" })));
    assert_eq!((response.status, &response.json()["error"]["param"]), (400, &"amount".into()));
}

#[test]
fn a_user_needs_an_api_key_and_sees_only_their_payments() {
    let files = Files::new();
    let server = Payments::start(&files);
    let paid = server.send(&pay("order-1", "pm_card_visa")).json();
    let path = format!("/v1/payment_intents/{}", paid["id"].as_str().unwrap());
    assert_eq!(server.send(&get(&path, "alice")).json(), paid);
    assert_eq!(refusal(&server.send(&get(&path, "bob"))).0, 404);
    assert_eq!(server.send(&get("/v1/payment_intents", "bob")).json()["data"], json!([]));
    let anonymous = server.send(&Request::new("GET", "/v1/payment_intents"));
    assert_eq!(
        (anonymous.status, &anonymous.json()["error"]["type"]),
        (401, &"invalid_request_error".into())
    );
}

#[test]
fn refunds_cannot_exceed_the_payment() {
    let files = Files::new();
    let server = Payments::start(&files);
    let paid = server.send(&pay("order-1", "pm_card_visa")).json();
    let refund = |key: &str, amount: u32| {
        let body = format!("payment_intent={}&amount={amount}", paid["id"].as_str().unwrap());
        server.send(&post("/v1/refunds", key, &body))
    };
    assert_eq!(refund("refund-1", 1500).json()["status"], "succeeded");
    assert_eq!((refund("refund-2", 501).status, refund("refund-3", 500).status), (400, 200));
    assert!(refund("refund-1", 1500).is_replay());
    assert_eq!(
        files.count_at_bank("SELECT sum(amount) FROM bank_transfers WHERE kind = 'refund'"),
        2000
    );
}

#[test]
fn a_refund_whose_amount_cannot_be_read_refunds_nothing_and_keeps_its_key_free() {
    let files = Files::new();
    let server = Payments::start(&files);
    let paid = server.send(&pay("order-1", "pm_card_visa")).json();
    let intent = paid["id"].as_str().unwrap();
    let invalid = "parameter_invalid_integer";
    for (rest, code) in [
        ("&amount=", invalid),
        ("&amount=%20", invalid),
        ("&amount=5.00", invalid),
        ("&amount[]=5", invalid),
        ("&amount[0]=5", invalid),
        ("&amount=5&amount[]=5", invalid),
        ("&amout=5", "parameter_unknown"),
        ("&Amount=5", "parameter_unknown"),
    ] {
        let request = post("/v1/refunds", "refund-1", &format!("payment_intent={intent}{rest}"));
        let refused = refusal(&server.send(&request));
        assert_eq!((refused.0, &*refused.2), (400, code), "{rest}");
    }
    for amount in [json!(null), json!([5]), json!({ "cents": 5 }), json!({}), json!("")] {
        let body = json!({ "payment_intent": intent, "amount": amount });
        let request = Request::post("/v1/refunds")
            .header("Authorization", "Bearer sk_test_alice")
            .header("Idempotency-Key", "refund-1")
            .json(body.to_string());
        let refused = refusal(&server.send(&request));
        assert_eq!((refused.0, &*refused.2), (400, invalid), "{amount}");
    }
    let refunds = "SELECT coalesce(sum(amount), 0) FROM bank_transfers WHERE kind = 'refund'";
    assert_eq!(files.count_at_bank(refunds), 0);
    // The key was not claimed.
    let body = format!("payment_intent={intent}&amount=5&metadata[a]=b&reason=duplicate");
    assert_eq!(server.send(&post("/v1/refunds", "refund-1", &body)).status, 200);
    assert_eq!(files.count_at_bank(refunds), 5);
}

#[test]
fn a_refund_waits_for_the_first_response() {
    let files = Files::new();
    let server = Payments::start(&files);
    let paid = server.send(&pay("order-1", "pm_card_slow_700")).json();
    let refund = post(
        "/v1/refunds",
        "refund-1",
        &format!("payment_intent={}", paid["id"].as_str().unwrap()),
    );
    let first = server.begin(&refund);
    files.await_count_at_bank("SELECT count(*) FROM bank_transfers WHERE kind = 'refund'", 1);
    let second = server.send(&refund);
    second.assert_replays(&first.response());
    assert_eq!(
        files.count_at_bank("SELECT sum(requests) FROM bank_transfers WHERE kind = 'refund'"),
        1
    );
}

#[test]
fn the_specification_is_published() {
    let files = Files::new();
    let server = Payments::start(&files);
    let specification = server.send(&Request::new("GET", "/idempotency")).json();
    let operations = specification["operations"].as_array().unwrap();
    let of = |path: &str| {
        operations.iter().find(|operation| operation["routes"][0]["path"] == path).unwrap()
    };
    let payments = of("/v1/payment_intents");
    assert_eq!((&payments["lease_seconds"], &payments["wait_seconds"]), (&5.0.into(), &0.0.into()));
    let refunds = of("/v1/refunds");
    assert_eq!(
        (&refunds["wait_seconds"], &refunds["abandoned"]),
        (&5.0.into(), &"retry_then_hold".into())
    );
}

#[test]
fn the_server_opens_its_store_before_it_listens() {
    let files = Files::new();
    // At an address of its own: another test cannot listen at the same port of it.
    let free = TcpListener::bind("127.27.0.1:0").unwrap().local_addr().unwrap();
    // A store that accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let store = format!("postgres://payments@{}/payments", silent.local_addr().unwrap());
    let mut starting = Payments::spawn_at(&files, &free.to_string(), &store);
    let mut connections = Vec::new();
    let mut connected = false;
    for _ in 0..1_000 {
        thread::sleep(Duration::from_millis(20));
        connected |= TcpStream::connect(free).is_ok();
        connections.extend(silent.accept());
        if !connections.is_empty() {
            // It waits for its store.
            thread::sleep(Duration::from_millis(500));
            connected |= TcpStream::connect(free).is_ok();
            break;
        }
    }
    starting.kill().unwrap();
    starting.wait().unwrap();
    assert!(!connections.is_empty(), "it has not connected to its store");
    assert!(!connected, "it listens, and its store is not open");
}
