//! The effects: rows that an application writes in the transaction that completes a record.

use sqlx::{PgConnection, PgPool, SqliteConnection, SqlitePool};

use idempotent_core::{Lease, RecordId, store::Transaction};

const CREATE: &str = "CREATE TABLE IF NOT EXISTS effects (id TEXT NOT NULL, owner TEXT NOT NULL)";
const INSERT: &str = "INSERT INTO effects (id, owner) VALUES ($1, $2)";
const OWNERS: &str = "SELECT owner FROM effects WHERE id = $1";

/// The table of effects, and connections that read it outside of the store's transactions.
pub(super) enum Effects {
    Sqlite(SqlitePool),
    Postgres(PgPool),
    #[cfg(feature = "mysql")]
    MySql(sqlx::MySqlPool),
}

impl Effects {
    pub(super) async fn sqlite(url: &str) -> Self {
        let pool = SqlitePool::connect(url).await.unwrap();
        sqlx::raw_sql(CREATE).execute(&pool).await.unwrap();
        Self::Sqlite(pool)
    }

    pub(super) async fn postgres(url: &str) -> Self {
        let pool = PgPool::connect(url).await.unwrap();
        sqlx::raw_sql(CREATE).execute(&pool).await.unwrap();
        Self::Postgres(pool)
    }

    #[cfg(feature = "mysql")]
    pub(super) async fn mysql(url: &str) -> Self {
        let pool = sqlx::MySqlPool::connect(url).await.unwrap();
        let create = "CREATE TABLE IF NOT EXISTS effects \
            (id CHAR(64) NOT NULL, owner CHAR(32) NOT NULL, KEY (id)) ENGINE = InnoDB";
        sqlx::raw_sql(create).execute(&pool).await.unwrap();
        Self::MySql(pool)
    }

    /// Writes the effect of an attempt, in its transaction.
    pub(super) async fn write(&self, transaction: &mut dyn Transaction, lease: &Lease) {
        let (id, owner) = (hex(lease.id.as_bytes()), hex(lease.owner.as_bytes()));
        let connection = transaction.connection_mut();
        match self {
            Self::Sqlite(_) => {
                let connection = connection.downcast_mut::<SqliteConnection>().unwrap();
                sqlx::query(INSERT)
                    .bind(id)
                    .bind(owner)
                    .execute(connection)
                    .await
                    .map(drop)
                    .unwrap();
            }
            Self::Postgres(_) => {
                let connection = connection.downcast_mut::<PgConnection>().unwrap();
                sqlx::query(INSERT)
                    .bind(id)
                    .bind(owner)
                    .execute(connection)
                    .await
                    .map(drop)
                    .unwrap();
            }
            #[cfg(feature = "mysql")]
            Self::MySql(_) => {
                let connection = connection.downcast_mut::<sqlx::MySqlConnection>().unwrap();
                let insert = sqlx::query("INSERT INTO effects (id, owner) VALUES (?, ?)");
                insert.bind(id).bind(owner).execute(connection).await.map(drop).unwrap();
            }
        }
    }

    /// The owners whose effects were committed for a key.
    pub(super) async fn of(&self, id: &RecordId) -> Vec<String> {
        let id = hex(id.as_bytes());
        match self {
            Self::Sqlite(pool) => {
                sqlx::query_scalar(OWNERS).bind(id).fetch_all(pool).await.unwrap()
            }
            Self::Postgres(pool) => {
                sqlx::query_scalar(OWNERS).bind(id).fetch_all(pool).await.unwrap()
            }
            #[cfg(feature = "mysql")]
            Self::MySql(pool) => {
                let owners = sqlx::query_scalar("SELECT owner FROM effects WHERE id = ?");
                owners.bind(id).fetch_all(pool).await.unwrap()
            }
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
