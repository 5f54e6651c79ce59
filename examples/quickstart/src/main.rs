//! One guarded handler on the memory store: an order that is sent twice is created once.
//!
//! ```text
//! $ cargo run -p quickstart
//! ```
//!
//! The first request runs the handler:
//!
//! ```text
//! $ curl -si 127.0.0.1:8080/orders -H 'Authorization: Bearer alice' -H 'Idempotency-Key: k-1' \
//!     --json '{"item":"tea"}'
//! HTTP/1.1 201 Created
//! {"number":1,"item":"tea"}
//! ```
//!
//! The same request again gets the recorded response:
//!
//! ```text
//! $ curl -si 127.0.0.1:8080/orders -H 'Authorization: Bearer alice' -H 'Idempotency-Key: k-1' \
//!     --json '{"item":"tea"}'
//! HTTP/1.1 201 Created
//! idempotency-replayed: true
//! {"number":1,"item":"tea"}
//! ```
//!
//! Another request with the same key is refused:
//!
//! ```text
//! $ curl -si 127.0.0.1:8080/orders -H 'Authorization: Bearer alice' -H 'Idempotency-Key: k-1' \
//!     --json '{"item":"coffee"}'
//! HTTP/1.1 422 Unprocessable Entity
//! {"code":"key_reused", … "title":"The idempotency key was used for a different request", …}
//! ```
//!
//! `curl 127.0.0.1:8080/idempotency` returns the specification, with the policy of the handler.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix_web::{App, HttpResponse, HttpServer, get, post, web};
use idempotent_actix::{Idempotency, idempotent, scope, store::MemoryStore};

#[derive(serde::Deserialize)]
struct NewOrder {
    item: String,
}

#[derive(serde::Serialize)]
struct Order {
    number: u64,
    item: String,
}

#[idempotent(scope = "scope::bearer_token", ttl = "24h")]
#[post("/orders")]
async fn create_order(order: web::Json<NewOrder>, orders: web::Data<AtomicU64>) -> HttpResponse {
    let number = orders.fetch_add(1, Ordering::Relaxed) + 1;
    HttpResponse::Created().json(Order { number, item: order.into_inner().item })
}

#[get("/idempotency")]
async fn specification(idempotency: web::Data<Idempotency>) -> HttpResponse {
    HttpResponse::Ok().json(idempotency.specification())
}

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let idempotency = Idempotency::new(MemoryStore::new());
    let (app, orders) = (web::Data::new(idempotency.clone()), web::Data::new(AtomicU64::new(0)));
    println!("listening on http://127.0.0.1:8080");
    HttpServer::new(move || {
        App::new()
            .app_data(app.clone())
            .app_data(orders.clone())
            .service(create_order)
            .service(specification)
    })
    .shutdown_signal(idempotency.drain_on_sigterm(Duration::from_secs(30)))
    .bind(("127.0.0.1", 8080))?
    .run()
    .await
}
