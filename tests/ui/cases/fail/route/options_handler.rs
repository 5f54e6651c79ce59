use actix_web::{HttpResponse, options, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user")]
#[options("/v1/payments")]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {}
