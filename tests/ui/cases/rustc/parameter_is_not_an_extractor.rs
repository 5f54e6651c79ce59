use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;

struct Bank;

#[idempotent(scope = "user")]
#[post("/v1/payments")]
async fn pay(user: web::ReqData<String>, _bank: Bank) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {
    let _ = || App::new().service(pay);
}
