#![deny(warnings)]
#![forbid(unsafe_code)]

use actix_web::{App, HttpResponse, Responder, http::StatusCode, post, web};
use idempotent_actix::{idempotent, scope};
use serde::Deserialize;

#[derive(Deserialize)]
struct NewPayment {
    amount: u64,
}

#[idempotent(scope = "scope::bearer_token")]
#[post("/payments")]
async fn create_payment(payment: web::Json<NewPayment>) -> HttpResponse {
    HttpResponse::Created().body(payment.amount.to_string())
}

#[idempotent(scope = "scope::bearer_token")]
#[post("/refunds")]
async fn refund(web::Json(refund): web::Json<NewPayment>) -> actix_web::Result<impl Responder> {
    if refund.amount == 0 {
        return Err(actix_web::error::ErrorBadRequest("nothing to refund"));
    }
    Ok("refunded")
}

fn main() {
    let _ = || App::new().service(create_payment).service(refund);
    actix_web::rt::System::new().block_on(async {
        let response = create_payment_unguarded(web::Json(NewPayment { amount: 5 })).await;
        assert_eq!(response.status(), StatusCode::CREATED);
        let refused = refund_unguarded(web::Json(NewPayment { amount: 0 })).await;
        assert!(refused.is_err());
    });
}
