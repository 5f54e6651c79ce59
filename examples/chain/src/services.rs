//! The services. They differ in their names, and in the service that they call.

use std::{error::Error, net::SocketAddr, path::Path, time::Duration};

use actix_web::{
    App, HttpResponse, HttpServer,
    error::ErrorInternalServerError,
    post,
    web::{Data, Json},
};
use idempotent_actix::{Idempotency, Operation, Tx, idempotent, scope, store::SqliteStore};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use sqlx::{Sqlite, SqlitePool};

use crate::next::Next;

/// An order of the shop.
#[derive(Deserialize, Serialize)]
pub(crate) struct Order {
    pub(crate) id: String,
    pub(crate) cents: i64,
}

/// Processes an order: has it processed by the next service, and then writes that it is done. The
/// row and the response are one commit.
#[idempotent(scope = "scope::bearer_token", ttl = "24h", lease = "2s", wait = "1s")]
#[post("/process")]
async fn process(
    order: Json<Order>,
    operation: Operation,
    next: Data<Option<Next>>,
    mut tx: Tx<Sqlite>,
) -> actix_web::Result<HttpResponse> {
    let id = operation.derive_key("done")?.to_string();
    operation.set_reference(&id).await?;
    if let Some(next) = next.get_ref() {
        next.process(&operation, &order).await?;
    }
    sqlx::query("INSERT INTO done (id, order_id, cents) VALUES ($1, $2, $3)")
        .bind(&id)
        .bind(&order.id)
        .bind(order.cents)
        .execute(tx.connection().await?)
        .await
        .map_err(ErrorInternalServerError)?;
    Ok(HttpResponse::Created().json(id))
}

/// Serves until the process gets a signal.
pub(crate) async fn serve(
    name: &'static str,
    listen: SocketAddr,
    next: Option<&Url>,
    file: &Path,
) -> Result<(), Box<dyn Error>> {
    let url = format!("sqlite:{}", file.display());
    let store = SqliteStore::connect(&url).await?;
    store.migrate().await?;
    // No constraint prevents a second row for an order: the layer must.
    let table = "CREATE TABLE IF NOT EXISTS done (id TEXT, order_id TEXT, cents INTEGER) STRICT";
    let pool = SqlitePool::connect(&url).await?;
    sqlx::raw_sql(table).execute(&pool).await?;
    pool.close().await;

    let idempotency = Idempotency::new(store);
    let next = Data::new(next.map(|url| Next::new(name, url)).transpose()?);
    let app = idempotency.clone();
    let server = HttpServer::new(move || {
        App::new()
            .app_data(app.clone())
            .app_data(next.clone())
            .service(process)
            .service(Idempotency::lookup_resource("/idempotency/keys/{key}"))
    })
    .workers(2)
    .shutdown_signal(idempotency.drain_on_sigterm(Duration::from_secs(10)))
    .bind(listen)?;
    for address in server.addrs() {
        println!("{name} is listening on http://{address}");
    }
    Ok(server.run().await?)
}
