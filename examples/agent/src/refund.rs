//! The tool.

use std::num::NonZeroU32;

use actix_web::{
    HttpResponse,
    error::InternalError,
    web::{Data, Json, JsonConfig},
};
use idempotent_actix::{Disposition, Operation, idempotent, scope};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    bank::{Bank, BankError},
    problem::{outcome_unknown, tool_error, tool_result},
};

/// The name of the tool.
pub(crate) const NAME: &str = "refund";

/// What a client learns of the tool from `tools/list`.
///
/// `idempotentHint` says: "calling the tool repeatedly with the same arguments will have no
/// additional effect". It is true because the id of the call is one of the arguments.
pub(crate) fn description() -> Value {
    json!({
        "name": NAME,
        "title": "Refund an order",
        "description": "Sends money back to the customer of an order. To call it again after a \
            lost or unclear result, send exactly the same arguments, also the same call_id: the \
            money is sent once.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "call_id": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 255,
                    "pattern": "^[ -~]+$",
                    "description": "The id of this refund, unique among all refunds, such as a \
                        UUID. Choose it before the first call, and keep it whenever you call \
                        again for the same refund.",
                },
                "order": { "type": "string", "description": "The id of the order." },
                "cents": { "type": "integer", "minimum": 1, "description": "The amount." },
            },
            "required": ["call_id", "order", "cents"],
        },
        "annotations": {
            "readOnlyHint": false,
            "destructiveHint": true,
            "idempotentHint": true,
            "openWorldHint": true,
        },
    })
}

/// The `params` of a call, without `_meta`.
#[derive(Debug, Deserialize)]
pub(crate) struct Call {
    arguments: Refund,
}

#[derive(Debug, Deserialize)]
struct Refund {
    order: String,
    cents: NonZeroU32,
}

/// Arguments that cannot be read are an error of the tool, so that the model can correct them. The
/// call is not claimed.
pub(crate) fn invalid_arguments() -> JsonConfig {
    JsonConfig::default().error_handler(|error, _| {
        let response = tool_error(&format!("No money was moved. Invalid arguments: {error}."));
        InternalError::from_response(error, response).into()
    })
}

// * `key_from`: the id of the call is an argument. Neither the id of the JSON-RPC request nor
//   `_meta` identifies a call: both may differ when it is repeated.
// * `scope`: who calls. Ids of different callers do not meet.
// * `fingerprint = "json"`: the name of the tool and all arguments must be the same.
// * `abandoned = "retry_then_hold"`: if the process dies before the bank is called, the repeated
//   call runs. If it dies later, it is unknown whether the bank has moved the money.
// * `ttl`: longer than an agent's run may be interrupted.
#[idempotent(
    scope = "scope::bearer_token",
    method = "POST",
    name = "tools/call refund",
    key_from = "json:/arguments/call_id",
    fingerprint = "json",
    abandoned = "retry_then_hold",
    lease = "10s",
    ttl = "30d"
)]
pub(crate) async fn refund(
    call: Json<Call>,
    operation: Operation,
    bank: Data<Bank>,
) -> actix_web::Result<HttpResponse> {
    let Refund { order, cents } = &call.arguments;
    // A person finds the refund in the books of the bank by this memo.
    let memo = format!("refund {}", operation.derive_key("memo")?);
    operation.set_reference(&memo).await?;
    operation.point_of_no_return().await?;
    Ok(match bank.refund(&memo, order, cents.get()).await {
        Ok(()) => {
            let (units, cents) = (cents.get() / 100, cents.get() % 100);
            tool_result(&format!("Refunded {units}.{cents:02} for order {order}. Memo: {memo}."))
        }
        // The response is recorded: the same call gets it again.
        Err(BankError::Refused(reason)) => tool_error(&format!("No money was moved. {reason}")),
        Err(BankError::NoResponse) => {
            let mut response = tool_error(&outcome_unknown(Some(&memo)));
            response.extensions_mut().insert(Disposition::Unknown);
            response
        }
    })
}
