//! A server is killed in the middle of a refund. An operator finds the operation, in the console
//! and with the program `idempotency`, looks at the bank's books, and resolves it; the client's
//! retry gets that response.

use std::process::Command;

use serde_json::{Value, json};
use test_support::Request;

use crate::payments::{
    pay, post,
    records::Records,
    server::{Files, Payments},
};

#[test]
fn a_killed_refund_is_found_resolved_and_replayed_on_sqlite() {
    resolve_a_killed_refund(&Files::with(Records::Sqlite), By::Console);
}

#[test]
fn a_killed_refund_is_found_resolved_and_replayed_on_postgres() {
    resolve_a_killed_refund(&Files::with(Records::postgres()), By::Program);
}

#[cfg(feature = "mysql")]
#[test]
fn a_killed_refund_is_found_resolved_and_replayed_on_mysql() {
    resolve_a_killed_refund(&Files::with(Records::mysql()), By::Program);
}

#[test]
fn a_killed_refund_is_found_resolved_and_replayed_on_redis() {
    resolve_a_killed_refund(&Files::with(Records::redis()), By::Console);
}

#[cfg(feature = "dynamodb")]
#[test]
fn a_killed_refund_is_found_resolved_and_replayed_on_dynamodb() {
    resolve_a_killed_refund(&Files::with(Records::dynamodb()), By::Program);
}

/// What the operator decides with. Everything else is looked at with both.
#[derive(Clone, Copy)]
enum By {
    Console,
    Program,
}

const REASON: &str = "the bank has the refund";

fn resolve_a_killed_refund(files: &Files, by: By) {
    let server = Payments::start(files);
    let paid = server.send(&pay("order-1", "pm_card_slow_500"));
    let order = format!("payment_intent={}", paid.json()["id"].as_str().unwrap());
    let refund = post("/v1/refunds", "refund-1", &order);
    let lost = server.begin(&refund);
    files.await_count_at_bank("SELECT count(*) FROM bank_transfers WHERE kind = 'refund'", 1);
    server.kill();
    assert!(lost.try_response().is_err(), "the server was killed too late");

    let server = Payments::start(files);
    files.end_leases();
    let operator = Operator { server: &server, files };
    // No request has met the key since, and it is in the list of held ones all the same.
    let listed = operator.get("/records?state=held");
    let id = listed["records"][0]["id"].as_str().unwrap_or_else(|| panic!("{listed}")).to_owned();
    let listed = operator.program(&["list", "--state", "held"]);
    assert_eq!(listed["records"][0]["id"], *id, "{listed}");

    // The client's retry is refused, and the log has the digits of the record.
    let held = server.send(&refund);
    assert_eq!(held.problem(), (409, "outcome_unknown".to_owned()));
    server.await_line(&id[..8]);
    let record = operator.find(&id);
    let reference = record["reference"].as_str().unwrap();
    assert_is_in_the_books(files, reference);
    let body = json!({ "id": reference, "object": "refund", "status": "succeeded" }).to_string();
    operator.complete(&id, record["seen"].as_str().unwrap(), &body, by);
    let replay = server.send(&refund);
    assert!(replay.is_replay());
    assert_eq!((replay.status, replay.text()), (200, body.as_str()));
    assert_eq!(
        files.count_at_bank("SELECT sum(requests) FROM bank_transfers WHERE kind = 'refund'"),
        1
    );

    operator.read_story(&id);
}

/// The reference leads to the refund, and its key to the bank's books.
fn assert_is_in_the_books(files: &Files, reference: &str) {
    assert_eq!(files.count(&format!("SELECT count(*) FROM refunds WHERE id = '{reference}'")), 1);
    let key = files.refund_key(reference);
    let booked = format!("SELECT count(*) FROM bank_transfers WHERE key = '{key}'");
    assert_eq!(files.count_at_bank(&booked), 1);
}

/// The namespace of the records: the name of the package with the server's handlers, which is a
/// target of the tests here.
const NAMESPACE: &str = env!("CARGO_PKG_NAME");

/// Whoever uses the computer of the server.
struct Operator<'a> {
    server: &'a Payments,
    files: &'a Files,
}

impl Operator<'_> {
    /// Finds the held record by the digits of a log line, and by the key that the client has sent,
    /// with both; returns what is shown of it.
    fn find(&self, id: &str) -> Value {
        let digits = &id[..8];
        let whole = self.get(&format!("/records/{digits}"));
        let key =
            json!({ "key": "refund-1", "operation": "POST /v1/refunds", "scope": "user:alice" });
        assert_eq!(self.post("/find", &key).1["id"], *id);
        let by_digits = self.program(&["show", digits]);
        let by_key = self.program(&[
            "show",
            "--key",
            "refund-1",
            "--operation",
            "POST /v1/refunds",
            "--scope",
            "user:alice",
            "--namespace",
            NAMESPACE,
        ]);
        for shown in [&whole["record"], &by_digits, &by_key] {
            assert_eq!((&shown["id"], &shown["state"]), (&json!(id), &json!("held")), "{shown}");
            assert_eq!(shown["seen"], whole["record"]["seen"]);
        }
        whole["record"].clone()
    }

    fn complete(&self, id: &str, seen: &str, body: &str, by: By) {
        match by {
            By::Console => {
                let response =
                    json!({ "status": 200, "content_type": "application/json", "body": body });
                let decision = json!({ "seen": seen, "reason": REASON, "response": response });
                let (status, done) = self.post(&format!("/records/{id}/resolve"), &decision);
                assert_eq!(status, 200, "{done}");
                // A page that was loaded before is out of date.
                let release = json!({ "seen": seen, "reason": REASON });
                let (status, stale) = self.post(&format!("/records/{id}/release"), &release);
                assert_eq!((status, &stale["code"]), (409, &json!("conflict")));
            }
            By::Program => {
                let decision = ["resolve", id, "--seen", seen, "--reason", REASON, "--yes"];
                let response = ["--status", "200", "--content-type", "application/json"];
                let rest = ["--body", body, "--actor", "ada"];
                self.program(&[&decision[..], &response, &rest].concat());
            }
        }
    }

    /// The console and the program have the whole story.
    fn read_story(&self, id: &str) {
        let story = self.get(&format!("/records/{id}"))["story"].clone();
        assert_eq!(self.program(&["explain", id]), story);
        let text = story.to_string();
        for part in ["claimed the key", "held", "200", REASON] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(story["state"], "completed");
    }

    fn get(&self, path: &str) -> Value {
        let response = self.server.send(&Request::new("GET", &format!("/console/api{path}")));
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        response.json()
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = Request::post(&format!("/console/api{path}"));
        let response = self.server.send(&request.json(body.to_string()));
        (response.status, response.json())
    }

    /// Runs the program, which must succeed, and returns its JSON.
    fn program(&self, arguments: &[&str]) -> Value {
        let ran = Command::new(env!("CARGO_BIN_EXE_operators-program"))
            .args(arguments)
            .arg("--json")
            .env("IDEMPOTENCY_URL", self.files.store())
            // The emulator of DynamoDB accepts any credentials.
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .output()
            .unwrap();
        let output = String::from_utf8(ran.stdout).unwrap();
        assert!(
            ran.status.success(),
            "{arguments:?}: {output} {:?}",
            String::from_utf8(ran.stderr)
        );
        serde_json::from_str(&output).unwrap()
    }
}
