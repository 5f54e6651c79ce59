use actix_web::{HttpResponse, post};
use idempotent_actix::{idempotent, scope};

#[idempotent(scope = scope::bearer_token)]
#[post("/v1/payments")]
async fn pay() -> HttpResponse {
    HttpResponse::Ok().finish()
}

fn main() {}
