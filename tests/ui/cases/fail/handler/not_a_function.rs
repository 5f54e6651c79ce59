use actix_web::HttpResponse;
use idempotent_actix::idempotent;

#[allow(unused_imports)]
#[idempotent(scope = "user")]
#[allow(dead_code)]
struct Payment;

fn main() {
    let _ = HttpResponse::Ok();
}
