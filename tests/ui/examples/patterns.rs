#![deny(warnings)]
#![forbid(unsafe_code)]

use actix_web::{App, HttpRequest, HttpResponse, post, web};
use idempotent_actix::idempotent;
use serde::Deserialize;

#[derive(Deserialize)]
struct Order {
    amount: u64,
}

#[idempotent(scope = "user")]
#[post("/orders")]
async fn order(
    mut user: web::ReqData<String>,
    (request, _): (HttpRequest, HttpRequest),
    _: HttpRequest,
    web::Query(Order { mut amount }): web::Query<Order>,
    web::Json(order @ Order { .. }): web::Json<Order>,
    order_again: Option<web::Data<u8>>,
) -> HttpResponse {
    user = user.clone();
    amount += order.amount;
    HttpResponse::Ok().body(format!("{}{amount}{}{}", *user, request.path(), order_again.is_some()))
}

#[idempotent(scope = "named")]
#[post("/named")]
async fn named(named: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(named.into_inner())
}

#[idempotent(scope = "type")]
#[post("/raw")]
async fn r#move(r#type: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(r#type.into_inner())
}

fn main() {
    let _ = || App::new().service(order).service(named).service(r#move);
}
