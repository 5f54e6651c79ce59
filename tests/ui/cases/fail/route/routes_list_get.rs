use actix_web::{HttpResponse, routes, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user")]
#[routes]
#[post("/v1/payments")]
#[get("/v1/payments")]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {}
