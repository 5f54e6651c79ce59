use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;

const PAYMENTS: &str = "/v1/payments";

#[idempotent(scope = "user")]
#[post(PAYMENTS)]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {
    let _ = || App::new().service(pay);
}
