use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user")]
#[post("/v1/payments")]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {
    let _ = || App::new().route("/v1/payments", web::post().to(pay));
}
