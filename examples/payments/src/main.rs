//! A payments server with an API like Stripe's, where a request that is sent twice pays once.
//! Stripe's client libraries work with it unmodified.
//!
//! ```text
//! $ cargo run -p payments
//!
//! $ curl -si 127.0.0.1:8080/v1/payment_intents -H 'Authorization: Bearer sk_test_alice' \
//!        -H 'Idempotency-Key: order-1' \
//!        -d amount=2000 -d currency=usd -d payment_method=pm_card_visa -d confirm=true
//! HTTP/1.1 200 OK
//! content-type: application/json
//!
//! {"amount":2000, … "id":"pi_cc87df34a10b4ffea05aebaf7b3990c6", … "status":"succeeded"}
//! ```
//! The same request again, as if the response had been lost: it gets the same bytes, and the card
//! is not charged again.
//! ```text
//! $ curl -si 127.0.0.1:8080/v1/payment_intents -H 'Authorization: Bearer sk_test_alice' \
//!        -H 'Idempotency-Key: order-1' \
//!        -d amount=2000 -d currency=usd -d payment_method=pm_card_visa -d confirm=true
//! HTTP/1.1 200 OK
//! content-type: application/json
//! idempotency-replayed: true
//!
//! {"amount":2000, … "id":"pi_cc87df34a10b4ffea05aebaf7b3990c6", … "status":"succeeded"}
//! ```
//! Another amount with the same key is refused.
//! ```text
//! $ curl -si 127.0.0.1:8080/v1/payment_intents -H 'Authorization: Bearer sk_test_alice' \
//!        -H 'Idempotency-Key: order-1' \
//!        -d amount=2500 -d currency=usd -d payment_method=pm_card_visa -d confirm=true
//! HTTP/1.1 422 Unprocessable Entity
//! content-type: application/problem+json
//! stripe-should-retry: false
//! link: </idempotency#key_reused>; rel="describedby"
//!
//! {"code":"key_reused", … "title":"The idempotency key was used for a different request", …}
//! ```
//! A payment with a slow card is sent twice concurrently: the second request gets 409.
//! ```text
//! $ for i in 1 2; do
//!       curl -si 127.0.0.1:8080/v1/payment_intents -H 'Authorization: Bearer sk_test_alice' \
//!            -H 'Idempotency-Key: order-2' \
//!            -d amount=2000 -d currency=usd -d payment_method=pm_card_slow_2000 -d confirm=true &
//!   done; wait
//! HTTP/1.1 409 Conflict
//! content-type: application/problem+json
//! stripe-should-retry: true
//! retry-after: 2
//! link: </idempotency#in_flight>; rel="describedby"
//!
//! {"code":"in_flight", … "title":"A request with this idempotency key is still in progress" …}
//! HTTP/1.1 200 OK
//! …
//! ```
//! The server has logged:
//! ```text
//! POST /v1/payment_intents         200  ran                   4 ms  81d8b680
//! POST /v1/payment_intents         200  replayed              0 ms  81d8b680
//! POST /v1/payment_intents         422  key_reused            0 ms  81d8b680
//! POST /v1/payment_intents         409  in_flight             0 ms  b68a4ae5
//! POST /v1/payment_intents         200  ran                2005 ms  b68a4ae5
//! ```
//!
//! While the payment runs and afterwards, its user can look its key up:
//! ```text
//! $ curl -s 127.0.0.1:8080/idempotency/keys/order-2 -H 'Authorization: Bearer sk_test_alice'
//! {"age_seconds": … "operation":"POST /v1/payment_intents", … "reference":"pi_…", …
//!  "state":"completed","status":200}
//! ```
//!
//! A payment has three steps: charge the card at the bank, write the ledger entry, and queue the
//! receipt. The bank is another service, with its own keys (`bank/server.rs`). The server
//! starts one, on the file `bank.db`, unless `BANK_URL` names another, such as that of
//! `cargo run -p payments -- bank`.
//!
//! To try a crash, `kill -9` the server during the charge of a slow card, start it again, and send
//! the same request after 5 s. The handler runs a second time, asks the bank for the charge, and
//! finds it: `sqlite3 bank.db 'SELECT * FROM bank_transfers'` shows one charge that was requested
//! once. If the client never comes back, a completer finishes the payment after half a minute
//! (`--complete-every`). A refund does not run again: the request gets 409 `outcome_unknown`. A
//! transfer (`transfers.rs`) is never made twice: it is committed together with its record.
//!
//! `examples/payments/two-servers` starts two servers on one store and sends a retry to the other
//! server.

mod accounts;
mod api;
mod bank;
mod books;
mod error;
mod ledger;
mod log;
mod params;
mod sqlite;
mod transfers;
mod user;

use std::{
    error::Error,
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
    time::Duration,
};

use actix_web::{App, HttpServer, middleware::from_fn, web::Data};
use clap::{Parser, Subcommand};
use idempotent_actix::{
    Idempotency, problem,
    store::{self, Store},
};
use sqlx::sqlite::SqliteConnectOptions;

use crate::{
    accounts::Accounts,
    bank::{Bank, server},
    ledger::Ledger,
};

/// How long a shutdown waits for operations in flight.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// A payments server where a request that is sent twice pays once.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    service: Option<Service>,
    /// The address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    /// The store of the idempotency records: `sqlite:FILE`, `memory:`, `postgres://…` or
    /// `redis://…`
    #[arg(long, value_name = "URL", default_value = "sqlite:payments.db")]
    store: String,
    /// The SQLite file of payments and refunds; by default the store's own file, or payments.db.
    /// The bank has the file bank.db beside it
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// The average time between two searches for abandoned payments, which are then finished
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    complete_every: u64,
}

