//! What a response says about the operation.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use idempotent_http::{
    Key,
    dialect::Dialect,
    header_names,
    problem::{MEDIA_TYPE, ProblemKind},
};
use serde::Deserialize;
use serde_json::Value;

use crate::proof;

/// Bodies of refusals are short; a longer body is not read for a code.
const MAX_PROBLEM: usize = 16 * 1024;

/// What a response says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
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
) -> Meaning {
    // A recorded response is the outcome, whatever its status: it would be replayed again.
    if is_replay(headers) {
        return Meaning::Outcome;
    }
    let after = retry_after(headers, sent.since_epoch);
    let unproved = Meaning::Again(Again { after, did_not_run: false });
    if is_poll(status, headers, body) {
        return unproved;
    }
    if status.is_success() {
        return Meaning::Outcome;
    }
    let refusal = Refusal::of(headers, body);
    // HTTP has no such statuses (RFC 9110 §15), or the rest of the problem is missing.
    if !(200..600).contains(&status.as_u16()) || refusal.is_cut {
        return unproved;
    }
    let did_not_run = proof::is_not_run(headers, sent.key);
    let again = || Meaning::Again(Again { after, did_not_run });
    match (status.as_u16(), refusal.kind()) {
        (_, Some(ProblemKind::OutcomeUnknown | ProblemKind::RecordUnreadable)) => {
            Meaning::Unknown { reference: refusal.reference }
        }
        // A key that was used for another request was used before.
        (400 | 409 | 422, Some(ProblemKind::KeyReused)) if sent.may_be_done => {
            Meaning::Unknown { reference: refusal.reference }
        }
        (_, Some(ProblemKind::InFlight)) => unproved,
        _ => match advice(headers).or(refusal.retryable) {
            Some(true) => again(),
            None if is_retryable(status, after) => again(),
            // The draft has no code for a request in progress, and it may be the earlier attempt.
            None if sent.may_be_done && status == StatusCode::CONFLICT => unproved,
            Some(false) if status.is_server_error() && did_not_run => Meaning::NotRun,
            Some(false) if status.is_server_error() => {
                Meaning::Unknown { reference: refusal.reference }
            }
            _ => Meaning::Unproven { in_front: is_retryable(status, after) || is_in_front(status) },
        },
    }
}

/// Whether the response was recorded earlier. Besides this project's header, those of the Agentic
/// Commerce Protocol and of Stripe.
pub(crate) fn is_replay(headers: &HeaderMap) -> bool {
    [header_names::REPLAYED, "idempotent-replayed"]
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
    let value = [header_names::STRIPE_SHOULD_RETRY, "x-should-retry"]
        .iter()
        .find_map(|name| headers.get(*name));
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
    /// The kind of the problem. Stripe and the Agentic Commerce Protocol have codes of their own.
    fn kind(&self) -> Option<ProblemKind> {
        Dialect::kind_of_code(self.code.as_deref()?)
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
    value.is_some_and(|value| value.trim_start().starts_with(MEDIA_TYPE))
}

#[cfg(test)]
mod tests;
