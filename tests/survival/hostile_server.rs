//! A server whose transfers misuse their transaction: the routes and accounts of the payments
//! server, for `payments::transfers::kills`. In half of the requests the handler moves the money
//! and then sends statements that it must not send, and ignores their errors. It prints each act.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../examples/payments/src/accounts.rs"]
#[allow(dead_code, reason = "the hostile server lists no balances")]
mod accounts;

use std::{io::Write, time::Duration};

use actix_web::{
    App, HttpResponse, HttpServer,
    error::ErrorServiceUnavailable,
    web::{self, Data, Form, ServiceConfig},
};
use clap::Parser;
use idempotent_actix::{Idempotency, Tx, idempotent, problem, scope, store};
use serde::Deserialize;
use serde_json::json;
use sqlx::{Pool, Postgres, Sqlite};

use crate::accounts::{Accounts, Booking, TransferDatabase};

/// What a handler does after its effects.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Sends statements one after the other.
    Send(&'static [&'static str]),
    /// Drops the future of a statement.
    Drop(&'static str),
    /// Responds with 402, which must undo the effects.
    Refuse,
}

use Act::{Drop, Refuse, Send};

trait Hostile: TransferDatabase {
    /// Acts after which the effects are committed with the record, or not at all.
    const ACTS: &'static [Act];
    async fn send(connection: &mut Self::Connection, text: &'static str)
    -> Result<(), sqlx::Error>;
}

impl Hostile for Sqlite {
    const ACTS: &'static [Act] = &[
        Send(&["ROLLBACK"]),
        Send(&["COMMIT"]),
        Send(&["COMMIT", "BEGIN IMMEDIATE"]),
        Send(&["ROLLBACK", "BEGIN IMMEDIATE", "UPDATE accounts SET balance = balance"]),
        Send(&["ROLLBACK", "BEGIN IMMEDIATE", "SAVEPOINT idempotent_effects"]),
        Send(&["INSERT OR ROLLBACK INTO accounts VALUES ('alice', 0)"]),
        Send(&["INSERT INTO accounts VALUES ('alice', 0)"]),
        Send(&["SAVEPOINT idempotent_effects"]),
        Send(&["RELEASE idempotent_effects"]),
        Send(&["PRAGMA query_only = ON"]),
        Send(&["PRAGMA max_page_count = 1"]),
        Drop(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000)
              SELECT sum(i) FROM n",
        ),
        Refuse,
    ];

    async fn send(
        connection: &mut Self::Connection,
        text: &'static str,
    ) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(text).execute(connection).await.map(drop)
    }
}

impl Hostile for Postgres {
    const ACTS: &'static [Act] = &[
        Send(&["BEGIN"]),
        Send(&["ROLLBACK"]),
        Send(&["ROLLBACK", "BEGIN"]),
        Send(&["ROLLBACK AND CHAIN"]),
        Send(&["ROLLBACK", "DISCARD ALL"]),
        Send(&["INSERT INTO accounts VALUES ('alice', 0)"]),
        Send(&["SAVEPOINT idempotent_effects"]),
        Send(&["RELEASE idempotent_effects"]),
        Send(&["SET TRANSACTION READ ONLY"]),
        Send(&["SET SESSION search_path = nowhere"]),
        Send(&["SET SESSION statement_timeout = '1ms'"]),
        Send(&["SET LOCAL statement_timeout = '1ms'", "SELECT pg_sleep(1)"]),
        Send(&["SELECT pg_cancel_backend(pg_backend_pid())"]),
        Send(&["SELECT pg_terminate_backend(pg_backend_pid())"]),
        Drop("SELECT pg_sleep(0.005)"),
        Refuse,
        Send(&["COMMIT"]),
        Send(&["COMMIT", "BEGIN"]),
        Send(&["COMMIT AND CHAIN"]),
        Send(&["COMMIT", "SELECT pg_sleep(0.02)"]),
    ];

    async fn send(
        connection: &mut Self::Connection,
        text: &'static str,
    ) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(text).execute(connection).await.map(drop)
    }
}

