//! `actix-idempotent`: a middleware that stores responses in the session of `actix-session`.
//!
//! It finds a response only by the session's cookie, so a [`jar`] sends the cookie back for the
//! client: one session for each key.

mod jar;
mod memory;

use actix_idempotent::{IdempotentFactory, IdempotentOptions};
use actix_session::{
    SessionMiddleware,
    config::PersistentSession,
    storage::{RedisSessionStore, SessionStore},
};
use actix_web::{
    App, HttpResponse, HttpServer, Responder,
    cookie::{Key, time::Duration},
    get,
    middleware::from_fn,
    post, web,
};
use deadpool_redis::{Config, Runtime};

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let arguments = work::Arguments::read();
    if arguments.is_memory() {
        return serve(memory::Sessions::default(), arguments.port).await;
    }
    if !arguments.is_redis() {
        arguments.no_such_store();
    }
    // As its documentation shows.
    let pool = Config::from_url(&arguments.store).create_pool(Some(Runtime::Tokio1))?;
    serve(RedisSessionStore::new_pooled(pool).await?, arguments.port).await
}

async fn serve(
    sessions: impl SessionStore + Clone + Send + 'static,
    port: u16,
) -> anyhow::Result<()> {
    let secret = Key::generate();
    let server = HttpServer::new(move || {
        let lifecycle = PersistentSession::default().session_ttl(Duration::days(1));
        let session = SessionMiddleware::builder(sessions.clone(), secret.clone())
            .session_lifecycle(lifecycle)
            .build();
        let guarded = web::scope("/work")
            .app_data(web::Data::new(jar::Jar::default()))
            .wrap(IdempotentFactory::new(IdempotentOptions::default()))
            .wrap(session)
            .wrap(from_fn(jar::carry))
            .service(nothing);
        App::new().service(runs).service(guarded)
    });
    let server = server.workers(1).bind(("127.0.0.1", port))?;
    server.addrs().into_iter().for_each(work::listening);
    Ok(server.run().await?)
}

#[post("")]
async fn nothing(body: web::Bytes) -> HttpResponse {
    let mut answer = HttpResponse::Created();
    answer.content_type("application/json").insert_header(("x-run", work::run()));
    answer.body(work::answer(body.len()))
}

#[get("/runs")]
async fn runs() -> impl Responder {
    work::runs()
}
