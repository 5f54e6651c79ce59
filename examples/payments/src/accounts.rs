//! Accounts and their balances, in the database of the idempotency records.

use std::{str::FromStr, time::Duration};

use idempotent_actix::RecordId;
use sqlx::{
    Database, Pool, Sqlite, SqlitePool,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions},
};

/// The database of the accounts. It requires a store with transactions.
pub(crate) enum Accounts {
    /// With `sqlite:`.
    Sqlite(SqlitePool),
    /// With `postgres:`.
    #[cfg(feature = "postgres")]
    Postgres(sqlx::PgPool),
    /// With `mysql:` or `mariadb:`.
    #[cfg(feature = "mysql")]
    MySql(sqlx::MySqlPool),
    /// With every other store.
    Unsupported,
}

impl Accounts {
    /// Opens the database of the store, which must be migrated, and creates the tables.
    pub(crate) async fn open(store: &str) -> Result<Self, sqlx::Error> {
        match store.split_once(':').map_or(store, |(scheme, _)| scheme) {
            "sqlite" => {
                let options =
                    SqliteConnectOptions::from_str(store)?.busy_timeout(Duration::from_secs(10));
                let pool =
                    SqlitePoolOptions::new().max_connections(2).connect_with(options).await?;
                let exists = "SELECT count(*) > 0 FROM sqlite_schema WHERE name = 'transfers'";
                if !sqlx::query_scalar(exists).fetch_one(&pool).await? {
                    sqlx::raw_sql(include_str!("accounts/sqlite.sql")).execute(&pool).await?;
                }
                Ok(Self::Sqlite(pool))
            }
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                let options = sqlx::postgres::PgPoolOptions::new().max_connections(2);
                let pool = options.connect(store).await?;
                if !sqlx::query_scalar("SELECT to_regclass('transfers') IS NOT NULL")
                    .fetch_one(&pool)
                    .await?
                {
                    sqlx::raw_sql(include_str!("accounts/postgres.sql")).execute(&pool).await?;
                }
                Ok(Self::Postgres(pool))
            }
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => mysql::open(store).await.map(Self::MySql),
            _ => Ok(Self::Unsupported),
        }
    }

    /// A description for the summary at start.
    pub(crate) const fn description(&self) -> &'static str {
        if matches!(self, Self::Unsupported) {
            "none: they share a transaction with the store, which must be `sqlite:`, `postgres:` \
             or `mysql:`"
        } else {
            "between the accounts alice, bob, carol and dave, in the store"
        }
    }
}

/// A new row of `transfers`.
pub(crate) struct Booking<'a> {
    pub(crate) id: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    pub(crate) amount: i64,
    pub(crate) record: Option<&'a RecordId>,
}

/// A database with accounts and transfers. The statements are the same on SQLite and Postgres; only
/// the types of the connections differ. MySQL returns no row of an `UPDATE`.
pub(crate) trait TransferDatabase: Database {
    /// Adds an amount, which may be negative, to a balance. Returns the new balance, or `None` if
    /// the account does not exist or its balance would be negative.
    async fn add(
        connection: &mut Self::Connection,
        account: &str,
        amount: i64,
    ) -> Result<Option<i64>, sqlx::Error>;

    /// The balance of an account, if it exists.
    async fn balance(
        connection: &mut Self::Connection,
        account: &str,
    ) -> Result<Option<i64>, sqlx::Error>;

    /// Inserts the transfer.
    async fn insert(
        connection: &mut Self::Connection,
        booking: &Booking<'_>,
    ) -> Result<(), sqlx::Error>;

    /// All accounts and their balances.
    async fn accounts(pool: &Pool<Self>) -> Result<Vec<(String, i64)>, sqlx::Error>;
}

macro_rules! impl_transfer_database {
    ($database:ty) => {
        impl TransferDatabase for $database {
            async fn add(
                connection: &mut Self::Connection,
                account: &str,
                amount: i64,
            ) -> Result<Option<i64>, sqlx::Error> {
                let update = "UPDATE accounts SET balance = balance + $1 \
                    WHERE id = $2 AND balance + $1 >= 0 RETURNING balance";
                let update = sqlx::query_scalar(update).bind(amount).bind(account);
                update.fetch_optional(connection).await
            }

            async fn balance(
                connection: &mut Self::Connection,
                account: &str,
            ) -> Result<Option<i64>, sqlx::Error> {
                let select = sqlx::query_scalar("SELECT balance FROM accounts WHERE id = $1");
                select.bind(account).fetch_optional(connection).await
            }

            async fn insert(
                connection: &mut Self::Connection,
                booking: &Booking<'_>,
            ) -> Result<(), sqlx::Error> {
                let insert = "INSERT INTO transfers
                    (id, owner, from_account, to_account, amount, record)
                              VALUES ($1, $2, $3, $4, $5, $6)";
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
    };
}

impl_transfer_database! { Sqlite }
#[cfg(feature = "postgres")]
impl_transfer_database! { sqlx::Postgres }

#[cfg(feature = "mysql")]
mod mysql {
    use sqlx::{MySql, MySqlPool, Pool, mysql::MySqlPoolOptions};

    use super::{Booking, TransferDatabase};

    /// Opens the database of the store, and creates the tables.
    pub(super) async fn open(store: &str) -> Result<MySqlPool, sqlx::Error> {
        let pool = MySqlPoolOptions::new().max_connections(2).connect(store).await?;
        sqlx::raw_sql(include_str!("accounts/mysql.sql")).execute(&pool).await?;
        Ok(pool)
    }

    impl TransferDatabase for MySql {
        async fn add(
            connection: &mut Self::Connection,
            account: &str,
            amount: i64,
        ) -> Result<Option<i64>, sqlx::Error> {
            let update =
                "UPDATE accounts SET balance = balance + ? WHERE id = ? AND balance + ? >= 0";
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
}
