use actix_web::{HttpResponse, post, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "_")]
#[post("/v1/payments")]
async fn pay(_: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().finish()
}

fn main() {}
