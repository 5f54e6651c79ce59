use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;

#[derive(serde::Deserialize)]
struct Order {
    user: String,
}

#[idempotent(scope = "body")]
#[post("/v1/payments")]
async fn pay(body: web::Form<Order>) -> HttpResponse {
    drop(body.user.clone());
    HttpResponse::Ok().finish()
}

fn main() {
    let _ = || App::new().service(pay);
}
