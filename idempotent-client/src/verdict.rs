//! What a response says about the operation.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::Value;

use crate::{key::Key, proof};

/// Bodies of refusals are short; a longer body is not read for a code.
const MAX_PROBLEM: usize = 16 * 1024;

/// What a response says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The response is the outcome of the operation: a success, or a recorded response.
    Outcome,
    /// The response may be the operation's, or that of something between client and operation.
    Unproven {
        /// Whether such a response often comes from what is in front of the operation.
        in_front: bool,
    },
    /// The request can be sent again.
    Again(Again),
    /// The server has proved that this attempt was not run, and it will not run a further one.
    NotRun,
    /// The server does not know the outcome, and a further attempt would not find it out.
    Unknown {
        /// What the earlier attempt has set.
        reference: Option<String>,
    },
}

/// How to send a request again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Again {
    /// The least time to wait, from `Retry-After`.
    pub(crate) after: Option<Duration>,
    /// Whether it is proved that this attempt did nothing.
    pub(crate) did_not_run: bool,
}

/// What a client knows before it gets a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent<'a> {
    pub(crate) key: &'a Key,
    pub(crate) since_epoch: Duration,
    /// Whether an earlier attempt may have been run.
    pub(crate) may_be_done: bool,
}

/// Judges a response by its status, its headers, and the code in its body: the problems of
/// `idempotent-actix` (RFC 9457), Stripe's errors, and those of the Agentic Commerce Protocol.
///
/// Anyone can send a status or a body: a gateway, or a service that passes on what it got from
/// another one. So that an attempt was not run is believed only with the mark of the guard.
pub(crate) fn judge(
    status: StatusCode,
    headers: &HeaderMap,
    body: &Bytes,
    sent: Sent<'_>,
) -> Verdict {
    // A recorded response is the outcome, whatever its status: it would be replayed again.
    if is_replay(headers) {
        return Verdict::Outcome;
    }
    let after = retry_after(headers, sent.since_epoch);
    let unproved = Verdict::Again(Again { after, did_not_run: false });
    if is_poll(status, headers, body) {
        return unproved;
    }
    if status.is_success() {
        return Verdict::Outcome;
    }
    let refusal = Refusal::of(headers, body);
    // HTTP has no such statuses (RFC 9110 §15), or the rest of the problem is missing.
    if !(200..600).contains(&status.as_u16()) || refusal.is_cut {
        return unproved;
    }
    let did_not_run = proof::is_not_run(headers, sent.key);
    let again = || Verdict::Again(Again { after, did_not_run });
    match (status.as_u16(), refusal.code()) {
        // A key that was used for another request was used before.
        (_, Some("outcome_unknown" | "record_unreadable")) | (422, Some("key_reused"))
            if sent.may_be_done || refusal.code() != Some("key_reused") =>
        {
            Verdict::Unknown { reference: refusal.reference }
        }
        (_, Some("in_flight" | "idempotency_key_in_use" | "idempotency_in_flight")) => unproved,
        _ => match advice(headers).or(refusal.retryable) {
            Some(true) => again(),
            None if is_retryable(status, after) => again(),
            // The draft has no code for a request in progress, and it may be the earlier attempt.
            None if sent.may_be_done && status == StatusCode::CONFLICT => unproved,
            Some(false) if status.is_server_error() && did_not_run => Verdict::NotRun,
            Some(false) if status.is_server_error() => {
                Verdict::Unknown { reference: refusal.reference }
            }
            _ => Verdict::Unproven { in_front: is_retryable(status, after) || is_in_front(status) },
        },
    }
}

/// Whether the response was recorded earlier. Besides this project's header, those of the Agentic
/// Commerce Protocol and of Stripe.
pub(crate) fn is_replay(headers: &HeaderMap) -> bool {
    ["idempotency-replayed", "idempotent-replayed"]
        .iter()
        .any(|name| headers.get(*name).is_some_and(|value| value == "true"))
}

