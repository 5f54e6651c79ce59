use actix_web::{HttpResponse, post, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user")]
#[post("/v1/payments")]
async fn pay((user, _): (web::ReqData<String>, web::Data<u64>)) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {}
