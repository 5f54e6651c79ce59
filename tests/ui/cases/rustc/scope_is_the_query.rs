use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;

#[derive(serde::Deserialize)]
struct Order {
    user: String,
}

#[idempotent(scope = "order")]
#[post("/v1/payments")]
async fn pay(order: web::Query<Order>) -> HttpResponse {
    drop(order.user.clone());
    HttpResponse::Ok().finish()
}

fn main() {
    let _ = || App::new().service(pay);
}
