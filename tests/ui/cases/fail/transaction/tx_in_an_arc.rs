use std::sync::Arc;

use actix_web::{HttpResponse, post, web};
use idempotent_actix::idempotent;

struct Postgres;
struct Tx<Db>(Db);

#[idempotent(scope = "user", claim = "transaction")]
#[post("/v1/payments")]
async fn pay(user: web::ReqData<String>, _tx: Arc<Tx<Postgres>>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {}
