//! A payments server with an API like Stripe's, where a request that is sent twice pays once.
//! Stripe's client libraries work with it unmodified.
//!
//! ```text
//! $ cargo run -p payments
//! payments: opening sqlite:payments.db
//! payments: open http://127.0.0.1:8080/ in a browser to see what #[idempotent] does
//! …
//! ```
//! The page (`demo.rs`) shows what goes wrong without the attribute, and what happens with it. The
//! API is independent of the page:
//! ```text
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
//! A refund (`/v1/refunds`) without an amount returns everything that is left of the payment. So
//! one whose amount is blank, null, a list or misspelled gets 400, before its key is claimed.
//!
//! `/console/` is the console of operators: it lists held keys, tells the story of each, and
//! resolves it. Only this computer may use it (`operators.rs`).
//!
//! `/openapi.json` is the OpenAPI document of the API, with the header of the key, the problems and
//! the policy of each guarded operation (`openapi.rs`); `/openapi` is a page of it.
//!
//! With the feature `metrics`, `/metrics` has the metrics of this server for Prometheus:
//! `contrib/prometheus` has rules for alerts, and a dashboard.
//!
//! `examples/payments/two-servers` starts two servers on one store and sends a retry to the other
//! server.

mod accounts;
mod api;
mod bank;
mod books;
mod demo;
mod error;
mod ledger;
mod log;
mod metrics;
mod openapi;
mod operators;
mod params;
#[cfg(test)]
mod proofs;
mod sqlite;
mod terminal;
mod transfers;
mod user;

use std::{
    error::Error,
    io,
    net::{TcpListener, ToSocketAddrs},
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
use idempotent_console::Console;
use sqlx::sqlite::SqliteConnectOptions;

use crate::{
    accounts::Accounts,
    bank::{Bank, server},
    demo::Demo,
    ledger::Ledger,
    terminal::{print, print_summary, with_causes, without_credentials},
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
    /// The store of the idempotency records: `sqlite:FILE`, `memory:` or, with the
    /// Cargo features of their names, `postgres://…`, `mysql://…`, `redis://…` and
    /// `dynamodb://REGION/TABLE`
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
    /// Runs the checkouts of the page, until its standard input is closed
    #[command(hide = true)]
    DemoWorker {
        /// The URL of the page's bank
        #[arg(long, value_name = "URL")]
        bank: String,
        /// The directory of the keys, which is removed at the end
        #[arg(long, value_name = "DIRECTORY")]
        directory: PathBuf,
    },
}

#[actix_web::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let served = match &arguments.service {
        Some(Service::Bank { listen, file }) => serve_bank(listen, file).await,
        Some(Service::DemoWorker { bank, directory }) => {
            demo::run_worker(bank.clone(), directory.clone()).await
        }
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
    // Before the server listens: a client whose connection is accepted waits for a response.
    print(&format!("payments: opening {}", without_credentials(&arguments.store)));
    let store = store::connect(&arguments.store)
        .await
        .map_err(|error| with_causes("cannot open the store", &error))?;
    store.migrate().await.map_err(|error| with_causes("cannot prepare the store", &error))?;
    let database = &arguments.store;
    let file = ledger_file(arguments, database)?;
    let pool = sqlite::open(&file, ledger::SCHEMA).await.map_err(|error| {
        with_causes(&format!("cannot open the ledger {}", file.display()), &error)
    })?;
    let ledger = Data::new(Ledger::new(pool));
    let counts = ledger.counts().await?;
    let accounts = Accounts::open(database)
        .await
        .map_err(|error| with_causes("cannot prepare the accounts", &error))?;
    let (transfers, accounts) = (accounts.description(), Data::new(accounts));
    let bank = server::url(&file).await?;

    let metrics = metrics::install()?;
    // The problems of `idempotent-actix` get the format of this server's errors, which Stripe's
    // client libraries expect.
    let idempotency = Idempotency::builder(store).problems(problem::stripe);
    #[cfg(feature = "metrics")]
    let idempotency = idempotency.count_every(Some(metrics::COUNT_EVERY));
    let idempotency = idempotency.build();
    idempotency.check().await.map_err(|error| with_causes("the store cannot be used", &error))?;
    let completer = idempotency
        .completer()
        .every(Duration::from_secs(arguments.complete_every))
        .app_data(ledger.clone())
        .app_data(accounts.clone())
        .app_data(Data::new(Bank::new(&bank)))
        .resume_with("POST /v1/payment_intents", api::charge);
    actix_web::rt::spawn(completer.run());
    let listeners = bind(&arguments.listen)
        .map_err(|error| with_causes(&format!("cannot listen on {}", arguments.listen), &error))?;
    if let Some(address) = listeners.first().and_then(|listener| listener.local_addr().ok()) {
        let page = demo::url(address);
        print(&format!("payments: open {page} in a browser to see what #[idempotent] does"));
    }
    let app = Data::new(idempotency.clone());
    let demo = Demo::open().await.map_err(|cause| format!("cannot prepare the page: {cause}"))?;
    let console = Console::new(&idempotency, operators::who).show_bodies();
    let counted = console.clone();
    let (page, stopping) = (demo.clone(), idempotency.drain_on_sigterm(SHUTDOWN_TIMEOUT));
    let mut server = HttpServer::new(move || {
        App::new()
            .app_data(app.clone())
            .app_data(ledger.clone())
            .app_data(accounts.clone())
            // Each worker has its own HTTP client.
            .app_data(Data::new(Bank::new(&bank)))
            .configure(|config| transfers::routes(config, &accounts))
            .configure(|config| page.routes(config))
            .configure(openapi::routes)
            .configure(api::routes)
            .configure(&metrics)
            .service(console.scope("/console"))
            .app_data(Data::new(counted.clone()))
            .wrap(from_fn(log::requests))
    })
    .shutdown_signal(async move {
        stopping.await;
        demo.close().await;
    });
    for listener in listeners {
        server = server.listen_auto_h2c(listener)?;
    }
    for address in server.addrs() {
        print_summary(address, &arguments.store, &file, counts, transfers);
    }
    server.run().await?;
    print("payments: stopped");
    Ok(())
}

/// Binds all addresses of a name for which that is possible.
fn bind(listen: &str) -> io::Result<Vec<TcpListener>> {
    let (mut listeners, mut failure) = (Vec::new(), None);
    for address in listen.to_socket_addrs()? {
        match TcpListener::bind(address) {
            Ok(listener) => listeners.push(listener),
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if listeners.is_empty() => Err(error),
        _ => Ok(listeners),
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
