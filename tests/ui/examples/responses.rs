#![deny(warnings)]
#![forbid(unsafe_code)]

use actix_web::{App, Either, HttpResponse, Responder, http::StatusCode, post, web};
use idempotent_actix::idempotent;
use serde::Serialize;

type User = web::ReqData<String>;

#[derive(Serialize)]
struct Order {
    owner: String,
}

#[idempotent(scope = "user")]
#[post("/1")]
async fn opaque(user: User) -> impl Responder {
    user.into_inner()
}

#[idempotent(scope = "user")]
#[post("/2")]
async fn json(user: User) -> web::Json<Order> {
    web::Json(Order { owner: user.into_inner() })
}

#[idempotent(scope = "user")]
#[post("/3")]
async fn fallible(user: User) -> Result<HttpResponse, actix_web::error::PayloadError> {
    drop(user);
    Err(actix_web::error::PayloadError::Overflow)
}

#[idempotent(scope = "user")]
#[post("/4")]
async fn optional(user: User) -> Option<(String, StatusCode)> {
    Some((user.into_inner(), StatusCode::CREATED))
}

#[idempotent(scope = "user")]
#[post("/5")]
async fn either(user: User) -> Either<&'static str, Result<impl Responder, actix_web::Error>> {
    if user.is_empty() { Either::Left("anonymous") } else { Either::Right(Ok(HttpResponse::Ok())) }
}

fn main() {
    let _ = || {
        App::new().service(opaque).service(json).service(fallible).service(optional).service(either)
    };
}
