//! What an application can set.

use std::{fmt, sync::Arc, time::Duration};

use actix_web::{HttpRequest, HttpResponse, http::header::HeaderName};
use idempotent_core::{FingerprintKeys, Key, Runtime, Store, runtime::RuntimeOptions};

use crate::{
    idempotency::Idempotency,
    in_flight,
    problem::{self, Problem},
    recording, specification,
};

type Render = dyn Fn(&Problem, &HttpRequest) -> HttpResponse + Send + Sync;

pub(crate) struct Settings {
    pub(crate) header: HeaderName,
    pub(crate) body_limit: usize,
    pub(crate) recording: recording::Limits,
    /// How long a handler may work, where its attribute does not say.
    pub(crate) timeout: Option<Duration>,
    pub(crate) operations: in_flight::Limits,
    pub(crate) key_rule: KeyRule,
    pub(crate) documentation: String,
    pub(crate) when_store_fails: StoreFailurePolicy,
    pub(crate) problems: Box<Render>,
}

/// What a key must be, beyond what [`Key::parse`] asks of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyRule {
    /// Nothing more.
    Any,
    /// A UUID, in its usual form of 36 characters. It shuts out Firefox, which sends decimal numbers.
    Uuid,
    /// At least so many bytes.
    MinLength(usize),
}

impl KeyRule {
    pub(crate) fn check(self, key: &Key) -> Result<(), String> {
        match self {
            Self::Uuid if key.as_str().len() != 36 || uuid::Uuid::try_parse(key.as_str()).is_err() => {
                Err("the key is not a UUID".into())
            }
            Self::MinLength(least) if key.as_str().len() < least => {
                Err(format!("the key has {} bytes; the least is {least}", key.as_str().len()))
            }
            Self::Any | Self::Uuid | Self::MinLength(_) => Ok(()),
        }
    }
}

/// What happens to a keyed request while the store cannot be reached: after a [transient](idempotent_core::StoreError::is_transient) failure.
///
/// Neither choice applies to a permanent failure, such as a missing table or privilege, or to a record that cannot be read: the
/// request gets 500 (`misconfigured` or `record_unreadable`) and is not run. Nor does either apply to a key whose attempt ended in
/// this process and whose end the store has not taken yet: its outcome comes from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFailurePolicy {
    /// It is answered with 503 and not run. The default.
    Refuse,
    /// It runs without any guard, so that a retry may run again. Each time is logged.
    RunUnguarded,
}

/// What can be set for all guarded handlers of an application.
pub struct IdempotencyBuilder {
    store: Arc<dyn Store>,
    options: RuntimeOptions,
    settings: Settings,
}

