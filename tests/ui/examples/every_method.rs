#![deny(warnings)]
#![forbid(unsafe_code)]

use actix_web::{App, Responder, delete, patch, post, put, route, routes, web};
use idempotent_actix::idempotent;

type User = web::ReqData<String>;

#[idempotent(scope = "user")]
#[post("/1")]
async fn posted(user: User) -> impl Responder {
    user.into_inner()
}

#[idempotent(scope = "user")]
#[put("/2")]
async fn putted(user: User) -> impl Responder {
    user.into_inner()
}

#[idempotent(scope = "user")]
#[patch("/3")]
async fn patched(user: User) -> impl Responder {
    user.into_inner()
}

#[idempotent(scope = "user")]
#[delete("/4", name = "deleted", guard = "anything")]
async fn deleted(user: User) -> impl Responder {
    user.into_inner()
}

fn anything(_: &actix_web::guard::GuardContext<'_>) -> bool {
    true
}

#[idempotent(scope = "user")]
#[route("/5", method = "POST", method = "PUT", method = "PATCH", method = "DELETE")]
async fn listed(user: User) -> impl Responder {
    user.into_inner()
}

#[idempotent(scope = "user")]
#[routes]
#[post("/6")]
#[put("/7")]
async fn announced(user: User) -> impl Responder {
    user.into_inner()
}

#[idempotent(scope = "user")]
#[actix_web::post("/8")]
async fn by_path(user: User) -> impl Responder {
    user.into_inner()
}

#[post("/9")]
#[idempotent(scope = "user", method = "POST")]
async fn below_with_method(user: User) -> impl Responder {
    user.into_inner()
}

fn main() {
    let _ = || {
        App::new().service(posted).service(putted).service(patched).service(deleted);
        App::new().service(listed).service(announced).service(by_path).service(below_with_method)
    };
}
