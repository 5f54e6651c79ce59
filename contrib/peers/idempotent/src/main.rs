//! `idempotent`: an idempotency engine with a tower layer, used with axum as its documentation
//! shows.

use axum::{
    Router,
    body::Bytes,
    http::StatusCode,
    response::IntoResponse,
    routing::{get, post},
    serve::ListenerExt,
};
use idempotent::{
    IdempotencyStore, memory::MemoryStore, middleware::IdempotencyLayer, valkey::ValkeyStore,
};

type BoxError = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let arguments = work::Arguments::read();
    if arguments.is_memory() {
        return serve(MemoryStore::builder().try_build()?, arguments.port).await;
    }
    if !arguments.is_redis() {
        arguments.refuse_store();
    }
    serve(ValkeyStore::with_url(arguments.store).try_build().await?, arguments.port).await
}

async fn serve<S>(store: S, port: u16) -> Result<(), BoxError>
where
    S: IdempotencyStore + Clone + Send + Sync + 'static,
{
    let guarded = Router::new().route("/work", post(nothing)).layer(IdempotencyLayer::new(store));
    let app = guarded.route("/runs", get(async || work::runs()));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    work::print_address(listener.local_addr()?);
    Ok(axum::serve(listener.tap_io(set_nodelay), app).await?)
}

async fn nothing(body: Bytes) -> impl IntoResponse {
    let head =
        [("content-type", "application/json".to_owned()), ("x-run", work::run().to_string())];
    (StatusCode::CREATED, head, work::response_body(body.len()))
}

/// Disables Nagle's algorithm.
fn set_nodelay(stream: &mut tokio::net::TcpStream) {
    let _ = stream.set_nodelay(true);
}
