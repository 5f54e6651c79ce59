//! `cratestack`: the idempotency layer of `cratestack-axum` on the Postgres store of
//! `cratestack-sqlx`.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
    serve::ListenerExt,
};
use cratestack_axum::idempotency::IdempotencyLayer;
use cratestack_sqlx::{
    SqlxIdempotencyStore,
    sqlx::{
        self, ConnectOptions, Executor, PgPool,
        postgres::{PgConnectOptions, PgPoolOptions},
    },
};

type BoxError = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let arguments = work::Arguments::read();
    if !arguments.is_postgres() {
        arguments.refuse_store();
    }
    let pool = open(&arguments.store).await?;
    let store = SqlxIdempotencyStore::new(pool.clone());
    store.ensure_schema().await?;
    // One scope for all requests, as in the other contestants.
    let layer = IdempotencyLayer::new(Arc::new(store), Duration::from_secs(24 * 60 * 60))
        .with_principal_fingerprint(|_| "all".into());
    let guarded = Router::new().route("/work", post(effect)).with_state(pool).layer(layer);
    let app = guarded.route("/runs", get(async || work::runs()));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", arguments.port)).await?;
    work::print_address(listener.local_addr()?);
    Ok(axum::serve(listener.tap_io(set_nodelay), app).await?)
}

async fn open(url: &str) -> sqlx::Result<PgPool> {
    let options: PgConnectOptions = url.parse()?;
    options.connect().await?.execute(sqlx::raw_sql(work::RESET_SCHEMA)).await?;
    let options = options.options([("search_path", work::SCHEMA)]);
    Ok(PgPoolOptions::new().test_before_acquire(false).connect_lazy_with(options))
}

async fn effect(State(pool): State<PgPool>, headers: HeaderMap, body: Bytes) -> Response {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
    let Ok(text) = std::str::from_utf8(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    if let Err(error) = pool.execute(sqlx::query(work::EFFECT).bind(key).bind(text)).await {
        return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
    }
    let head =
        [("content-type", "application/json".to_owned()), ("x-run", work::run().to_string())];
    (StatusCode::CREATED, head, work::response_body(body.len())).into_response()
}

/// Disables Nagle's algorithm.
fn set_nodelay(stream: &mut tokio::net::TcpStream) {
    let _ = stream.set_nodelay(true);
}
