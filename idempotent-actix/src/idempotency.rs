//! The application's handle.

use std::{fmt, sync::Arc, time::Duration};

use actix_web::{Error, HttpRequest, HttpResponse, web};
use idempotent_core::{
    Key, RecordId, Recording, Runtime, ScopeId, Store, StoreError,
    protocol::{Resolution, ResolveOutcome, Snapshot},
};
use tokio_util::task::TaskTracker;

use crate::{
    builder::{IdempotencyBuilder, Settings},
    in_flight::InFlight,
    operation::misconfigured,
    outcome::RequestOutcome,
    private::OperationSpec,
    problem::{Problem, ProblemKind},
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
    in_flight: Arc<InFlight>,
    /// Looks at records of those that are refused for the limits of `in_flight`.
    looks: Arc<InFlight>,
}

impl Idempotency {
    /// Guards handlers with this store, with every default.
    pub fn new(store: impl Store) -> Self {
        Self::builder(store).build()
    }

    /// Guards handlers with this store; the builder holds what can be set.
    pub fn builder(store: impl Store) -> IdempotencyBuilder {
        IdempotencyBuilder::new(Arc::new(store))
    }

    pub(crate) fn of_parts(runtime: Runtime, settings: Settings) -> Self {
        let [in_flight, looks] = [settings.operations; 2].map(InFlight::new);
        Self { inner: Arc::new(Inner { runtime, settings, work: TaskTracker::new(), in_flight, looks }) }
    }

    /// Finds what the application has set up.
    ///
    /// # Errors
    /// Where nothing or too much is registered: the response, and the log says which.
    pub(crate) fn of(request: &HttpRequest) -> Result<&Self, Error> {
        match (request.app_data::<Self>(), request.app_data::<web::Data<Self>>().map(|data| &***data)) {
            // actix finds the innermost of each type, and does not say which of two types is further in.
            (Some(plain), Some(data)) if !Arc::ptr_eq(&plain.inner, &data.inner) => Err(misconfigured(
                request,
                "two `Idempotency` apply here, one of them in `web::Data`; register both without it",
            )),
            (plain, data) => plain.or(data).ok_or_else(|| {
                misconfigured(
                    request,
                    "no `Idempotency` is registered: add `.app_data(idempotency.clone())` to the `App`",
                )
            }),
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

    pub(crate) fn in_flight(&self) -> &Arc<InFlight> {
        &self.inner.in_flight
    }

    pub(crate) fn looks(&self) -> &Arc<InFlight> {
        &self.inner.looks
    }

    pub(crate) fn is_draining(&self) -> bool {
        // The tracker's own bit, beside its count: whoever is counted and does not see it is waited for.
        self.inner.work.is_closed()
    }

    /// The record of a key, for [`look_up`](Self::look_up) and [`resolve`](Self::resolve). `operation` is the `name` of the
    /// attribute, or else the method and the full route pattern, such as `"POST /v1/payments"`.
    ///
    /// # Errors
    /// When no [namespace](IdempotencyBuilder::namespace) is set and the program has annotated handlers of several packages, so that the
    /// namespace is not the same for all of them, or has no annotated handler.
    pub fn record_id(&self, scope: &ScopeId, operation: &str, key: &Key) -> Result<RecordId, AmbiguousNamespace> {
        let namespace = match (self.inner.runtime.namespace(), &*specification::packages()) {
            (Some(namespace), _) => namespace,
            (None, [package]) => package,
            (None, packages) => return Err(AmbiguousNamespace { packages: packages.join(", ") }),
        };
        Ok(RecordId::new(namespace, scope, operation, key))
    }

    /// How long a handler may work.
    pub(crate) fn time_limit(&self, operation: &OperationSpec) -> Option<Duration> {
        operation.timeout.or(self.settings().timeout)
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
    pub async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
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
        seen: &Snapshot,
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

    pub(crate) fn problem(&self, kind: ProblemKind, detail: impl Into<String>) -> Problem {
        Problem::new(kind, detail, &self.inner.settings.documentation)
    }

    /// Renders a problem as the application wants it, and notes what became of the request.
    pub(crate) fn render(&self, problem: &Problem, outcome: RequestOutcome, request: &HttpRequest) -> HttpResponse {
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
pub struct AmbiguousNamespace {
    packages: String,
}

impl fmt::Display for AmbiguousNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record id needs a namespace, and ")?;
        match &*self.packages {
            "" => f.write_str("the program has no annotated handler whose package could be the namespace")?,
            packages => write!(f, "the annotated handlers are of several packages ({packages})")?,
        }
        f.write_str("; set one with `Idempotency::builder(store).namespace(…)`")
    }
}

impl std::error::Error for AmbiguousNamespace {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_namespace_is_explained_by_what_is_missing() {
        let text = |packages: &str| AmbiguousNamespace { packages: packages.into() }.to_string();
        assert!(text("shop, bank").contains("several packages (shop, bank); set one"), "{}", text("shop, bank"));
        assert!(text("").contains("no annotated handler") && !text("").contains("several"), "{}", text(""));
    }
}
