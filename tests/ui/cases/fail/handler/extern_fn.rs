use actix_web::{App, HttpResponse, post};
use idempotent_actix::idempotent;

#[idempotent(scope = "user")]
#[post("/v1/payments")]
async extern "C" fn pay(user: String) -> HttpResponse {
    HttpResponse::Ok().body(user)
}

fn main() {
    let _ = || App::new().service(pay);
}
