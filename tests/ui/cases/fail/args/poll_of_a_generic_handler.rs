use actix_web::{HttpResponse, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "user", name = "export", method = "POST", in_flight = "poll")]
async fn export<T: 'static>(user: web::ReqData<String>, _sheet: web::Data<T>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {}
