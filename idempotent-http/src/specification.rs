//! The published idempotency specification that draft-ietf-httpapi-idempotency-key-header-07 §2
//! requires of a resource, as JSON.
//!
//! A server writes all of it. A client can read that of a later release: it needs only the routes
//! and the times of operations, and ignores what it does not know.

use std::{borrow::Cow, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    dialect::{Dialect, ProblemForm},
    problem::ProblemKind,
};

/// The draft that a specification follows.
pub const STANDARD: &str = "draft-ietf-httpapi-idempotency-key-header-07";

/// A word of the specification, such as `"retry"`.
type Word = Cow<'static, str>;

/// The policy of every operation of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PublishedSpecification {
    /// The [draft](STANDARD) that the server follows.
    #[serde(default)]
    pub standard: Word,
    /// Whether handlers are guarded. If not, keys are ignored.
    #[serde(default = "enabled")]
    pub enabled: bool,
    /// The name of the key header.
    #[serde(default)]
    pub header: String,
    /// The name of the [dialect](crate::dialect), unless it is the draft's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<Word>,
    /// To what a key belongs besides its principal, unless it is the `pattern` of the operation:
    /// the `path` of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Word>,
    /// The header that says until when a key is remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry_header: Option<String>,
    /// The rules for keys.
    #[serde(default)]
    pub key: PublishedKeyRules,
    /// The maximum length of a body.
    #[serde(default)]
    pub body_limit_bytes: usize,
    /// The maximum length of headers and body of a response that can be replayed whole.
    #[serde(default)]
    pub replayed_bytes_limit: usize,
    /// How long a response may stream to be replayed whole.
    #[serde(default)]
    pub replayed_stream_seconds: f64,
    /// How many operations may be in flight.
    #[serde(default)]
    pub operations_in_flight: PublishedLimits,
    /// The header that marks a replay.
    #[serde(default)]
    pub replay_marker: Word,
    /// The header that proves that a request was not run.
    #[serde(default)]
    pub not_run_marker: Word,
    /// `refuse` or `run_unguarded`.
    #[serde(default)]
    pub when_store_fails: Word,
    /// The operations.
    pub operations: Vec<PublishedOperation>,
    /// The problems that a client may get. A problem with several statuses, or with one that can be
    /// retried or not, is listed once for each case.
    #[serde(default)]
    pub problems: Vec<PublishedProblem>,
}

/// A server that does not say otherwise guards its handlers.
const fn enabled() -> bool {
    true
}

/// The rules for keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PublishedKeyRules {
    /// The syntax of the header's value.
    pub syntax: Word,
    /// The maximum length of a key.
    pub max_bytes: usize,
    /// The application's [rule](crate::key::KeyRule::specified).
    pub rule: Value,
}

/// How many operations may be in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PublishedLimits {
    /// In the process.
    pub total: usize,
    /// Of one principal.
    pub per_principal: usize,
}

/// The policy of an operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PublishedOperation {
    /// The name of the handler.
    #[serde(default)]
    pub handler: Word,
    /// The path of the handler's module, such as `shop::payments`.
    #[serde(default)]
    pub module: Word,
    /// The name of the operation in records; without one, it is the method and the full route
    /// pattern.
    #[serde(default)]
    pub name: Option<Word>,
    /// The routes.
    pub routes: Vec<PublishedRoute>,
    /// `required` or `optional`.
    #[serde(default)]
    pub key: Word,
    /// [Where](crate::key::KeyPlace::specified) the key is, or `custom`.
    #[serde(default)]
    pub key_from: String,
    /// How long a key is remembered.
    pub ttl_seconds: f64,
    /// `lease` or `transaction`.
    #[serde(default)]
    pub claim: Word,
    /// How long a key stays claimed after its process has died. `None` with a claim in a
    /// transaction.
    #[serde(default)]
    pub lease_seconds: Option<f64>,
    /// How long a duplicate waits.
    #[serde(default)]
    pub wait_seconds: f64,
    /// The time limit of the handler.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
    /// What of the body counts for "the same request".
    #[serde(default)]
    pub fingerprint: Word,
    /// The JSON pointers of what does not count of a JSON body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<Vec<Word>>,
    /// The JSON pointers of what alone counts of a JSON body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<Word>>,
    /// Whether the order of the query's parameters counts: `exact` or `unordered`.
    #[serde(default)]
    pub query: Word,
    /// Whether the notation of the content type counts: `exact`, `equivalent` or `ignored`.
    #[serde(default)]
    pub content_type: Word,
    /// Which responses are recorded.
    #[serde(default)]
    pub record: Word,
    /// `conflict` or `poll`.
    #[serde(default)]
    pub in_flight: Word,
    /// What happens to a key whose attempt is abandoned. `None` with a claim in a transaction.
    #[serde(default)]
    pub abandoned: Option<Word>,
    /// What a key belongs to: `parameter`, the principal in a parameter of the handler; `function`,
    /// the one that a function of the application finds; `bearer_token`, `peer_ip`; or `global`, no
    /// principal. `None` if it is not known.
    #[serde(default)]
    pub scope: Option<Word>,
}

/// A route of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedRoute {
    /// The method.
    pub method: Word,
    /// The path, with parameters such as `{id}`. If the handler is routed by hand, it is the full
    /// pattern of a request that the server has handled, and `None` before the first one.
    pub path: Option<Word>,
    /// The full patterns of the requests that the server has handled, with the scopes above the
    /// path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounted: Vec<String>,
}

