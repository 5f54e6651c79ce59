//! The resource at which a client finds out what became of its own key.

use std::{panic::AssertUnwindSafe, time::Duration};

use actix_web::{
    Error, HttpRequest, HttpResponse, Resource,
    error::InternalError,
    http::header,
    web::{self, Query},
};
use futures_util::FutureExt;
use idempotent_core::{
    Key, RecordId, RecordState, ScopeId, StoreError, clock::Timestamp, protocol::Snapshot,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    idempotency::Idempotency,
    outcome::RequestOutcome,
    problem::{self, ProblemKind},
    spec::{OperationSpec, RequestScope, annotated},
};

/// The name of the resource, for `HttpRequest::url_for`.
const RESOURCE: &str = "idempotent_actix::lookup";

impl Idempotency {
    /// Returns the resource at which a client finds out what became of its own key. `path` must
    /// contain `{key}`.
    ///
    /// ```
    /// use actix_web::App;
    /// use idempotent_actix::{Idempotency, store::MemoryStore};
    ///
    /// let idempotency = Idempotency::new(MemoryStore::new());
    /// let app = App::new()
    ///     .app_data(idempotency.clone())
    ///     .service(Idempotency::lookup("/idempotency/keys/{key}"));
    /// # let _ = app;
    /// ```
    ///
    /// `GET /idempotency/keys/KEY?operation=NAME` responds with JSON: the `operation`, its `state`
    /// (`in_flight`, `abandoned`, `completed` or `held`), the `status` of the recorded response,
    /// the `reference` and the `progress` that the handler has set, how old the record is
    /// (`age_seconds`) and when it expires (`expires_in_seconds`). Without `operation`, the
    /// resource looks for the key in every annotated operation; an operation that is mounted in an
    /// actix-web scope is found only by its full name, such as `POST /v1/payments`.
    ///
    /// The key belongs to the principal that the `scope` of the operation finds in the request: put
    /// the resource behind the same middleware. Any other principal gets 404 (`key_unknown`), as
    /// for a key that was never used. A handler with generic parameters, or with a scope of type
    /// `web::Path`, cannot be looked up.
    ///
    /// A key that is claimed in an open transaction (`claim = "transaction"`) has no record until
    /// the transaction is committed, and gets 404.
    #[must_use]
    pub fn lookup(path: &str) -> Resource {
        web::resource(path.to_owned()).name(RESOURCE).route(web::get().to(look_up))
    }
}

/// The location of the lookup of a key; `None` if the application has no such resource.
pub(crate) fn location(request: &HttpRequest, operation: &str, key: &Key) -> Option<String> {
    let key = utf8_percent_encode(key.as_str(), NON_ALPHANUMERIC).to_string();
    let url = request.url_for(RESOURCE, [key]).ok()?;
    let operation = utf8_percent_encode(operation, NON_ALPHANUMERIC);
    Some(format!("{}?operation={operation}", url.path()))
}

#[derive(Deserialize)]
struct Selection {
    operation: Option<String>,
}

async fn look_up(
    request: HttpRequest,
    key: web::Path<String>,
    Query(selection): Query<Selection>,
) -> Result<HttpResponse, Error> {
    let idempotency = Idempotency::of(&request)?;
    let unknown = || refuse(idempotency, ProblemKind::KeyUnknown, &request);
    // A key can be written as in the header, with quotes or without, or as its text.
    let key = Key::parse(key.as_bytes()).or_else(|_| Key::from_text(key.as_str()));
    let Ok(key) = key else { return Err(unknown()) };
    let mut refused = None;
    for (spec, name) in candidates(selection.operation.as_deref()) {
        let Some(scope) = spec.scope else { continue };
        let found = AssertUnwindSafe(scope_of(scope, &request)).catch_unwind();
        let scope = match found.await {
            Ok(Ok(scope)) if scope.is_empty() => continue,
            Ok(Ok(scope)) => scope,
            Ok(Err(error)) => {
                refused.get_or_insert(error);
                continue;
            }
            Err(_) => {
                tracing::error!(
                    handler = spec.handler,
                    "the extractor of a scope panicked in a lookup; put the lookup behind the \
                     middleware of the handler"
                );
                continue;
            }
        };
        match find(idempotency, spec, (&scope, &name, &key)).await {
            Ok(Some(found)) => return Ok(response(&name, &found)),
            Ok(None) => {}
            Err(error) => {
                let cause = std::error::Error::source(&error);
                tracing::error!(%error, cause, "looking up a key failed");
                return Err(refuse(idempotency, problem::kind_of(&error), &request));
            }
        }
        refused = Some(Some(unknown()));
    }
    Err(match refused {
        Some(Some(error)) => error,
        Some(None) => refuse(idempotency, ProblemKind::ScopeMissing, &request),
        None => unknown(),
    })
}