#[derive(Subcommand)]
enum Service {
    /// Runs only the bank
    Bank {
        /// The address to listen on; port 0 selects a free port
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
        listen: String,
        /// The SQLite file of the bank
        #[arg(long, value_name = "FILE", default_value = "bank.db")]
        file: PathBuf,
    },
}

#[actix_web::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let served = match &arguments.service {
        Some(Service::Bank { listen, file }) => serve_bank(listen, file).await,
        None => serve(&arguments).await,
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("payments: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve_bank(listen: &str, file: &Path) -> Result<(), Box<dyn Error>> {
    let (server, address) = server::create(listen, file, true).await?;
    print(&format!("bank: listening on http://{address}"));
    Ok(server.await?)
}

async fn serve(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    print(&format!("payments: opening {}", without_credentials(&arguments.store)));
    let store = store::connect(&arguments.store)
        .await
        .map_err(|error| with_causes("cannot open the store", &error))?;
    store.migrate().await.map_err(|error| with_causes("cannot prepare the store", &error))?;
    let database = database_url(&arguments.store);
    let file = ledger_file(arguments, &database)?;
    let pool = sqlite::open(&file, ledger::SCHEMA).await.map_err(|error| {
        with_causes(&format!("cannot open the ledger {}", file.display()), &error)
    })?;
    let ledger = Data::new(Ledger::new(pool));
    let counts = ledger.counts().await?;
    let accounts = Accounts::open(&database)
        .await
        .map_err(|error| with_causes("cannot prepare the accounts", &error))?;
    let (transfers, accounts) = (accounts.description(), Data::new(accounts));
    let bank = server::url(&file).await?;

    // The problems of `idempotent-actix` get the format of this server's errors, which Stripe's
    // client libraries expect.
    let idempotency = Idempotency::builder(store).problems(problem::stripe).build();
    idempotency.check().await.map_err(|error| with_causes("the store cannot be used", &error))?;
    let completer = idempotency
        .completer()
        .every(Duration::from_secs(arguments.complete_every))
        .app_data(ledger.clone())
        .app_data(accounts.clone())
        .app_data(Data::new(Bank::new(&bank)))
        .resume_with("POST /v1/payment_intents", api::charge);
    actix_web::rt::spawn(completer.run());
    let app = Data::new(idempotency.clone());
    let server = HttpServer::new(move || {
        App::new()
            .app_data(app.clone())
            .app_data(ledger.clone())
            .app_data(accounts.clone())
            // Each worker has its own HTTP client.
            .app_data(Data::new(Bank::new(&bank)))
            .configure(|config| transfers::routes(config, &accounts))
            .configure(api::routes)
            .wrap(from_fn(log::requests))
    })
    .shutdown_signal(idempotency.drained(SHUTDOWN_TIMEOUT))
    .bind_auto_h2c(&arguments.listen)
    .map_err(|error| with_causes(&format!("cannot listen on {}", arguments.listen), &error))?;
    for address in server.addrs() {
        print_summary(address, &arguments.store, &file, counts, transfers);
    }
    server.run().await?;
    print("payments: stopped");
    Ok(())
}

/// The store's URL without the parameter `namespace`, which sqlx does not know.
fn database_url(store: &str) -> String {
    let (address, query) = store.split_once('?').unwrap_or((store, ""));
    let others: Vec<_> = query.split('&').filter(|pair| !pair.starts_with("namespace=")).collect();
    if others.concat().is_empty() {
        address.to_owned()
    } else {
        format!("{address}?{}", others.join("&"))
    }
}

/// The ledger's file: by default the store's file, if the store is SQLite.
fn ledger_file(arguments: &Arguments, database: &str) -> Result<PathBuf, Box<dyn Error>> {
    if let Some(file) = &arguments.ledger {
        return Ok(file.clone());
    }
    if !database.starts_with("sqlite:") {
        return Ok("payments.db".into());
    }
    Ok(SqliteConnectOptions::from_str(database)?.get_filename().to_owned())
}

fn print_summary(
    address: SocketAddr,
    store: &str,
    ledger: &Path,
    (payments, refunds): (i64, i64),
    transfers: &str,
) {
    let store = without_credentials(store);
    print(&format!(
        "payments: listening on http://{address}
  records  {store}
  ledger   {} ({payments} payments, {refunds} refunds)
  transfers {transfers}
  policy   curl http://{address}/idempotency
  cards    pm_card_visa, pm_card_chargeDeclined, pm_card_slow_MS, pm_card_processorDown,
           pm_card_crash
Pay; then send the same line again, and again with another amount:
  curl -i http://{address}/v1/payment_intents -H 'Authorization: Bearer sk_test_alice' \
       -H 'Idempotency-Key: order-1' \
       -d amount=2000 -d currency=usd -d payment_method=pm_card_visa -d confirm=true
One line per request follows: method, path, status, outcome, time, record.",
        ledger.display(),
    ));
}

/// The part of a store's URL after the `@`. The part before it may contain a password.
fn without_credentials(store: &str) -> &str {
    store.rsplit_once('@').map_or(store, |(_, address)| address)
}

/// Writes to the terminal, which may be closed.
fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Formats an error with all of its causes.
fn with_causes(what: &str, error: &dyn Error) -> String {
    let mut text = format!("{what}: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        let reason = error.to_string();
        // Some errors already contain the text of their cause.
        if !text.ends_with(&reason) {
            text = format!("{text}: {reason}");
        }
        cause = error.source();
    }
    text
}
