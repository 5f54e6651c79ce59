use actix_web::{HttpResponse, post, web};
use idempotent_actix::{idempotent, scope};

#[idempotent(scope = "scope::bearer_token")]
#[post("/v1/payments")]
async fn pay(amount: web::Json<u64>) -> HttpResponse {
    HttpResponse::Created().body(amount.to_string())
}

#[idempotent(scope = "scope::bearer_token", method = "POST")]
async fn refund(amount: web::Json<u64>) -> HttpResponse {
    HttpResponse::Created().body(amount.to_string())
}

fn main() {
    let _ = async {
        pay(web::Json(5)).await;
        refund(web::Json(5)).await;
    };
}
