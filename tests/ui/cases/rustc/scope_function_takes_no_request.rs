use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;

fn whose() -> String {
    String::new()
}

#[idempotent(scope = "whose")]
#[post("/v1/payments")]
async fn pay(_body: web::Bytes) -> HttpResponse {
    HttpResponse::Ok().finish()
}

fn main() {
    let _ = || App::new().service(pay);
}
