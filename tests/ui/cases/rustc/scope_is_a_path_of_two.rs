use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "both")]
#[post("/v1/payments")]
async fn pay(both: web::Path<(String, String)>) -> HttpResponse {
    drop(both);
    HttpResponse::Ok().finish()
}

fn main() {
    let _ = || App::new().service(pay);
}
