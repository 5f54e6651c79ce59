use actix_web::{HttpResponse, route, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user")]
#[route("/v1/payments", method = "POST", method = "GET")]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {}
