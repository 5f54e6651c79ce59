//! An event is booked once, wherever its delivery is interrupted.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

use actix_web::{App, test::TestRequest, web::Data};
use idempotent_actix::store::SqliteStore;
use idempotent_test::TestService;
use webhooks::{
    Ledger, Secrets, configure,
    signature::{now, sign_standard, sign_stripe},
};

const SECRET: &str = "whsec_dGVzdA==";

fn stripe(event: &str) -> TestRequest {
    let body = format!(
        r#"{{"id":"{event}","type":"payment_intent.succeeded",
            "data":{{"object":{{"id":"pi_{event}","amount":2000}}}}}}"#
    );
    let signature = sign_stripe(SECRET, now(), body.as_bytes());
    TestRequest::post()
        .uri("/stripe")
        .insert_header(("Stripe-Signature", signature))
        .set_payload(body)
}

fn standard(event: &str) -> TestRequest {
    let body = format!(
        r#"{{"type":"payment.succeeded","data":{{"payment_id":"p-{event}","amount":2000}}}}"#
    );
    let time = now();
    TestRequest::post()
        .uri("/standard")
        .insert_header(("webhook-id", event))
        .insert_header(("webhook-timestamp", time.to_string()))
        .insert_header((
            "webhook-signature",
            sign_standard(SECRET, event, time, body.as_bytes()).unwrap(),
        ))
        .set_payload(body)
}

#[actix_web::test]
async fn an_event_is_booked_once() {
    for make in [stripe, standard] {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("webhooks.db");
        let store = SqliteStore::connect(&format!("sqlite:{}", file.display())).await.unwrap();
        store.migrate().await.unwrap();
        let ledger = Ledger::open(file.to_str().unwrap()).await.unwrap();
        let books = ledger.clone();
        let secrets = Data::new(Secrets { stripe: SECRET.into(), standard: SECRET.into() });
        let service = TestService::on(store, move |idempotency| {
            App::new()
                .app_data(idempotency)
                .app_data(secrets.clone())
                .app_data(Data::new(ledger.clone()))
                .configure(configure)
        });
        let proved = service
            .prove_by(make)
            .observing(async move || [("lines", books.lines().await.unwrap().len())]);
        println!("{}", proved.await.unwrap());
    }
}
