use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;

struct User;

#[idempotent(scope = "user")]
#[post("/v1/payments")]
async fn pay(user: web::Data<User>) -> HttpResponse {
    drop(user);
    HttpResponse::Ok().finish()
}

fn main() {
    let _ = || App::new().service(pay);
}