#[cfg(feature = "mysql")]
impl Hostile for sqlx::MySql {
    const ACTS: &'static [Act] = &[
        Send(&["BEGIN"]),
        Send(&["COMMIT"]),
        Send(&["ROLLBACK"]),
        Send(&["COMMIT", "BEGIN"]),
        Send(&["COMMIT AND CHAIN"]),
        Send(&["CREATE TABLE others (n int)"]),
        Send(&["SET autocommit = 0"]),
        Send(&["INSERT INTO accounts VALUES ('alice', 0)"]),
        Send(&["SAVEPOINT idempotent_effects"]),
        Send(&["CREATE TEMPORARY TABLE mine (n int)"]),
        Send(&["CREATE TEMPORARY TABLE idempotency_records AS SELECT * FROM idempotency_records"]),
        Send(&["SET SESSION max_statement_time = 0.001", "SELECT SLEEP(1)"]),
        Send(&["SET SESSION TRANSACTION READ ONLY"]),
        Send(&["KILL QUERY CONNECTION_ID()"]),
        Send(&["KILL CONNECTION_ID()"]),
        Drop("SELECT SLEEP(0.005)"),
        Refuse,
    ];

    async fn send(
        connection: &mut Self::Connection,
        text: &'static str,
    ) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(text).execute(connection).await.map(drop)
    }
}

/// The parameters of a transfer.
#[derive(Deserialize)]
struct Order {
    from: String,
    to: String,
    amount: i64,
}

#[idempotent(
    scope = "scope::bearer_token",
    ttl = "24h",
    claim = "transaction",
    wait = "1s",
    method = "POST"
)]
async fn transfer<D: Hostile>(
    Form(order): Form<Order>,
    mut tx: Tx<D>,
) -> actix_web::Result<HttpResponse> {
    move_money(&order, &mut tx).await
}

#[idempotent(scope = "scope::bearer_token", ttl = "24h", lease = "5s", method = "POST")]
async fn transfer_with_lease<D: Hostile>(
    Form(order): Form<Order>,
    mut tx: Tx<D>,
) -> actix_web::Result<HttpResponse> {
    move_money(&order, &mut tx).await
}

async fn move_money<D: Hostile>(order: &Order, tx: &mut Tx<D>) -> actix_web::Result<HttpResponse> {
    let Order { from, to, amount } = order;
    let mut changes = [(from, -amount), (to, *amount)];
    changes.sort();
    for (account, amount) in changes {
        let balance = D::add(tx.connection().await?, account, amount).await;
        if balance.map_err(ErrorServiceUnavailable)?.is_none() {
            return Ok(HttpResponse::PaymentRequired().finish());
        }
    }
    let id = uuid::Uuid::new_v4().to_string();
    let record = tx.record_id().copied();
    let booking =
        Booking { id: &id, owner: "alice", from, to, amount: *amount, record: record.as_ref() };
    let connection = tx.connection().await?;
    D::insert(connection, &booking).await.map_err(ErrorServiceUnavailable)?;
    if fastrand::bool() {
        let act = fastrand::choice(D::ACTS).copied().unwrap();
        let _ = writeln!(std::io::stdout(), "act: {act:?}");
        match act {
            // The handler ignores the errors.
            Send(statements) => {
                for statement in statements {
                    let _ = D::send(connection, statement).await;
                }
            }
            Drop(statement) => {
                drop(tokio::time::timeout(Duration::ZERO, D::send(connection, statement)).await);
            }
            Refuse => return Ok(HttpResponse::PaymentRequired().finish()),
        }
    }
    Ok(HttpResponse::Ok().json(json!({ "id": id })))
}

/// The arguments of the payments server.
#[derive(Parser)]
struct Arguments {
    #[arg(long)]
    listen: String,
    #[arg(long)]
    store: String,
    /// Not used.
    #[arg(long)]
    ledger: String,
}

fn routes(config: &mut ServiceConfig, accounts: &Accounts) {
    match accounts {
        Accounts::Sqlite(pool) => routes_on(config, pool),
        Accounts::Postgres(pool) => routes_on(config, pool),
        #[cfg(feature = "mysql")]
        Accounts::MySql(pool) => routes_on(config, pool),
        Accounts::Unsupported => {}
    }
}

fn routes_on<D: Hostile>(config: &mut ServiceConfig, pool: &Pool<D>) {
    config
        .app_data(Data::new(pool.clone()))
        .route("/v1/transfers", web::post().to(transfer::<D>))
        .route("/v1/transfers/leased", web::post().to(transfer_with_lease::<D>));
}

#[actix_web::main]
async fn main() {
    let arguments = Arguments::parse();
    let store = store::connect(&arguments.store).await.unwrap();
    store.migrate().await.unwrap();
    let accounts = Data::new(Accounts::open(&arguments.store).await.unwrap());
    let idempotency = Data::new(Idempotency::builder(store).problems(problem::stripe).build());
    let server = HttpServer::new(move || {
        App::new().app_data(idempotency.clone()).configure(|config| routes(config, &accounts))
    })
    .bind(&arguments.listen)
    .unwrap();
    for address in server.addrs() {
        let _ = writeln!(std::io::stdout(), "listening on http://{address}");
    }
    server.run().await.unwrap();
}
