use actix_web::HttpResponse;
use idempotent_actix::idempotent;

#[allow(dead_code)]
struct Bank;

impl Bank {
    #[idempotent(scope = "user")]
    #[actix_web::post("/v1/payments")]
    async fn pay(&self, user: String) -> HttpResponse {
        HttpResponse::Ok().body(user)
    }
}

fn main() {}
