#![deny(warnings)]
#![forbid(unsafe_code)]

use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;

type User = web::ReqData<String>;

/// Above.
#[idempotent(scope = "user")]
/// Below.
#[allow(clippy::unused_async)]
#[post("/1")]
#[must_use]
#[cfg(not(any()))]
#[cfg_attr(all(), doc = "More.")]
async fn outside(user: User) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

#[tracing::instrument(skip(user, body))]
#[idempotent(scope = "user")]
#[post("/2")]
async fn instrumented_above(user: User, body: String) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner() + &body)
}

#[idempotent(scope = "user")]
#[post("/3")]
#[tracing::instrument(skip(body), fields(user = %*user), ret(Debug), err)]
async fn instrumented_below(user: User, mut body: String) -> actix_web::Result<HttpResponse> {
    body.push('!');
    Ok(HttpResponse::Ok().body(user.into_inner() + &body))
}

#[idempotent(scope = "user")]
#[tracing::instrument(skip_all)]
#[post("/4")]
async fn instrumented_between(
    user: User,
    #[allow(unused)] body: String,
    #[cfg(any())] gone: Gone,
) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

#[idempotent(scope = "user")]
#[post("/5")]
#[expect(unused_variables)]
async fn expected(user: User) -> HttpResponse {
    #![allow(unreachable_code)]
    HttpResponse::Ok().finish()
}

fn main() {
    let _ = || {
        App::new()
            .service(outside)
            .service(instrumented_above)
            .service(instrumented_below)
            .service(instrumented_between)
            .service(expected)
    };
}
