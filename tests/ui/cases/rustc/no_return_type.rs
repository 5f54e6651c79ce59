use actix_web::{App, post, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user")]
#[post("/v1/payments")]
async fn pay(user: web::ReqData<String>) {
    drop(user);
}

fn main() {
    let _ = || App::new().service(pay);
}
