use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;

fn whose(_: &actix_web::HttpRequest) -> web::Bytes {
    web::Bytes::new()
}

#[idempotent(scope = "whose")]
#[post("/v1/payments")]
async fn pay() -> HttpResponse {
    HttpResponse::Ok().finish()
}

fn main() {
    let _ = || App::new().service(pay);
}
