use actix_web::{HttpResponse, delete, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user", key_from = "form:idempotency_key")]
#[delete("/v1/payments")]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {}
