#![deny(warnings)]
#![forbid(unsafe_code)]

use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;
use serde::Deserialize;
use utoipa::OpenApi;

#[derive(Deserialize, utoipa::ToSchema)]
struct NewPayment {
    amount: u64,
}

#[utoipa::path(responses((status = 201)))]
#[idempotent(scope = "user")]
#[post("/above/{id}")]
async fn above(
    user: web::ReqData<String>,
    id: web::Path<u64>,
    body: web::Json<NewPayment>,
) -> HttpResponse {
    HttpResponse::Ok().body(format!("{}{id}{}", *user, body.amount))
}

#[idempotent(scope = "user")]
#[utoipa::path(responses((status = 201)))]
#[post("/below/{id}")]
async fn below(
    user: web::ReqData<String>,
    id: web::Path<u64>,
    body: web::Json<NewPayment>,
) -> HttpResponse {
    HttpResponse::Ok().body(format!("{}{id}{}", *user, body.amount))
}

#[derive(OpenApi)]
#[openapi(paths(above, below))]
struct Api;

fn main() {
    let _ = || App::new().service(above).service(below);
    for (path, item) in Api::openapi().paths.paths {
        let operation = item.post.expect("both are POST");
        assert_eq!(operation.parameters.map(|parameters| parameters.len()), Some(1), "{path}");
        assert!(operation.request_body.is_some(), "{path}");
    }
}
