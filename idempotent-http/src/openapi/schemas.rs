//! The components that describe headers and bodies.

use serde_json::{Map, Value, json};

use super::{Document, Names};

/// A reference to the schema of a problem (RFC 9457).
pub(super) fn problem(document: &mut Document<'_>) -> Value {
    let schema = json!({
        "type": "object",
        "description": "A problem (RFC 9457) that the guard of idempotency keys reports.",
        "required": ["type", "title", "status", "detail", "code", "retryable"],
        // The application may add members (RFC 9457 §3.2).
        "additionalProperties": true,
        "properties": {
            "type": {
                "type": "string",
                "format": "uri-reference",
                "description": "The documentation of the problem.",
            },
            "title": { "type": "string", "description": "The same for each problem of a code." },
            "status": { "type": "integer", "description": "The status of the response." },
            "detail": {
                "type": "string",
                "description": "What is wrong with this request, and what to do.",
            },
            "code": {
                "type": "string",
                "description": "Names the kind of problem; never changes.",
            },
            "retryable": {
                "type": "boolean",
                "description": "Whether the same request may be sent again with the same key.",
            },
            "reference": {
                "type": "string",
                "description": "What the earlier request with this key has created, or was about \
                                to create.",
            },
        },
    });
    document.component("schemas", "IdempotencyProblem", schema)
}

/// Whether a body has the members of a problem.
pub(super) fn is_problem(body: &Value) -> bool {
    let has_text = |name| body.get(name).is_some_and(Value::is_string);
    ["type", "title", "detail", "code"].into_iter().all(has_text)
        && body.get("status").is_some_and(Value::is_u64)
        && body.get("retryable").is_some_and(Value::is_boolean)
        && body.get("reference").is_none_or(Value::is_string)
}

/// A reference to the schema of a response while the first request is in progress.
pub(super) fn in_flight(document: &mut Document<'_>) -> Value {
    let mut reference = json!({
        "description": "What the first request has created, or is about to create.",
    });
    if let Value::Object(reference) = &mut reference {
        let kind = if document.is_3_0 { json!("string") } else { json!(["string", "null"]) };
        reference.insert("type".into(), kind);
        if document.is_3_0 {
            reference.insert("nullable".into(), true.into());
        }
    }
    let schema = json!({
        "type": "object",
        "description": "The first request with this idempotency key is in progress.",
        "required": ["state", "reference"],
        "properties": {
            "state": { "type": "string", "enum": ["in_flight"] },
            "reference": reference,
        },
    });
    document.component("schemas", "IdempotencyInFlight", schema)
}

/// The headers with these names, of those that are known, as references.
pub(super) fn headers<'n>(
    wanted: impl IntoIterator<Item = &'n str>,
    names: &Names,
    document: &mut Document<'_>,
) -> Map<String, Value> {
    let wanted = wanted.into_iter().filter_map(|name| {
        let (component, description, schema) = header(name, names)?;
        let header = json!({ "description": description, "schema": schema });
        Some((name.to_owned(), document.component("headers", component, header)))
    });
    wanted.collect()
}

/// The component of a header: its name, its description and its schema.
fn header(name: &str, names: &Names) -> Option<(&'static str, &'static str, Value)> {
    if *name == names.replayed {
        let description = "Marks a replay: the recorded response of the first request with this \
                           idempotency key.";
        let schema = match names.is_usual_marker {
            true => json!({ "type": "string", "enum": ["true"] }),
            false => json!({ "type": "string" }),
        };
        return Some(("IdempotencyReplayed", description, schema));
    }
    if names.expires.as_deref() == Some(name) {
        let description = "Until when the idempotency key is remembered, as an HTTP date.";
        return Some(("IdempotencyExpires", description, json!({ "type": "string" })));
    }
    if *name == names.replay {
        let description = "Marks a replay whose body was not recorded, or from which the server \
                           has removed a part before it was recorded.";
        let schema = json!({ "type": "string", "enum": ["omitted", "redacted"] });
        return Some(("IdempotencyReplay", description, schema));
    }
    if *name == names.not_run {
        let description = "Proves that this request was not run: a digest of its idempotency key.";
        let schema = json!({ "type": "string", "pattern": "^[0-9a-f]{16}$" });
        return Some(("IdempotencyNotRun", description, schema));
    }
    let text = json!({ "type": "string" });
    Some(match name {
        "Retry-After" => {
            let description = "After how many seconds to send the same request again.";
            ("IdempotencyRetryAfter", description, json!({ "type": "integer", "minimum": 1 }))
        }
        "Link" => ("IdempotencyLink", "The documentation of the problem.", text),
        "WWW-Authenticate" => {
            ("IdempotencyAuthenticate", "How the principal of the key authenticates.", text)
        }
        "Stripe-Should-Retry" => {
            let description = "Whether Stripe's client libraries should send the request again.";
            let schema = json!({ "type": "string", "enum": ["true", "false"] });
            ("StripeShouldRetry", description, schema)
        }
        "Location" => {
            let description = "Where to look up the outcome of the request.";
            let schema = json!({ "type": "string", "format": "uri-reference" });
            ("IdempotencyLocation", description, schema)
        }
        _ => return None,
    })
}
