use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user")]
#[post("/v1/payments")]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    let amount: u64 = "5";
    HttpResponse::Ok().body(format!("{amount}{}", user.into_inner()))
}

fn main() {
    let _ = || App::new().service(pay);
}
