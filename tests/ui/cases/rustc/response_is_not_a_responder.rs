use actix_web::{App, post, web};
use idempotent_actix::idempotent;

struct Order;

#[idempotent(scope = "user")]
#[post("/v1/payments")]
async fn pay(user: web::ReqData<String>) -> Order {
    drop(user);
    Order
}

fn main() {
    let _ = || App::new().service(pay);
}
