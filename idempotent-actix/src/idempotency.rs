//! The application's handle.

use std::{
    error::Error as StdError,
    fmt,
    sync::{Arc, Once, Weak},
    time::Duration,
};

use actix_web::{HttpRequest, HttpResponse};
use idempotent_core::{
    EncodedRecording, Key, Policy, RecordId, Runtime, ScopeId, StoreError,
    protocol::{Actor, Resolution, ResolveOutcome, Snapshot},
    runtime::Administrator,
};
use tokio_util::task::TaskTracker;

use crate::{
    declaration::{Declaration, packages},
    in_flight::OperationLimiter,
    observation::{Observation, RequestCount},
    outcome::RequestOutcome,
    policy::PolicyConflict,
    problem::{self, Problem, ProblemKind},
    settings::Settings,
};

mod check;
mod origin;
mod patterns;
mod speaking;

pub(crate) use self::origin::{HandleOrigin, short_name};
pub(crate) use self::patterns::MountedRoute;
use self::patterns::Patterns;

/// The application's handle: a store, and the settings of all guarded handlers.
///
/// Create one handle before `HttpServer::new`, and put a clone of it into each worker's
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
/// All clones share one state. Dropping the last clone does not wait for operations in flight; use
/// [`drain_on_sigterm`](Self::drain_on_sigterm) to shut down without losing them.
#[derive(Clone)]
pub struct Idempotency {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Runtime,
    settings: Settings,
    observation: Arc<Observation>,
    origin: HandleOrigin,
    /// Logs once that the process has other handles.
    others: Once,
    operations: TaskTracker,
    /// Where the handlers are, as far as requests have shown.
    patterns: Patterns,
    in_flight: Arc<OperationLimiter>,
    /// Limits how many records are looked up for requests beyond the limits of `in_flight`.
    look_ups: Arc<OperationLimiter>,
}

impl Idempotency {
    pub(crate) fn of_parts(
        runtime: Runtime,
        settings: Settings,
        observation: Arc<Observation>,
        origin: HandleOrigin,
    ) -> Self {
        let [in_flight, look_ups] = [settings.operations; 2].map(OperationLimiter::new);
        let operations = TaskTracker::new();
        let others = Once::new();
        let inner = Inner {
            runtime,
            settings,
            observation,
            origin,
            others,
            operations,
            patterns: Patterns::default(),
            in_flight,
            look_ups,
        };
        let inner = Arc::new(inner);
        check::register(&inner);
        Self { inner }
    }

    /// Whether two handles are clones of each other.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The identity of the handle and its clones.
    pub(crate) fn identity(&self) -> HandleIdentity {
        HandleIdentity(Arc::downgrade(&self.inner))
    }

