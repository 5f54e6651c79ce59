//! The store behind `#[idempotent]`: an order that is sent twice is created once, even if the
//! server is killed and started again in between.
//!
//! ```text
//! $ cargo run -p own-store --example orders
//! $ curl -si 127.0.0.1:8080/orders -H 'Authorization: Bearer alice' -H 'Idempotency-Key: k-1' \
//!     -d tea
//! HTTP/1.1 201 Created
//! one tea
//! ```
//!
//! The same request again has the header `idempotency-replayed: true`; its record is a file in the
//! folder `orders.records`.

use std::io;

use actix_web::{App, HttpResponse, HttpServer, post, web};
use idempotent_actix::{Idempotency, idempotent, scope};
use own_store::FileStore;

#[idempotent(scope = "scope::bearer_token")]
#[post("/orders")]
async fn create_order(item: String) -> HttpResponse {
    println!("ordering {item}");
    HttpResponse::Created().body(format!("one {item}\n"))
}

#[actix_web::main]
async fn main() -> io::Result<()> {
    let idempotency = Idempotency::new(FileStore::open("orders.records")?);
    let app = web::Data::new(idempotency);
    HttpServer::new(move || App::new().app_data(app.clone()).service(create_order))
        .bind(("127.0.0.1", 8080))?
        .run()
        .await
}
