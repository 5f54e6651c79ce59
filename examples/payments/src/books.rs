//! The books: a ledger entry and a receipt for each payment, each a step of the operation.

use std::future::{Ready, ready};

use actix_web::{Error, FromRequest, HttpRequest, Result, dev::Payload, web::Data};
use idempotent_actix::{Operation, Tx, scope::IgnoresCaller};
#[cfg(feature = "mysql")]
use sqlx::MySql;
#[cfg(feature = "postgres")]
use sqlx::Postgres;
use sqlx::{Database, Sqlite};

use crate::{accounts::Accounts, error::ApiError, ledger::Ledger};

/// A payment that succeeded.
pub(crate) struct Entry<'a> {
    pub(crate) payment: &'a str,
    pub(crate) charge: &'a str,
    pub(crate) amount: i64,
    pub(crate) currency: &'a str,
}

/// An extractor of the books. They are in the database of the idempotency records, if that has
/// transactions, and otherwise in the ledger's file.
///
/// It contains the handler's `Tx`, because the store is chosen at the start. A handler with
/// `claim = "transaction"`, or for one store only, takes the `Tx` itself.
pub(crate) enum Books {
    Sqlite(Tx<Sqlite>),
    #[cfg(feature = "postgres")]
    Postgres(Tx<Postgres>),
    #[cfg(feature = "mysql")]
    MySql(Tx<MySql>),
    Ledger(Data<Ledger>),
}

impl Books {
    /// Writes the entry, and the receipt.
    pub(crate) async fn enter(&mut self, operation: &Operation, entry: &Entry<'_>) -> Result<()> {
        match self {
            Self::Sqlite(tx) => enter_in(tx, operation, entry).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(tx) => enter_in(tx, operation, entry).await,
            #[cfg(feature = "mysql")]
            Self::MySql(tx) => enter_in(tx, operation, entry).await,
            Self::Ledger(ledger) => {
                operation.step("entry").run(|_| ledger.insert_entry(entry)).await?;
                operation.step("receipt").run(|_| ledger.insert_receipt(entry)).await
            }
        }
    }
}

/// Both steps are committed together with the response.
async fn enter_in<D: BooksDatabase>(
    tx: &mut Tx<D>,
    operation: &Operation,
    entry: &Entry<'_>,
) -> Result<()> {
    let write = operation.step("entry");
    write.run_in(tx, async |connection| D::insert_entry(connection, entry).await).await?;
    let send = operation.step("receipt");
    send.run_in(tx, async |connection| D::insert_receipt(connection, entry).await).await
}

/// A lookup has no transaction, and needs none.
impl IgnoresCaller for Books {}

impl FromRequest for Books {
    type Error = Error;
    type Future = Ready<Result<Self>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        ready(match request.app_data::<Data<Accounts>>().map(|accounts| &***accounts) {
            Some(Accounts::Sqlite(_)) => {
                Tx::from_request(request, payload).into_inner().map(Self::Sqlite)
            }
            #[cfg(feature = "postgres")]
            Some(Accounts::Postgres(_)) => {
                Tx::from_request(request, payload).into_inner().map(Self::Postgres)
            }
            #[cfg(feature = "mysql")]
            Some(Accounts::MySql(_)) => {
                Tx::from_request(request, payload).into_inner().map(Self::MySql)
            }
            Some(Accounts::Unsupported) | None => {
                Data::from_request(request, payload).into_inner().map(Self::Ledger)
            }
        })
    }
}

/// A database with the tables `entries` and `receipts`. Neither has a unique constraint: only the
/// record of the operation prevents a second row.
trait BooksDatabase: Database {
    async fn insert_entry(connection: &mut Self::Connection, entry: &Entry<'_>) -> Result<()>;

    /// Inserts the receipt, which a mailer would send and delete.
    async fn insert_receipt(connection: &mut Self::Connection, entry: &Entry<'_>) -> Result<()>;
}

macro_rules! impl_books_database {
    ($database:ty, $entry:literal, $receipt:literal) => {
        impl BooksDatabase for $database {
            async fn insert_entry(
                connection: &mut Self::Connection,
                entry: &Entry<'_>,
            ) -> Result<()> {
                sqlx::query($entry)
                    .bind(entry.payment)
                    .bind(entry.charge)
                    .bind(entry.amount)
                    .bind(entry.currency)
                    .execute(connection)
                    .await
                    .map_err(ApiError::from)?;
                Ok(())
            }

            async fn insert_receipt(
                connection: &mut Self::Connection,
                entry: &Entry<'_>,
            ) -> Result<()> {
                sqlx::query($receipt)
                    .bind(entry.payment)
                    .execute(connection)
                    .await
                    .map_err(ApiError::from)?;
                Ok(())
            }
        }
    };
}

impl_books_database! {
    Sqlite,
    "INSERT INTO entries (payment, charge, amount, currency) VALUES ($1, $2, $3, $4)",
    "INSERT INTO receipts (payment) VALUES ($1)"
}
#[cfg(feature = "postgres")]
impl_books_database! {
    Postgres,
    "INSERT INTO entries (payment, charge, amount, currency) VALUES ($1, $2, $3, $4)",
    "INSERT INTO receipts (payment) VALUES ($1)"
}
#[cfg(feature = "mysql")]
impl_books_database! {
    MySql,
    "INSERT INTO entries (payment, charge, amount, currency) VALUES (?, ?, ?, ?)",
    "INSERT INTO receipts (payment) VALUES (?)"
}
