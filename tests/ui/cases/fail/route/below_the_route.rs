use actix_web::{HttpResponse, post, web};
use idempotent_actix::idempotent;

#[post("/v1/payments")]
#[idempotent(scope = "user")]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {}
