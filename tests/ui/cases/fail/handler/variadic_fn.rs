use actix_web::{App, HttpResponse, post};
use idempotent_actix::idempotent;

#[idempotent(scope = "user")]
#[post("/v1/payments")]
async fn pay(user: String, _: ...) -> HttpResponse {
    HttpResponse::Ok().body(user)
}

fn main() {
    let _ = || App::new().service(pay);
}
