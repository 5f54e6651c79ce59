//! The approach of *Zero To Production In Rust*, chapter 11: the handler writes the record, the
//! effect and the saved response in one transaction.

mod idempotency;

use actix_web::{
    App, HttpRequest, HttpResponse, HttpServer, Responder,
    error::{ErrorBadRequest, ErrorInternalServerError},
    get, post, web,
};
use idempotency::{NextAction, save_response, try_processing};
use sqlx::{
    ConnectOptions, Executor, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use uuid::Uuid;

/// The only user.
const USER: Uuid = Uuid::from_u128(1);

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let arguments = work::Arguments::read();
    if !arguments.is_postgres() {
        arguments.refuse_store();
    }
    let pool = web::Data::new(open(&arguments.store).await?);
    let server =
        HttpServer::new(move || App::new().app_data(pool.clone()).service(effect).service(runs));
    let server = server.workers(1).bind(("127.0.0.1", arguments.port))?;
    server.addrs().into_iter().for_each(work::print_address);
    Ok(server.run().await?)
}

async fn open(url: &str) -> sqlx::Result<PgPool> {
    let options: PgConnectOptions = url.parse()?;
    let mut connection = options.connect().await?;
    connection.execute(sqlx::raw_sql(work::RESET_SCHEMA)).await?;
    let options = options.options([("search_path", work::SCHEMA)]);
    options.connect().await?.execute(sqlx::raw_sql(idempotency::TABLE)).await?;
    // Opened lazily, on the worker's runtime, so that no other thread drives the connections.
    Ok(PgPoolOptions::new().test_before_acquire(false).connect_lazy_with(options))
}

#[post("/work")]
async fn effect(
    request: HttpRequest,
    body: web::Bytes,
    pool: web::Data<PgPool>,
) -> actix_web::Result<HttpResponse> {
    let key = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok());
    let key =
        key.filter(|key| !key.is_empty()).ok_or_else(|| ErrorBadRequest("the key is missing"))?;
    let text = std::str::from_utf8(&body).map_err(ErrorBadRequest)?;
    let mut transaction =
        match try_processing(&pool, key, USER).await.map_err(ErrorInternalServerError)? {
            NextAction::StartProcessing(transaction) => transaction,
            NextAction::ReturnSavedResponse(saved) => return Ok(saved),
        };
    let insert = sqlx::query(work::EFFECT).bind(key).bind(text);
    transaction.execute(insert).await.map_err(ErrorInternalServerError)?;
    let mut response = HttpResponse::Created();
    response.content_type("application/json").insert_header(("x-run", work::run()));
    let response = response.body(work::response_body(body.len()));
    save_response(transaction, key, USER, response).await.map_err(ErrorInternalServerError)
}

#[get("/runs")]
async fn runs() -> impl Responder {
    work::runs()
}
