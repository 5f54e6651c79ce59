use actix_web::{HttpResponse, post, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user", content_type = "equivalnt")]
#[post("/v1/payments")]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {}
