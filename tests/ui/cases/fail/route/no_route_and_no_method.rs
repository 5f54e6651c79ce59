use actix_web::{HttpResponse, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user")]
async fn pay(user: web::ReqData<String>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {
    let _ = web::post().to(pay);
}
