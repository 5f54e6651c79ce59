#![deny(warnings)]
#![forbid(unsafe_code)]

use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct NewPayment {
    amount: u64,
}

#[idempotent(scope = "user", ttl = "24h")]
#[post("/v1/payments")]
async fn pay(
    user: web::ReqData<String>,
    body: web::Json<NewPayment>,
) -> actix_web::Result<HttpResponse> {
    drop(user);
    Ok(HttpResponse::Created().json(body))
}

fn main() {
    let _ = || App::new().service(pay);
}
