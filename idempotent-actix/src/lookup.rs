//! The resource at which a client finds out what became of its own key.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use actix_web::{
    Error, HttpRequest, HttpResponse, Resource,
    dev::{ServiceRequest, ServiceResponse, fn_service},
    error::InternalError,
    http::header,
    web::{self, Query},
};
use idempotent_core::{Key, RecordId, RecordState, clock::Timestamp, protocol::Snapshot};
use idempotent_http::{key::parse_key, problem::retry_after};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    dialect::Endpoint, handle_of_request::misconfigured, idempotency::Idempotency,
    outcome::RequestOutcome, problem::ProblemKind, resources::path_of,
};

mod located_handlers;

use self::located_handlers::{operations, principal};

/// The name of the resource, for `HttpRequest::url_for`.
const RESOURCE: &str = "idempotent_actix::lookup";

/// The paths of the resources that the process has created.
static PATHS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

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
    ///     .service(Idempotency::lookup_resource("/idempotency/keys/{key}"));
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
    /// In a [dialect](crate::dialect) whose keys belong to a path, `&path=PATH` names that path.
    ///
    /// The key belongs to the principal that the `scope` of the operation finds in the request: put
    /// the resource behind the same middleware. Any other principal gets 404 (`key_unknown`), as
    /// for a key that was never used. The extractors of the handler run as before a replay, except
    /// those that [`IgnoresCaller`](crate::scope::IgnoresCaller): if one of them refuses the
    /// request, the lookup is refused. A handler with generic parameters, or with a scope of type
    /// `web::Path`, cannot be looked up, and one that is routed by hand only by its `name`.
    ///
    /// If the pattern of one handler ends like that of another, and the application's resources do
    /// not tell which of them is meant, a lookup shows only what all of them would show. A `name`
    /// prevents that.
    ///
    /// A key that is claimed in an open transaction (`claim = "transaction"`) has no record until
    /// the transaction is committed, and gets 404.
    #[must_use]
    pub fn lookup_resource(path: &str) -> Resource {
        PATHS.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
        web::resource(path.to_owned()).name(RESOURCE).route(web::get().service(fn_service(serve)))
    }
}

/// The paths of the lookups that the process has created, without the scopes above them.
pub(crate) fn paths() -> Vec<String> {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}

/// The location of the lookup of a key; `None` if the application has no such resource.
pub(crate) fn location(
    request: &HttpRequest,
    idempotency: &Idempotency,
    operation: &str,
    key: &Key,
) -> Option<String> {
    let key = match key.as_str() {
        // As segments of a path they would be removed, whether percent-encoded or not. In quotes
        // they are the same keys.
        dots @ ("." | "..") => format!("\"{dots}\""),
        key => key.to_owned(),
    };
    let key = utf8_percent_encode(&key, NON_ALPHANUMERIC).to_string();
    let path = path_of(request, RESOURCE, &mut std::iter::once(key))?;
    let operation = utf8_percent_encode(operation, NON_ALPHANUMERIC);
    Some(match idempotency.settings().spoken.dialect.endpoint {
        Endpoint::Pattern => format!("{path}?operation={operation}"),
        Endpoint::Path => {
            let own = utf8_percent_encode(request.path(), NON_ALPHANUMERIC);
            format!("{path}?operation={operation}&path={own}")
        }
    })
}

#[derive(Deserialize)]
struct Target {
    key: String,
}

#[derive(Deserialize)]
struct Selection {
    operation: Option<String>,
    path: Option<String>,
}

/// Serves a lookup.
async fn serve(mut request: ServiceRequest) -> Result<ServiceResponse, Error> {
    let key = request.extract::<web::Path<Target>>().await?.into_inner().key;
    let selection = request.extract::<Query<Selection>>().await?.into_inner();
    let hidden = catch_unwind(AssertUnwindSafe(|| hide_key(&mut request)));
    let (request, _) = request.into_parts();
    let response = match hidden {
        Ok(()) => look_up(&request, &key, &selection).await,
        Err(_) => Err(misconfigured(&request, "middleware of the lookup keeps the request")),
    };
    let response = response.unwrap_or_else(HttpResponse::from_error);
    Ok(ServiceResponse::new(request, response))
}

/// Removes the key from the dynamic segments of the path, for which extractors of a handler would
/// take it.
fn hide_key(request: &mut ServiceRequest) {
    let path = request.match_info_mut();
    let others = path.iter().filter(|(name, _)| *name != "key");
    let others: Vec<_> = others.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    path.reset();
    others.into_iter().for_each(|(name, value)| path.add_static(name, value));
}

async fn look_up(
    request: &HttpRequest,
    key: &str,
    Selection { operation, path }: &Selection,
) -> Result<HttpResponse, Error> {
    let idempotency = Idempotency::of(request)?;
    let unknown = || refuse(idempotency, ProblemKind::KeyUnknown, request);
    // A key can be written as in the header, with quotes or without, or as its text.
    let key = parse_key(key.as_bytes()).or_else(|_| Key::from_text(key));
    let Ok(key) = key else { return Err(unknown()) };
    let mut refused = None;
    let path = path.as_deref().unwrap_or_default();
    for handlers in operations(operation.as_deref(), request) {
        for (namespace, declarations) in
            handlers.by_namespace(|declaration| idempotency.namespace_of(declaration))
        {
            let scope = match principal(&declarations, request).await {
                Ok(Some(scope)) => scope,
                Ok(None) => continue,
                Err(error) => {
                    refused.get_or_insert(error);
                    continue;
                }
            };
            let name = idempotency.settings().spoken.record_name(&handlers.name, path);
            let id = RecordId::new(namespace, &scope, &name, &key);
            match idempotency.runtime().look_up(&id).await {
                Ok(Some(found)) => return Ok(response(&handlers.name, &found)),
                Ok(None) => refused = Some(Some(unknown())),
                Err(error) => {
                    let cause = std::error::Error::source(&error);
                    tracing::error!(%error, cause, "looking up a key failed");
                    return Err(refuse(idempotency, ProblemKind::of_store(&error), request));
                }
            }
        }
    }
    Err(match refused {
        Some(Some(error)) => error,
        Some(None) => refuse(idempotency, ProblemKind::ScopeMissing, request),
        None => unknown(),
    })
}

fn response(operation: &str, found: &Snapshot) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    response.insert_header((header::CACHE_CONTROL, "no-store"));
    if state(found) == "in_flight" {
        let left = found.record.lease_left(found.at);
        response.insert_header((header::RETRY_AFTER, retry_after(left)));
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
        problem = problem.with_retry_after(retry_after(Duration::ZERO));
    }
    let response = idempotency.render(&problem, RequestOutcome::Refused, request);
    InternalError::from_response(kind.code(), response).into()
}
