use actix_web::{App, HttpResponse, web};
use idempotent_actix::idempotent;

struct Payments;

impl Payments {
    #[idempotent(scope = "user", method = "POST")]
    async fn pay(user: web::ReqData<String>) -> HttpResponse {
        HttpResponse::Ok().body(user.into_inner())
    }
}

fn main() {
    let _ = || App::new().route("/v1/payments", web::post().to(Payments::pay));
}
