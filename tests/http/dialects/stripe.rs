//! Stripe's API, version 1.

use std::time::Duration;

use actix_web::HttpResponse;
use idempotent_actix::dialect::Dialect;
use test_support::Request;

use super::{Speaking, pay, rows};

fn speaking() -> Speaking {
    Speaking::new(Dialect::stripe())
}

rows! {
    the_first_result_is_returned: "Idempotent requests", "Later requests with the key get the \
        status and the body of the first one, whether it succeeded or failed, also after 500." => {
        let speaking = Speaking::responding(Dialect::stripe(), |run| {
            HttpResponse::InternalServerError().body(format!("run {run}"))
        });
        let first = speaking.send(&pay("k", "{}"));
        let second = speaking.send(&pay("k", "{}"));
        assert_eq!((second.status, second.text()), (500, "run 1"));
        assert_eq!(first.text(), second.text());
    }

    a_replay_is_marked: "Errors", "A replay has the header `Idempotent-Replayed: true`." => {
        let speaking = speaking();
        assert_eq!(speaking.send(&pay("k", "{}")).header("idempotent-replayed"), None);
        let replay = speaking.send(&pay("k", "{}"));
        assert_eq!(replay.header("idempotent-replayed"), Some("true"));
        assert_eq!(replay.header("idempotency-replayed"), None);
    }

    keys_have_up_to_255_characters: "Idempotent requests", "A key has up to 255 characters." => {
        let speaking = speaking();
        assert_eq!(speaking.send(&pay(&"k".repeat(255), "{}")).status, 201);
        assert_eq!(speaking.send(&pay(&"k".repeat(256), "{}")).status, 400);
    }

    keys_are_kept_for_24_hours: "Idempotent requests", "Keys are removed after at least 24 hours. \
        A key that is used again after that is a new request." => {
        let speaking = speaking();
        let first = speaking.send(&pay("k", "{}"));
        speaking.app.advance(Duration::from_secs(24 * 60 * 60 - 60));
        assert_eq!(speaking.send(&pay("k", "{}")).text(), first.text());
        speaking.app.advance(Duration::from_secs(120));
        assert_eq!(speaking.send(&pay("k", "{}")).text(), "run 2");
    }

    other_parameters_are_an_error: "Idempotent requests; Errors", "Other parameters with the key \
        are an error: 400 with the type `idempotency_error`." => {
        let speaking = speaking();
        speaking.send(&pay("k", "1"));
        let refused = speaking.send(&pay("k", "2"));
        assert_eq!(refused.status, 400);
        assert_eq!(refused.json()["error"]["type"], "idempotency_error");
        assert_eq!(refused.header("stripe-should-retry"), Some("false"));
        assert_eq!(speaking.app.probe.runs(), 1);
    }

    a_concurrent_request_is_a_conflict: "Idempotent requests; Errors", "A request that conflicts \
        with one that is executing: 409, `idempotency_key_in_use`. Nothing is saved, and it may be \
        sent again." => {
        let speaking = speaking();
        let (refused, first) = speaking.in_flight(&pay("k", "1"));
        assert_eq!(refused.status, 409);
        assert_eq!(refused.json()["error"]["code"], "idempotency_key_in_use");
        assert_eq!(refused.header("stripe-should-retry"), Some("true"));
        speaking.app.probe.release_all();
        assert_eq!(first.response().text(), "run 1");
        assert_eq!(speaking.send(&pay("k", "1")).text(), "run 1");
    }

    validation_is_not_saved: "Idempotent requests", "Parameters that fail validation are not \
        saved, and may be sent again." => {
        let speaking = speaking();
        let anonymous = Request::post("/required").key("k").json("{}");
        assert_eq!(speaking.send(&anonymous).status, 401, "an extractor refuses the request");
        assert_eq!(speaking.send(&anonymous.user("alice")).text(), "run 1");
    }

    delete_needs_no_key: "Idempotent requests", "`DELETE` needs no key: it is idempotent by \
        definition. (A key that is sent is used, which no client can tell.)" => {
        let speaking = speaking();
        let delete = Request::new("DELETE", "/required").user("alice");
        assert_eq!(speaking.send(&delete).status, 201);
        assert_eq!(speaking.send(&Request::post("/required").user("alice")).status, 400);
    }
}

#[test]
fn the_specification_names_the_dialect() {
    let specification = speaking().app.idempotency.specification();
    assert_eq!(specification["dialect"], "stripe");
    assert_eq!(specification["replay_marker"], "idempotent-replayed");
    let mut problems = specification["problems"].as_array().unwrap().iter();
    let reused = problems.find(|problem| problem["type"] == "/idempotency#key_reused").unwrap();
    assert_eq!(reused["status"], 400);
    let operations = specification["operations"].as_array().unwrap();
    let record = |path: &str| {
        let mut found = operations.iter();
        found.find(|operation| operation["routes"][0]["path"] == path).unwrap()["record"].clone()
    };
    assert_eq!(record("/required"), "all");
}
