use actix_web::{App, HttpRequest, HttpResponse, post, web};
use idempotent_actix::idempotent;

fn event_id(_: &HttpRequest, body: &[u8]) -> usize {
    body.len()
}

#[idempotent(scope = "user", key_from = "event_id")]
#[post("/v1/payments")]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {
    let _ = || App::new().service(pay);
}
