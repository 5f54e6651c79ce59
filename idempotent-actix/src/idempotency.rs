//! The application's handle.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use actix_web::{HttpRequest, HttpResponse};
use idempotent_core::{
    Key, Policy, RecordId, Recording, Runtime, ScopeId, StoreError,
    protocol::{Resolution, ResolveOutcome, Snapshot},
};
use tokio_util::task::TaskTracker;

use crate::{
    in_flight::OperationLimiter,
    outcome::RequestOutcome,
    policy::PolicyConflict,
    problem::{Problem, ProblemKind},
    settings::Settings,
    spec::{OperationSpec, annotated, packages},
};

/// The application's idempotency: a store and its settings. Put a clone into each worker's
/// `App::app_data`.
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
/// Clones share everything. Dropping the last one stops its background thread; it does not wait for
/// operations in flight, see [`drained`](Self::drained).
#[derive(Clone)]
pub struct Idempotency {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Runtime,
    settings: Settings,
    operations: TaskTracker,
    in_flight: Arc<OperationLimiter>,
    /// Limits how many records are looked up for requests beyond the limits of `in_flight`.
    look_ups: Arc<OperationLimiter>,
}

impl Idempotency {
    pub(crate) fn of_parts(runtime: Runtime, settings: Settings) -> Self {
        let [in_flight, look_ups] = [settings.operations; 2].map(OperationLimiter::new);
        let operations = TaskTracker::new();
        Self { inner: Arc::new(Inner { runtime, settings, operations, in_flight, look_ups }) }
    }

    /// Whether two handles are clones of each other.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    pub(crate) fn operations(&self) -> &TaskTracker {
        &self.inner.operations
    }

    pub(crate) fn in_flight(&self) -> &Arc<OperationLimiter> {
        &self.inner.in_flight
    }

    pub(crate) fn look_ups(&self) -> &Arc<OperationLimiter> {
        &self.inner.look_ups
    }

    pub(crate) fn is_draining(&self) -> bool {
        // The tracker keeps this bit with its count: an operation that is counted and does not see
        // the bit is waited for.
        self.inner.operations.is_closed()
    }

    /// Returns the id of a key's record, for [`look_up`](Self::look_up) and
    /// [`resolve`](Self::resolve).
    ///
    /// `operation` is the `name` of the attribute, or else the method and the full route pattern,
    /// such as `"POST /v1/payments"`.
    ///
    /// # Errors
    /// When no [namespace](crate::IdempotencyBuilder::namespace) is set and the package of the
    /// annotated handlers cannot take its place: they are of several packages, or there are none.
    pub fn record_id(
        &self,
        scope: &ScopeId,
        operation: &str,
        key: &Key,
    ) -> Result<RecordId, AmbiguousNamespace> {
        let namespace = match (self.inner.runtime.namespace(), &*packages()) {
            (Some(namespace), _) => namespace,
            (None, [package]) => package,
            (None, packages) => return Err(AmbiguousNamespace { packages: packages.join(", ") }),
        };
        Ok(RecordId::new(namespace, scope, operation, key))
    }

    /// The policy that applies to a handler.
    pub(crate) fn policy(&self, operation: &OperationSpec) -> Result<Policy, PolicyConflict> {
        self.settings().policy.resolve(operation)
    }

    /// How long a handler may run.
    pub(crate) fn time_limit(&self, operation: &OperationSpec) -> Option<Duration> {
        operation.timeout.or(self.settings().timeout)
    }

    /// The namespace of a handler's records.
    pub(crate) fn namespace_of(&self, operation: &OperationSpec) -> &str {
        self.inner.runtime.namespace().unwrap_or(operation.package)
    }

    /// Verifies the settings and the store: the server's settings, the schema's version, and the
    /// privileges that claims and completions need.
    ///
    /// Call it when the application starts; otherwise the first keyed request verifies the store
    /// before its handler runs.
    ///
    /// # Errors
    /// When the store is misconfigured or cannot be reached, or when the `ttl` and the `lease` of
    /// an annotated handler of the program do not fit each other. The error's source names the
    /// setting or the privilege.
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub async fn check(&self) -> Result<(), StoreError> {
        for operation in annotated() {
            if let Err(conflict) = self.policy(operation) {
                return Err(StoreError::permanent("settings", "check", conflict));
            }
        }
        self.inner.runtime.check().await
    }

    /// Reads a record without changing it; `None` if there is none or it has expired.
    ///
    /// # Errors
    /// When the store fails.
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.inner.runtime.look_up(id).await
    }

    /// Ends a held key: with `recording` it is completed, and the recording is replayed to later
    /// requests; without one it is released, and the next request runs.
    ///
    /// `seen` is the result of [`look_up`](Self::look_up). If the record has changed since, nothing
    /// happens, and the outcome is a conflict.
    /// [`recording::from_response`](crate::recording::from_response) makes a recording.
    ///
    /// # Errors
    /// When the store fails. The same call may be made again.
    ///
    /// # Cancel safety
    /// A call that is dropped may or may not have taken effect; make it again to know.
    pub async fn resolve(
        &self,
        id: &RecordId,
        seen: &Snapshot,
        recording: Option<&Recording>,
    ) -> Result<ResolveOutcome, StoreError> {
        let complete = |recording: &Recording| Resolution::Complete(recording.encode());
        let resolution = recording.map_or(Resolution::Release, complete);
        self.inner.runtime.resolve(id, &seen.record.owner, &resolution).await
    }

    pub(crate) fn problem(&self, kind: ProblemKind, detail: impl Into<String>) -> Problem {
        Problem::new(kind, detail, &self.inner.settings.documentation)
    }

    /// Renders a problem as the application does, and adds the outcome of the request.
    pub(crate) fn render(
        &self,
        problem: &Problem,
        outcome: RequestOutcome,
        request: &HttpRequest,
    ) -> HttpResponse {
        outcome.attach((self.inner.settings.problems)(problem, request))
    }
}

impl fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency")
            .field("header", &self.inner.settings.header)
            .finish_non_exhaustive()
    }
}

/// The namespace of a record is ambiguous: none is set, and the annotated handlers are of several
/// packages, each of which is a namespace; or there are none.
#[derive(Debug)]
pub struct AmbiguousNamespace {
    /// Separated by commas.
    packages: String,
}

impl fmt::Display for AmbiguousNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record id needs a namespace, and ")?;
        match &*self.packages {
            "" => f.write_str(
                "the program has no annotated handler whose package could be its namespace",
            )?,
            packages => write!(f, "the annotated handlers are of several packages ({packages})")?,
        }
        f.write_str("; set one with `Idempotency::builder(store).namespace(…)`")
    }
}

impl StdError for AmbiguousNamespace {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_namespace_is_explained_by_what_is_missing() {
        let text = |packages: &str| AmbiguousNamespace { packages: packages.into() }.to_string();
        assert!(
            text("shop, bank").contains("several packages (shop, bank); set one"),
            "{}",
            text("shop, bank")
        );
        assert!(
            text("").contains("no annotated handler") && !text("").contains("several"),
            "{}",
            text("")
        );
    }
}
