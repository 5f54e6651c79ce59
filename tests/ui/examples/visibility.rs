#![deny(warnings)]
#![forbid(unsafe_code)]

mod payments {
    pub(crate) mod v1 {
        use actix_web::{HttpResponse, post, web};
        use idempotent_actix::idempotent;

        #[idempotent(scope = "super::whose")]
        #[post("/v1")]
        pub(crate) async fn pay(body: web::Bytes) -> HttpResponse {
            HttpResponse::Ok().body(body)
        }

        #[idempotent(scope = "self::super::whose", method = "POST")]
        pub(in crate::payments) async fn by_hand() -> HttpResponse {
            HttpResponse::Ok().finish()
        }
    }

    fn whose(request: &actix_web::HttpRequest) -> Option<String> {
        request.headers().get("user")?.to_str().ok().map(str::to_owned)
    }

    pub(super) fn route() -> actix_web::Route {
        actix_web::web::post().to(v1::by_hand)
    }
}

fn main() {
    let _ = || actix_web::App::new().service(payments::v1::pay).route("/", payments::route());
}
