//! A call of the tool moves the money once, whatever happens to its result.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use actix_web::{App, test::TestRequest, web::Data};
use agent::{Bank, configure, settings};
use futures_util::future::join_all;
use idempotent_actix::RequestOutcome;
use idempotent_test::{TestResponse, TestService};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A server, and its bank.
struct Agent {
    service: TestService,
    bank: Bank,
    _directory: TempDir,
}

impl Agent {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("bank.db");
        let bank = Bank::open(file.to_str().unwrap(), Duration::from_millis(1)).await.unwrap();
        let shared = bank.clone();
        let service = TestService::new(move |idempotency| {
            App::new()
                .app_data(idempotency)
                .app_data(Data::new(shared.clone()))
                .configure(configure)
        });
        let service = service.configured(|builder| settings(builder).wait(Duration::ZERO));
        Self { service, bank, _directory: directory }
    }

    /// How many refunds the bank has made.
    async fn refunds(&self) -> usize {
        self.bank.refunds().await.unwrap().len()
    }
}

fn post(message: &Value) -> TestRequest {
    TestRequest::post()
        .uri("/mcp")
        .insert_header(("Authorization", "Bearer support"))
        .insert_header(("MCP-Protocol-Version", "2025-11-25"))
        .set_payload(message.to_string())
}

