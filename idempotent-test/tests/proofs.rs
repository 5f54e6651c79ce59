//! Handlers with one bug each, and the trial that finds it.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test fails by panicking")]

use std::{
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use actix_web::{
    App, Error, FromRequest, HttpRequest, HttpResponse,
    dev::Payload,
    error::ErrorBadGateway,
    post,
    test::TestRequest,
    web::{Data, Json},
};
use idempotent_actix::{Operation, StoreFailurePolicy, Tx, idempotent, store::SqliteStore};
use idempotent_test::{HttpTap, TestService, Unproved, assert_idempotent};
use serde::Deserialize;
use serde_json::json;
use sqlx::{Sqlite, SqlitePool};
use test_support::subjects::sqlite::File;

#[derive(Deserialize)]
struct Refund {
    amount: i64,
}

/// What all processes share.
#[derive(Clone, Default)]
struct Mail(Arc<AtomicU64>);

impl Mail {
    async fn send(&self) {
        tokio::task::yield_now().await;
        self.0.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
    }

    fn count(&self) -> impl AsyncFn() -> [(&'static str, u64); 1] + 'static {
        let sent = self.0.clone();
        async move || [("e-mails", sent.load(Ordering::SeqCst))]
    }
}

const INSERT: &str = "INSERT INTO refunds (amount) VALUES (?1)";

fn request() -> TestRequest {
    TestRequest::post().uri("/refunds").set_json(json!({"amount": 500}))
}

async fn database(file: &File) -> SqlitePool {
    let pool = SqlitePool::connect_with(file.options()).await.unwrap();
    sqlx::query("CREATE TABLE refunds (amount INTEGER NOT NULL)").execute(&pool).await.unwrap();
    pool
}

/// The rows of the table.
fn rows(pool: &SqlitePool) -> impl AsyncFn() -> [(&'static str, i64); 1] + 'static {
    let pool = pool.clone();
    async move || {
        let rows = sqlx::query_scalar("SELECT count(*) FROM refunds").fetch_one(&pool).await;
        [("rows", rows.unwrap())]
    }
}

async fn store(file: &File) -> SqliteStore {
    let store = file.open().await;
    idempotent_actix::store::Store::migrate(&store).await.unwrap();
    store
}

#[idempotent(scope = "idempotent_actix::scope::global")]
#[post("/refunds")]
async fn in_transaction(refund: Json<Refund>, mut tx: Tx<Sqlite>) -> HttpResponse {
    sqlx::query(INSERT).bind(refund.amount).execute(tx.connection().await.unwrap()).await.unwrap();
    HttpResponse::Created().json(json!({"refunded": refund.amount}))
}

#[actix_web::test]
async fn a_handler_with_a_transaction_is_safe() {
    let file = File::new();
    let pool = database(&file).await;
    let service = TestService::on(store(&file).await, |idempotency| {
        App::new().app_data(idempotency).service(in_transaction)
    });
    let proved = assert_idempotent!(service, request(), observing: rows(&pool));
    assert!(proved.waits > 4 && proved.calls > 1, "{proved}");
}

#[idempotent(scope = "idempotent_actix::scope::global")]
#[post("/refunds")]
async fn with_second_pool(refund: Json<Refund>, pool: Data<SqlitePool>) -> HttpResponse {
    sqlx::query(INSERT).bind(refund.amount).execute(&**pool).await.unwrap();
    HttpResponse::Created().json(json!({"refunded": refund.amount}))
}

#[actix_web::test]
async fn an_effect_in_a_second_pool_is_found() {
    let file = File::new();
    let pool = database(&file).await;
    let shared = Data::new(pool.clone());
    let service = TestService::new(move |idempotency| {
        App::new().app_data(idempotency).app_data(shared.clone()).service(with_second_pool)
    });
    let unproved = service.prove(request()).observing(rows(&pool)).await.unwrap_err();
    assert_found(&unproved, "the process died at", "`rows` happened 2 times instead of 1");
}

#[idempotent(scope = "idempotent_actix::scope::global")]
#[post("/refunds")]
async fn with_stray_mail(
    refund: Json<Refund>,
    mut tx: Tx<Sqlite>,
    mail: Data<Mail>,
) -> HttpResponse {
    sqlx::query(INSERT).bind(refund.amount).execute(tx.connection().await.unwrap()).await.unwrap();
    mail.send().await;
    HttpResponse::Created().json(json!({"refunded": refund.amount}))
}

#[actix_web::test]
async fn a_stray_mail_is_found() {
    let file = File::new();
    database(&file).await;
    let mail = Mail::default();
    let shared = Data::new(mail.clone());
    let service = TestService::on(store(&file).await, move |idempotency| {
        App::new().app_data(idempotency).app_data(shared.clone()).service(with_stray_mail)
    });
    let unproved = service.prove(request()).observing(mail.count()).await.unwrap_err();
    assert_found(&unproved, "tests/proofs.rs:", "`e-mails` happened 2 times");
}

#[idempotent(scope = "idempotent_actix::scope::global")]
#[post("/refunds")]
async fn with_spawned_task(refund: Json<Refund>, mail: Data<Mail>) -> HttpResponse {
    let sent = mail.get_ref().clone();
    actix_web::rt::spawn(async move { sent.send().await });
    HttpResponse::Created().json(json!({"refunded": refund.amount}))
}

#[actix_web::test]
async fn the_effect_of_a_spawned_task_is_found() {
    let mail = Mail::default();
    let shared = Data::new(mail.clone());
    let service = TestService::new(move |idempotency| {
        App::new().app_data(idempotency).app_data(shared.clone()).service(with_spawned_task)
    });
    let unproved = service.prove(request()).observing(mail.count()).await.unwrap_err();
    assert_found(&unproved, "the store's call `complete`", "`e-mails` happened 2 times");
}

/// An extractor with an effect, which is extracted before the guard claims the key.
struct Logged;

impl FromRequest for Logged {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        request.app_data::<Data<Mail>>().unwrap().0.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Self))
    }
}

#[idempotent(scope = "idempotent_actix::scope::global")]
#[post("/refunds")]
async fn with_early_effect(_logged: Logged, refund: Json<Refund>) -> HttpResponse {
    HttpResponse::Created().json(json!({"refunded": refund.amount}))
}

#[actix_web::test]
async fn an_effect_before_the_claim_is_found() {
    let mail = Mail::default();
    let shared = Data::new(mail.clone());
    let service = TestService::new(move |idempotency| {
        App::new().app_data(idempotency).app_data(shared.clone()).service(with_early_effect)
    });
    let unproved = service.prove(request()).observing(mail.count()).await.unwrap_err();
    assert_found(&unproved, "a retry after the response", "`e-mails` happened 1 time instead of 0");
}

#[idempotent(scope = "idempotent_actix::scope::global", abandoned = "hold")]
#[post("/refunds")]
async fn held_when_unknown(refund: Json<Refund>, mail: Data<Mail>) -> HttpResponse {
    mail.send().await;
    HttpResponse::Created().json(json!({"refunded": refund.amount}))
}

#[tokio::test]
async fn a_handler_that_holds_its_key_is_safe() {
    let mail = Mail::default();
    let shared = Data::new(mail.clone());
    let service = TestService::new(move |idempotency| {
        App::new().app_data(idempotency).app_data(shared.clone()).service(held_when_unknown)
    });
    assert_idempotent!(service, request(), observing: mail.count());
    let again = format!("{}", service.prove(request()).observing(mail.count()).await.unwrap());
    assert!(again.starts_with("safe to retry in "), "{again}");
}

fn assert_found(unproved: &Unproved, trial: &str, what: &str) {
    let text = unproved.to_string();
    assert!(text.contains(trial) && text.contains(what), "{text}");
    assert!(!text.contains('\n'), "{text}");
    let (_, name) = text.split_once("IDEMPOTENT_TEST_ONLY=").unwrap();
    assert!(!name.is_empty() && !name.contains(' '), "{name}");
}

#[actix_web::test]
async fn only_the_trial_that_failed_is_run() {
    let mail = Mail::default();
    let shared = Data::new(mail.clone());
    let service = TestService::new(move |idempotency| {
        App::new().app_data(idempotency).app_data(shared.clone()).service(with_spawned_task)
    });
    let proof = || service.prove(request()).observing(mail.count());
    let again = proof().only("death@before-complete").await.unwrap_err().to_string();
    assert!(again.starts_with("the process died at the store's call `complete`"), "{again}");
    let once = proof().only("at-once").await.unwrap();
    assert_eq!(once.trials, 1);
    let unknown = proof().only("nonsense").await.unwrap_err().to_string();
    assert!(unknown.starts_with("no trial is named `nonsense`"), "{unknown}");
}

#[idempotent(scope = "idempotent_actix::scope::global")]
#[post("/refunds")]
async fn with_bank(
    refund: Json<Refund>,
    operation: Operation,
    bank: Data<Bank>,
) -> actix_web::Result<HttpResponse> {
    let mut call = awc::Client::new().post(&bank.url);
    if bank.is_given_keys {
        call = call.insert_header(("Idempotency-Key", operation.derive_key("refund")?.to_string()));
    }
    let response = call.send_body(refund.amount.to_string()).await;
    Ok(HttpResponse::build(response.map_err(ErrorBadGateway)?.status()).finish())
}

struct Bank {
    url: String,
    is_given_keys: bool,
}

#[actix_web::test]
async fn calls_to_another_service_need_a_key() {
    for is_given_keys in [true, false] {
        let tap = HttpTap::start(|_| HttpResponse::Ok().finish());
        let bank = Data::new(Bank { url: tap.url().to_owned(), is_given_keys });
        let service = TestService::new(move |idempotency| {
            App::new().app_data(idempotency).app_data(bank.clone()).service(with_bank)
        });
        let outcome = service.prove(request()).observing(tap.counted("refunds")).await;
        match outcome {
            Ok(proved) => assert!(is_given_keys && tap.calls() > tap.effects(), "{proved}"),
            Err(unproved) => {
                assert!(!is_given_keys, "{unproved}");
                assert_found(&unproved, "the process died at", "`refunds` happened 2 times");
            }
        }
    }
}

#[actix_web::test]
async fn a_handler_that_runs_unguarded_while_its_store_fails_is_found() {
    let mail = Mail::default();
    let shared = Data::new(mail.clone());
    let service = TestService::new(move |idempotency| {
        App::new().app_data(idempotency).app_data(shared.clone()).service(held_when_unknown)
    });
    let service =
        service.configured(|builder| builder.when_store_fails(StoreFailurePolicy::RunUnguarded));
    let unproved = service.prove(request()).observing(mail.count()).await.unwrap_err();
    assert_found(&unproved, "the store's call 1, `claim`, failed", "`e-mails` happened 2 times");
    for trial in ["hang-up@before-complete", "death@before-complete", "call-2-hung"] {
        let proof = service.prove(request()).observing(mail.count()).only(trial);
        assert_eq!(proof.await.unwrap().trials, 1, "{trial}");
    }
}

/// Ten awaits, each with an effect that is not repeated.
#[idempotent(scope = "idempotent_actix::scope::global")]
#[post("/refunds")]
async fn with_ten_awaits(refund: Json<Refund>, mut tx: Tx<Sqlite>) -> HttpResponse {
    for _ in 0..10 {
        let insert = sqlx::query(INSERT).bind(refund.amount);
        insert.execute(tx.connection().await.unwrap()).await.unwrap();
        tokio::task::yield_now().await;
    }
    HttpResponse::Created().finish()
}

#[tokio::test]
async fn each_await_is_tried() {
    let file = File::new();
    let pool = database(&file).await;
    let service = TestService::on(store(&file).await, |idempotency| {
        App::new().app_data(idempotency).service(with_ten_awaits)
    });
    let begun = Instant::now();
    let proved = assert_idempotent!(service, request(), observing: rows(&pool));
    println!("{proved}, in {:?}", begun.elapsed());
    let tried = proved.waits - proved.untried_waits.len();
    // The awaits of the loop, and those of the three calls to the store. The database may not wait.
    assert!(tried >= 16 && proved.trials > tried, "{proved}");
}