    /// The address of what all clones of the handle share.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    /// The store of the handle, and where the handle was built.
    pub(crate) fn origin(&self) -> HandleOrigin {
        self.inner.origin
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// Prepares to count a request of the operation with this name, if it has one.
    pub(crate) fn request_count(&self, operation: Option<&str>) -> RequestCount {
        RequestCount::new(&self.inner.observation, operation)
    }

    /// Counts a request that was refused before its operation was known.
    #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
    pub(crate) fn count_refused(&self, request: &HttpRequest, outcome: RequestOutcome) {
        #[cfg(feature = "metrics")]
        self.request_count(crate::operation_name::operation_of(request).as_deref()).of(outcome);
    }

    /// The full patterns of the requests that handlers got.
    pub(crate) fn patterns(&self) -> &Patterns {
        &self.inner.patterns
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

    /// Computes the id of a key's record, for [`find_record`](Self::find_record) and
    /// [`resolve`](Self::resolve).
    ///
    /// `operation` is the `name` of the attribute. If the attribute has no `name`, it is the method
    /// and the full route pattern, such as `"POST /v1/payments"`. In a dialect whose keys belong to
    /// [a path](crate::dialect::Endpoint::Path), a space and the path of the request follow.
    ///
    /// # Errors
    /// Fails if the [builder](crate::IdempotencyBuilder::namespace) sets no namespace, and the
    /// package of the annotated handlers cannot be the namespace: the handlers belong to several
    /// packages, or there are none.
    pub fn record_id(
        &self,
        scope: &ScopeId,
        operation: &str,
        key: &Key,
    ) -> Result<RecordId, AmbiguousNamespace> {
        Ok(RecordId::new(self.namespace()?, scope, operation, key))
    }

    /// The namespace of the records that belong to no particular handler.
    pub(crate) fn namespace(&self) -> Result<&str, AmbiguousNamespace> {
        self.inner.runtime.namespace().ok_or_else(|| AmbiguousNamespace::of(&packages()))
    }

    /// The policy that applies to a handler.
    pub(crate) fn policy(&self, operation: &Declaration) -> Result<Policy, PolicyConflict> {
        self.settings().policy.resolve(operation)
    }

    /// How long a handler may run.
    pub(crate) fn time_limit(&self, operation: &Declaration) -> Option<Duration> {
        operation.timeout.or(self.settings().timeout)
    }

    /// The namespace of a handler's records.
    pub(crate) fn namespace_of(&self, operation: &Declaration) -> &str {
        self.inner.runtime.namespace().unwrap_or(operation.package)
    }

    /// Verifies that the annotated handlers of the program can be served, and that the store works:
    /// the server's settings, the table and the version of its schema, and the privileges that
    /// claims and completions need.
    ///
    /// Call it when the application starts, once all its handles are built. Otherwise the first
    /// request with a key verifies the store before its handler runs. Each call verifies everything
    /// anew, so it can also be a health check.
    ///
    /// # Errors
    /// Fails with a permanent error whose source names the setting, the privilege, the column or
    /// the handler
    ///
    /// * if the store is misconfigured, or its table is not as a migration has created it,
    /// * if a handler takes a [`Tx`](crate::Tx) of a database in which no `Idempotency` of this
    ///   process has its store,
    /// * if two handlers have the same `name` in one namespace,
    /// * if the `ttl` of a handler is less than twice its `lease`, or either is zero.
    ///
    /// Fails with a transient error if the store cannot be reached.
    ///
    /// The `Tx` of a generic handler, and one inside an extractor of your own, are not seen:
    /// requests to such a handler get 500 (`misconfigured`), and the log names it.
    ///
    /// If the process has other `Idempotency` of the same namespace, a warning names them, because
    /// they may be in one `App` by mistake: a handler uses the innermost of those that apply to it,
    /// and of two at one place the one that was added last.
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.log_others();
        self.settings().log_if_disabled();
        self.check_operations()?;
        self.inner.runtime.check().await
    }

    /// Reads a record without changing it. Returns `None` if there is no record or it has expired.
    ///
    /// # Errors
    /// Fails if the store fails.
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub async fn find_record(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.inner.runtime.look_up(id).await
    }

    /// Resolves a held key. Use it once you know what the operation did.
    ///
    /// With a recording, the operation is completed, and the recording is replayed to later
    /// requests: [`recording::from_response`](crate::recording::from_response) makes one of a
    /// response, and [`recording_of`](crate::job::recording_of) one of the result of a job. With
    /// `None`, the key is released, and the next request runs the handler.
    ///
    /// `actor` names who decides and why. A store that implements
    /// [`Administration`](crate::store::Administration) keeps that in a log that outlives the
    /// record. `seen` is the result of [`find_record`](Self::find_record). If the key is no longer
    /// held, or another attempt has claimed it since, nothing changes and the outcome is
    /// [`Conflict`](ResolveOutcome::Conflict).
    ///
    /// # Errors
    /// Fails if the store fails. The call may be repeated.
    ///
    /// # Cancel safety
    /// A call that is dropped may or may not have taken effect. Repeat it: if it had taken effect,
    /// the outcome is `Conflict`.
    pub async fn resolve(
        &self,
        id: &RecordId,
        seen: &Snapshot,
        recording: Option<&EncodedRecording>,
        actor: &Actor,
    ) -> Result<ResolveOutcome, StoreError> {
        let recording = recording.map(|recording| recording.as_bytes().clone());
        let resolution = recording.map_or(Resolution::Release, Resolution::Complete);
        let administrator = self.administrator();
        administrator.resolve(id, &seen.record.owner, &resolution, actor).await
    }

    /// Returns the calls for operators: they list records, find a record by a part of its id,
    /// forget a response, erase the records of a principal, and read the log of decisions. The
    /// guide [For operators](crate::guide::operators) has examples.
    #[must_use]
    pub fn administrator(&self) -> Administrator {
        self.inner.runtime.administrator()
    }

    pub(crate) fn problem(&self, kind: ProblemKind, detail: impl Into<String>) -> Problem {
        Problem::new(kind, detail, &self.inner.settings.documentation)
    }

    /// Renders a problem with the application's renderer or in its dialect, and attaches the
    /// outcome of the request.
    pub(crate) fn render(
        &self,
        problem: &Problem,
        outcome: RequestOutcome,
        request: &HttpRequest,
    ) -> HttpResponse {
        let settings = self.settings();
        let problem = &settings.spoken.dialect.with_status(problem.clone());
        let mut response = match &settings.problems {
            Some(render) => render(problem, request),
            None => problem::in_dialect(&settings.spoken.dialect, problem),
        };
        self.echo_key(request, None, &mut response);
        outcome.attach(response)
    }
}

/// Identifies a handle without keeping its store open.
pub(crate) struct HandleIdentity(Weak<Inner>);

impl HandleIdentity {
    pub(crate) fn exists(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Whether this is the identity of another handle, which still exists.
    pub(crate) fn is_another(&self, handle: &Idempotency) -> bool {
        self.exists() && !std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&handle.inner))
    }
}

impl fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency")
            .field("header", &self.inner.settings.header)
            .finish_non_exhaustive()
    }
}

/// The error of [`Idempotency::record_id`] and [`Idempotency::run`] if the namespace of a record is
/// ambiguous.
///
/// The builder sets no namespace. The default namespace is the package of the annotated handlers,
/// but they belong to several packages, or there are none.
pub struct AmbiguousNamespace {
    /// Separated by commas.
    packages: String,
}

impl AmbiguousNamespace {
    fn of(packages: &[&str]) -> Self {
        Self { packages: packages.join(", ") }
    }
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

/// The message: an error that `main` returns is shown by its `Debug` output.
impl fmt::Debug for AmbiguousNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
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
