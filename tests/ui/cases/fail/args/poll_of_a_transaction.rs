use actix_web::{HttpResponse, post, web};
use idempotent_actix::idempotent;

struct Postgres;
type Tx<Db> = web::Data<Db>;

#[idempotent(scope = "user", claim = "transaction", in_flight = "poll")]
#[post("/v1/payments")]
async fn pay(user: web::ReqData<String>, _tx: Tx<Postgres>) -> HttpResponse {
    HttpResponse::Ok().body(user.into_inner())
}

fn main() {}
