//! `axum-idempotent`: a tower layer that stores responses in the session of `ruts`.
//!
//! It stores nothing for a client without a session and never creates a session, so each key is
//! sent with the cookie of a separate session.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::Request,
    http::{HeaderValue, StatusCode, header::COOKIE},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::{get, post},
    serve::ListenerExt,
};
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use fred::prelude::{Builder, ClientLike, Config};
use ruts::{
    CookieOptions, SessionLayer,
    store::{SessionStore, moka::MokaStore, redis::RedisStore},
};
use tower_cookies::CookieManagerLayer;
use uuid::Uuid;

type BoxError = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let arguments = work::Arguments::read();
    if arguments.is_memory() {
        // The default limit of 10,000 sessions would be reached within a second.
        return serve(MokaStore::builder().max_capacity(u64::MAX).build(), arguments.port).await;
    }
    if !arguments.is_redis() {
        arguments.refuse_store();
    }
    let client = Builder::from_config(Config::from_url(&arguments.store)?).build()?;
    client.init().await?;
    serve(RedisStore::new(Arc::new(client)).await?, arguments.port).await
}

async fn serve<S: SessionStore>(sessions: S, port: u16) -> Result<(), BoxError> {
    let options = IdempotentOptions::default()
        .use_idempotency_key_header(None, true)
        .expire_after(24 * 60 * 60);
    let guarded = Router::new()
        .route("/work", post(nothing))
        .layer(IdempotentLayer::<S>::new(options))
        .layer(
            SessionLayer::new(Arc::new(sessions))
                .with_cookie_options(CookieOptions::build().name("session").max_age(24 * 60 * 60)),
        )
        .layer(CookieManagerLayer::new())
        .layer(from_fn(add_cookie));
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

/// Adds the cookie of the key's session. The session id is the key's bytes, encoded as `ruts`
/// encodes its session ids.
async fn add_cookie(mut request: Request, next: Next) -> Response {
    let key = request
        .headers()
        .get("idempotency-key")
        .and_then(|key| Uuid::try_parse_ascii(key.as_bytes()).ok());
    let cookie =
        key.map(|key| format!("session={}", BASE64_URL_SAFE_NO_PAD.encode(key.as_bytes())));
    if let Some(cookie) =
        cookie.and_then(|cookie| HeaderValue::from_maybe_shared(Bytes::from(cookie)).ok())
    {
        request.headers_mut().insert(COOKIE, cookie);
    }
    next.run(request).await
}

/// Disables Nagle's algorithm.
fn set_nodelay(stream: &mut tokio::net::TcpStream) {
    let _ = stream.set_nodelay(true);
}
