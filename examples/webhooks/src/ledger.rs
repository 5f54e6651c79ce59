//! The ledger: one line for each event that was booked.

use sqlx::{SqliteConnection, SqlitePool, sqlite::SqliteConnectOptions};

use crate::event::Change;

/// Deliberately without a unique column: only the idempotency key prevents a second line.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS ledger (
    event TEXT NOT NULL, payment TEXT NOT NULL, amount INTEGER NOT NULL
)";

/// The application's own connections to the database of the store.
#[derive(Clone, Debug)]
pub struct Ledger {
    pool: SqlitePool,
}

impl Ledger {
    /// Opens a database file that exists, and creates the table.
    ///
    /// # Errors
    /// Fails if the file cannot be read and written.
    pub async fn open(file: &str) -> Result<Self, sqlx::Error> {
        let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(file)).await?;
        sqlx::query(TABLE).execute(&pool).await?;
        Ok(Self { pool })
    }

    /// All lines as event, payment and amount, sorted by the event.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn lines(&self) -> Result<Vec<(String, String, i64)>, sqlx::Error> {
        let query = "SELECT event, payment, amount FROM ledger ORDER BY event, rowid";
        sqlx::query_as(query).fetch_all(&self.pool).await
    }
}

/// What has become of a change.
pub(crate) enum Booking {
    Booked,
    /// The refund is part of a total that was booked before: the events came in another order.
    Included,
    /// The refund of a payment that was not booked yet: providers do not deliver events in their
    /// order.
    UnknownPayment,
}

/// Books a change.
pub(crate) async fn book(
    connection: &mut SqliteConnection,
    event: &str,
    change: &Change,
) -> Result<Booking, sqlx::Error> {
    let (payment, amount) = match change {
        Change::Paid { payment, amount } => (payment, *amount),
        Change::Refunded { payment, amount }
        | Change::RefundedInTotal { payment, total: amount } => {
            let sums = "SELECT coalesce(sum(amount) FILTER (WHERE amount > 0), 0),
                    coalesce(-sum(amount) FILTER (WHERE amount < 0), 0)
                FROM ledger WHERE payment = ?1";
            let (paid, refunded): (i64, i64) =
                sqlx::query_as(sums).bind(payment).fetch_one(&mut *connection).await?;
            if paid == 0 {
                return Ok(Booking::UnknownPayment);
            }
            let in_total = matches!(change, Change::RefundedInTotal { .. });
            let amount = amount.saturating_sub(if in_total { refunded } else { 0 });
            if amount <= 0 {
                return Ok(Booking::Included);
            }
            (payment, amount.saturating_neg())
        }
    };
    let insert = "INSERT INTO ledger (event, payment, amount) VALUES (?1, ?2, ?3)";
    sqlx::query(insert).bind(event).bind(payment).bind(amount).execute(connection).await?;
    Ok(Booking::Booked)
}
