//! A receiver of webhooks: each event is booked once, however often its provider delivers it.
//!
//! ```text
//! $ STRIPE_SECRET=whsec_test STANDARD_SECRET=whsec_dGVzdA== cargo run -p webhooks
//! ```
//!
//! A payment, signed as Stripe does:
//!
//! ```text
//! $ deliver() {
//!       t=$(date +%s)
//!       v1=$(printf %s "$t.$1" | openssl dgst -sha256 -hmac whsec_test | sed 's/.* //')
//!       curl -si 127.0.0.1:8080/stripe -H "Stripe-Signature: t=$t,v1=$v1" -d "$1"
//!   }
//! $ paid='{"id":"evt_1","type":"payment_intent.succeeded",
//!          "data":{"object":{"id":"pi_1","amount":2000}}}'
//! $ deliver "$paid"
//! HTTP/1.1 200 OK
//! {"booked":true}
//! ```
//!
//! Stripe did not get the response, and delivers the event again, with a new signature. It gets the
//! recorded response, and nothing is booked:
//!
//! ```text
//! $ deliver "$paid"
//! HTTP/1.1 200 OK
//! idempotency-replayed: true
//! {"booked":true}
//! ```
//!
//! The refund of a payment that is not known yet fails. Its key is released, so that a later
//! delivery runs:
//!
//! ```text
//! $ deliver '{"id":"evt_2","type":"charge.refunded",
//!             "data":{"object":{"payment_intent":"pi_2","amount_refunded":500}}}'
//! HTTP/1.1 503 Service Unavailable
//! the payment of this refund is not known yet
//! ```
//!
//! Stripe's `amount_refunded` is the total of all refunds of the payment so far: what is booked is
//! the difference. An event about a payment that cannot be read is refused, so that it does not
//! count as received. Its key is not claimed either:
//!
//! ```text
//! $ deliver '{"id":"evt_3","type":"charge.refunded",
//!             "data":{"object":{"payment_intent":"pi_1","amount_refunded":"5.00"}}}'
//! HTTP/1.1 422 Unprocessable Entity
//! the event was not booked: /data/object/amount_refunded is not a whole number of cents above 0
//! ```
//!
//! A delivery with a wrong or an old signature is refused before its key is claimed:
//!
//! ```text
//! $ curl -si 127.0.0.1:8080/stripe -H "Stripe-Signature: t=$(date +%s),v1=00" -d "$paid"
//! HTTP/1.1 401 Unauthorized
//! the signature does not match
//! $ curl -s 127.0.0.1:8080/ledger
//! evt_1 pi_1 2000
//! ```
//!
//! `/standard` receives the events of a provider that follows Standard Webhooks.

use std::{error::Error, time::Duration};

use actix_web::{App, HttpServer, web::Data};
use idempotent_actix::{Idempotency, store::SqliteStore};
use webhooks::{Ledger, Secrets, configure};

const FILE: &str = "webhooks.db";

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let [stripe, standard] = ["STRIPE_SECRET", "STANDARD_SECRET"]
        .map(|name| std::env::var(name).map_err(|_| format!("set {name} to `whsec_…`")));
    let secrets = Data::new(Secrets { stripe: stripe?, standard: standard? });
    let store = SqliteStore::connect(&format!("sqlite:{FILE}")).await?;
    store.migrate().await?;
    let ledger = Data::new(Ledger::open(FILE).await?);
    let idempotency = Idempotency::new(store);
    idempotency.check().await?;
    let app = idempotency.clone();
    println!("listening on http://127.0.0.1:8080");
    let server = HttpServer::new(move || {
        App::new()
            .app_data(app.clone())
            .app_data(secrets.clone())
            .app_data(ledger.clone())
            .configure(configure)
    });
    let server = server.shutdown_signal(idempotency.drain_on_sigterm(Duration::from_secs(30)));
    Ok(server.bind(("127.0.0.1", 8080))?.run().await?)
}
