//! The published idempotency specification that draft-ietf-httpapi-idempotency-key-header-07 §2
//! requires of a resource.

use std::time::Duration;

use actix_web::{Error, HttpRequest, HttpResponse};
use idempotent_core::{Key, OnAbandon};
use idempotent_http::{digest::BodyForm, key, recording::RecordRule};
use serde_json::{Value, json};

use crate::{
    declaration::{ClaimMode, Declaration, InFlightRule, annotated},
    idempotency::Idempotency,
    key_source::KeySource,
    not_run::NOT_RUN,
    policy::PolicyDefaults,
    problem::ProblemKind,
    settings::StoreFailurePolicy,
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
    /// * An operation has a route for each method of each route attribute. The path of a route is
    ///   that of the attribute, without the scopes in which the application mounts it, and null for
    ///   handlers without a route attribute.
    /// * If an operation has no `name`, its records are named by its method and its full route
    ///   pattern, such as `POST /v1/payments`.
    /// * `key_from` is where the key of an operation is: `header:` and the name of the header,
    ///   `form:` and the field, `json:` and the JSON pointer, or `custom` for a function of the
    ///   application.
    /// * With `claim = "transaction"`, `lease_seconds` and `abandoned` are null.
    /// * `not_run_marker` is the header that proves that a request was not run. Its value belongs
    ///   to the key: see [the page for API clients](crate::guide::for_api_clients#problems).
    /// * A problem with several statuses, or with one that can be retried or not, is listed once
    ///   for each case, and `when` states the condition.
    #[must_use]
    pub fn specification(&self) -> Value {
        let (settings, limits) = (self.settings(), self.in_flight().limits());
        let mut operations: Vec<_> = annotated().collect();
        operations
            .sort_by_key(|operation| (first_path(operation), operation.name, operation.handler));
        let operations = operations.into_iter().map(|operation| {
            let time_limit = self.time_limit(operation);
            describe(operation, &settings.policy, time_limit, settings.header.as_str())
        });
        let problems = ProblemKind::ALL.into_iter();
        let problems = problems.flat_map(|kind| problems_of(kind, &settings.documentation));
        json!({
            "standard": "draft-ietf-httpapi-idempotency-key-header-07",
            "header": settings.header.as_str(),
            "key": {
                "syntax": key::SYNTAX,
                "max_bytes": Key::MAX_BYTES,
                "rule": settings.key_rule.specified(),
            },
            "body_limit_bytes": settings.body_limit,
            "replayed_bytes_limit": settings.recording.bytes,
            "replayed_stream_seconds": settings.recording.time.as_secs_f64(),
            "operations_in_flight": {
                "total": limits.total,
                "per_principal": limits.per_principal,
            },
            "replay_marker": "idempotency-replayed",
            "not_run_marker": NOT_RUN.as_str(),
            "when_store_fails": match settings.when_store_fails {
                StoreFailurePolicy::Refuse => "refuse",
                StoreFailurePolicy::RunUnguarded => "run_unguarded",
            },
            "operations": operations.collect::<Vec<_>>(),
            "problems": problems.collect::<Vec<_>>(),
        })
    }
}

/// An entry for each status and meaning that a problem of this kind may have.
fn problems_of(kind: ProblemKind, documentation: &str) -> impl Iterator<Item = Value> {
    let url = format!("{documentation}{}", kind.code());
    kind.statuses().into_iter().map(move |(status, when, retryable)| {
        json!({
            "type": url,
            "code": kind.code(),
            "status": status,
            "title": kind.title(),
            "when": when,
            "retryable": retryable,
        })
    })
}

fn first_path(operation: &Declaration) -> Option<&'static str> {
    operation.routes.first().and_then(|route| route.resource).map(|resource| resource.path)
}

fn describe(
    operation: &Declaration,
    defaults: &PolicyDefaults,
    time_limit: Option<Duration>,
    header: &str,
) -> Value {
    let policy = defaults.values(operation);
    let leased = operation.claim == ClaimMode::Lease;
    json!({
        "handler": operation.handler,
        "name": (!operation.name.is_empty()).then_some(operation.name),
        "routes": operation.routes.iter().map(|route| json!({
            "method": route.method,
            "path": route.resource.map(|resource| resource.path),
        })).collect::<Vec<_>>(),
        "key": if operation.key_required { "required" } else { "optional" },
        "key_from": match operation.key_from.as_ref().map(|registered| registered.source) {
            None => format!("header:{header}"),
            Some(KeySource::Place(place)) => place.specified(),
            Some(KeySource::Function(_)) => "custom".to_owned(),
        },
        "ttl_seconds": policy.ttl.as_secs_f64(),
        "claim": match operation.claim {
            ClaimMode::Lease => "lease",
            ClaimMode::Transaction => "transaction",
        },
        "lease_seconds": leased.then_some(policy.lease.as_secs_f64()),
        "wait_seconds": policy.wait.as_secs_f64(),
        "timeout_seconds": time_limit.map(|limit| limit.as_secs_f64()),
        "fingerprint": match operation.fingerprint {
            BodyForm::Raw => "body",
            BodyForm::Json => "json",
            BodyForm::Ignored => "none",
            BodyForm::Custom => "custom",
        },
        "record": match defaults.record_rule(operation) {
            RecordRule::Final => "final",
            RecordRule::Success => "success",
            RecordRule::All => "all",
        },
        "in_flight": match operation.in_flight {
            None | Some(InFlightRule::Conflict) => "conflict",
            Some(InFlightRule::Poll) => "poll",
        },
        "abandoned": leased.then_some(match policy.abandoned {
            OnAbandon::Retry => "retry",
            OnAbandon::Hold => "hold",
            OnAbandon::RetryThenHold => "retry_then_hold",
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declaration::tests::LEASED;

    fn describe_with_defaults(operation: &Declaration) -> Value {
        describe(operation, &PolicyDefaults::default(), None, "k")
    }

    #[test]
    fn a_claim_in_a_transaction_has_neither_lease_nor_abandonment() {
        let leased = describe_with_defaults(&LEASED);
        assert_eq!((&leased["claim"], &leased["lease_seconds"]), (&json!("lease"), &json!(30.0)));
        assert_eq!(leased["abandoned"], "retry");
        let described =
            describe_with_defaults(&Declaration { claim: ClaimMode::Transaction, ..LEASED });
        let mut expected = leased;
        expected["claim"] = json!("transaction");
        expected["lease_seconds"] = Value::Null;
        expected["abandoned"] = Value::Null;
        assert_eq!(described, expected);
    }
}
