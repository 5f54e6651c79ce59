#![deny(warnings)]
#![forbid(unsafe_code)]
#![allow(dead_code, non_camel_case_types, unused_macros)]

use actix_web::{App, post, web};
use idempotent_actix::idempotent;

type Result<T> = T;
struct Option;
struct String;
struct Vec;
struct Some;
struct None;
struct Ok;
struct Err;
struct Box;
struct Send;
struct Future;
struct str;
struct u64;
struct bool;
mod std {}
mod core {}
mod alloc {}
macro_rules! concat {
    () => {};
}
macro_rules! compile_error {
    () => {};
}

#[idempotent(scope = "user", ttl = "1h")]
#[post("/v1/payments")]
async fn pay(user: web::ReqData<::std::string::String>) -> Result<::std::string::String> {
    user.into_inner()
}

fn main() {
    let _ = || App::new().service(pay);
}
