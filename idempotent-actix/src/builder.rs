//! Builds the application's handle from its settings.

use std::{fmt, panic::Location, sync::Arc, time::Duration};

use actix_web::{HttpRequest, HttpResponse, http::header::HeaderName};
use idempotent_core::{OnAbandon, Runtime, Store, runtime::RuntimeOptions};
use idempotent_http::{
    key::KeyRule,
    recording::{RecordRule, Recording},
};

use crate::{
    declaration,
    dialect::{Dialect, Spoken},
    fingerprint::FingerprintKeys,
    idempotency::{HandleOrigin, Idempotency, short_name},
    observation::Observation,
    problem::Problem,
    settings::{Settings, StoreFailurePolicy},
};

mod observing;
mod worker;

use self::worker::log_build_on_worker;

impl Idempotency {
    /// Creates a handle with this store and the default settings.
    #[track_caller]
    pub fn new(store: impl Store) -> Self {
        Self::builder(store).build()
    }

    /// Returns a builder, to create a handle with this store and other settings.
    pub fn builder<S: Store>(store: S) -> IdempotencyBuilder {
        let store = Arc::new(store);
        #[cfg_attr(not(feature = "metrics"), expect(unused_mut, reason = "nothing is counted"))]
        let mut options = RuntimeOptions::default();
        #[cfg(feature = "metrics")]
        {
            options.count_every = Some(Duration::from_secs(60));
        }
        let (store_name, settings) = (short_name::<S>(), Settings::default());
        let observation = Observation::default();
        IdempotencyBuilder { store, store_name, options, settings, observation }
    }
}

/// Builds an [`Idempotency`] with other settings than the defaults. Created by
/// [`Idempotency::builder`].
///
/// The settings apply to all guarded handlers of the application. The attribute of a handler
/// overrides [`ttl`](Self::ttl), [`lease`](Self::lease), [`wait`](Self::wait),
/// [`record`](Self::record), [`abandoned`](Self::abandoned) and [`timeout`](Self::timeout).
pub struct IdempotencyBuilder {
    store: Arc<dyn Store>,
    store_name: &'static str,
    options: RuntimeOptions,
    settings: Settings,
    observation: Observation,
}