async fn scope_of(scope: RequestScope, request: &HttpRequest) -> Result<ScopeId, Option<Error>> {
    match scope {
        RequestScope::Function(function) => function(request),
        RequestScope::Parameter(extract) => extract(request).await,
    }
}

async fn find(
    idempotency: &Idempotency,
    spec: &'static OperationSpec,
    (scope, name, key): (&ScopeId, &str, &Key),
) -> Result<Option<Snapshot>, StoreError> {
    let id = RecordId::new(idempotency.namespace_of(spec), scope, name, key);
    idempotency.runtime().look_up(&id).await
}

/// The operations that the selection may mean, with their full names.
fn candidates(selected: Option<&str>) -> Vec<(&'static OperationSpec, String)> {
    let named = |spec: &'static OperationSpec| -> Vec<String> {
        if !spec.name.is_empty() {
            return vec![spec.name.to_owned()];
        }
        let routes = spec.routes.iter().filter_map(|route| {
            let path = route.resource.map(|resource| resource.path)?;
            Some(format!("{} {path}", route.method))
        });
        routes.collect()
    };
    let mut candidates = Vec::new();
    for spec in annotated() {
        for name in named(spec) {
            match selected {
                None => candidates.push((spec, name)),
                Some(selected) if spec.name.is_empty() && is_mounted(&name, selected) => {
                    candidates.push((spec, selected.to_owned()));
                }
                Some(selected) if name == selected => candidates.push((spec, name)),
                Some(_) => {}
            }
        }
    }
    candidates
}

/// The operation with this full name.
pub(crate) fn spec_of(name: &str) -> Option<&'static OperationSpec> {
    candidates(Some(name)).first().map(|(spec, _)| *spec)
}

/// Whether `full` is `name`, such as `POST /payments`, in a scope of the application.
fn is_mounted(name: &str, full: &str) -> bool {
    match (name.split_once(' '), full.split_once(' ')) {
        (Some((method, path)), Some((full_method, full_path))) => {
            method == full_method && full_path.ends_with(path)
        }
        _ => false,
    }
}

fn response(operation: &str, found: &Snapshot) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    response.insert_header((header::CACHE_CONTROL, "no-store"));
    if state(found) == "in_flight" {
        let left = found.record.lease_left(found.at);
        response.insert_header((header::RETRY_AFTER, problem::retry_after(left)));
    }
    response.json(describe(operation, found))
}

fn describe(operation: &str, found: &Snapshot) -> Value {
    let Snapshot { record, at, .. } = found;
    let seconds = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs_f64();
    json!({
        "operation": operation,
        "state": state(found),
        "status": record.status,
        "reference": record.notes.reference.as_deref(),
        "progress": record.notes.progress.as_deref(),
        "age_seconds": seconds(record.first_seen, *at),
        "expires_in_seconds": seconds(*at, record.expires_at),
    })
}

fn state(Snapshot { record, at, .. }: &Snapshot) -> &'static str {
    match record.state {
        _ if record.is_held(*at) => "held",
        RecordState::Completed(_) => "completed",
        RecordState::InFlight if record.lease_expired(*at) => "abandoned",
        RecordState::InFlight | RecordState::Held => "in_flight",
    }
}

fn refuse(idempotency: &Idempotency, kind: ProblemKind, request: &HttpRequest) -> Error {
    let mut problem = idempotency.problem(kind, kind.advice());
    if kind == ProblemKind::StoreUnavailable {
        problem = problem.with_retry_after(problem::retry_after(Duration::ZERO));
    }
    let response = idempotency.render(&problem, RequestOutcome::Refused, request);
    InternalError::from_response(kind.code(), response).into()
}
