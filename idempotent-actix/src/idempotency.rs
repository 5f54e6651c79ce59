//! The application's handle.

use std::{fmt, sync::Arc, time::Duration};

use actix_web::{HttpRequest, HttpResponse, http::header::HeaderName, web};
use idempotent_core::{
    FingerprintKeys, Key, RecordId, Recording, Runtime, Scope, Store, StoreError,
    runtime::Options,
    store::{Found, Resolution, ResolveOutcome},
};
use tokio_util::task::TaskTracker;

use crate::{
    outcome::Outcome,
    private::OperationSpec,
    problem::{self, Kind, Problem},
    specification,
};

/// The one thing that an application sets up: put a clone of it into each worker's `App::app_data`.
///
/// ```
/// use actix_web::App;
/// use idempotent_actix::{Idempotency, store::MemoryStore};
///
/// let idempotency = Idempotency::new(MemoryStore::new());
/// let app = App::new().app_data(idempotency.clone());
/// # let _ = app;
/// ```
///
/// Clones share everything. Dropping the last one stops its thread; it does not wait for running work, see
/// [`drained`](Self::drained).
#[derive(Clone)]
pub struct Idempotency {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Runtime,
    settings: Settings,
    work: TaskTracker,
}

type Render = dyn Fn(&Problem, &HttpRequest) -> HttpResponse + Send + Sync;

pub(crate) struct Settings {
    pub(crate) header: HeaderName,
    pub(crate) body_limit: usize,
    pub(crate) answer_limit: usize,
    pub(crate) key_rule: KeyRule,
    pub(crate) documentation: String,
    pub(crate) when_store_fails: StoreFailure,
    problems: Box<Render>,
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

/// What happens to a keyed request while the store cannot be reached: after a [transient](StoreError::is_transient) failure.
///
/// Neither choice applies to a permanent failure, such as a missing table or privilege, or to a record that cannot be read: the
/// request gets 500 (`misconfigured` or `record_unreadable`) and is not run. Nor does either apply to a key whose attempt ended in
/// this process and whose end the store has not taken yet: its outcome comes from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// It is answered with 503 and not run. The default.
    Refuse,
    /// It runs without any guard, so that a retry may run again. Each time is logged.
    RunUnguarded,
}

impl Idempotency {
    /// Guards handlers with this store, with every default.
    pub fn new(store: impl Store) -> Self {
        Self::builder(store).build()
    }

    /// Guards handlers with this store; the builder holds what can be set.
    pub fn builder(store: impl Store) -> Builder {
        Builder {
            store: Arc::new(store),
            options: Options::default(),
            settings: Settings {
                header: HeaderName::from_static("idempotency-key"),
                body_limit: 2 << 20,
                answer_limit: 1 << 20,
                key_rule: KeyRule::Any,
                documentation: "/idempotency#".into(),
                when_store_fails: StoreFailure::Refuse,
                problems: Box::new(problem::json),
            },
        }
    }

    /// Finds what the application has set up.
    pub(crate) fn of(request: &HttpRequest) -> Option<&Self> {
        match (request.app_data::<Self>(), request.app_data::<web::Data<Self>>().map(|data| &***data)) {
            // actix finds the innermost of each type, and does not say which of two types is further in.
            (Some(plain), Some(data)) if !Arc::ptr_eq(&plain.inner, &data.inner) => {
                tracing::error!("two `Idempotency` apply here, one of them in `web::Data`; register both without it");
                None
            }
            (plain, data) => plain.or(data),
        }
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    pub(crate) fn work(&self) -> &TaskTracker {
        &self.inner.work
    }

    pub(crate) fn is_draining(&self) -> bool {
        // The tracker's own bit, beside its count: whoever is counted and does not see it is waited for.
        self.inner.work.is_closed()
    }

    /// The record of a key, for [`look_up`](Self::look_up) and [`resolve`](Self::resolve). `operation` is the `name` of the
    /// attribute, or else the method and the full route pattern, such as `"POST /v1/payments"`.
    ///
    /// # Errors
    /// When no [namespace](Builder::namespace) is set and the program has annotated handlers of several packages, so that the
    /// namespace is not the same for all of them, or has no annotated handler.
    pub fn record_id(&self, scope: &Scope, operation: &str, key: &Key) -> Result<RecordId, SeveralNamespaces> {
        let namespace = match (self.inner.runtime.namespace(), &*specification::packages()) {
            (Some(namespace), _) => namespace,
            (None, [package]) => package,
            (None, packages) => return Err(SeveralNamespaces { packages: packages.join(", ") }),
        };
        Ok(RecordId::new(namespace, scope, operation, key))
    }

    /// The namespace of a handler's records.
    pub(crate) fn namespace_of(&self, operation: &OperationSpec) -> &str {
        self.inner.runtime.namespace().unwrap_or(operation.package)
    }

    /// Verifies that the store can do its work: the server's settings, the schema's version, and the privileges that claims and
    /// completions need. Call it when the application starts; otherwise the first keyed request does so, before its handler runs.
    ///
    /// # Errors
    /// When the store is misconfigured or cannot be reached. The error's source names the setting or the privilege.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.inner.runtime.check().await
    }

