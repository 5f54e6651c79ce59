//! Publishes the idempotency specification of the application.

use std::{borrow::Cow, time::Duration};

use actix_web::{Error, HttpRequest, HttpResponse};
use idempotent_core::{Key, OnAbandon};
use idempotent_http::{
    dialect::{Dialect, Endpoint, Token},
    digest::{BodyForm, JsonPart},
    header_names, key,
    problem::ProblemKind,
    specification::{
        PublishedKeyRules, PublishedLimits, PublishedOperation, PublishedProblem, PublishedRoute,
        PublishedSpecification, STANDARD,
    },
};
use serde_json::Value;

use crate::{
    declaration::{ClaimMode, Declaration, annotated, rules::InFlightRule},
    idempotency::Idempotency,
    key_source::KeySource,
    scope,
    settings::{Settings, StoreFailurePolicy},
};

impl Idempotency {
    /// A handler that serves the [`specification`](Self::specification) as JSON.
    ///
    /// It uses the handle that is registered with the application:
    ///
    /// ```
    /// use actix_web::{App, web};
    /// use idempotent_actix::{Idempotency, store::MemoryStore};
    ///
    /// let idempotency = Idempotency::new(MemoryStore::new());
    /// let app = App::new()
    ///     .app_data(idempotency.clone())
    ///     .route("/idempotency", web::get().to(Idempotency::specification_handler));
    /// # let _ = app;
    /// ```
    ///
    /// # Errors
    /// Responds with 500 (`misconfigured`) if no handle is registered.
    pub async fn specification_handler(request: HttpRequest) -> Result<HttpResponse, Error> {
        Ok(HttpResponse::Ok().json(Self::of(&request)?.specification()))
    }

    /// Returns the policy of every annotated handler in the program, as JSON: the header, the rules
    /// for keys, the limits, the operations with their times in seconds, and the problems that a
    /// client may get.
    ///
    /// Serve it at the URL that [`documentation`](crate::IdempotencyBuilder::documentation) sets;
    /// see [`specification_handler`](Self::specification_handler).
    ///
    /// * The values of each operation are those in effect: from its attribute, or else from the
    ///   builder, or else the built-in defaults.
    /// * `handler` and `module` name the function, and `scope` is what its keys belong to.
    /// * An operation has a route for each method of each route attribute. The path of a route is
    ///   that of the attribute, without the scopes in which the application mounts it; `mounted`
    ///   has the full patterns of the requests that this handle has seen. The path of a handler
    ///   without a route attribute is such a pattern, and null before its first request.
    /// * If an operation has no `name`, its records are named by its method and its full route
    ///   pattern, such as `POST /v1/payments`.
    /// * `key_from` is where the key of an operation is: `header:` and the name of the header,
    ///   `form:` and the field, `json:` and the JSON pointer, or `custom` for a function of the
    ///   application.
    /// * `ignore` and `only` are the JSON pointers of the attribute, or are missing.
    /// * With `claim = "transaction"`, `lease_seconds` and `abandoned` are null.
    /// * `not_run_marker` is the header that proves that a request was not run. Its value belongs
    ///   to the key: see [the page for API clients](crate::guide::for_api_clients#problems).
    /// * A problem with several statuses, or with one that can be retried or not, is listed once
    ///   for each case, and `when` states the condition.
    #[must_use]
    pub fn specification(&self) -> Value {
        // Its members are all strings, numbers, lists and such objects.
        serde_json::to_value(self.published()).unwrap_or_default()
    }

    pub(crate) fn published(&self) -> PublishedSpecification {
        let (settings, limits) = (self.settings(), self.in_flight().limits());
        let mut operations: Vec<_> = annotated().collect();
        operations
            .sort_by_key(|operation| (first_path(operation), operation.name, operation.handler));
        let operations = operations.into_iter().map(|operation| {
            let time_limit = self.time_limit(operation);
            let described = describe(operation, settings, time_limit);
            PublishedOperation { routes: self.routes(operation), ..described }
        });
        let problems = ProblemKind::ALL.into_iter();
        let dialect = &settings.spoken.dialect;
        let problems =
            problems.flat_map(|kind| PublishedProblem::of(kind, dialect, &settings.documentation));
        let is_other = *dialect != Dialect::ietf();
        PublishedSpecification {
            standard: STANDARD.into(),
            header: settings.header.to_string(),
            enabled: settings.enabled,
            dialect: is_other.then(|| dialect.name.clone()),
            endpoint: (dialect.endpoint == Endpoint::Path)
                .then(|| dialect.endpoint.specified().into()),
            expiry_header: dialect.expiry_header.as_ref().map(Token::to_string),
            key: PublishedKeyRules {
                syntax: key::SYNTAX.into(),
                max_bytes: Key::MAX_BYTES,
                rule: settings.key_rule.specified(),
            },
            body_limit_bytes: settings.body_limit,
            replayed_bytes_limit: settings.recording.bytes,
            replayed_stream_seconds: settings.recording.time.as_secs_f64(),
            operations_in_flight: PublishedLimits {
                total: limits.total,
                per_principal: limits.per_principal,
            },
            replay_marker: dialect.replay_marker.name.to_string().into(),
            not_run_marker: header_names::NOT_RUN.into(),
            when_store_fails: match settings.when_store_fails {
                StoreFailurePolicy::Refuse => "refuse".into(),
                StoreFailurePolicy::RunUnguarded => "run_unguarded".into(),
            },
            operations: operations.collect(),
            problems: problems.collect(),
        }
    }
}

