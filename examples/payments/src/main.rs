//! A payments server shaped like Stripe's, on which a request that is sent twice pays once. Stripe's own client libraries work
//! against it, unmodified.
//!
//! ```text
//! $ cargo run -p payments
//!
//! $ curl -si 127.0.0.1:8080/v1/payment_intents -H 'Authorization: Bearer sk_test_alice' -H 'Idempotency-Key: order-1' \
//!        -d amount=2000 -d currency=usd -d payment_method=pm_card_visa -d confirm=true
//! HTTP/1.1 200 OK
//! content-type: application/json
//!
//! {"amount":2000, … "id":"pi_cc87df34a10b4ffea05aebaf7b3990c6", … "status":"succeeded"}
//! ```
//! The same again, because the answer may have been lost: the same bytes, and nothing is charged.
//! ```text
//! $ curl -si 127.0.0.1:8080/v1/payment_intents -H 'Authorization: Bearer sk_test_alice' -H 'Idempotency-Key: order-1' \
//!        -d amount=2000 -d currency=usd -d payment_method=pm_card_visa -d confirm=true
//! HTTP/1.1 200 OK
//! content-type: application/json
//! idempotency-replayed: true
//!
//! {"amount":2000, … "id":"pi_cc87df34a10b4ffea05aebaf7b3990c6", … "status":"succeeded"}
//! ```
//! Another amount under the same key is refused.
//! ```text
//! $ curl -si 127.0.0.1:8080/v1/payment_intents -H 'Authorization: Bearer sk_test_alice' -H 'Idempotency-Key: order-1' \
//!        -d amount=2500 -d currency=usd -d payment_method=pm_card_visa -d confirm=true
//! HTTP/1.1 422 Unprocessable Entity
//! content-type: application/problem+json
//! stripe-should-retry: false
//! link: </idempotency#key_reused>; rel="describedby"
//!
//! {"code":"key_reused", … "title":"This idempotency key was used for another request", …}
//! ```
//! A card that takes its time, sent twice at once: the second is told to come back.
//! ```text
//! $ for i in 1 2; do
//!       curl -si 127.0.0.1:8080/v1/payment_intents -H 'Authorization: Bearer sk_test_alice' -H 'Idempotency-Key: order-2' \
//!            -d amount=2000 -d currency=usd -d payment_method=pm_card_slow_2000 -d confirm=true &
//!   done; wait
//! HTTP/1.1 409 Conflict
//! content-type: application/problem+json
//! stripe-should-retry: true
//! retry-after: 2
//! link: </idempotency#in_flight>; rel="describedby"
//!
//! {"code":"in_flight", … "title":"A request with this idempotency key is still at work", …}
//! HTTP/1.1 200 OK
//! …
//! ```
//! Meanwhile the server has written:
//! ```text
//! POST /v1/payment_intents         200  ran             4 ms  81d8b680
//! POST /v1/payment_intents         200  replayed        0 ms  81d8b680
//! POST /v1/payment_intents         422  mismatch        0 ms  81d8b680
//! POST /v1/payment_intents         409  conflict        0 ms  b68a4ae5
//! POST /v1/payment_intents         200  ran          2005 ms  b68a4ae5
//! ```
//!
//! To see a crash: `kill -9` the server while a slow card pays, start it again, and send the same request after 5 s. It runs a second
//! time, and `sqlite3 payments.db 'SELECT * FROM bank_transfers'` shows one charge that was asked for twice, by one derived key. A
//! refund is not run again: its key answers 409 with `outcome_unknown`. A transfer (`transfers.rs`) is neither run nor made twice: it is
//! committed together with its record.
//!
//! To see two servers on one store, where a retry reaches the other one: `examples/payments/two-servers`, which starts them and says on
//! what.

mod accounts;
mod api;
mod bank;
mod error;
mod ledger;
mod log;
mod params;
mod transfers;
mod user;

use std::{
    error::Error,
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use actix_web::{App, HttpServer, middleware::from_fn, web::Data};
use clap::Parser;
use idempotent_actix::{
    Idempotency, problem,
    store::{self, Store},
};
use sqlx::sqlite::SqliteConnectOptions;

use crate::{accounts::Accounts, bank::Bank, ledger::Ledger};

/// How long the server waits at its end for payments that are being made.
const GRACE: Duration = Duration::from_secs(30);

/// A payments server on which a request that is sent twice pays once.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    /// Where the idempotency records are kept: `sqlite:FILE`, `memory:`, `postgres://…` or `redis://…`
    #[arg(long, value_name = "URL", default_value = "sqlite:payments.db")]
    store: String,
    /// The SQLite file of payments and refunds; by default the store's own file, or payments.db
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
}

