use actix_web::{HttpResponse, web};
use idempotent_actix::idempotent;

trait Orders {
    async fn create(user: web::ReqData<String>) -> HttpResponse;
}

struct Shop;

impl Orders for Shop {
    #[idempotent(scope = "user", method = "POST")]
    async fn create(user: web::ReqData<String>) -> HttpResponse {
        HttpResponse::Ok().body(user.into_inner())
    }
}

fn main() {}
