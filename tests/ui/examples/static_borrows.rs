#![deny(warnings)]
#![forbid(unsafe_code)]

use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;
use std::borrow::Cow;

type Price = fn(&str) -> u64;

#[idempotent(scope = "user")]
#[post("/")]
async fn pay(
    user: web::ReqData<String>,
    currency: web::Data<&'static str>,
    country: web::Data<Cow<'static, str>>,
    price: web::Data<Price>,
    check: web::Data<Box<dyn Fn(&str) -> &str>>,
    rule: web::Data<Box<dyn for<'a> Fn(&'a str) -> &'a str>>,
) -> HttpResponse {
    let checked = rule(check(&user)).to_owned();
    HttpResponse::Ok().body(format!("{checked}{currency:?}{country:?}{}", price("eur")))
}

fn main() {
    let _ = || App::new().service(pay);
}
