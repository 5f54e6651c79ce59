use actix_web::{HttpResponse, get, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user")]
#[get("/v1/payments")]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {}