/// A problem that a client may get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PublishedProblem {
    /// The URL of the problem's documentation.
    #[serde(rename = "type")]
    pub url: String,
    /// The code.
    pub code: Word,
    /// The status.
    pub status: u16,
    /// The title.
    pub title: Word,
    /// The condition under which the response has this status, if there are several cases.
    pub when: Option<Word>,
    /// Whether the same request may be sent again.
    pub retryable: bool,
}

impl PublishedSpecification {
    /// Returns how long the keys of an operation are remembered: the shortest time, if several
    /// operations match; that of all operations, if none does. `path` is `None` if the server has
    /// no such path.
    #[must_use]
    pub fn ttl(&self, method: &str, path: Option<&str>) -> Option<Duration> {
        let is_match = |operation: &&PublishedOperation| {
            operation.routes.iter().any(|route| {
                let pattern = route.path.as_deref();
                route.method == method
                    && pattern.zip(path).is_some_and(|(pattern, path)| matches(pattern, path))
            })
        };
        let ttl = |operation: &PublishedOperation| {
            Duration::try_from_secs_f64(operation.ttl_seconds).ok()
        };
        let matching = self.operations.iter().filter(is_match).filter_map(ttl).min();
        matching.or_else(|| self.operations.iter().filter_map(ttl).min())
    }
}

impl PublishedOperation {
    /// Returns the name of the handler with its module, such as `shop::payments::pay`.
    #[must_use]
    pub fn full_name(&self) -> String {
        match &*self.module {
            "" => self.handler.to_string(),
            module => format!("{module}::{}", self.handler),
        }
    }
}

impl PublishedProblem {
    /// Returns an entry for each status and meaning that a problem of this kind may have in a
    /// dialect. `documentation` is the base of the URLs of problems.
    pub fn of(
        kind: ProblemKind,
        dialect: &Dialect,
        documentation: &str,
    ) -> impl Iterator<Item = Self> + use<> {
        let url = format!("{documentation}{}", kind.code());
        let ProblemForm { status: other, code, title, .. } = dialect.problem(kind);
        let code = code.unwrap_or(kind.code().into());
        let title = title.unwrap_or(kind.title().into());
        kind.statuses().into_iter().map(move |(status, when, retryable)| Self {
            url: url.clone(),
            code: code.clone(),
            status: other.filter(|_| status == kind.status()).unwrap_or(status),
            title: title.clone(),
            when: when.map(Word::from),
            retryable,
        })
    }
}

/// Whether a path matches a pattern of actix-web: `{name}` is one segment, and `{name:regex}` is
/// taken for the rest of the path.
fn matches(pattern: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    for part in pattern.split('/') {
        if part.contains('{') && part.contains(':') {
            return segments.next().is_some();
        }
        let is_parameter = part.starts_with('{') && part.ends_with('}');
        match segments.next() {
            Some(segment) if segment == part || (is_parameter && !segment.is_empty()) => {}
            _ => return false,
        }
    }
    segments.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_paths_with_its_segments() {
        for (pattern, path, expected) in [
            ("/orders", "/orders", true),
            ("/orders", "/orders/1", false),
            ("/orders/{id}", "/orders/1", true),
            ("/orders/{id}", "/orders/", false),
            ("/orders/{id}/refunds", "/orders/1/refunds", true),
            ("/orders/{id}/refunds", "/orders/1", false),
            ("/files/{path:.*}", "/files/a/b", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn the_ttl_is_that_of_the_operation() {
        let json = r#"{"header": "idempotency-key", "later": true, "operations": [
            {"routes": [{"method": "POST", "path": "/orders"}], "ttl_seconds": 60.0},
            {"routes": [{"method": "POST", "path": null}], "ttl_seconds": 1.0},
            {"routes": [{"method": "PUT", "path": "/orders/{id}"}], "ttl_seconds": 30.5}
        ]}"#;
        let published: PublishedSpecification = serde_json::from_str(json).unwrap();
        let ttl = |method, path| published.ttl(method, path);
        assert_eq!(ttl("POST", Some("/orders")), Some(Duration::from_secs(60)));
        assert_eq!(ttl("PUT", Some("/orders/7")), Some(Duration::from_millis(30_500)));
        let shortest = Some(Duration::from_secs(1));
        assert_eq!(ttl("POST", None), shortest);
        assert_eq!(ttl("DELETE", Some("/orders/7")), shortest);
        let none: PublishedSpecification = serde_json::from_str(r#"{"operations": []}"#).unwrap();
        assert_eq!(none.ttl("POST", Some("/orders")), None);
        assert!(serde_json::from_str::<PublishedSpecification>("{}").is_err());
    }

    #[test]
    fn a_written_specification_is_read_again() {
        let problems =
            PublishedProblem::of(ProblemKind::Overloaded, &Dialect::ietf(), "/idempotency#");
        let written = PublishedSpecification {
            standard: STANDARD.into(),
            problems: problems.collect(),
            operations: vec![PublishedOperation {
                routes: vec![PublishedRoute {
                    method: "POST".into(),
                    path: Some("/orders".into()),
                    mounted: vec!["/v1/orders".into()],
                }],
                abandoned: Some("retry".into()),
                ..PublishedOperation::default()
            }],
            ..PublishedSpecification::default()
        };
        let json = serde_json::to_string(&written).unwrap();
        assert_eq!(serde_json::from_str::<PublishedSpecification>(&json).unwrap(), written);
    }
}
