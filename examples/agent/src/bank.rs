//! A fake of a bank that knows no idempotency keys, and whose books only people can search.

use std::time::Duration;

use actix_web::rt::time::sleep;
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};

/// Deliberately without a unique column: only the idempotency key prevents a second refund.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS refunds (
    memo TEXT NOT NULL, order_id TEXT NOT NULL, cents INTEGER NOT NULL
)";

/// The bank refunds no more than this at once.
const LIMIT: u32 = 100_000;

/// The bank, which keeps its books in a SQLite file.
#[derive(Clone, Debug)]
pub struct Bank {
    pool: SqlitePool,
    delay: Duration,
}

/// Why a refund has no confirmation.
pub(crate) enum BankError {
    /// The bank has refused it. No money was moved.
    Refused(&'static str),
    /// The bank did not respond, or its response was lost. Money may have been moved.
    NoResponse,
}

impl Bank {
    /// Opens the books. The bank takes this time to respond.
    ///
    /// # Errors
    /// Fails if the file cannot be read and written.
    pub async fn open(file: &str, delay: Duration) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
        let pool = SqlitePool::connect_with(options).await?;
        sqlx::query(TABLE).execute(&pool).await?;
        Ok(Self { pool, delay })
    }

    /// All refunds as memo, order and cents, in their order.
    ///
    /// # Errors
    /// Fails if the books cannot be read.
    pub async fn refunds(&self) -> Result<Vec<(String, String, i64)>, sqlx::Error> {
        let query = "SELECT memo, order_id, cents FROM refunds ORDER BY rowid";
        sqlx::query_as(query).fetch_all(&self.pool).await
    }

    /// Refunds an order. The response for an order whose name begins with `lost` is lost.
    pub(crate) async fn refund(
        &self,
        memo: &str,
        order: &str,
        cents: u32,
    ) -> Result<(), BankError> {
        if cents > LIMIT {
            return Err(BankError::Refused("The bank refunds at most 1000.00 at once."));
        }
        let insert = "INSERT INTO refunds (memo, order_id, cents) VALUES (?1, ?2, ?3)";
        let insert = sqlx::query(insert).bind(memo).bind(order).bind(cents);
        insert.execute(&self.pool).await.map_err(|_| BankError::NoResponse)?;
        sleep(self.delay).await;
        if order.starts_with("lost") { Err(BankError::NoResponse) } else { Ok(()) }
    }
}
