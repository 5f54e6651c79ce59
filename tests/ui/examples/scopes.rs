#![deny(warnings)]
#![forbid(unsafe_code)]

use actix_web::{App, HttpRequest, HttpResponse, post, web};
use idempotent_actix::{idempotent, scope};

#[idempotent(scope = "scope::global")]
#[post("/1")]
async fn global() -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[idempotent(scope = "idempotent_actix::scope::bearer_token")]
#[post("/2")]
async fn bearer() -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[idempotent(scope = "::idempotent_actix::scope::peer_ip")]
#[post("/3")]
async fn peer(body: web::Bytes) -> HttpResponse {
    HttpResponse::Ok().body(body)
}

fn tenant(request: &HttpRequest) -> Result<Option<String>, actix_web::error::UrlGenerationError> {
    request.url_for_static("tenant").map(|url| Some(url.to_string()))
}

#[idempotent(scope = "tenant")]
#[post("/4")]
async fn own(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {
    let _ = || App::new().service(global).service(bearer).service(peer).service(own);
}
