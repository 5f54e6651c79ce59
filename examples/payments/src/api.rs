//! The handlers. The two that move money have the attribute `#[idempotent]`.

use actix_web::{
    HttpRequest, HttpResponse, get, post,
    web::{Data, Path, ServiceConfig},
};
use idempotent_actix::{Idempotency, Operation, idempotent};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    bank::{Bank, Card, Transfer},
    books::{Books, Entry},
    demo,
    error::ApiError,
    ledger::{Ledger, NewIntent},
    params::{Fields, FromFields, Params},
    user::User,
};

/// The routes.
pub(crate) fn routes(config: &mut ServiceConfig) {
    config
        .service(create_payment_intent)
        .service(list_payment_intents)
        .service(retrieve_payment_intent)
        .service(create_refund)
        .service(specification)
        .service(Idempotency::lookup_resource("/idempotency/keys/{key}"))
        .default_service(actix_web::web::to(unknown_url));
}

/// Creates a payment, and charges the card if `confirm` is set.
///
/// A duplicate in flight gets 409 at once. After a crash the retry runs the handler again: the
/// ledger finds the row of the first attempt by its derived key, and each step that was recorded
/// returns its result. If the charge was not recorded, the bank is asked for it first. The entry
/// and the receipt are committed together with the response.
#[idempotent(scope = "user", ttl = "24h", lease = "5s")]
#[post("/v1/payment_intents")]
async fn create_payment_intent(
    user: User,
    Params(order): Params<PaymentOrder>,
    operation: Operation,
    ledger: Data<Ledger>,
    bank: Data<Bank>,
    books: Books,
) -> actix_web::Result<HttpResponse> {
    let key = operation.derive_key("charge")?;
    let intent = ledger.open_intent(&user, &order.intent, order.status(), &key).await?;
    // Lookups and conflicts show it to the client from now on.
    operation.set_reference(&intent.id).await?;
    let Some(transfer) = order.to_charge() else { return Ok(ok(&intent.to_json())) };
    // From here on a completer can finish the payment, if its client never comes back.
    let payment = Payment { intent: intent.id, transfer };
    operation.set_input(&payment)?;
    charge(operation, (ledger, bank, books), payment).await
}

/// A payment that is to be charged.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Payment {
    intent: String,
    transfer: Transfer,
}

/// Charges the card, and writes the entry and the receipt. Called by the handler, and by the
/// completer for a payment that was abandoned.
pub(crate) async fn charge(
    operation: Operation,
    (ledger, bank, mut books): (Data<Ledger>, Data<Bank>, Books),
    Payment { intent, transfer }: Payment,
) -> actix_web::Result<HttpResponse> {
    let outcome = operation
        .step("charge")
        .reconcile(|key| bank.find_charge(key))
        .run(|key| bank.charge(key, &transfer))
        .await?;
    let intent = ledger.settle_intent(&intent, outcome.id()).await?;
    let Some(charge) = outcome.id() else {
        return Err(ApiError::card_declined(intent.to_json()).into());
    };
    let Transfer { amount, ref currency, .. } = transfer;
    books.enter(&operation, &Entry { payment: &intent.id, charge, amount, currency }).await?;
    Ok(ok(&intent.to_json()))
}

/// Refunds a payment.
///
/// A duplicate in flight waits up to 5 s for the response. After a crash past the point of no
/// return nothing runs again: the key is held.
#[idempotent(scope = "user", ttl = "24h", lease = "5s", wait = "5s", abandoned = "retry_then_hold")]
#[post("/v1/refunds")]
async fn create_refund(
    user: User,
    Params(order): Params<RefundOrder>,
    operation: Operation,
    ledger: Data<Ledger>,
    bank: Data<Bank>,
) -> actix_web::Result<HttpResponse> {
    let key = operation.derive_key("refund")?;
    let (refund, transfer) =
        ledger.open_refund(&user, &order.payment_intent, order.amount, &key).await?;
    // It leads an operator to the row of the refund, and from there to the bank's books.
    operation.set_reference(&refund).await?;
    // From here on money may have moved, so an error leaves the outcome unknown.
    operation.point_of_no_return().await?;
    bank.refund(&key, &transfer).await.map_err(ApiError::outcome_unknown)?;
    Ok(ok(&ledger.settle_refund(&refund).await.map_err(ApiError::outcome_unknown)?))
}

