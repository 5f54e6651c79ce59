//! The published idempotency specification, which draft-ietf-httpapi-idempotency-key-header-07 §2 demands of a resource.

use std::{collections::BTreeSet, time::Duration};

use idempotent_core::{Abandoned, BodyForm, Key, RecordRule};
use serde_json::{Value, json};

use crate::{
    builder::{KeyRule, StoreFailurePolicy},
    idempotency::Idempotency,
    private::{ClaimMode, OperationSpec, Registered},
    problem::ProblemKind,
};

impl Idempotency {
    /// The machine-readable policy of every annotated handler in the program, as JSON: the header, the rules for keys, limits, the
    /// operations with their times in seconds, and the problems that a client may meet.
    ///
    /// Serve it at the place that [`documentation`](crate::IdempotencyBuilder::documentation) names. An operation has a route for each method of
    /// each route attribute. A route's path is that of its attribute, without the scopes that the application mounts it under, and
    /// null for handlers that are routed by hand. Where an operation has no `name`, its records are named by its method and its full
    /// route pattern, such as `POST /v1/payments`. With `claim = "transaction"`, `lease_seconds` and `abandoned` are null. A problem
    /// that has several statuses is listed once for each, and `when` says when it has that one.
    #[must_use]
    pub fn specification(&self) -> Value {
        let (settings, limits) = (self.settings(), self.in_flight().limits());
        let mut operations: Vec<_> = inventory::iter::<Registered>.into_iter().map(|registered| registered.0).collect();
        operations.sort_by_key(|operation| (first_path(operation), operation.name, operation.handler));
        json!({
            "standard": "draft-ietf-httpapi-idempotency-key-header-07",
            "header": settings.header.as_str(),
            "key": {
                "syntax": "a Structured Field String (RFC 9651), or a bare token of visible ASCII without quote and comma",
                "max_bytes": Key::MAX_BYTES,
                "rule": match settings.key_rule {
                    KeyRule::Any => json!("any"),
                    KeyRule::Uuid => json!("uuid"),
                    KeyRule::MinLength(least) => json!({ "min_bytes": least }),
                },
            },
            "body_limit_bytes": settings.body_limit,
            "replayed_bytes_limit": settings.recording.bytes,
            "replayed_stream_seconds": settings.recording.time.as_secs_f64(),
            "operations_in_flight": { "total": limits.total, "per_principal": limits.per_principal },
            "replay_marker": "idempotency-replayed",
            "when_store_fails": match settings.when_store_fails {
                StoreFailurePolicy::Refuse => "refuse",
                StoreFailurePolicy::RunUnguarded => "run_unguarded",
            },
            "operations": operations.into_iter().map(|operation| describe(operation, self.time_limit(operation))).collect::<Vec<_>>(),
            "problems": ProblemKind::ALL.iter().flat_map(|kind| problems(*kind, &settings.documentation)).collect::<Vec<_>>(),
        })
    }
}

/// The packages of the annotated handlers, in alphabetical order.
pub(crate) fn packages() -> Vec<&'static str> {
    let packages: BTreeSet<_> =
        inventory::iter::<Registered>.into_iter().map(|registered| registered.0.package).collect();
    packages.into_iter().collect()
}

/// A line for each status that a problem of this kind may have.
fn problems(kind: ProblemKind, documentation: &str) -> impl Iterator<Item = Value> {
    let url = format!("{documentation}{}", kind.code());
    kind.statuses().into_iter().map(move |(status, when, retryable)| {
        json!({
            "type": url,
            "code": kind.code(),
            "status": status.as_u16(),
            "title": kind.title(),
            "when": when,
            "retryable": retryable,
        })
    })
}

fn first_path(operation: &OperationSpec) -> Option<&'static str> {
    operation.routes.first().and_then(|route| route.resource).map(|resource| resource.path)
}

fn describe(operation: &OperationSpec, time_limit: Option<Duration>) -> Value {
    let policy = &operation.policy;
    let leased = operation.claim == ClaimMode::Lease;
    json!({
        "handler": operation.handler,
        "name": (!operation.name.is_empty()).then_some(operation.name),
        "routes": operation.routes.iter().map(|route| json!({
            "method": route.method,
            "path": route.resource.map(|resource| resource.path),
        })).collect::<Vec<_>>(),
        "key": if operation.key_required { "required" } else { "optional" },
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
            BodyForm::Nothing => "none",
            BodyForm::Custom => "custom",
        },
        "record": match policy.record {
            RecordRule::Final => "final",
            RecordRule::Success => "success",
            RecordRule::All => "all",
        },
        "abandoned": leased.then_some(match policy.abandoned {
            Abandoned::Retry => "retry",
            Abandoned::Hold => "hold",
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::private::{policy, route};

    const LEASED: OperationSpec = OperationSpec {
        package: "shop",
        name: "",
        handler: "pay",
        routes: &[route("POST", &["/payments", "pay"])],
        key_required: true,
        fingerprint: BodyForm::Raw,
        claim: ClaimMode::Lease,
        timeout: None,
        policy: policy(60_000, 30_000, 0, RecordRule::Final, Abandoned::Retry),
    };

    #[test]
    fn what_is_claimed_in_a_transaction_has_neither_lease_nor_abandonment() {
        let leased = describe(&LEASED, None);
        assert_eq!((&leased["claim"], &leased["lease_seconds"]), (&json!("lease"), &json!(30.0)));
        assert_eq!(leased["abandoned"], "retry");
        let described = describe(&OperationSpec { claim: ClaimMode::Transaction, ..LEASED }, None);
        let mut expected = leased;
        expected["claim"] = json!("transaction");
        expected["lease_seconds"] = Value::Null;
        expected["abandoned"] = Value::Null;
        assert_eq!(described, expected);
    }
}
