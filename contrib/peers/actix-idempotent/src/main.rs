//! `actix-idempotent`: middleware that stores responses in an `actix-session` session.
//!
//! It finds a response only if the request has the session's cookie, so a [`jar`] adds the cookie
//! for the client: there is one session for each key.

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
        arguments.refuse_store();
    }
    // As the documentation of actix-session shows.
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
            .wrap(from_fn(jar::add_cookie))
            .service(nothing);
        App::new().service(runs).service(guarded)
    });
    let server = server.workers(1).bind(("127.0.0.1", port))?;
    server.addrs().into_iter().for_each(work::print_address);
    Ok(server.run().await?)
}

#[post("")]
async fn nothing(body: web::Bytes) -> HttpResponse {
    let mut response = HttpResponse::Created();
    response.content_type("application/json").insert_header(("x-run", work::run()));
    response.body(work::response_body(body.len()))
}

#[get("/runs")]
async fn runs() -> impl Responder {
    work::runs()
}
