use actix_web::{HttpResponse, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user", method = "POST", in_flight = "poll")]
async fn export(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {}
