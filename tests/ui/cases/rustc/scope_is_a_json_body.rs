use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "body")]
#[post("/v1/payments")]
async fn pay(body: web::Json<u64>) -> HttpResponse {
    drop(body);
    HttpResponse::Ok().finish()
}

fn main() {
    let _ = || App::new().service(pay);
}