fn message(id: u64, arguments: &Value) -> Value {
    let params = json!({
        "name": "refund", "arguments": arguments, "_meta": { "progressToken": id }
    });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

fn call(id: u64, call_id: &str, order: &str, cents: u64) -> TestRequest {
    post(&message(id, &json!({ "call_id": call_id, "order": order, "cents": cents })))
}

/// The envelope of a response, whose status is that of a result.
fn envelope(response: &TestResponse) -> Value {
    assert_eq!(response.status, 200, "{}", response.text());
    serde_json::from_str(response.text()).unwrap()
}

/// The text of an error that a model reads.
fn error(response: &TestResponse) -> String {
    let result = &envelope(response)["result"];
    assert_eq!(result["isError"], true, "{result}");
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

#[actix_web::test]
async fn a_client_finds_the_tool() {
    let agent = Agent::new().await;
    for (requested, version) in [("2025-06-18", "2025-06-18"), ("2024-11-05", "2025-11-25")] {
        let params = json!({ "protocolVersion": requested });
        let request =
            json!({ "jsonrpc": "2.0", "id": "a", "method": "initialize", "params": params });
        let response = envelope(&agent.service.call(post(&request)).await);
        assert_eq!(response["id"], "a");
        assert_eq!(response["result"]["protocolVersion"], version);
    }
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let response = agent.service.call(post(&notification)).await;
    assert_eq!((response.status.as_u16(), response.text()), (202, ""));
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let response = envelope(&agent.service.call(post(&list)).await);
    let tool = &response["result"]["tools"][0];
    assert_eq!(tool["annotations"]["idempotentHint"], true);
    assert_eq!(tool["inputSchema"]["required"][0], "call_id");
}

#[actix_web::test]
async fn messages_that_are_not_calls_of_the_tool_are_refused() {
    let agent = Agent::new().await;
    let arguments = json!({ "call_id": "c-1", "order": "o-7", "cents": 1250 });
    let with = |member: &str, value: Value| {
        let mut message = message(1, &arguments);
        message[member] = value;
        message
    };
    let other_tool = with("params", json!({ "name": "transfer" }));
    for (message, status, code) in [
        (with("method", json!("tools/move")), 200, -32601),
        (other_tool, 200, -32602),
        (with("id", Value::Null), 400, -32600),
        (with("jsonrpc", json!("1.0")), 400, -32600),
        (json!([message(1, &arguments)]), 400, -32600),
    ] {
        let response = agent.service.call(post(&message)).await;
        let body: Value = serde_json::from_str(response.text()).unwrap();
        assert_eq!((response.status.as_u16(), &body["error"]["code"]), (status, &json!(code)));
    }
    for (name, value, status) in
        [("Origin", "https://example.com", 403), ("MCP-Protocol-Version", "2026-07-28", 400)]
    {
        let request = call(1, "c-1", "o-7", 1250).insert_header((name, value));
        assert_eq!(agent.service.call(request).await.status, status);
    }
    let response = agent.service.call(TestRequest::get().uri("/mcp")).await;
    assert_eq!(response.status, 405);
    let unauthenticated = TestRequest::post().uri("/mcp");
    let unauthenticated = unauthenticated.set_payload(message(1, &arguments).to_string());
    assert_eq!(agent.service.call(unauthenticated).await.status, 401);
    assert_eq!(agent.refunds().await, 0);
}

#[actix_web::test]
async fn a_repeated_call_gets_the_same_bytes_and_moves_money_once() {
    let agent = Agent::new().await;
    let first = agent.service.call(call(1, "c-1", "o-7", 1250)).await;
    let result = &envelope(&first)["result"];
    assert_eq!(result["isError"], false);
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("Refunded 12.50 for order o-7. Memo: refund "), "{text}");
    let repeated = agent.service.call(call(1, "c-1", "o-7", 1250)).await;
    assert_eq!(repeated.body, first.body);
    assert_eq!(repeated.headers.get("idempotency-replayed").unwrap(), "true");
    // A client that knows no ids of requests any more sends another one, and other metadata.
    let repeated = envelope(&agent.service.call(call(2, "c-1", "o-7", 1250)).await);
    assert_eq!(repeated["id"], 2);
    assert_eq!(&repeated["result"], result);
    assert_eq!(agent.refunds().await, 1);
    // The same id of a request is another call.
    agent.service.call(call(1, "c-2", "o-7", 1250)).await;
    assert_eq!(agent.refunds().await, 2);
}

#[actix_web::test]
async fn calls_at_once_move_money_once() {
    let agent = Agent::new().await;
    let calls = (0..8).map(|id| agent.service.call(call(id, "c-1", "o-7", 1250)));
    let responses = join_all(calls).await;
    assert_eq!(agent.refunds().await, 1);
    let ran = responses.iter().filter(|each| each.outcome == Some(RequestOutcome::Ran));
    assert_eq!(ran.count(), 1);
    for response in responses.iter().filter(|each| each.outcome != Some(RequestOutcome::Ran)) {
        let text = error(response);
        assert!(
            text.starts_with("This refund is still in progress. Call the tool again"),
            "{text}"
        );
    }
}

#[actix_web::test]
async fn other_arguments_with_the_same_id_are_refused_in_words() {
    let agent = Agent::new().await;
    agent.service.call(call(1, "c-1", "o-7", 1250)).await;
    for other in [call(2, "c-1", "o-7", 1300), call(2, "c-1", "o-8", 1250)] {
        let text = error(&agent.service.call(other).await);
        assert!(text.starts_with("This call moved no money: an earlier call"), "{text}");
    }
    assert_eq!(agent.refunds().await, 1);
}

#[actix_web::test]
async fn arguments_that_cannot_be_read_are_explained_and_not_claimed() {
    let agent = Agent::new().await;
    for (arguments, expected) in [
        (json!({ "order": "o-7", "cents": 1250 }), "No money was moved. The argument call_id"),
        (
            json!({ "call_id": "é", "order": "o-7", "cents": 1250 }),
            "No money was moved. The argument call_id",
        ),
        (
            json!({ "call_id": "c-1", "order": "o-7", "cents": 0 }),
            "No money was moved. Invalid arguments:",
        ),
        (json!({ "call_id": "c-1", "cents": 1250 }), "No money was moved. Invalid arguments:"),
    ] {
        let text = error(&agent.service.call(post(&message(1, &arguments))).await);
        assert!(text.starts_with(expected), "{text}");
    }
    let response = agent.service.call(call(2, "c-1", "o-7", 1250)).await;
    assert_eq!(response.outcome, Some(RequestOutcome::Ran));
}

#[actix_web::test]
async fn a_refusal_of_the_bank_is_recorded() {
    let agent = Agent::new().await;
    let first = agent.service.call(call(1, "c-1", "o-7", 100_001)).await;
    let expected = "No money was moved. The bank refunds at most 1000.00 at once.";
    assert_eq!(error(&first), expected);
    let repeated = agent.service.call(call(1, "c-1", "o-7", 100_001)).await;
    assert_eq!(repeated.body, first.body);
    assert_eq!(repeated.outcome, Some(RequestOutcome::Replayed));
}

#[actix_web::test]
async fn after_a_lost_response_of_the_bank_the_outcome_is_unknown() {
    let agent = Agent::new().await;
    let first = agent.service.call(call(1, "c-1", "lost-7", 1250)).await;
    let repeated = agent.service.call(call(2, "c-1", "lost-7", 1250)).await;
    assert_eq!(repeated.outcome, Some(RequestOutcome::OutcomeUnknown));
    let refunds = agent.bank.refunds().await.unwrap();
    let [(memo, ..)] = refunds.as_slice() else { panic!("{refunds:?}") };
    for response in [first, repeated] {
        let text = error(&response);
        assert!(text.starts_with("It is not known whether this refund was made."), "{text}");
        assert!(text.ends_with(&format!("Reference: {memo}.")), "{text}");
    }
}

#[actix_web::test]
async fn a_call_whose_key_is_held_does_not_run() {
    let agent = Agent::new().await;
    agent.service.leave_held(call(1, "c-1", "o-7", 1250)).await;
    let text = error(&agent.service.call(call(2, "c-1", "o-7", 1250)).await);
    assert!(text.contains("neither with this call_id nor with a new one"), "{text}");
    assert_eq!(agent.refunds().await, 0);
}

#[actix_web::test]
async fn a_call_moves_money_once_wherever_it_is_interrupted() {
    let agent = Agent::new().await;
    let books = agent.bank.clone();
    let proved = agent
        .service
        .prove_by(|key| call(1, key, "o-7", 1250))
        .observing(async move || [("refunds", books.refunds().await.unwrap().len())]);
    println!("{}", proved.await.unwrap());
}
