//! The Agentic Commerce Protocol.

use std::time::Duration;

use actix_web::HttpResponse;
use idempotent_actix::dialect::Dialect;
use serde_json::json;
use test_support::{ClientResponse, Request};

use super::{COMPLETE, Speaking, pay, rows};

fn speaking() -> Speaking {
    Speaking::new(Dialect::acp())
}

/// Asserts the flat error of §3.1, and returns its code.
fn code(response: &ClientResponse, status: u16, error_type: &str) -> String {
    let body = response.json();
    let members: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(members, ["code", "message", "type"]);
    assert_eq!((response.status, &body["type"]), (status, &json!(error_type)));
    assert_eq!(response.header("content-type"), Some("application/json"));
    body["code"].as_str().unwrap().to_owned()
}

rows! {
    a_post_without_a_key_is_refused: "3.1, 6.1", "Each `POST` needs a key. Without one: 400, \
        `idempotency_key_required`." => {
        // The attribute says `key = "optional"`.
        let speaking = speaking();
        let refused = speaking.send(&Request::post(COMPLETE).user("alice").json("{}"));
        assert_eq!(code(&refused, 400, "invalid_request"), "idempotency_key_required");
        assert_eq!(speaking.app.probe.runs(), 0);
    }

    the_key_is_echoed: "3.1", "Each response to a `POST` has its `Idempotency-Key`." => {
        let speaking = speaking();
        for (key, body, status) in
            [("\"k\"", "1", 201), ("\"k\"", "1", 201), ("\"k\"", "2", 422), ("k 2", "1", 400)]
        {
            let response = speaking.send(&pay(key, body));
            assert_eq!((response.status, response.lines("idempotency-key")), (status, vec![key]));
        }
        let (refused, _first) = speaking.in_flight(&pay("other", "1"));
        assert_eq!((refused.status, refused.header("idempotency-key")), (409, Some("other")));
        speaking.app.probe.release_all();
    }

    errors_are_flat: "3.1", "An error is a flat object with `type`, `code` and `message`; the type \
        is `invalid_request`, `processing_error` or `service_unavailable`." => {
        let panicking = Speaking::responding(Dialect::acp(), |_| panic!("the handler panics"));
        let failed = panicking.send(&pay("k", "1"));
        assert_eq!(code(&failed, 500, "processing_error"), "handler_failed");
        let speaking = speaking();
        speaking.app.store.fail(test_support::Op::Claim, 2, test_support::Fault::Before);
        let unavailable = speaking.send(&pay("k", "1"));
        assert_eq!(code(&unavailable, 503, "service_unavailable"), "store_unavailable");
        let malformed = speaking.send(&pay("k k", "1"));
        assert_eq!(code(&malformed, 400, "invalid_request"), "key_malformed");
    }

    a_key_has_255_characters: "6.1", "A key has up to 255 characters." => {
        let speaking = speaking();
        assert_eq!(speaking.send(&pay(&"k".repeat(255), "{}")).status, 201);
        assert_eq!(speaking.send(&pay(&"k".repeat(256), "{}")).status, 400);
    }

    a_key_belongs_to_identity_and_path: "6.1", "A key belongs to the authenticated identity and \
        the path of the endpoint. At another path it is independent." => {
        let speaking = speaking();
        assert_eq!(speaking.send(&pay("k", "1")).text(), "run 1");
        let other = Request::post("/checkout_sessions/2/complete").key("k");
        assert_eq!(speaking.send(&other.clone().user("alice").json("2")).text(), "run 2");
        assert_eq!(speaking.send(&other.user("bob").json("3")).text(), "run 3");
        assert_eq!(speaking.send(&pay("k", "1")).text(), "run 1");
    }

    bodies_are_compared_as_json: "6.2", "Requests are the same if their bodies are equal as JSON: \
        the order of members and trailing zeros do not count, the order of arrays does, and `null` \
        is not an absent member. Headers do not count. (With `fingerprint = \"json\"` and \
        `content_type = \"ignored\"`.)" => {
        let one = r#"{"a":1,"b":[1,2]}"#;
        for (other, status) in [
            (r#"{"b": [1.0, 2], "a": 1.00}"#, 201),
            (r#"{"a":1,"b":[2,1]}"#, 422),
            (r#"{"a":1,"b":[1,2],"c":null}"#, 422),
        ] {
            let speaking = speaking();
            speaking.send(&pay("k", one));
            assert_eq!(speaking.send(&pay("k", other)).status, status, "{other}");
        }
        let speaking = speaking();
        speaking.send(&pay("k", one));
        let request = Request::post(COMPLETE).user("alice").key("k").header("x-trace", "1");
        let request = request.header("content-type", "text/x-json").body(one);
        assert_eq!(speaking.send(&request).status, 201);
    }

    a_replay_is_the_original: "6.3", "The same request gets the original response with its status, \
        and with `Idempotent-Replayed: true`. It has no effect a second time." => {
        let speaking = speaking();
        let first = speaking.send(&pay("k", "{}"));
        let replay = speaking.send(&pay("k", "{}"));
        assert_eq!((replay.status, replay.text()), (first.status, first.text()));
        assert_eq!(first.header("idempotent-replayed"), None);
        assert_eq!(replay.header("idempotent-replayed"), Some("true"));
        assert_eq!(speaking.app.probe.runs(), 1);
    }

    another_body_is_a_conflict: "6.4", "Another body with the key: 422, \
        `idempotency_conflict`." => {
        let speaking = speaking();
        speaking.send(&pay("k", "1"));
        let refused = speaking.send(&pay("k", "2"));
        assert_eq!(code(&refused, 422, "invalid_request"), "idempotency_conflict");
    }

    a_request_in_flight_says_when_to_retry: "6.4", "A request in flight: 409, \
        `idempotency_in_flight`, with `Retry-After` in seconds." => {
        let speaking = speaking();
        let (refused, first) = speaking.in_flight(&pay("k", "1"));
        assert_eq!(code(&refused, 409, "invalid_request"), "idempotency_in_flight");
        assert!(refused.header("retry-after").unwrap().parse::<u32>().is_ok());
        speaking.app.probe.release_all();
        assert_eq!(first.response().status, 201);
    }

    a_server_error_is_not_kept: "6.5", "A response of 5xx is not kept: the next request with the \
        key is a fresh one." => {
        let speaking = Speaking::responding(Dialect::acp(), |run| match run {
            1 => HttpResponse::BadGateway().finish(),
            _ => HttpResponse::Created().body("paid"),
        });
        assert_eq!(speaking.send(&pay("k", "1")).status, 502);
        assert_eq!(speaking.send(&pay("k", "1")).text(), "paid");
    }

    keys_are_kept_for_24_hours: "6.6", "A key is kept for at least 24 hours, and is a new one \
        after that. (With the default `ttl`.)" => {
        let speaking = speaking();
        speaking.send(&pay("k", "{}"));
        speaking.app.advance(Duration::from_secs(24 * 60 * 60 - 60));
        assert_eq!(speaking.send(&pay("k", "{}")).text(), "run 1");
        speaking.app.advance(Duration::from_secs(120));
        assert_eq!(speaking.send(&pay("k", "other")).text(), "run 2");
    }
}

#[test]
fn the_specification_names_the_dialect() {
    let specification = speaking().app.idempotency.specification();
    assert_eq!(specification["dialect"], "acp");
    assert_eq!(specification["endpoint"], "path");
    let operations = specification["operations"].as_array().unwrap();
    let mut found = operations.iter();
    let path = "/checkout_sessions/{id}/complete";
    let operation = found.find(|operation| operation["routes"][0]["path"] == path).unwrap();
    assert_eq!(operation["key"], "required");
    let mut problems = specification["problems"].as_array().unwrap().iter();
    assert!(problems.any(|problem| problem["code"] == "idempotency_conflict"));
}

#[test]
fn a_client_that_polls_is_sent_to_the_key_of_its_path() {
    let speaking = speaking();
    let request = Request::post("/polled/7").user("alice").key("k").body("1");
    let (accepted, first) = speaking.in_flight(&request);
    assert_eq!(accepted.status, 202);
    let location = accepted.header("location").unwrap().to_owned();
    let look_up = |target: &str| speaking.send(&Request::new("GET", target).user("alice"));
    assert_eq!(look_up(&location).json()["state"], "in_flight");
    speaking.app.probe.release_all();
    assert_eq!(first.response().status, 201);
    assert_eq!(look_up(&location).json()["state"], "completed");
    assert_eq!(look_up(&location.replace('7', "8")).status, 404);
}
