#![deny(warnings)]
#![forbid(unsafe_code)]

use actix_web::{App, HttpRequest, HttpResponse, post, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user")]
#[post("/1")]
#[allow(clippy::too_many_arguments)]
async fn fifteen(
    user: web::ReqData<String>,
    _2: HttpRequest,
    _3: HttpRequest,
    _4: HttpRequest,
    _5: HttpRequest,
    _6: HttpRequest,
    _7: HttpRequest,
    _8: HttpRequest,
    _9: HttpRequest,
    _10: HttpRequest,
    _11: HttpRequest,
    _12: HttpRequest,
    _13: HttpRequest,
    _14: HttpRequest,
    _15: HttpRequest,
) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

#[idempotent(scope = "scope_of_all")]
#[post("/2")]
async fn none() -> HttpResponse {
    HttpResponse::Ok().finish()
}

fn scope_of_all(_: &HttpRequest) -> &'static str {
    "all"
}

fn main() {
    let _ = || App::new().service(fifteen).service(none);
}
