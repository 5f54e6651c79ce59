use actix_web::{App, HttpRequest, HttpResponse, post};
use idempotent_actix::idempotent;

#[idempotent(scope = "user")]
#[post("/v1/payments")]
async fn pay(
    user: String,
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
    _16: HttpRequest,
) -> HttpResponse {
    HttpResponse::Ok().body(user)
}

fn main() {
    let _ = || App::new().service(pay);
}
