use actix_web::{HttpResponse, post, web};
use idempotent_actix::idempotent;

struct Orders;

impl Orders {
    #[idempotent(scope = "user")]
    #[post("/orders")]
    async fn create(user: web::ReqData<String>) -> HttpResponse {
        HttpResponse::Ok().body(user.into_inner())
    }
}

fn main() {}
