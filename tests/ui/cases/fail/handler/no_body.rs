use actix_web::HttpResponse;
use idempotent_actix::idempotent;

#[allow(async_fn_in_trait, dead_code)]
trait Pay {
    #[idempotent(scope = "user", method = "POST")]
    async fn pay(user: String) -> HttpResponse;
}

fn main() {}
