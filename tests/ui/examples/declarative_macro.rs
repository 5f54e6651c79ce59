#![deny(warnings)]
#![forbid(unsafe_code)]

use actix_web::{App, HttpResponse, Responder, post, web};
use idempotent_actix::idempotent;

macro_rules! handler {
    (
        $name:ident, $path:literal, $scope:literal,
        $user:ident: $ty:ty, $response:ty, $body:block
    ) => {
        #[idempotent(scope = $scope, ttl = "1h")]
        #[post($path)]
        async fn $name($user: $ty) -> $response $body
    };
}

handler!(echo, "/echo", "user", user: web::ReqData<String>, impl Responder, { user.into_inner() });

macro_rules! closed {
    ($name:ident) => {
        #[idempotent(scope = "user")]
        #[post("/closed")]
        async fn $name(
            user: web::ReqData<String>,
            __guard: web::Bytes,
            __scope: web::Data<u8>,
        ) -> HttpResponse {
            drop((user, __scope));
            HttpResponse::Ok().body(__guard)
        }
    };
}

closed!(closed);

fn main() {
    let _ = || App::new().service(echo).service(closed);
}
