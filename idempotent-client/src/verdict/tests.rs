use idempotent_http::not_run_mark;

use super::*;

const NOW: Duration = Duration::from_secs(1_000_000_000);

fn of(status: u16, headers: &[(&'static str, &str)], body: &str) -> Meaning {
    after(false, status, headers, body)
}

/// The verdict after an attempt that may have been run.
fn later(status: u16, headers: &[(&'static str, &str)], body: &str) -> Meaning {
    after(true, status, headers, body)
}

fn after(may_be_done: bool, status: u16, headers: &[(&'static str, &str)], body: &str) -> Meaning {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(*name, value.parse().unwrap());
    }
    let status = StatusCode::from_u16(status).unwrap();
    let sent = Sent { key: &key(), since_epoch: NOW, may_be_done };
    judge(status, &map, &Bytes::copy_from_slice(body.as_bytes()), sent)
}

fn key() -> Key {
    "order-17".parse().unwrap()
}

fn unproven(in_front: bool) -> Meaning {
    Meaning::Unproven { in_front }
}

fn again() -> Meaning {
    Meaning::Again(Again::default())
}

fn not_run() -> Meaning {
    Meaning::Again(Again { after: None, did_not_run: true })
}

fn problem(code: &str, retryable: bool) -> String {
    format!(
        r#"{{"type":"https://e/{code}","title":"t","status":0,"code":"{code}","retryable":{retryable}}}"#
    )
}

#[test]
fn only_successes_and_recorded_responses_are_proved_outcomes() {
    for status in [200, 201, 202, 204] {
        assert_eq!(of(status, &[], ""), Meaning::Outcome, "{status}");
        assert_eq!(later(status, &[], ""), Meaning::Outcome, "{status}");
    }
    for status in [400, 402, 409, 410, 412, 418, 422, 423, 424, 428] {
        assert_eq!(of(status, &[], ""), unproven(false), "{status}");
    }
    let refusals = [(400, "key_missing"), (400, "key_malformed"), (422, "key_reused")];
    for (status, code) in refusals {
        assert_eq!(of(status, &[], &problem(code, false)), unproven(false), "{code}");
    }
    let in_front = [
        301, 302, 303, 304, 307, 308, 401, 403, 404, 405, 406, 407, 411, 413, 414, 415, 416, 417,
        421, 426, 431, 451, 501, 505,
    ];
    for status in in_front {
        assert_eq!(of(status, &[], ""), unproven(true), "{status}");
    }
    assert_eq!(of(429, &[("stripe-should-retry", "false")], ""), unproven(true));
}

#[test]
fn a_status_that_http_does_not_have_is_never_the_outcome() {
    for status in [100, 102, 199, 600, 700, 999] {
        assert_eq!(of(status, &[], ""), again(), "{status}");
        assert_eq!(of(status, &[], &problem("overloaded", true)), again(), "{status}");
    }
}

#[test]
fn nothing_is_not_run_without_the_mark_of_the_guard() {
    let (mark, other) = (not_run_mark(&key()), not_run_mark(&"order-18".parse().unwrap()));
    let marked = [("idempotency-not-run", mark.as_str())];
    for code in ["overloaded", "shutting_down", "store_unavailable"] {
        assert_eq!(of(503, &[], &problem(code, true)), again(), "{code}");
        assert_eq!(of(503, &marked, &problem(code, true)), not_run(), "{code}");
        for value in [other.as_str(), "true", ""] {
            let passed_on = [("idempotency-not-run", value)];
            assert_eq!(of(503, &passed_on, &problem(code, true)), again(), "{code} {value}");
        }
    }
    // Anyone can pass on a status.
    assert_eq!(of(425, &[], ""), again());
    let misconfigured = problem("misconfigured", false);
    assert_eq!(of(500, &marked, &misconfigured), Meaning::NotRun);
    assert_eq!(later(500, &marked, &misconfigured), Meaning::NotRun);
}

#[test]
fn a_problem_whose_end_is_missing_says_nothing() {
    let whole = problem("outcome_unknown", false);
    let headers = [("content-type", "application/problem+json")];
    for end in 0..whole.len() {
        assert_eq!(of(409, &headers, &whole[..end]), again(), "{}", &whole[..end]);
    }
    let unknown = Meaning::Unknown { reference: None };
    assert_eq!(of(409, &headers, &whole), unknown);
    let poll = [("location", "/idempotency/keys/k"), ("retry-after", "3")];
    assert!(matches!(of(202, &poll, r#"{"state":"in_fl"#), Meaning::Again(_)));
}

#[test]
fn a_time_that_is_too_long_to_be_represented_is_the_longest() {
    for value in ["99999999999999999999", "18446744073709551615", &"9".repeat(400)] {
        let Meaning::Again(again) = of(503, &[("retry-after", value)], "") else { panic!() };
        assert!(again.after >= Some(Duration::from_secs(u64::MAX)), "{value}");
    }
}

#[test]
fn temporary_failures_are_retried() {
    for status in [408, 500, 502, 503, 504] {
        assert_eq!(of(status, &[], ""), again(), "{status}");
    }
    assert_eq!(of(425, &[], ""), again());
    assert_eq!(of(429, &[], ""), again());
    assert_eq!(of(500, &[], &problem("handler_failed", true)), again());
    assert_eq!(of(503, &[], &problem("store_unavailable", true)), again());
    assert_eq!(of(404, &[("x-should-retry", "true")], ""), again());
}

#[test]
fn a_request_in_progress_is_retried_in_each_dialect() {
    let stripe = r#"{"error":{"type":"idempotency_error","code":"idempotency_key_in_use"}}"#;
    let acp = r#"{"type":"invalid_request","code":"idempotency_in_flight","message":"m"}"#;
    for body in [&problem("in_flight", true), stripe, acp] {
        assert_eq!(of(409, &[], body), again(), "{body}");
    }
    let seconds = Meaning::Again(Again { after: Some(Duration::from_secs(3)), did_not_run: false });
    assert_eq!(of(409, &[("retry-after", "3")], ""), seconds);
    let poll = [("location", "/idempotency/keys/k"), ("retry-after", "3")];
    let in_flight = r#"{"state":"in_flight","reference":null}"#;
    assert_eq!(of(202, &poll, in_flight), seconds);
    // The handler's own responses.
    assert_eq!(of(200, &poll, in_flight), Meaning::Outcome);
    assert_eq!(of(202, &[], in_flight), Meaning::Outcome);
    let job = r#"{"state":"in_flight","reference":null,"id":7}"#;
    assert_eq!(of(202, &poll, job), Meaning::Outcome);
    assert_eq!(of(202, &poll, r#"{"state":"queued","reference":null}"#), Meaning::Outcome);
}

#[test]
fn a_recorded_response_is_the_outcome_whatever_its_status() {
    for name in ["idempotency-replayed", "idempotent-replayed"] {
        assert_eq!(of(500, &[(name, "true")], ""), Meaning::Outcome, "{name}");
        assert_eq!(of(500, &[(name, "false")], ""), again(), "{name}");
    }
}

#[test]
fn an_unknown_outcome_ends_the_operation() {
    let held = problem("outcome_unknown", false).replace("}", r#","reference":"pi_1"}"#);
    assert_eq!(of(409, &[], &held), Meaning::Unknown { reference: Some("pi_1".into()) });
    let unknown = Meaning::Unknown { reference: None };
    assert_eq!(of(500, &[], &problem("misconfigured", false)), unknown);
    assert_eq!(of(500, &[], &problem("record_unreadable", false)), unknown);
    assert_eq!(of(500, &[], &problem("handler_timed_out", false)), unknown);
    assert_eq!(of(500, &[("stripe-should-retry", "false")], ""), unknown);
}

#[test]
fn a_refusal_after_an_attempt_that_may_have_run_is_not_the_outcome() {
    let replayed = [("idempotency-replayed", "true")];
    for status in [302, 400, 401, 402, 403, 404, 405, 407, 413, 421, 422, 501, 505] {
        assert!(matches!(later(status, &[], ""), Meaning::Unproven { .. }), "{status}");
        assert_eq!(later(status, &replayed, ""), Meaning::Outcome, "{status}");
    }
    // The draft's example of a request in progress has no code.
    assert_eq!(later(409, &[], r#"{"type":"t","title":"A request is outstanding"}"#), again());
    assert_eq!(later(409, &replayed, ""), Meaning::Outcome);
    for status in [408, 409, 425, 429] {
        let no = [("x-should-retry", "false"), ("retry-after", "1")];
        assert_eq!(of(status, &no, ""), unproven(true), "{status}");
        assert_eq!(later(status, &no, ""), unproven(true), "{status}");
    }
    let reused = Meaning::Unknown { reference: None };
    assert_eq!(later(422, &[], &problem("key_reused", false)), reused);
    // Stripe's dialect has another status, and the Agentic Commerce Protocol another code.
    assert_eq!(later(400, &[], &problem("key_reused", false)), reused);
    let acp = |code: &str| format!(r#"{{"type":"invalid_request","code":"{code}","message":""}}"#);
    assert_eq!(later(422, &[], &acp("idempotency_conflict")), reused);
    assert_eq!(later(409, &[], &acp("idempotency_in_flight")), again());
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    let after = |value: &str| {
        let Meaning::Again(again) = of(503, &[("retry-after", value)], "") else {
            panic!("{value} ends the operation")
        };
        again.after
    };
    assert_eq!(after("0"), Some(Duration::ZERO));
    assert_eq!(after(" 120 "), Some(Duration::from_secs(120)));
    let date = httpdate::fmt_http_date(std::time::UNIX_EPOCH + NOW + Duration::from_secs(90));
    assert_eq!(after(&date), Some(Duration::from_secs(90)));
    assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
    for invalid in ["", "-1", "+1", "1.5", "soon"] {
        assert_eq!(after(invalid), None, "{invalid}");
    }
}
