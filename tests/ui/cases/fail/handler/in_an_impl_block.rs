use actix_web::{FromRequest, HttpResponse, post, web};
use idempotent_actix::{idempotent, scope};

struct Order<T>(T);

impl<T: FromRequest> Order<T> {
    #[idempotent(scope = "scope::global")]
    #[post("/orders")]
    async fn create(order: web::Json<Self>) -> HttpResponse {
        HttpResponse::Ok().finish()
    }
}

fn main() {}
