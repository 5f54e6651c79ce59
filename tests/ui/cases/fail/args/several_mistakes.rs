use actix_web::{HttpResponse, route};
use idempotent_actix::idempotent;

#[idempotent(
    scope = "x y",
    ttl = "1",
    lease = 30,
    key = "no",
    name = " ",
    wat = "5s",
    wait
)]
#[route("/v1/payments", method = "GET", method = "POST")]
async fn pay(body: &str) -> HttpResponse {
    HttpResponse::Ok().body(body.to_owned())
}

fn main() {}
