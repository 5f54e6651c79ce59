use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;

fn event_id() {}

#[idempotent(scope = "user", key_from = "event_id")]
#[post("/v1/payments")]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {
    let _ = || App::new().service(pay);
}
