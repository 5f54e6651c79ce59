use actix_web::{App, HttpResponse, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user")]
#[actix_web::get("/v1/payments")]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

#[allow(dead_code)]
fn app() {
    let _ = App::new().service(pay);
}

fn main() {}