/// Lists the user's payments, newest first.
#[get("/v1/payment_intents")]
async fn list_payment_intents(
    user: User,
    Params(page): Params<Page>,
    ledger: Data<Ledger>,
) -> Result<HttpResponse, ApiError> {
    // One more than requested, to know whether there are more.
    let mut intents = ledger.intents(&user, page.after.as_deref(), page.limit + 1).await?;
    let has_more = i64::try_from(intents.len()).is_ok_and(|found| found > page.limit);
    if has_more {
        intents.pop();
    }
    let data: Vec<_> = intents.iter().map(|intent| intent.to_json()).collect();
    Ok(ok(&json!({
        "object": "list",
        "url": "/v1/payment_intents",
        "has_more": has_more,
        "data": data,
    })))
}

/// Retrieves a payment of the user.
#[get("/v1/payment_intents/{id}")]
async fn retrieve_payment_intent(
    user: User,
    id: Path<String>,
    ledger: Data<Ledger>,
) -> Result<HttpResponse, ApiError> {
    Ok(ok(&ledger.intent(&user, &id, "intent").await?.to_json()))
}

/// Publishes the idempotency specification.
#[get("/idempotency")]
async fn specification(idempotency: Data<Idempotency>) -> HttpResponse {
    let mut specification = idempotency.specification();
    demo::hide_checkout(&mut specification);
    HttpResponse::Ok().json(specification)
}

async fn unknown_url(request: HttpRequest) -> Result<HttpResponse, ApiError> {
    Err(ApiError::unknown_url(request.method().as_str(), request.path()))
}

/// A response with an object. Like Stripe's, it is 200 whether the object was created or found.
fn ok(object: &Value) -> HttpResponse {
    HttpResponse::Ok().json(object)
}

/// The parameters of a new payment.
struct PaymentOrder {
    intent: NewIntent,
    confirm: bool,
}

impl PaymentOrder {
    /// The order to the bank, if the card is to be charged now.
    fn to_charge(&self) -> Option<Transfer> {
        let NewIntent { amount, currency, payment_method, .. } = &self.intent;
        let payment_method = payment_method.clone().filter(|_| self.confirm)?;
        Some(Transfer { payment_method, amount: *amount, currency: currency.clone() })
    }

    /// The status before the charge.
    fn status(&self) -> &'static str {
        match (&self.intent.payment_method, self.confirm) {
            (None, _) => "requires_payment_method",
            (Some(_), false) => "requires_confirmation",
            (Some(_), true) => "processing",
        }
    }
}

impl FromFields for PaymentOrder {
    fn from_fields(fields: &Fields) -> Result<Self, ApiError> {
        fields.required("amount")?;
        let amount = fields.integer("amount", 1, 99_999_999)?.unwrap_or_default();
        let currency = fields.required("currency")?.to_ascii_lowercase();
        if currency.len() != 3 || !currency.bytes().all(|letter| letter.is_ascii_lowercase()) {
            return Err(ApiError::invalid(
                "parameter_invalid",
                "Invalid currency: it must have three letters.",
            )
            .with_param("currency"));
        }
        let payment_method = fields.text("payment_method")?;
        payment_method.map(Card::parse).transpose().map_err(|message| {
            ApiError::invalid("resource_missing", message).with_param("payment_method")
        })?;
        let intent = NewIntent {
            amount,
            currency,
            payment_method: payment_method.map(str::to_owned),
            description: fields.text("description")?.map(str::to_owned),
            metadata: fields.object("metadata"),
        };
        Ok(Self { intent, confirm: fields.flag("confirm")? })
    }
}

/// The parameters of a refund. Without an amount, the rest of the payment is refunded. So an amount
/// that cannot be read, and a parameter that is perhaps a misspelled amount, are refused with 400,
/// before the key is claimed.
struct RefundOrder {
    payment_intent: String,
    amount: Option<i64>,
}

impl FromFields for RefundOrder {
    fn from_fields(fields: &Fields) -> Result<Self, ApiError> {
        fields.refuse_unknown(&["payment_intent", "amount", "reason", "metadata", "expand"])?;
        let payment_intent = fields.required("payment_intent")?.to_owned();
        Ok(Self { payment_intent, amount: fields.integer_if_given("amount", 1, i64::MAX)? })
    }
}

/// The parameters of a list.
struct Page {
    limit: i64,
    after: Option<String>,
}

impl FromFields for Page {
    fn from_fields(fields: &Fields) -> Result<Self, ApiError> {
        let limit = fields.integer("limit", 1, 100)?.unwrap_or(10);
        Ok(Self { limit, after: fields.text("starting_after")?.map(str::to_owned) })
    }
}
