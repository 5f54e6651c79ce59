//! The parameter of the key.

use serde_json::{Value, json};

use super::{Document, spelled};
use crate::specification::{PublishedKeyRules, PublishedOperation};

/// The example of the standard.
const EXAMPLE: &str = "8e03978e-40d5-43e8-bc93-6894a57f9324";

/// The name of the header that has the key; `None` if the key is elsewhere.
pub(super) fn header_of(handler: &PublishedOperation) -> Option<String> {
    handler.key_from.strip_prefix("header:").map(spelled)
}

/// The parameter of the key in this header.
pub(super) fn of(header: &str, handler: &PublishedOperation, rules: &PublishedKeyRules) -> Value {
    json!({
        "name": header,
        "in": "header",
        "required": handler.key == "required",
        "description": "Identifies this operation. Send a new key with each new operation, and the \
                        same key with each retry of it: the operation is carried out once, and a \
                        retry gets its first response.",
        "schema": schema(rules),
        "example": EXAMPLE,
    })
}

/// The name of the component of a parameter.
pub(super) fn component(header: &str, parameter: &Value) -> String {
    let prefix = if parameter["required"] == true { "" } else { "Optional" };
    format!("{prefix}{}", header.replace(|letter: char| !letter.is_ascii_alphanumeric(), ""))
}

fn schema(rules: &PublishedKeyRules) -> Value {
    if rules.rule == "uuid" {
        return json!({
            "type": "string", "format": "uuid", "minLength": 36, "maxLength": 36,
        });
    }
    let least = rules.rule.get("min_bytes").and_then(Value::as_u64).unwrap_or(1).max(1);
    let most = rules.max_bytes;
    // Visible ASCII without quote and comma: a bare token.
    let pattern = format!(r"^[!#-+\--~]{{{least},{most}}}$");
    json!({ "type": "string", "minLength": least, "maxLength": most, "pattern": pattern })
}

/// What a document says of the parameters of an operation.
pub(super) enum Stated {
    /// Nothing of this header.
    Nothing,
    /// The parameter of this header, which is not ours.
    ByHand,
    /// Our parameter.
    Ours,
    /// A parameter that is not in the document, so it may be that of this header.
    Elsewhere,
}

/// Finds a header among lists of parameters: those of the operation and of its path item.
pub(super) fn stated<'v>(
    header: &str,
    ours: &Value,
    lists: impl Iterator<Item = &'v Value>,
    document: &Document<'_>,
) -> Stated {
    let mut elsewhere = false;
    for parameter in lists.filter_map(Value::as_array).flatten() {
        let Some((_, found)) = document.resolved(parameter) else {
            elsewhere = true;
            continue;
        };
        let name = found.get("name").and_then(Value::as_str).unwrap_or_default();
        if found.get("in").is_some_and(|place| place == "header")
            && name.eq_ignore_ascii_case(header)
        {
            return if found == ours { Stated::Ours } else { Stated::ByHand };
        }
    }
    if elsewhere { Stated::Elsewhere } else { Stated::Nothing }
}