    /// Reads a record without changing it; `None` when the key is not known.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn look_up(&self, id: &RecordId) -> Result<Option<Found>, StoreError> {
        self.inner.runtime.look_up(id).await
    }

    /// Ends a held key: `Some` is the answer that is replayed from now on, `None` lets the next request run. `seen` is what
    /// [`look_up`](Self::look_up) showed; if the record has moved on since, nothing changes and the outcome is a conflict.
    ///
    /// # Errors
    /// When the store fails. The same call may be made again.
    pub async fn resolve(
        &self,
        id: &RecordId,
        seen: &Found,
        answer: Option<&Recording>,
    ) -> Result<ResolveOutcome, StoreError> {
        let resolution = answer.map_or(Resolution::Release, |answer| Resolution::Complete(answer.encode()));
        self.inner.runtime.resolve(id, &seen.record.owner, &resolution).await
    }

    /// A future for [`HttpServer::shutdown_signal`](actix_web::HttpServer::shutdown_signal): it waits for SIGTERM, SIGINT or SIGQUIT,
    /// then [drains](Self::drain).
    ///
    /// Without it, work whose client has gone is lost when the server stops: a worker without connections drops its tasks.
    pub fn drained(&self, limit: Duration) -> impl Future<Output = ()> + Send + use<> {
        let this = self.clone();
        async move {
            shutdown_signal().await;
            this.drain(limit).await;
        }
    }

    /// Refuses new keyed requests with 503 and waits, up to `limit`, until running work is done and recorded. Says whether it was.
    ///
    /// # Cancel safety
    /// Requests stay refused.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.inner.work.close();
        let all = async {
            self.inner.work.wait().await;
            self.inner.runtime.settled().await;
        };
        let done = tokio::time::timeout(limit, all).await.is_ok();
        if !done {
            let left = self.inner.work.len();
            tracing::warn!(left, ?limit, "work was still running at the end of the time to drain; its leases run out");
        }
        done
    }

    pub(crate) fn problem(&self, kind: Kind, detail: impl Into<String>) -> Problem {
        Problem::new(kind, detail, &self.inner.settings.documentation)
    }

    /// Renders a problem as the application wants it, and notes what became of the request.
    pub(crate) fn render(&self, problem: &Problem, outcome: Outcome, request: &HttpRequest) -> HttpResponse {
        let mut response = (self.inner.settings.problems)(problem, request);
        response.extensions_mut().insert(outcome);
        response
    }
}

impl fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency").field("header", &self.inner.settings.header).finish_non_exhaustive()
    }
}

#[cfg(unix)]
async fn shutdown_signal() {
    use tokio::signal::unix::{SignalKind, signal};

    let listen = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()].map(signal);
    let [Ok(mut term), Ok(mut int), Ok(mut quit)] = listen else {
        tracing::error!("signals cannot be listened for; the server will not stop by itself");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        _ = quit.recv() => {}
    }
}

#[cfg(not(unix))]
async fn shutdown_signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

/// The annotated handlers are of several packages, and each package is a namespace of its own; or there are none.
#[derive(Debug)]
pub struct SeveralNamespaces {
    packages: String,
}

impl fmt::Display for SeveralNamespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record id needs a namespace, and ")?;
        match &*self.packages {
            "" => f.write_str("the program has no annotated handler whose package could be the namespace")?,
            packages => write!(f, "the annotated handlers are of several packages ({packages})")?,
        }
        f.write_str("; set one with `Idempotency::builder(store).namespace(…)`")
    }
}

impl std::error::Error for SeveralNamespaces {}

/// What can be set for all guarded handlers of an application.
pub struct Builder {
    store: Arc<dyn Store>,
    options: Options,
    settings: Settings,
}

impl Builder {
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

    /// The most bytes of an answer's body that are kept; of a larger one the replay has status and headers only. 1 MiB by default.
    #[must_use]
    pub fn answer_limit(mut self, bytes: usize) -> Self {
        self.settings.answer_limit = bytes;
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
    /// [`Options::deferred_bytes`]. Beyond that a response is kept without its body, and where not even its status and headers fit, it
    /// is dropped and the operation may run again. 64 MiB by default.
    #[must_use]
    pub fn deferred_bytes(mut self, bytes: usize) -> Self {
        self.options.deferred_bytes = bytes;
        self
    }

    /// What happens while the store cannot be reached. Requests are refused by default.
    #[must_use]
    pub fn when_store_fails(mut self, choice: StoreFailure) -> Self {
        self.settings.when_store_fails = choice;
        self
    }

    /// The handle to put into `App::app_data`.
    #[must_use]
    pub fn build(self) -> Idempotency {
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
        let inner = Inner { runtime, settings: self.settings, work: TaskTracker::new() };
        Idempotency { inner: Arc::new(inner) }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_namespace_is_explained_by_what_is_missing() {
        let text = |packages: &str| SeveralNamespaces { packages: packages.into() }.to_string();
        assert!(text("shop, bank").contains("several packages (shop, bank); set one"), "{}", text("shop, bank"));
        assert!(text("").contains("no annotated handler") && !text("").contains("several"), "{}", text(""));
    }
}
