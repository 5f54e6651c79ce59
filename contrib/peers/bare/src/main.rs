//! The work without an idempotency layer: the baseline for the cost of a layer.

use actix_web::{
    App, HttpRequest, HttpResponse, HttpServer, Responder, error::ErrorInternalServerError, get,
    post, web,
};
use sqlx::{
    ConnectOptions, Executor, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let arguments = work::Arguments::read();
    let pool = match () {
        () if arguments.is_memory() || arguments.is_redis() => None,
        () if arguments.is_postgres() => {
            Some(open(&arguments.store).await.map_err(std::io::Error::other)?)
        }
        () => arguments.refuse_store(),
    };
    let server = HttpServer::new(move || {
        let app = App::new().service(runs);
        match &pool {
            Some(pool) => app.app_data(web::Data::new(pool.clone())).service(effect),
            None => app.service(nothing),
        }
    });
    let server = server.workers(1).bind(("127.0.0.1", arguments.port))?;
    server.addrs().into_iter().for_each(work::print_address);
    server.run().await
}

async fn open(url: &str) -> sqlx::Result<PgPool> {
    let options: PgConnectOptions = url.parse()?;
    sqlx::raw_sql(work::RESET_SCHEMA).execute(&mut options.connect().await?).await?;
    let options = options.options([("search_path", work::SCHEMA)]);
    // Opened lazily, on the worker's runtime, so that no other thread drives the connections.
    Ok(PgPoolOptions::new().test_before_acquire(false).connect_lazy_with(options))
}

fn respond(body: &web::Bytes) -> HttpResponse {
    let mut response = HttpResponse::Created();
    response.content_type("application/json").insert_header(("x-run", work::run()));
    response.body(work::response_body(body.len()))
}

#[post("/work")]
async fn nothing(body: web::Bytes) -> HttpResponse {
    respond(&body)
}

#[post("/work")]
async fn effect(
    request: HttpRequest,
    body: web::Bytes,
    pool: web::Data<PgPool>,
) -> actix_web::Result<HttpResponse> {
    let key = request
        .headers()
        .get("idempotency-key")
        .and_then(|key| key.to_str().ok())
        .unwrap_or_default();
    let text = std::str::from_utf8(&body).map_err(ErrorInternalServerError)?;
    pool.execute(sqlx::query(work::EFFECT).bind(key).bind(text))
        .await
        .map_err(ErrorInternalServerError)?;
    Ok(respond(&body))
}

#[get("/runs")]
async fn runs() -> impl Responder {
    work::runs()
}