impl IdempotencyBuilder {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let settings = Settings {
            header: HeaderName::from_static("idempotency-key"),
            body_limit: 2 << 20,
            recording: recording::Limits { bytes: 1 << 20, time: Duration::from_secs(5) },
            timeout: None,
            operations: in_flight::Limits { total: 4096, per_principal: 256 },
            key_rule: KeyRule::Any,
            documentation: "/idempotency#".into(),
            when_store_fails: StoreFailurePolicy::Refuse,
            problems: Box::new(problem::json),
        };
        Self { store, options: RuntimeOptions::default(), settings }
    }

    /// Tells applications that share a store apart: only requests in the same namespace share keys. By default it is what the
    /// store's URL says (`?namespace=payments`), or else the name of the package that the handler is part of.
    ///
    /// Set it where two applications share annotated handlers of one package, and before you rename a package or move a handler
    /// to another one: in another namespace every key is new.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.options.namespace = Some(namespace.into());
        self
    }

    /// The header that carries the key. `Idempotency-Key` by default.
    #[must_use]
    pub fn header(mut self, name: HeaderName) -> Self {
        self.settings.header = name;
        self
    }

    /// The most bytes that a keyed request's body may have; more is answered with 413. 2 MiB by default.
    ///
    /// The limits of the extractors (`web::JsonConfig` and the like) apply as well.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.settings.body_limit = bytes;
        self
    }

    /// The most bytes of a response's headers and body that are kept. Of a larger one the replay has status and headers only, and
    /// the status only where the headers alone exceed it. 1 MiB by default.
    #[must_use]
    pub fn answer_limit(mut self, bytes: usize) -> Self {
        self.settings.recording.bytes = bytes;
        self
    }

    /// How long a response may take to stream its body, to be kept with it. After that it is sent on as it arrives, and its replay
    /// has status and headers only. 5 s by default.
    ///
    /// The first byte of a response leaves once the response is recorded, so this bounds how long a client waits for the first byte of
    /// an endless stream. Server-sent events (`text/event-stream`) never wait: they are always kept without their body.
    #[must_use]
    pub fn stream_limit(mut self, time: Duration) -> Self {
        self.settings.recording.time = time;
        self
    }

    /// How long a handler may work, and the body of its response may stream until it is recorded, where its attribute has no `timeout`.
    /// No limit by default.
    ///
    /// When the time is over, the handler's future is dropped and its attempt is abandoned. With `abandoned = "retry"` the client gets
    /// 503 (`handler_timed_out`) and the next request runs again; with `"hold"` it gets 500 and the key is held.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.settings.timeout = Some(limit);
        self
    }

    /// How many operations with a key may be in flight in this process: from before their claim until their response is recorded, also
    /// when their client has disconnected. 4096 by default.
    ///
    /// Beyond that, a request that would run is refused with 503 (`overloaded`). One whose key was used before still gets its replay, 409
    /// or 422; as many records are looked up at once as operations may run.
    #[must_use]
    pub fn operations_in_flight(mut self, most: usize) -> Self {
        self.settings.operations.total = most;
        self
    }

    /// How many of them may be of one principal, which is a scope other than [`scope::global`](crate::scope::global). 256 by
    /// default. Beyond that the same applies, with 429 in place of 503.
    #[must_use]
    pub fn operations_per_principal(mut self, most: usize) -> Self {
        self.settings.operations.per_principal = most;
        self
    }

    /// What a key must be, beyond the standard. Nothing by default.
    #[must_use]
    pub fn key_rule(mut self, rule: KeyRule) -> Self {
        self.settings.key_rule = rule;
        self
    }

    /// Where problems are documented; a problem's `type` is this text and its code. `/idempotency#` by default: serve
    /// [`Idempotency::specification`] at `/idempotency`, or name your own page.
    #[must_use]
    pub fn documentation(mut self, base: impl Into<String>) -> Self {
        self.settings.documentation = base.into();
        self
    }

    /// How problems are rendered: [`problem::json`] (the default), [`problem::stripe`], or a function of your own.
    #[must_use]
    pub fn problems(mut self, render: impl Fn(&Problem, &HttpRequest) -> HttpResponse + Send + Sync + 'static) -> Self {
        self.settings.problems = Box::new(render);
        self
    }

    /// Secrets that sign fingerprints. None by default.
    #[must_use]
    pub fn fingerprint_keys(mut self, keys: FingerprintKeys) -> Self {
        self.options.fingerprint_keys = keys;
        self
    }

    /// How often expired records are purged, on average; `None` leaves it to somebody else. Every 60 s by default.
    #[must_use]
    pub fn purge_every(mut self, interval: Option<Duration>) -> Self {
        self.options.purge_every = interval;
        self
    }

    /// How many duplicates of one key may wait at once; more are answered with 409 at once. 16 by default.
    #[must_use]
    pub fn waiters_per_key(mut self, waiters: usize) -> Self {
        self.options.waiters_per_key = waiters;
        self
    }

    /// How long one call to the store may take before its outcome counts as unknown. 10 s by default.
    #[must_use]
    pub fn store_timeout(mut self, limit: Duration) -> Self {
        self.options.store_timeout = limit;
        self
    }

    /// How many bytes the ends of attempts may take in memory while the store cannot take them; see
    /// [`RuntimeOptions::deferred_bytes`]. Beyond that a response is kept without its body, and where not even its status and headers fit, it
    /// is dropped and the operation may run again. 64 MiB by default.
    #[must_use]
    pub fn deferred_bytes(mut self, bytes: usize) -> Self {
        self.options.deferred_bytes = bytes;
        self
    }

    /// What happens while the store cannot be reached. Requests are refused by default.
    #[must_use]
    pub fn when_store_fails(mut self, choice: StoreFailurePolicy) -> Self {
        self.settings.when_store_fails = choice;
        self
    }

    /// The handle to put into `App::app_data`.
    #[must_use]
    pub fn build(self) -> Idempotency {
        warn_on_a_worker();
        let runtime = Runtime::shared(self.store, self.options);
        match runtime.namespace() {
            Some(namespace) => tracing::info!(namespace, "idempotency keys are kept in this namespace"),
            None => {
                let packages = specification::packages().join(", ");
                tracing::info!(
                    namespace = packages,
                    "idempotency keys are kept in the namespace of each handler's package"
                );
            }
        }
        Idempotency::of_parts(runtime, self.settings)
    }
}

/// Logs that each worker of a server has an [`Idempotency`] of its own. With a store in memory, a retry that reaches another worker then
/// runs again.
fn warn_on_a_worker() {
    let thread = std::thread::current();
    // The names that actix-server and actix-rt give to the threads of workers.
    if thread.name().is_some_and(|name| name.starts_with("actix-server worker") || name.starts_with("actix-rt|")) {
        tracing::error!(
            "an `Idempotency` is built on a worker's thread, so each worker has its own, with a store of its own; build one before \
             `HttpServer::new` and put a clone of it into each `App`"
        );
    }
}

impl fmt::Debug for IdempotencyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}