impl Idempotency {
    /// The routes of an operation, with the patterns at which requests have found them.
    fn routes(&self, operation: &'static Declaration) -> Vec<PublishedRoute> {
        let routes = operation.routes.iter().flat_map(|route| {
            let mut mounted = self.patterns().of(operation, route.method);
            let Some(resource) = route.resource else {
                return by_hand(route.method, mounted);
            };
            mounted.retain(|pattern| pattern.ends_with(resource.path));
            let (method, path) = (route.method.into(), Some(resource.path.into()));
            vec![PublishedRoute { method, path, mounted }]
        });
        routes.collect()
    }
}

/// The routes of a handler that is routed by hand: one for each pattern, and one if none is known.
fn by_hand(method: &'static str, mounted: Vec<String>) -> Vec<PublishedRoute> {
    if mounted.is_empty() {
        return vec![PublishedRoute { method: method.into(), path: None, mounted }];
    }
    let route = |pattern: String| PublishedRoute {
        method: method.into(),
        path: Some(pattern.clone().into()),
        mounted: vec![pattern],
    };
    mounted.into_iter().map(route).collect()
}

fn first_path(operation: &Declaration) -> Option<&'static str> {
    operation.routes.first().and_then(|route| route.resource).map(|resource| resource.path)
}

/// The policy of an operation, without its routes.
fn describe(
    operation: &Declaration,
    Settings { policy: defaults, header, spoken, .. }: &Settings,
    time_limit: Option<Duration>,
) -> PublishedOperation {
    let policy = defaults.values(operation);
    let leased = operation.claim == ClaimMode::Lease;
    let needs_key = operation
        .routes
        .iter()
        .all(|route| spoken.dialect.requires_key(route.method, operation.key_required));
    let words = |pointers: &[&'static str]| {
        Some(pointers.iter().map(|pointer| Cow::Borrowed(*pointer)).collect())
    };
    let (ignore, only) = match operation.fingerprint {
        BodyForm::JsonPart(JsonPart::Except(pointers)) => (words(pointers), None),
        BodyForm::JsonPart(JsonPart::Only(pointers)) => (None, words(pointers)),
        BodyForm::Raw | BodyForm::Json | BodyForm::Ignored | BodyForm::Custom => (None, None),
    };
    PublishedOperation {
        handler: operation.handler.into(),
        module: operation.module.into(),
        name: (!operation.name.is_empty()).then_some(operation.name.into()),
        routes: Vec::new(),
        key: if needs_key { "required".into() } else { "optional".into() },
        key_from: match operation.key_from.as_ref().map(|declared| declared.source) {
            None => format!("header:{header}"),
            Some(KeySource::Place(place)) => place.specified(),
            Some(KeySource::Function(_)) => "custom".to_owned(),
        },
        ttl_seconds: policy.ttl.as_secs_f64(),
        claim: match operation.claim {
            ClaimMode::Lease => "lease".into(),
            ClaimMode::Transaction => "transaction".into(),
        },
        lease_seconds: leased.then_some(policy.lease.as_secs_f64()),
        wait_seconds: policy.wait.as_secs_f64(),
        timeout_seconds: time_limit.map(|limit| limit.as_secs_f64()),
        fingerprint: operation.fingerprint.specified().into(),
        ignore,
        only,
        query: operation.query.unwrap_or_default().specified().into(),
        content_type: operation.content_type.unwrap_or_default().specified().into(),
        record: defaults.record_rule(operation).specified().into(),
        in_flight: match operation.in_flight {
            None | Some(InFlightRule::Conflict) => "conflict".into(),
            Some(InFlightRule::Poll) => "poll".into(),
        },
        abandoned: leased.then_some(match policy.abandoned {
            OnAbandon::Retry => "retry".into(),
            OnAbandon::Hold => "hold".into(),
            OnAbandon::RetryThenHold => "retry_then_hold".into(),
        }),
        scope: operation.scope.map(|scope| scope::kind_of(scope).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declaration::tests::LEASED;

    fn describe_with_defaults(operation: &Declaration) -> PublishedOperation {
        describe(operation, &Settings::default(), None)
    }

    #[test]
    fn a_claim_in_a_transaction_has_neither_lease_nor_abandonment() {
        let leased = describe_with_defaults(&LEASED);
        assert_eq!((&*leased.claim, leased.lease_seconds), ("lease", Some(30.0)));
        assert_eq!(leased.abandoned.as_deref(), Some("retry"));
        let described =
            describe_with_defaults(&Declaration { claim: ClaimMode::Transaction, ..LEASED });
        let claim = "transaction".into();
        let expected = PublishedOperation { claim, lease_seconds: None, abandoned: None, ..leased };
        assert_eq!(described, expected);
    }
}
