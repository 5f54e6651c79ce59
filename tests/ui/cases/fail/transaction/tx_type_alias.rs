use actix_web::{HttpResponse, post, web};
use idempotent_actix::idempotent;

struct Postgres;
type Tx<Db> = web::Data<Db>;
type Transaction = Tx<Postgres>;

#[idempotent(scope = "user", claim = "transaction")]
#[post("/v1/payments")]
async fn pay(user: web::ReqData<String>, _transaction: Transaction) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {}
