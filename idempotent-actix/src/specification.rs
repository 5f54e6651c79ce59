//! The published idempotency specification, which draft-ietf-httpapi-idempotency-key-header-07 §2 demands of a resource.

use std::collections::BTreeSet;

use idempotent_core::{Abandoned, BodyForm, Key, RecordRule};
use serde_json::{Value, json};

use crate::{
    idempotency::{Idempotency, KeyRule, StoreFailure},
    private::{ClaimMode, OperationSpec, Registered},
    problem::Kind,
};

impl Idempotency {
    /// The machine-readable policy of every annotated handler in the program, as JSON: the header, the rules for keys, limits, the
    /// operations with their times in seconds, and the problems that a client may meet.
    ///
    /// Serve it at the place that [`documentation`](crate::Builder::documentation) names. An operation's path is that of its route
    /// attribute, without the scopes that the application mounts it under, and empty for handlers that are routed by hand. Where an
    /// operation has no `name`, its records are named by its method and its full route pattern, such as `POST /v1/payments`. What is
    /// claimed by `"transaction"` has neither a lease nor anything abandoned: both are null.
    #[must_use]
    pub fn specification(&self) -> Value {
        let settings = self.settings();
        let mut operations: Vec<_> = inventory::iter::<Registered>.into_iter().map(|registered| registered.0).collect();
        operations.sort_by_key(|operation| (operation.path, operation.methods, operation.name, operation.handler));
        let problems: Vec<_> = Kind::ALL
            .iter()
            .map(|kind| {
                json!({
                    "type": format!("{}{}", settings.documentation, kind.code()),
                    "code": kind.code(),
                    "status": kind.status().as_u16(),
                    "title": kind.title(),
                    "retryable": kind.retryable(),
                })
            })
            .collect();
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
            "replayed_body_limit_bytes": settings.answer_limit,
            "replay_marker": "idempotency-replayed",
            "when_store_fails": match settings.when_store_fails {
                StoreFailure::Refuse => "refuse",
                StoreFailure::RunUnguarded => "run_unguarded",
            },
            "operations": operations.into_iter().map(describe).collect::<Vec<_>>(),
            "problems": problems,
        })
    }
}

/// The packages of the annotated handlers, in alphabetical order.
pub(crate) fn packages() -> Vec<&'static str> {
    let packages: BTreeSet<_> =
        inventory::iter::<Registered>.into_iter().map(|registered| registered.0.package).collect();
    packages.into_iter().collect()
}

fn describe(operation: &OperationSpec) -> Value {
    let policy = &operation.policy;
    let leased = operation.claim == ClaimMode::Lease;
    json!({
        "handler": operation.handler,
        "name": (!operation.name.is_empty()).then_some(operation.name),
        "methods": operation.methods,
        "path": operation.path,
        "key": if operation.key_required { "required" } else { "optional" },
        "ttl_seconds": policy.ttl.as_secs_f64(),
        "claim": match operation.claim {
            ClaimMode::Lease => "lease",
            ClaimMode::Transaction => "transaction",
        },
        "lease_seconds": leased.then_some(policy.lease.as_secs_f64()),
        "wait_seconds": policy.wait.as_secs_f64(),
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
    use crate::private::policy;

    const LEASED: OperationSpec = OperationSpec {
        package: "shop",
        name: "",
        handler: "pay",
        methods: &["POST"],
        path: "/payments",
        key_required: true,
        fingerprint: BodyForm::Raw,
        claim: ClaimMode::Lease,
        policy: policy(60_000, 30_000, 0, RecordRule::Final, Abandoned::Retry),
    };

    #[test]
    fn what_is_claimed_in_a_transaction_has_neither_lease_nor_abandonment() {
        let leased = describe(&LEASED);
        assert_eq!((&leased["claim"], &leased["lease_seconds"]), (&json!("lease"), &json!(30.0)));
        assert_eq!(leased["abandoned"], "retry");
        let described = describe(&OperationSpec { claim: ClaimMode::Transaction, ..LEASED });
        let mut expected = leased;
        expected["claim"] = json!("transaction");
        expected["lease_seconds"] = Value::Null;
        expected["abandoned"] = Value::Null;
        assert_eq!(described, expected);
    }
}
