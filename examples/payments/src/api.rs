//! The handlers. The two that move money have the attribute `#[idempotent]`.

use actix_web::{
    HttpRequest, HttpResponse, get, post,
    web::{Data, Path, ServiceConfig},
};
use idempotent_actix::{Idempotency, Operation, idempotent};
use serde_json::{Value, json};

use crate::{
    bank::{Bank, BankError, Card, Transfer},
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
        .default_service(actix_web::web::to(unknown_url));
}

/// Creates a payment, and charges the card if `confirm` is set.
///
/// A duplicate in flight gets 409 at once. After a crash the retry runs the handler again: the
/// ledger finds the row of the first attempt by its derived key, and the bank finds its charge by
/// the same key.
#[idempotent(scope = "user", ttl = "24h", lease = "5s")]
#[post("/v1/payment_intents")]
async fn create_payment_intent(
    user: User,
    Params(order): Params<PaymentOrder>,
    operation: Operation,
    ledger: Data<Ledger>,
    bank: Data<Bank>,
) -> Result<HttpResponse, ApiError> {
    let key = operation.derive_key("charge");
    let intent = ledger.open_intent(&user, &order.intent, order.status(), &key).await?;
    let Some(card) = order.to_charge() else { return ok(&intent.to_json()) };
    let NewIntent { amount, ref currency, .. } = order.intent;
    match bank.charge(&Transfer { key: &key, card, amount, currency }).await {
        Ok(charge) => ok(&ledger.settle_intent(&intent.id, Some(&charge)).await?.to_json()),
        Err(BankError::Declined) => {
            Err(ApiError::card_declined(ledger.settle_intent(&intent.id, None).await?.to_json()))
        }
        Err(BankError::Down) => {
            ledger.delete_intent(&intent.id).await?;
            Err(ApiError::processor_down())
        }
        Err(BankError::Database(error)) => Err(error.into()),
    }
}

/// Refunds a payment.
///
/// A duplicate in flight waits up to 5 s for the response. After a crash nothing runs again: the
/// key is held.
#[idempotent(scope = "user", ttl = "24h", lease = "5s", wait = "5s", abandoned = "hold")]
#[post("/v1/refunds")]
async fn create_refund(
    user: User,
    Params(order): Params<RefundOrder>,
    operation: Operation,
    ledger: Data<Ledger>,
    bank: Data<Bank>,
) -> Result<HttpResponse, ApiError> {
    let key = operation.derive_key("refund");
    let refund = ledger.open_refund(&user, &order.payment_intent, order.amount, &key).await?;
    // From here on money may have moved, so an error leaves the outcome unknown.
    let card = Card::parse(&refund.payment_method).unwrap_or(Card::Visa);
    let transfer = Transfer { key: &key, card, amount: refund.amount, currency: &refund.currency };
    match bank.refund(&transfer).await {
        Ok(_) => ok(&ledger.settle_refund(&refund.id).await.map_err(ApiError::outcome_unknown)?),
        Err(BankError::Database(error)) => Err(ApiError::from(error).outcome_unknown()),
        Err(BankError::Declined | BankError::Down) => {
            Err(ApiError::processor_down().outcome_unknown())
        }
    }
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
    ok(&json!({
        "object": "list",
        "url": "/v1/payment_intents",
        "has_more": has_more,
        "data": data,
    }))
}

/// Retrieves a payment of the user.
#[get("/v1/payment_intents/{id}")]
async fn retrieve_payment_intent(
    user: User,
    id: Path<String>,
    ledger: Data<Ledger>,
) -> Result<HttpResponse, ApiError> {
    ok(&ledger.intent(&user, &id, "intent").await?.to_json())
}

/// Publishes the idempotency specification.
#[get("/idempotency")]
async fn specification(idempotency: Data<Idempotency>) -> HttpResponse {
    HttpResponse::Ok().json(idempotency.specification())
}

async fn unknown_url(request: HttpRequest) -> Result<HttpResponse, ApiError> {
    Err(ApiError::unknown_url(request.method().as_str(), request.path()))
}

/// A response with an object. Like Stripe's, it is 200 whether the object was created or found.
fn ok(object: &Value) -> Result<HttpResponse, ApiError> {
    Ok(HttpResponse::Ok().json(object))
}

/// The parameters of a new payment.
struct PaymentOrder {
    intent: NewIntent,
    card: Option<Card>,
    confirm: bool,
}

impl PaymentOrder {
    /// The card, if it is to be charged now.
    fn to_charge(&self) -> Option<Card> {
        self.card.filter(|_| self.confirm)
    }

    /// The status before the charge.
    fn status(&self) -> &'static str {
        match (self.card, self.confirm) {
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
        let card = payment_method.map(Card::parse).transpose().map_err(|message| {
            ApiError::invalid("resource_missing", message).with_param("payment_method")
        })?;
        let intent = NewIntent {
            amount,
            currency,
            payment_method: payment_method.map(str::to_owned),
            description: fields.text("description")?.map(str::to_owned),
            metadata: fields.object("metadata"),
        };
        Ok(Self { intent, card, confirm: fields.flag("confirm")? })
    }
}

/// The parameters of a refund.
struct RefundOrder {
    payment_intent: String,
    amount: Option<i64>,
}

impl FromFields for RefundOrder {
    fn from_fields(fields: &Fields) -> Result<Self, ApiError> {
        let payment_intent = fields.required("payment_intent")?.to_owned();
        Ok(Self { payment_intent, amount: fields.integer("amount", 1, i64::MAX)? })
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
