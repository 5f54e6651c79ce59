#![deny(dead_code)]

use actix_web::{HttpResponse, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user", method = "POST")]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {}
