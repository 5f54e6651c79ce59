use actix_web::{HttpResponse, post, web};
use idempotent_actix::idempotent;

#[idempotent(scope = "r#type")]
#[post("/{type}")]
async fn pay(r#type: web::Path<String>) -> HttpResponse {
    HttpResponse::Ok().body(r#type.into_inner())
}

fn main() {}
