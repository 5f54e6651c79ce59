use actix_web::{HttpResponse, trace, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user")]
#[trace("/v1/payments")]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {}
