#![deny(warnings)]
#![forbid(unsafe_code)]

use actix_web::{App, HttpResponse, put, web};

#[idempotent_actix::idempotent(
    scope = "user",
    ttl = "7d12h30m5s250ms",
    lease = "1m",
    wait = "0s",
    key = "optional",
    key_from = "header:webhook-id",
    fingerprint = "json",
    record = "success",
    abandoned = "hold",
    claim = "lease",
    method = "PUT",
    name = "orders",
    crate = "idempotent_actix"
)]
#[put("/orders")]
async fn put_order(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {
    let _ = || App::new().service(put_order);
}
