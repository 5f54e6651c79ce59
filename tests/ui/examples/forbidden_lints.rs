#![deny(warnings)]
#![forbid(dead_code, non_snake_case)]

use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::{idempotent, scope};

#[idempotent(scope = "scope::global")]
#[post("/todos")]
async fn todo_(body: web::Bytes) -> HttpResponse {
    HttpResponse::Ok().body(body)
}

#[idempotent(scope = "scope::global", method = "POST")]
async fn by_hand(body: web::Bytes) -> HttpResponse {
    HttpResponse::Ok().body(body)
}

fn main() {
    let _ = || App::new().service(todo_).route("/by_hand", web::post().to(by_hand));
}
