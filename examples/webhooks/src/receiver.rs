//! The two handlers. Each provider has its own, because it says where the id of an event is.

use actix_web::{
    HttpResponse,
    error::ErrorInternalServerError,
    get, post,
    web::{Data, ServiceConfig},
};
use idempotent_actix::{Operation, Tx, idempotent, scope};
use serde_json::json;
use sqlx::Sqlite;

use crate::{
    event::{Change, Standard, Stripe, Verified},
    ledger::{Booking, Ledger, book},
};

/// The secrets that providers sign with. Both begin with `whsec_`.
pub struct Secrets {
    /// The secret of Stripe's endpoint.
    pub stripe: String,
    /// The secret of a provider that follows Standard Webhooks: `whsec_` and Base64.
    pub standard: String,
}

/// Registers the handlers. They need [`Secrets`], a [`Ledger`] and an `Idempotency` with the
/// ledger's database.
pub fn configure(config: &mut ServiceConfig) {
    config.service(stripe).service(standard).service(ledger);
}

// * `key_from`: the provider's id of the event is the key. A redelivery has the same id.
// * `scope`: the events are of one provider, and each handler has its own `name`. No other
//   client can use a key, since the signature is verified before the key is claimed.
// * `fingerprint = "none"`: the id alone says that two deliveries are of one event, and the
//   provider has signed it. The rest may differ: Stripe counts `pending_webhooks` down, and may
//   render the event in another API version. Such a delivery must get the recorded 200; after a
//   422, the provider would send it again for days.
// * `wait`: two deliveries at once. The second waits for the first instead of getting 409.
// * `ttl`: longer than providers send an event again, also by hand.
// * `record = "final"` (the default): a 5xx is not recorded and rolls the transaction back, so the
//   next delivery of the event runs.
#[idempotent(
    scope = "scope::global",
    name = "stripe-events",
    key_from = "json:/id",
    fingerprint = "none",
    claim = "transaction",
    wait = "5s",
    ttl = "60d"
)]
#[post("/stripe")]
async fn stripe(
    event: Verified<Stripe>,
    operation: Operation,
    tx: Tx<Sqlite>,
) -> actix_web::Result<HttpResponse> {
    receive(event.change, &operation, tx).await
}

#[idempotent(
    scope = "scope::global",
    name = "standard-events",
    key_from = "header:webhook-id",
    fingerprint = "none",
    claim = "transaction",
    wait = "5s",
    ttl = "60d"
)]
#[post("/standard")]
async fn standard(
    event: Verified<Standard>,
    operation: Operation,
    tx: Tx<Sqlite>,
) -> actix_web::Result<HttpResponse> {
    receive(event.change, &operation, tx).await
}

/// Books an event in the transaction of its record.
async fn receive(
    change: Option<Change>,
    operation: &Operation,
    mut tx: Tx<Sqlite>,
) -> actix_web::Result<HttpResponse> {
    // An event that does not concern this receiver gets 200 too, or it would be delivered again.
    let Some(change) = change else {
        return Ok(HttpResponse::Ok().json(json!({ "booked": false })));
    };
    let id = operation.key().ok_or_else(|| ErrorInternalServerError("an event has an id"))?;
    let booking = book(tx.connection().await?, id.as_str(), &change).await;
    Ok(match booking.map_err(ErrorInternalServerError)? {
        Booking::Booked => HttpResponse::Ok().json(json!({ "booked": true })),
        Booking::Included => HttpResponse::Ok().json(json!({ "booked": false })),
        // The provider delivers the event again later.
        Booking::UnknownPayment => {
            HttpResponse::ServiceUnavailable().body("the payment of this refund is not known yet")
        }
    })
}

#[get("/ledger")]
async fn ledger(ledger: Data<Ledger>) -> actix_web::Result<HttpResponse> {
    let lines = ledger.lines().await.map_err(ErrorInternalServerError)?;
    let mut text = String::new();
    for (event, payment, amount) in lines {
        text += &format!("{event} {payment} {amount}\n");
    }
    Ok(HttpResponse::Ok().body(text))
}