impl IdempotencyBuilder {
    /// Sets the namespace, which is part of each record id: only requests in the same namespace
    /// share keys.
    ///
    /// The default is the name of the package that the handler belongs to. Set it if two
    /// applications that share a store use annotated handlers of the same package. Also set it
    /// before you rename a package or move a handler to another one, because in another namespace
    /// every key is new.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.options.namespace = Some(namespace.into());
        self
    }

    /// Sets whether handlers are guarded; the default is `true`. With `false` every annotated
    /// handler runs for each request as if it had no attribute, and no key is read or claimed: a
    /// retry runs it again. Jobs that the application runs itself are not affected.
    ///
    /// This is for a deployment that must do without its store, or for a test that shows what the
    /// guard prevents. It is said aloud: a warning when the [`Idempotency`] is built and another at
    /// each [`check`](Idempotency::check), the header `Idempotency-Disabled: true` on each response
    /// of an annotated handler, and `"enabled": false` in the
    /// [specification](Idempotency::specification).
    #[must_use]
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.settings.enabled = enabled;
        self
    }

    /// Sets how the application speaks of idempotency: the names of headers, the marker of a
    /// replay, the form of problems, and to which endpoint a key belongs. The default is
    /// [`Dialect::ietf`]. See the guide [Dialects](crate::guide::dialects).
    ///
    /// A [`header`](Self::header) that is set later, [`problems`](Self::problems) and
    /// [`record`](Self::record) override what the dialect says. With another
    /// [endpoint](Dialect::endpoint), every key is new.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.settings.policy.record_of_dialect = dialect.record;
        self.settings.spoken = Spoken::new(dialect);
        self.settings.header = self.settings.spoken.key_header();
        self
    }

    /// Sets the name of the header that carries the key; the default is `Idempotency-Key`.
    #[must_use]
    pub fn header(mut self, name: HeaderName) -> Self {
        self.settings.header = name;
        self
    }

    /// Sets how long a response can be replayed, counted from the first claim of the key. It
    /// applies to handlers whose attribute has no `ttl`; the default is 24 hours.
    ///
    /// It must be at least twice the `lease` that applies to the same handler. Otherwise
    /// [`Idempotency::check`](crate::Idempotency::check) fails, and requests to that handler are
    /// refused with 500 (`misconfigured`).
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.policy.ttl = Some(ttl);
        self
    }

    /// Sets how long a key stays claimed after the process that claimed it has died. It applies to
    /// handlers whose attribute has no `lease`; the default is 30 seconds.
    ///
    /// The lease of a running handler is renewed, so a handler may run for longer than its lease.
    /// See [`ttl`](Self::ttl) for the maximum.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.policy.lease = Some(lease);
        self
    }

    /// Sets how long a duplicate waits for the response of the attempt in flight before it gets 409
    /// (`in_flight`). It applies to handlers whose attribute has no `wait`; the default is zero.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings.policy.wait = Some(wait);
        self
    }

    /// Sets which responses are recorded. It applies to handlers whose attribute has no `record`;
    /// the default is [`RecordRule::Final`].
    #[must_use]
    pub fn record(mut self, rule: RecordRule) -> Self {
        self.settings.policy.record = Some(rule);
        self
    }

    /// Sets what happens to a key whose attempt was abandoned: its process died, or its handler
    /// panicked or exceeded its time limit. It applies to handlers whose attribute has no
    /// `abandoned`; the default is [`OnAbandon::Retry`].
    ///
    /// It does not apply to handlers with `claim = "transaction"`, because a crash rolls back their
    /// claim.
    #[must_use]
    pub fn abandoned(mut self, rule: OnAbandon) -> Self {
        self.settings.policy.abandoned = Some(rule);
        self
    }

    /// Sets how long a handler may run, and how long the body of its response may then stream until
    /// it is recorded, both together. It applies to handlers whose attribute has no `timeout`, also
    /// to requests without a key; by default there is no limit.
    ///
    /// When the limit is exceeded, the handler's future is dropped and its attempt is abandoned.
    /// With `abandoned = "retry"` the client gets 503 (`handler_timed_out`), and the next request
    /// runs the handler again. With `"hold"` the client gets 500, and the key is held.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.settings.timeout = Some(limit);
        self
    }

    /// Sets how many bytes the body of a request with a key may have; the default is 2 MiB.
    ///
    /// A request with a larger body gets 413 (`body_too_large`). The limits of the handler's
    /// extractors, such as `web::JsonConfig`, apply as well.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.settings.body_limit = bytes;
        self
    }

    /// Sets how many bytes of a response are recorded, headers and body together; the default is 1
    /// MiB.
    ///
    /// The first client gets a larger response whole. Its replay has only status and headers, or
    /// only the status if the headers alone exceed the limit.
    #[must_use]
    pub fn response_limit(mut self, bytes: usize) -> Self {
        self.settings.recording.bytes = bytes;
        self
    }

    /// Sets how long a response may stream its body before it is recorded without it; the default
    /// is 5 seconds.
    ///
    /// The response is recorded before its first byte is sent, so this also limits how long a
    /// client waits for the first byte of a stream. After the limit the body is sent as it arrives,
    /// and the replay has only status and headers. Server-sent events (`text/event-stream`) are
    /// sent at once and recorded without their body.
    #[must_use]
    pub fn stream_limit(mut self, time: Duration) -> Self {
        self.settings.recording.time = time;
        self
    }

    /// Sets a function that removes from each recording what must not be stored, such as a header
    /// with a token. It gets the request and the recording, before the recording is stored.
    ///
    /// The first client gets the whole response. If the function has changed the recording, the
    /// replay is what it has left, with `Idempotency-Replay: redacted`, or `omitted` if it has left
    /// no body. The status stays as it was. If the function panics, the attempt is abandoned, as
    /// after a panic of its handler.
    ///
    /// A single handler can also leave out the body of a response; see
    /// [`WithoutBody`](crate::recording::WithoutBody).
    #[must_use]
    pub fn redact(
        mut self,
        redact: impl Fn(&HttpRequest, &mut Recording) + Send + Sync + 'static,
    ) -> Self {
        self.settings.redact = Some(Box::new(redact));
        self
    }

    /// Sets how many operations with a key may be in flight in this process; the default is 4096.
    ///
    /// An operation is in flight from before its claim until its response is recorded, even if its
    /// client has disconnected. At the limit, a request that would run its handler is refused with
    /// 503 (`overloaded`). A request whose key was used before still gets its replay, 409 or 422.
    /// At most as many requests as this limit look up their keys at the same time; any more are
    /// refused without a lookup.
    #[must_use]
    pub fn operations_in_flight(mut self, limit: usize) -> Self {
        self.settings.operations.total = limit;
        self
    }

    /// Sets how many operations of one principal may be in flight in this process; the default is
    /// 256.
    ///
    /// A principal is any scope except [`scope::global`](crate::scope::global). At the limit,
    /// requests of that principal are treated as for
    /// [`operations_in_flight`](Self::operations_in_flight), but get 429 instead of 503.
    #[must_use]
    pub fn operations_per_principal(mut self, limit: usize) -> Self {
        self.settings.operations.per_principal = limit;
        self
    }

    /// Sets a rule that keys must meet in addition to the syntax of the standard; the default is
    /// [`KeyRule::Any`]. A request whose key breaks the rule gets 400 (`key_malformed`).
    #[must_use]
    pub fn key_rule(mut self, rule: KeyRule) -> Self {
        self.settings.key_rule = rule;
        self
    }

    /// Sets the base URL of the problems' documentation: the `type` of a problem is this text,
    /// followed by its code. The default is `/idempotency#`.
    ///
    /// Serve [`Idempotency::specification_handler`] at `/idempotency`, or set the URL of a page of
    /// your own.
    #[must_use]
    pub fn documentation(mut self, base: impl Into<String>) -> Self {
        self.settings.documentation = base.into();
        self
    }

    /// Sets the function that renders problems as responses, in place of the
    /// [dialect](Self::dialect): [`problem::json`](crate::problem::json()),
    /// [`problem::stripe`](crate::problem::stripe), or a function of your own. It gets problems
    /// with the statuses of the dialect.
    #[must_use]
    pub fn problems(
        mut self,
        render: impl Fn(&Problem, &HttpRequest) -> HttpResponse + Send + Sync + 'static,
    ) -> Self {
        self.settings.problems = Some(Box::new(render));
        self
    }

    /// Sets the secret keys with which stored fingerprints are signed. By default there are none,
    /// and a fingerprint is a plain SHA-256 digest. See [`FingerprintKeys`].
    #[must_use]
    pub fn fingerprint_keys(mut self, keys: FingerprintKeys) -> Self {
        self.options.fingerprint_keys = keys;
        self
    }

    /// Sets the secret keys that seal responses, results, steps and inputs in the store. By default
    /// there are none, and the store has them as they are. See [`Keyring`](crate::store::Keyring).
    #[cfg(feature = "encrypt")]
    #[must_use]
    pub fn encrypt(mut self, keyring: crate::store::Keyring) -> Self {
        self.options.keyring = keyring;
        self
    }

    /// Sets the average time between two purges of expired records; the default is 60 seconds. With
    /// `None` this process does not purge; another process that uses the store has to.
    #[must_use]
    pub fn purge_every(mut self, interval: Option<Duration>) -> Self {
        self.options.purge_every = interval;
        self
    }

    /// Sets how many duplicates of one key may [wait](Self::wait) in this process at the same time;
    /// the default is 16. Further duplicates get 409 at once.
    #[must_use]
    pub fn waiters_per_key(mut self, waiters: usize) -> Self {
        self.options.waiters_per_key = waiters;
        self
    }

    /// Sets how long one call to the store may take; the default is 10 seconds. After that the
    /// outcome of the call counts as unknown.
    #[must_use]
    pub fn store_timeout(mut self, limit: Duration) -> Self {
        self.options.store_timeout = limit;
        self
    }

    /// Sets how many bytes of memory may be used for recordings that the store has not accepted
    /// yet; the default is 64 MiB.
    ///
    /// A recording is kept in memory and retried while the store cannot be reached. Beyond the
    /// limit, a response is recorded without its body. If not even its status and headers fit, the
    /// recording is dropped, and the operation may run again.
    #[must_use]
    pub fn deferred_bytes(mut self, bytes: usize) -> Self {
        self.options.deferred_bytes = bytes;
        self
    }

    /// Sets what happens to requests with a key while the store cannot be reached; the default is
    /// [`StoreFailurePolicy::Refuse`].
    #[must_use]
    pub fn when_store_fails(mut self, policy: StoreFailurePolicy) -> Self {
        self.settings.when_store_fails = policy;
        self
    }

    /// Builds the handle. Call it before `HttpServer::new`, and put a clone of the handle into each
    /// `App::app_data`.
    #[must_use]
    #[track_caller]
    pub fn build(self) -> Idempotency {
        self.build_with(Runtime::shared)
    }

    /// Builds the handle with the runtime that this function creates.
    #[track_caller]
    pub(crate) fn build_with(
        self,
        create: impl FnOnce(Arc<dyn Store>, RuntimeOptions) -> Runtime,
    ) -> Idempotency {
        log_build_on_worker();
        let (mut options, observation) = (self.options, Arc::new(self.observation));
        if observation.is_needed() {
            options.observer = Some(observation.clone());
        }
        let packages = declaration::packages();
        if let (None, [package]) = (&options.namespace, &*packages) {
            options.namespace = Some((*package).to_owned());
        }
        self.settings.log_if_disabled();
        let runtime = create(self.store, options);
        match runtime.namespace() {
            Some(namespace) => {
                tracing::info!(namespace, "idempotency keys belong to this namespace")
            }
            None => {
                let packages = packages.join(", ");
                tracing::info!(
                    packages,
                    "idempotency keys belong to the namespace of their handler's package"
                );
            }
        }
        let origin = HandleOrigin::new(self.store_name, Location::caller());
        Idempotency::of_parts(runtime, self.settings, observation, origin)
    }
}

impl fmt::Debug for IdempotencyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}
