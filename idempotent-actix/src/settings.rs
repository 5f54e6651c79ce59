//! The settings of an application that concern HTTP.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, http::header::HeaderName};
use idempotent_http::{dialect::Dialect, header_names, key::KeyRule};

use crate::{
    dialect::Spoken, in_flight, policy::PolicyDefaults, problem::Problem, recording, traces::Traces,
};

type Render = dyn Fn(&Problem, &HttpRequest) -> HttpResponse + Send + Sync;

pub(crate) struct Settings {
    /// Whether handlers are guarded at all.
    pub(crate) enabled: bool,
    /// The name of the header with the key: the dialect's, unless the application sets another.
    pub(crate) header: HeaderName,
    pub(crate) spoken: Spoken,
    pub(crate) body_limit: usize,
    pub(crate) recording: recording::RecordingLimits,
    /// What removes secrets from recordings.
    pub(crate) redact: Option<Box<recording::Redact>>,
    pub(crate) policy: PolicyDefaults,
    /// How long a handler may run if its attribute has no `timeout`.
    pub(crate) timeout: Option<Duration>,
    pub(crate) operations: in_flight::OperationLimits,
    pub(crate) key_rule: KeyRule,
    pub(crate) documentation: String,
    pub(crate) when_store_fails: StoreFailurePolicy,
    /// Renders problems in place of the dialect.
    pub(crate) problems: Option<Box<Render>>,
    pub(crate) traces: Traces,
}

impl Settings {
    pub(crate) fn log_if_disabled(&self) {
        if !self.enabled {
            tracing::warn!(
                "idempotency is turned off with `enabled(false)`: keys are ignored, and a retry \
                 runs its handler again"
            );
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            header: HeaderName::from_static(header_names::KEY),
            spoken: Spoken::new(Dialect::ietf()),
            body_limit: 2 << 20,
            recording: recording::RecordingLimits { bytes: 1 << 20, time: Duration::from_secs(5) },
            redact: None,
            policy: PolicyDefaults::default(),
            timeout: None,
            operations: in_flight::OperationLimits { total: 4096, per_principal: 256 },
            key_rule: KeyRule::Any,
            documentation: "/idempotency#".into(),
            when_store_fails: StoreFailurePolicy::Refuse,
            problems: None,
            traces: Traces::default(),
        }
    }
}

/// What happens to a request with a key while the store cannot be reached. Set with
/// [`when_store_fails`](crate::IdempotencyBuilder::when_store_fails).
///
/// The policy applies to claims that failed with a [transient](crate::StoreError::is_transient)
/// error: the store cannot be reached, is too busy, or is full. It does not apply in these cases:
///
/// * A permanent error, such as a missing table or privilege: the request gets 500
///   (`misconfigured`).
/// * A record that cannot be read: the request gets 500 (`record_unreadable`).
/// * A principal that has used up its share of the store: the request gets 429 (`overloaded`).
/// * A key whose attempt has ended in this process, and whose end the store has not accepted yet:
///   the outcome comes from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFailurePolicy {
    /// The request gets 503 (`store_unavailable`), and its handler does not run.
    Refuse,
    /// The handler runs without a claim, so a retry may run it again. Each such request is logged
    /// as an error.
    RunUnguarded,
}