#[actix_web::main]
async fn main() -> ExitCode {
    match serve(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("payments: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    say(&format!("payments: opening {}", shown(&arguments.store)));
    let store = store::connect(&arguments.store).await.map_err(|error| because("cannot open the store", &error))?;
    store.migrate().await.map_err(|error| because("cannot prepare the store", &error))?;
    let database = database_url(&arguments.store);
    let file = ledger_file(arguments, &database)?;
    let pool = ledger::open(&file)
        .await
        .map_err(|error| because(&format!("cannot open the ledger {}", file.display()), &error))?;
    let (ledger, bank) = (Data::new(Ledger::new(pool.clone())), Data::new(Bank::new(pool)));
    let counts = ledger.counts().await?;
    let accounts = Accounts::open(&database).await.map_err(|error| because("cannot prepare the accounts", &error))?;
    let (transfers, accounts) = (accounts.shown(), Arc::new(accounts));

    // Both speak the dialect of Stripe's client libraries: the layer, and the server's own errors.
    let idempotency = Idempotency::builder(store).problems(problem::stripe).build();
    idempotency.check().await.map_err(|error| because("the store cannot be used", &error))?;
    let app = Data::new(idempotency.clone());
    let server = HttpServer::new(move || {
        App::new()
            .app_data(app.clone())
            .app_data(ledger.clone())
            .app_data(bank.clone())
            .configure(|config| transfers::routes(config, &accounts))
            .configure(api::routes)
            .wrap(from_fn(log::requests))
    })
    .shutdown_signal(idempotency.drained(GRACE))
    .bind_auto_h2c(&arguments.listen)
    .map_err(|error| because(&format!("cannot listen on {}", arguments.listen), &error))?;
    for address in server.addrs() {
        greet(address, &arguments.store, &file, counts, transfers);
    }
    server.run().await?;
    say("payments: stopped");
    Ok(())
}

/// The store's URL without the parameter `namespace`, which sqlx does not know.
fn database_url(store: &str) -> String {
    let (address, query) = store.split_once('?').unwrap_or((store, ""));
    let others: Vec<_> = query.split('&').filter(|pair| !pair.starts_with("namespace=")).collect();
    if others.concat().is_empty() { address.to_owned() } else { format!("{address}?{}", others.join("&")) }
}

/// The ledger lives in the store's file if that is one, so that one transaction could span both.
fn ledger_file(arguments: &Arguments, database: &str) -> Result<PathBuf, Box<dyn Error>> {
    if let Some(file) = &arguments.ledger {
        return Ok(file.clone());
    }
    if !database.starts_with("sqlite:") {
        return Ok("payments.db".into());
    }
    Ok(SqliteConnectOptions::from_str(database)?.get_filename().to_owned())
}

fn greet(address: SocketAddr, store: &str, ledger: &Path, (payments, refunds): (i64, i64), transfers: &str) {
    let store = shown(store);
    say(&format!(
        "payments: listening on http://{address}
  records  {store}
  ledger   {} ({payments} payments, {refunds} refunds)
  transfers {transfers}
  policy   curl http://{address}/idempotency
  cards    pm_card_visa, pm_card_chargeDeclined, pm_card_slow_MS, pm_card_processorDown, pm_card_crash
Pay; then send the same line again, and again with another amount:
  curl -i http://{address}/v1/payment_intents -H 'Authorization: Bearer sk_test_alice' -H 'Idempotency-Key: order-1' \
       -d amount=2000 -d currency=usd -d payment_method=pm_card_visa -d confirm=true
One line a request follows: method, path, status, outcome, time, record.",
        ledger.display(),
    ));
}

/// A store's URL can hold a password; nothing before an `@` is shown.
fn shown(store: &str) -> &str {
    store.rsplit_once('@').map_or(store, |(_, shown)| shown)
}

/// Writes to the terminal, if there still is one.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// What failed, and why, down to the first cause.
fn because(what: &str, error: &dyn Error) -> String {
    let mut text = format!("{what}: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        let reason = error.to_string();
        // Some errors repeat their cause in their own text.
        if !text.ends_with(&reason) {
            text = format!("{text}: {reason}");
        }
        cause = error.source();
    }
    text
}
