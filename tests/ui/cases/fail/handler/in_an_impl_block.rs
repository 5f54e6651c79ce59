use actix_web::{HttpResponse, post, web};
use idempotent_actix::idempotent;

#[derive(serde::Deserialize)]
struct Order {
    id: String,
}

impl Order {
    #[idempotent(scope = "user")]
    #[post("/orders")]
    async fn create(user: web::ReqData<String>, order: web::Json<Self>) -> HttpResponse {
        HttpResponse::Ok().body(format!("{} {}", user.into_inner(), order.id))
    }
}

fn main() {}
