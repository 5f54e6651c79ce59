//! Accounts in MySQL or MariaDB.

use sqlx::{MySql, MySqlPool, Pool, mysql::MySqlPoolOptions};

use super::{Booking, TransferDatabase};

/// Opens the database of the store, and creates the tables.
pub(super) async fn open(store: &str) -> Result<MySqlPool, sqlx::Error> {
    let pool = MySqlPoolOptions::new().max_connections(2).connect(store).await?;
    sqlx::raw_sql(include_str!("mysql.sql")).execute(&pool).await?;
    Ok(pool)
}

impl TransferDatabase for MySql {
    async fn add(
        connection: &mut Self::Connection,
        account: &str,
        amount: i64,
    ) -> Result<Option<i64>, sqlx::Error> {
        let update = "UPDATE accounts SET balance = balance + ? WHERE id = ? AND balance + ? >= 0";
        let update = sqlx::query(update).bind(amount).bind(account).bind(amount);
        if update.execute(&mut *connection).await?.rows_affected() == 0 {
            return Ok(None);
        }
        Self::balance(connection, account).await
    }

    async fn balance(
        connection: &mut Self::Connection,
        account: &str,
    ) -> Result<Option<i64>, sqlx::Error> {
        let select = sqlx::query_scalar("SELECT balance FROM accounts WHERE id = ?");
        select.bind(account).fetch_optional(connection).await
    }

    async fn insert(
        connection: &mut Self::Connection,
        booking: &Booking<'_>,
    ) -> Result<(), sqlx::Error> {
        let insert = "INSERT INTO transfers
            (id, owner, from_account, to_account, amount, record)
                      VALUES (?, ?, ?, ?, ?, ?)";
        sqlx::query(insert)
            .bind(booking.id)
            .bind(booking.owner)
            .bind(booking.from)
            .bind(booking.to)
            .bind(booking.amount)
            .bind(booking.record.map(|record| record.as_bytes().as_slice()))
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn accounts(pool: &Pool<Self>) -> Result<Vec<(String, i64)>, sqlx::Error> {
        sqlx::query_as("SELECT id, balance FROM accounts ORDER BY id").fetch_all(pool).await
    }
}