/// Whether this is the response of `in_flight = "poll"`: where and when to look, and two members.
fn is_poll(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> bool {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Poll {
        state: String,
        #[serde(rename = "reference")]
        _reference: Option<String>,
    }
    let has_place = status == StatusCode::ACCEPTED
        && headers.contains_key(header::LOCATION)
        && headers.contains_key(header::RETRY_AFTER);
    has_place
        && match serde_json::from_slice(body) {
            Ok(Poll { state, .. }) => state == "in_flight",
            Err(error) => error.is_eof(),
        }
}

/// What a server says about retries: Stripe's header, and that of SDKs made by Stainless.
fn advice(headers: &HeaderMap) -> Option<bool> {
    let value =
        ["stripe-should-retry", "x-should-retry"].iter().find_map(|name| headers.get(*name));
    match value?.as_bytes() {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

/// 409 without a known code is the handler's own, unless it says when to come back.
fn is_retryable(status: StatusCode, after: Option<Duration>) -> bool {
    match status {
        StatusCode::CONFLICT => after.is_some(),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED => false,
        other => other.is_server_error(),
    }
}

/// Whether such a response often comes from what is in front of the operation: a gateway, a router,
/// a firewall, or the authentication, which may redirect.
fn is_in_front(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        300..=399
            | 401
            | 403..=407
            | 411
            | 413..=417
            | 421
            | 426
            | 431
            | 451
            | 501
            | 505
    )
}

/// `Retry-After` in seconds or as a date (RFC 9110 §10.2.3). A number that is too large to be
/// represented is the longest time.
fn retry_after(headers: &HeaderMap, since_epoch: Duration) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(value.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let at = httpdate::parse_http_date(value).ok()?;
    let at = at.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(at.saturating_sub(since_epoch))
}

/// The members of an error's body that matter here.
#[derive(Debug, Default)]
struct Refusal {
    code: Option<String>,
    retryable: Option<bool>,
    reference: Option<String>,
    /// Whether the end of the problem is missing, as after a connection that broke off.
    is_cut: bool,
}

impl Refusal {
    fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    fn of(headers: &HeaderMap, body: &Bytes) -> Self {
        if body.len() > MAX_PROBLEM {
            return Self::default();
        }
        let members = match serde_json::from_slice(body) {
            Ok(Value::Object(members)) => members,
            Ok(_) => return Self::default(),
            Err(error) => {
                let is_cut = error.is_eof() && is_problem(headers);
                return Self { is_cut, ..Self::default() };
            }
        };
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        // A problem has `type`, `status` and `code` (RFC 9457); Stripe's error is below `error`.
        let problem = members.contains_key("type") && members.contains_key("code");
        if problem {
            return Self {
                code: text(members.get("code")),
                retryable: members.get("retryable").and_then(Value::as_bool),
                reference: text(members.get("reference")),
                is_cut: false,
            };
        }
        let error = members.get("error").and_then(Value::as_object);
        Self { code: text(error.and_then(|error| error.get("code"))), ..Self::default() }
    }
}

/// Whether the body is a problem by its `Content-Type`.
fn is_problem(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| value.trim_start().starts_with("application/problem+json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000_000_000);

    fn of(status: u16, headers: &[(&'static str, &str)], body: &str) -> Verdict {
        after(false, status, headers, body)
    }

    /// The verdict after an attempt that may have been run.
    fn later(status: u16, headers: &[(&'static str, &str)], body: &str) -> Verdict {
        after(true, status, headers, body)
    }

    fn after(
        may_be_done: bool,
        status: u16,
        headers: &[(&'static str, &str)],
        body: &str,
    ) -> Verdict {
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

    fn unproven(in_front: bool) -> Verdict {
        Verdict::Unproven { in_front }
    }

    fn again() -> Verdict {
        Verdict::Again(Again::default())
    }

    fn not_run() -> Verdict {
        Verdict::Again(Again { after: None, did_not_run: true })
    }

    fn problem(code: &str, retryable: bool) -> String {
        format!(
            r#"{{"type":"https://e/{code}","title":"t","status":0,"code":"{code}","retryable":{retryable}}}"#
        )
    }

    #[test]
    fn only_successes_and_recorded_responses_are_proved_outcomes() {
        for status in [200, 201, 202, 204] {
            assert_eq!(of(status, &[], ""), Verdict::Outcome, "{status}");
            assert_eq!(later(status, &[], ""), Verdict::Outcome, "{status}");
        }
        for status in [400, 402, 409, 410, 412, 418, 422, 423, 424, 428] {
            assert_eq!(of(status, &[], ""), unproven(false), "{status}");
        }
        let refusals = [(400, "key_missing"), (400, "key_malformed"), (422, "key_reused")];
        for (status, code) in refusals {
            assert_eq!(of(status, &[], &problem(code, false)), unproven(false), "{code}");
        }
        let in_front = [
            301, 302, 303, 304, 307, 308, 401, 403, 404, 405, 406, 407, 411, 413, 414, 415, 416,
            417, 421, 426, 431, 451, 501, 505,
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
        let (mark, other) = (proof::digest(&key()), proof::digest(&"order-18".parse().unwrap()));
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
        assert_eq!(of(500, &marked, &misconfigured), Verdict::NotRun);
        assert_eq!(later(500, &marked, &misconfigured), Verdict::NotRun);
    }

    #[test]
    fn a_problem_whose_end_is_missing_says_nothing() {
        let whole = problem("outcome_unknown", false);
        let headers = [("content-type", "application/problem+json")];
        for end in 0..whole.len() {
            assert_eq!(of(409, &headers, &whole[..end]), again(), "{}", &whole[..end]);
        }
        let unknown = Verdict::Unknown { reference: None };
        assert_eq!(of(409, &headers, &whole), unknown);
        let poll = [("location", "/idempotency/keys/k"), ("retry-after", "3")];
        assert!(matches!(of(202, &poll, r#"{"state":"in_fl"#), Verdict::Again(_)));
    }

    #[test]
    fn a_time_that_is_too_long_to_be_represented_is_the_longest() {
        for value in ["99999999999999999999", "18446744073709551615", &"9".repeat(400)] {
            let Verdict::Again(again) = of(503, &[("retry-after", value)], "") else { panic!() };
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
        let seconds =
            Verdict::Again(Again { after: Some(Duration::from_secs(3)), did_not_run: false });
        assert_eq!(of(409, &[("retry-after", "3")], ""), seconds);
        let poll = [("location", "/idempotency/keys/k"), ("retry-after", "3")];
        let in_flight = r#"{"state":"in_flight","reference":null}"#;
        assert_eq!(of(202, &poll, in_flight), seconds);
        // The handler's own responses.
        assert_eq!(of(200, &poll, in_flight), Verdict::Outcome);
        assert_eq!(of(202, &[], in_flight), Verdict::Outcome);
        let job = r#"{"state":"in_flight","reference":null,"id":7}"#;
        assert_eq!(of(202, &poll, job), Verdict::Outcome);
        assert_eq!(of(202, &poll, r#"{"state":"queued","reference":null}"#), Verdict::Outcome);
    }

    #[test]
    fn a_recorded_response_is_the_outcome_whatever_its_status() {
        for name in ["idempotency-replayed", "idempotent-replayed"] {
            assert_eq!(of(500, &[(name, "true")], ""), Verdict::Outcome, "{name}");
            assert_eq!(of(500, &[(name, "false")], ""), again(), "{name}");
        }
    }

    #[test]
    fn an_unknown_outcome_ends_the_operation() {
        let held = problem("outcome_unknown", false).replace("}", r#","reference":"pi_1"}"#);
        assert_eq!(of(409, &[], &held), Verdict::Unknown { reference: Some("pi_1".into()) });
        let unknown = Verdict::Unknown { reference: None };
        assert_eq!(of(500, &[], &problem("misconfigured", false)), unknown);
        assert_eq!(of(500, &[], &problem("record_unreadable", false)), unknown);
        assert_eq!(of(500, &[], &problem("handler_timed_out", false)), unknown);
        assert_eq!(of(500, &[("stripe-should-retry", "false")], ""), unknown);
    }

    #[test]
    fn a_refusal_after_an_attempt_that_may_have_run_is_not_the_outcome() {
        let replayed = [("idempotency-replayed", "true")];
        for status in [302, 400, 401, 402, 403, 404, 405, 407, 413, 421, 422, 501, 505] {
            assert!(matches!(later(status, &[], ""), Verdict::Unproven { .. }), "{status}");
            assert_eq!(later(status, &replayed, ""), Verdict::Outcome, "{status}");
        }
        // The draft's example of a request in progress has no code.
        assert_eq!(later(409, &[], r#"{"type":"t","title":"A request is outstanding"}"#), again());
        assert_eq!(later(409, &replayed, ""), Verdict::Outcome);
        for status in [408, 409, 425, 429] {
            let no = [("x-should-retry", "false"), ("retry-after", "1")];
            assert_eq!(of(status, &no, ""), unproven(true), "{status}");
            assert_eq!(later(status, &no, ""), unproven(true), "{status}");
        }
        let reused = Verdict::Unknown { reference: None };
        assert_eq!(later(422, &[], &problem("key_reused", false)), reused);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let after = |value: &str| {
            let Verdict::Again(again) = of(503, &[("retry-after", value)], "") else {
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
}
