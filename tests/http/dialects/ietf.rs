//! draft-ietf-httpapi-idempotency-key-header-07: the default.

use idempotent_actix::dialect::Dialect;
use test_support::Request;

use super::{Speaking, pay, rows};

fn speaking() -> Speaking {
    Speaking::new(Dialect::ietf())
}

rows! {
    the_key_is_a_structured_string: "2.1", "The key is a String of RFC 9651. (A bare one is \
        accepted, too: it is what most clients send.)" => {
        let speaking = speaking();
        let first = speaking.send(&pay("\"k-1\"", "{}"));
        assert_eq!(first.status, 201);
        speaking.send(&pay("k-1", "{}")).assert_replays(&first);
        assert_eq!(speaking.send(&pay("\"k-1", "{}")).status, 400);
    }

    the_expiry_policy_is_published: "2.3", "The resource publishes the expiry policy of keys." => {
        let specification = speaking().app.idempotency.specification();
        assert_eq!(specification["standard"], "draft-ietf-httpapi-idempotency-key-header-07");
        let ttl = |operation: &serde_json::Value| operation["ttl_seconds"].as_f64();
        let mut operations = specification["operations"].as_array().unwrap().iter();
        assert!(operations.all(|operation| ttl(operation).is_some_and(|ttl| ttl > 0.0)));
    }

    the_first_request_runs: "2.6", "A request with a new key is processed." => {
        let speaking = speaking();
        assert_eq!(speaking.send(&pay("k", "{}")).text(), "run 1");
        assert_eq!(speaking.send(&pay("l", "{}")).text(), "run 2");
    }

    a_duplicate_gets_the_result: "2.6", "A duplicate of a completed request gets its result, a \
        success or an error." => {
        let speaking = Speaking::responding(Dialect::ietf(), |run| {
            actix_web::HttpResponse::PaymentRequired().body(format!("run {run}"))
        });
        let first = speaking.send(&pay("k", "{}"));
        let second = speaking.send(&pay("k", "{}"));
        second.assert_replays(&first);
        assert_eq!((second.status, speaking.app.probe.runs()), (402, 1));
        assert_eq!(second.header("idempotency-replayed"), Some("true"));
    }

    a_missing_key_is_400: "2.7", "Without a required key: 400, with a link to documentation." => {
        let refused = speaking().send(&Request::post("/required").user("alice"));
        assert_eq!(refused.problem(), (400, "key_missing".to_owned()));
        assert!(refused.header("link").is_some_and(|link| link.contains("describedby")));
    }

    a_reused_key_is_422: "2.7", "With a key of another request: 422, with a link." => {
        let speaking = speaking();
        speaking.send(&pay("k", "1"));
        let refused = speaking.send(&pay("k", "2"));
        assert_eq!(refused.problem(), (422, "key_reused".to_owned()));
        assert!(refused.header("link").is_some());
        assert_eq!(speaking.app.probe.runs(), 1);
    }

    a_request_in_progress_is_409: "2.7", "With a key of a request in progress: 409, with a \
        link." => {
        let speaking = speaking();
        let (refused, first) = speaking.in_flight(&pay("k", "1"));
        assert_eq!(refused.problem(), (409, "in_flight".to_owned()));
        assert!(refused.header("link").is_some());
        speaking.app.probe.release_all();
        assert_eq!(first.response().status, 201);
    }
}

#[test]
fn nothing_of_the_other_dialects_is_in_the_default() {
    let speaking = speaking();
    speaking.send(&pay("k", "{}"));
    let replay = speaking.send(&pay("k", "{}"));
    for name in ["idempotency-key", "idempotent-replayed", "stripe-should-retry"] {
        assert_eq!(replay.header(name), None);
    }
    let specification = speaking.app.idempotency.specification();
    for member in ["dialect", "endpoint", "expiry_header"] {
        assert_eq!(specification.get(member), None);
    }
    let other = pay("k", "{}").header("x-unused", "1");
    assert!(speaking.send(&other).is_replay());
    let elsewhere =
        Request::post("/checkout_sessions/2/complete").user("alice").key("k").json("{}");
    assert_eq!(speaking.send(&elsewhere).status, 422, "the key belongs to the pattern");
}
