use actix_web::{HttpResponse, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user", method = "post")]
#[allow(dead_code)]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {}
