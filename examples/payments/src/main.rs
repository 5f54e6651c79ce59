//! A payments server shaped like Stripe's, on which a request that is sent twice pays once.
//!
//! @@

mod api;
mod bank;
mod error;
mod ledger;
mod log;
mod params;
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
use clap::Parser;
use idempotent_actix::{
    Idempotency,
    store::{self, Store},
};
use sqlx::sqlite::SqliteConnectOptions;

use crate::{bank::Bank, ledger::Ledger};

/// How long the server waits at its end for payments that are being made.
const GRACE: Duration = Duration::from_secs(30);

/// A payments server on which a request that is sent twice pays once.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    /// Where the idempotency records are kept: `sqlite:FILE` or `memory:`
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
    let store = store::connect(&arguments.store).await.map_err(|error| because("cannot open the store", &error))?;
    store.migrate().await.map_err(|error| because("cannot prepare the store", &error))?;
    let file = ledger_file(arguments)?;
    let pool = ledger::open(&file)
        .await
        .map_err(|error| because(&format!("cannot open the ledger {}", file.display()), &error))?;
    let (ledger, bank) = (Data::new(Ledger::new(pool.clone())), Data::new(Bank::new(pool)));
    let counts = ledger.counts().await?;

    // Both speak the dialect of Stripe's client libraries: the layer, and the server's own errors.
    let idempotency = Idempotency::builder(store).problems(error::problem).build();
    let app = Data::new(idempotency.clone());
    let server = HttpServer::new(move || {
        App::new()
            .app_data(app.clone())
            .app_data(ledger.clone())
            .app_data(bank.clone())
            .configure(api::routes)
            .wrap(from_fn(log::requests))
    })
    .shutdown_signal(idempotency.drained(GRACE))
    .bind_auto_h2c(&arguments.listen)
    .map_err(|error| because(&format!("cannot listen on {}", arguments.listen), &error))?;
    for address in server.addrs() {
        greet(address, &arguments.store, &file, counts);
    }
    server.run().await?;
    say("payments: stopped");
    Ok(())
}

/// The ledger lives in the store's file if that is one, so that one transaction could span both.
fn ledger_file(arguments: &Arguments) -> Result<PathBuf, Box<dyn Error>> {
    if let Some(file) = &arguments.ledger {
        return Ok(file.clone());
    }
    if !arguments.store.starts_with("sqlite:") {
        return Ok("payments.db".into());
    }
    Ok(SqliteConnectOptions::from_str(&arguments.store)?.get_filename().to_owned())
}

fn greet(address: SocketAddr, store: &str, ledger: &Path, (payments, refunds): (i64, i64)) {
    // A store's URL can hold a password; nothing before an `@` is shown.
    let store = store.rsplit_once('@').map_or(store, |(_, shown)| shown);
    say(&format!(
        "payments: listening on http://{address}
  records  {store}
  ledger   {} ({payments} payments, {refunds} refunds)
  policy   curl http://{address}/idempotency
  cards    pm_card_visa, pm_card_chargeDeclined, pm_card_slow_MS, pm_card_processorDown, pm_card_crash
Pay; then send the same line again, and again with another amount:
  curl -i http://{address}/v1/payment_intents -H 'Authorization: Bearer sk_test_alice' -H 'Idempotency-Key: order-1' \
       -d amount=2000 -d currency=usd -d payment_method=pm_card_visa -d confirm=true
One line a request follows: method, path, status, outcome, time, record.",
        ledger.display(),
    ));
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
