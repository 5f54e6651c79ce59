#![deny(warnings)]
#![forbid(unsafe_code)]

extern crate idempotent_actix as renamed; // what `renamed = { package = "idempotent-actix" }` does

use actix_web::{App, HttpResponse, post, web};
use renamed::idempotent;

mod web_layer {
    pub(crate) use renamed as guard;
}

#[idempotent(scope = "user", crate = "renamed")]
#[post("/1")]
async fn renamed_dependency(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

#[idempotent(scope = "user", crate = "crate::web_layer::guard")]
#[post("/2")]
async fn exported_again(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {
    let _ = || App::new().service(renamed_dependency).service(exported_again);
}
