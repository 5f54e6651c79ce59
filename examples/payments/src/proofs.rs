//! Each handler that moves money is safe to retry: `idempotent-test` interrupts it wherever it
//! waits, and the rows of this database and of the bank's are those of one request.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use actix_web::{App, http::StatusCode, test::TestRequest, web::Data};
use idempotent_test::{TestService, assert_idempotent};
use sqlx::SqlitePool;
use tempfile::TempDir;

use crate::{
    accounts::Accounts,
    api,
    bank::{Bank, server},
    ledger::{self, Ledger},
    sqlite, transfers,
};

/// A server on files of its own, and a bank.
struct Payments {
    service: TestService,
    directory: TempDir,
}

impl Payments {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("payments.db");
        let url = format!("sqlite:{}", file.display());
        let store = idempotent_actix::store::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        let pool = sqlite::open(&file, ledger::SCHEMA).await.unwrap();
        let accounts = Data::new(Accounts::open(&url).await.unwrap());
        let bank = directory.path().join("bank.db");
        let (server, address) = server::create("127.0.0.1:0", &bank, false).await.unwrap();
        actix_web::rt::spawn(server);
        let service = TestService::on(store, move |idempotency| {
            App::new()
                .app_data(idempotency)
                .app_data(Data::new(Ledger::new(pool.clone())))
                .app_data(accounts.clone())
                .app_data(Data::new(Bank::new(&format!("http://{address}"))))
                .configure(|config| transfers::routes(config, &accounts))
                .configure(api::routes)
        });
        Self { service, directory }
    }

    /// Counts the rows of these tables, each of a file.
    async fn rows<const N: usize>(
        &self,
        tables: [(&str, &'static str); N],
    ) -> impl AsyncFn() -> Vec<(&'static str, i64)> + 'static {
        let mut pools = Vec::new();
        for (file, table) in tables {
            let file = format!("sqlite:{}", self.directory.path().join(file).display());
            pools.push((table, SqlitePool::connect(&file).await.unwrap()));
        }
        async move || {
            let mut counts = Vec::new();
            for (table, pool) in &pools {
                let count = format!("SELECT count(*) FROM {table}");
                let count = sqlx::query_scalar(sqlx::AssertSqlSafe(count));
                counts.push((*table, count.fetch_one(pool).await.unwrap()));
            }
            counts
        }
    }
}

fn post(path: &str, form: &[(&str, &str)]) -> TestRequest {
    TestRequest::post()
        .uri(path)
        .insert_header(("Authorization", "Bearer sk_test_alice"))
        .set_form(form)
}

fn payment(amount: &str) -> TestRequest {
    let card = [("payment_method", "pm_card_visa"), ("confirm", "true")];
    let amount = [("amount", amount), ("currency", "usd")];
    post("/v1/payment_intents", &[amount, card].concat())
}

#[actix_web::test]
async fn a_payment_is_made_once() {
    let payments = Payments::start().await;
    let rows = payments
        .rows([
            ("payments.db", "payment_intents"),
            ("payments.db", "entries"),
            ("payments.db", "receipts"),
            ("bank.db", "bank_transfers"),
        ])
        .await;
    let proved = assert_idempotent!(payments.service, payment("2000"), observing: rows);
    println!("a payment: {proved}");
}

#[actix_web::test]
async fn a_refund_is_made_at_most_once() {
    let payments = Payments::start().await;
    let request = payment("2000").insert_header(("Idempotency-Key", "order-1"));
    let paid = payments.service.call(request).await;
    assert_eq!(paid.status, StatusCode::OK, "{}", paid.text());
    let paid: serde_json::Value = serde_json::from_str(paid.text()).unwrap();
    let form = [("payment_intent", paid["id"].as_str().unwrap()), ("amount", "1")];
    let rows = payments.rows([("bank.db", "bank_transfers")]).await;
    let refund = post("/v1/refunds", &form);
    let proved = assert_idempotent!(payments.service, refund, observing: rows);
    println!("a refund: {proved}");
}

#[actix_web::test]
async fn a_transfer_is_made_once() {
    for path in ["/v1/transfers", "/v1/transfers/leased"] {
        let payments = Payments::start().await;
        let rows = payments.rows([("payments.db", "transfers")]).await;
        let transfer = post(path, &[("from", "alice"), ("to", "bob"), ("amount", "1")]);
        let proved = assert_idempotent!(payments.service, transfer, observing: rows);
        println!("a transfer at {path}: {proved}");
    }
}
