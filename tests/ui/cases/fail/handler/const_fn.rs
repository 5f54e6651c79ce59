use actix_web::{App, HttpResponse, post};
use idempotent_actix::idempotent;

#[idempotent(scope = "user")]
#[post("/v1/payments")]
const fn pay(user: String) -> HttpResponse {
    let _ = user;
    loop {}
}

fn main() {
    let _ = || App::new().service(pay);
}
