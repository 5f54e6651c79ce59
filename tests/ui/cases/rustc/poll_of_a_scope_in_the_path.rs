use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "tenant", in_flight = "poll")]
#[post("/{tenant}/exports")]
async fn export(tenant: web::Path<String>) -> HttpResponse {
    HttpResponse::Ok().body(tenant.into_inner())
}

fn main() {
    let _ = || App::new().service(export);
}
