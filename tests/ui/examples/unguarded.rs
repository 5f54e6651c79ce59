#![deny(warnings)]
#![forbid(unsafe_code)]

use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::{idempotent, scope};

#[idempotent(scope = "user")]
#[post("/same_name")]
async fn same_name(
    user: web::ReqData<String>,
    same_name: web::Bytes,
    same_name_unguarded: web::Data<u8>,
) -> HttpResponse {
    drop((user, same_name_unguarded));
    HttpResponse::Ok().body(same_name)
}

#[idempotent(scope = "scope::global")]
#[post("/lints")]
#[expect(unused_variables, clippy::unused_async)]
async fn lints(body: web::Bytes) -> HttpResponse {
    let unused = 1;
    HttpResponse::Ok().finish()
}

#[idempotent(scope = "scope::global")]
#[post("/configured")]
#[cfg_attr(all(), expect(unused_variables))]
async fn configured(
    #[cfg(not(any()))] body: web::Bytes,
    #[cfg(any())] missing: Missing,
) -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[idempotent(scope = "scope::global")]
#[cfg(any())]
#[post("/configured_out")]
async fn configured_out() -> Missing {}

#[idempotent(scope = "scope::global", method = "POST")]
#[expect(dead_code)]
async fn unused() -> HttpResponse {
    HttpResponse::Ok().finish()
}

mod api {
    use actix_web::{HttpResponse, post};
    use idempotent_actix::{idempotent, scope};

    #[idempotent(scope = "scope::global")]
    #[post("/restricted")]
    pub(in crate::api) async fn restricted() -> HttpResponse {
        HttpResponse::Ok().finish()
    }

    pub(crate) fn call() {
        let _ = (restricted, restricted_unguarded());
    }
}

fn main() {
    let _ = || {
        api::call();
        #[idempotent(scope = "scope::global", method = "POST")]
        async fn local() -> HttpResponse {
            HttpResponse::Ok().finish()
        }
        App::new()
            .service(same_name)
            .service(lints)
            .service(configured)
            .route("/", web::post().to(local))
    };
}
