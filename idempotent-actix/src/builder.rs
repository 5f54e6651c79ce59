//! Builds the handle of an application from its settings.

use std::{fmt, sync::Arc, time::Duration};

use actix_web::{HttpRequest, HttpResponse, http::header::HeaderName};
use idempotent_core::{Abandoned, RecordRule, Runtime, Store, runtime::RuntimeOptions};

use crate::{
    fingerprint::FingerprintKeys,
    idempotency::Idempotency,
    problem::Problem,
    settings::{KeyRule, Settings, StoreFailurePolicy},
    spec,
};

impl Idempotency {
    /// Guards handlers with this store and the default settings.
    pub fn new(store: impl Store) -> Self {
        Self::builder(store).build()
    }

    /// Returns a builder, to guard handlers with this store and other settings.
    pub fn builder(store: impl Store) -> IdempotencyBuilder {
        let (store, options) = (Arc::new(store), RuntimeOptions::default());
        IdempotencyBuilder { store, options, settings: Settings::default() }
    }
}

/// Settings for all guarded handlers of an application, from
/// [`Idempotency::builder`](crate::Idempotency::builder).
pub struct IdempotencyBuilder {
    store: Arc<dyn Store>,
    options: RuntimeOptions,
    settings: Settings,
}

impl IdempotencyBuilder {
    /// Sets the namespace: only requests in the same namespace share keys.
    ///
    /// By default it is the one that the store's URL names (`?namespace=payments`), or else the
    /// name of the package that the handler is part of. Set it if two applications with one store
    /// use annotated handlers of the same package, and before you rename a package or move a
    /// handler to another one: in another namespace every key is new.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.options.namespace = Some(namespace.into());
        self
    }

    /// Sets the header that carries the key. `Idempotency-Key` by default.
    #[must_use]
    pub fn header(mut self, name: HeaderName) -> Self {
        self.settings.header = name;
        self
    }

    /// Sets how long a response can be replayed, if the attribute has no `ttl`. 24 h by default.
    ///
    /// It must be at least twice the `lease` that applies to the same handler. Otherwise
    /// [`Idempotency::check`](crate::Idempotency::check) fails, and requests to that handler are
    /// refused with 500 (`misconfigured`).
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.policy.ttl = Some(ttl);
        self
    }

    /// Sets how long a claim outlives a process that died, if the attribute has no `lease`. 30 s by
    /// default. See [`ttl`](Self::ttl) for its limit.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.policy.lease = Some(lease);
        self
    }

    /// Sets how long a duplicate waits for the response of the first request before it gets 409, if
    /// the attribute has no `wait`. Zero by default.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings.policy.wait = Some(wait);
        self
    }

    /// Sets which responses are recorded, if the attribute has no `record`. [`RecordRule::Final`]
    /// by default.
    #[must_use]
    pub fn record(mut self, rule: RecordRule) -> Self {
        self.settings.policy.record = Some(rule);
        self
    }

    /// Sets what happens to a key whose attempt was abandoned, if the attribute has no `abandoned`.
    /// [`Abandoned::Retry`] by default.
    ///
    /// It does not apply to handlers with `claim = "transaction"`, whose claim a crash rolls back.
    #[must_use]
    pub fn abandoned(mut self, rule: Abandoned) -> Self {
        self.settings.policy.abandoned = Some(rule);
        self
    }

    /// Sets how long a handler may run, and the body of its response may stream until it is
    /// recorded, if the attribute has no `timeout`. No limit by default.
    ///
    /// When the time is over, the handler's future is dropped and its attempt is abandoned. With
    /// `abandoned = "retry"` the client gets 503 (`handler_timed_out`) and the next request runs
    /// again; with `"hold"` it gets 500 and the key is held.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.settings.timeout = Some(limit);
        self
    }

    /// Sets how many bytes the body of a keyed request may have. 2 MiB by default.
    ///
    /// A larger one gets 413 (`body_too_large`). The limits of the extractors (`web::JsonConfig`
    /// and others) apply as well.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.settings.body_limit = bytes;
        self
    }

    /// Sets how many bytes of a response, headers and body together, are recorded. 1 MiB by
    /// default.
    ///
    /// The replay of a larger response has status and headers only, or the status only if the
    /// headers alone are larger.
    #[must_use]
    pub fn response_limit(mut self, bytes: usize) -> Self {
        self.settings.recording.bytes = bytes;
        self
    }

    /// Sets how long a response may stream its body to be recorded with it. 5 s by default.
    ///
    /// After that the body is sent as it arrives, and its replay has status and headers only. The
    /// first byte of a response leaves when the response is recorded, so this bounds how long a
    /// client waits for the first byte of an endless stream. Server-sent events
    /// (`text/event-stream`) never wait: they are recorded without their body.
    #[must_use]
    pub fn stream_limit(mut self, time: Duration) -> Self {
        self.settings.recording.time = time;
        self
    }

    /// Sets how many operations with a key may be in flight in this process. 4096 by default.
    ///
    /// An operation is in flight from before its claim until its response is recorded, also when
    /// its client has disconnected. Beyond the limit, a request that would run is refused with 503
    /// (`overloaded`). One whose key was used before still gets its replay, 409 or 422; as many
    /// records are looked up at the same time as operations may be in flight.
    #[must_use]
    pub fn operations_in_flight(mut self, limit: usize) -> Self {
        self.settings.operations.total = limit;
        self
    }

    /// Sets how many operations of one principal may be in flight in this process. 256 by default.
    ///
    /// A principal is a scope other than [`scope::global`](crate::scope::global). Beyond the limit
    /// the same applies as for [`operations_in_flight`](Self::operations_in_flight), with 429 in
    /// place of 503.
    #[must_use]
    pub fn operations_per_principal(mut self, limit: usize) -> Self {
        self.settings.operations.per_principal = limit;
        self
    }

    /// Sets a rule for keys, beyond the standard's. [`KeyRule::Any`] by default.
    #[must_use]
    pub fn key_rule(mut self, rule: KeyRule) -> Self {
        self.settings.key_rule = rule;
        self
    }

    /// Sets where problems are documented: a problem's `type` is this text, followed by its code.
    /// `/idempotency#` by default.
    ///
    /// Serve [`Idempotency::specification_handler`] at `/idempotency`, or name your own page.
    #[must_use]
    pub fn documentation(mut self, base: impl Into<String>) -> Self {
        self.settings.documentation = base.into();
        self
    }

    /// Sets how problems are rendered: by [`problem::json`](crate::problem::json()) (the default),
    /// by [`problem::stripe`](crate::problem::stripe), or by a function of your own.
    #[must_use]
    pub fn problems(
        mut self,
        render: impl Fn(&Problem, &HttpRequest) -> HttpResponse + Send + Sync + 'static,
    ) -> Self {
        self.settings.problems = Box::new(render);
        self
    }

    /// Sets secrets that sign fingerprints. None by default.
    #[must_use]
    pub fn fingerprint_keys(mut self, keys: FingerprintKeys) -> Self {
        self.options.fingerprint_keys = keys;
        self
    }

    /// Sets how often expired records are purged, on average; `None` leaves it to another process.
    /// Every 60 s by default.
    #[must_use]
    pub fn purge_every(mut self, interval: Option<Duration>) -> Self {
        self.options.purge_every = interval;
        self
    }

    /// Sets how many duplicates of one key may wait at the same time; more get 409 at once. 16 by
    /// default.
    #[must_use]
    pub fn waiters_per_key(mut self, waiters: usize) -> Self {
        self.options.waiters_per_key = waiters;
        self
    }

    /// Sets how long one call to the store may take; after that its outcome counts as unknown. 10 s
    /// by default.
    #[must_use]
    pub fn store_timeout(mut self, limit: Duration) -> Self {
        self.options.store_timeout = limit;
        self
    }

    /// Sets how many bytes of memory recordings may take that the store has not accepted yet. 64
    /// MiB by default.
    ///
    /// They are kept while the store cannot be reached. Beyond the limit a response is recorded
    /// without its body, and if not even its status and headers fit, it is dropped and the
    /// operation may run again.
    #[must_use]
    pub fn deferred_bytes(mut self, bytes: usize) -> Self {
        self.options.deferred_bytes = bytes;
        self
    }

    /// Sets what happens to keyed requests while the store cannot be reached.
    /// [`StoreFailurePolicy::Refuse`] by default.
    #[must_use]
    pub fn when_store_fails(mut self, policy: StoreFailurePolicy) -> Self {
        self.settings.when_store_fails = policy;
        self
    }

    /// Builds the handle, to be put into `App::app_data`.
    #[must_use]
    pub fn build(self) -> Idempotency {
        log_build_on_worker();
        let runtime = Runtime::shared(self.store, self.options);
        match runtime.namespace() {
            Some(namespace) => {
                tracing::info!(namespace, "idempotency keys belong to this namespace")
            }
            None => {
                let packages = spec::packages().join(", ");
                tracing::info!(
                    packages,
                    "idempotency keys belong to the namespace of their handler's package"
                );
            }
        }
        Idempotency::of_parts(runtime, self.settings)
    }
}

/// Logs that each worker of a server builds its own [`Idempotency`]: with a store in memory, a
/// retry that reaches another worker then runs again.
fn log_build_on_worker() {
    let thread = std::thread::current();
    // The names that actix-server and actix-rt give to the threads of workers.
    let is_worker =
        |name: &str| name.starts_with("actix-server worker") || name.starts_with("actix-rt|");
    if thread.name().is_some_and(is_worker) {
        tracing::error!(
            "an `Idempotency` is built on a worker's thread, so each worker has its own store; \
             build one before `HttpServer::new`, and put a clone of it into each `App`"
        );
    }
}

impl fmt::Debug for IdempotencyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}
