//! A private MariaDB server.

use idempotent_actix::store::MySqlStore;
use sqlx::{AssertSqlSafe, MySqlPool, mysql::MySqlPoolOptions};
use test_support::servers::mariadb;

use super::{EFFECTS, Environment};

/// What the data of a run fits into, as it should on a server in production. Commits are flushed.
const SETTINGS: &[&str] =
    &["--innodb-buffer-pool-size=1G", "--innodb-log-file-size=512M", "--max-connections=400"];

pub(crate) struct MariaDb {
    pub(crate) server: mariadb::MariaDb,
    url: String,
    pool: MySqlPool,
}

impl MariaDb {
    pub(super) fn start(environment: &Environment) -> Self {
        let server = mariadb::MariaDb::with(SETTINGS);
        let (root, url) = (server.url("mysql"), server.url("benches"));
        let pool = environment.wait(async {
            mariadb::sql(&root, "CREATE DATABASE benches").await;
            let pool = MySqlPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
            for table in ["idempotency_records", "floor"] {
                let store = MySqlStore::options().table(table).connect(&url).await.unwrap();
                store.migrate().await.unwrap();
            }
            let effects = EFFECTS.replace("key {bytes}", "`key` BINARY(32)");
            let effects = effects.replace("{bytes}", "LONGBLOB");
            sqlx::raw_sql(AssertSqlSafe(effects)).execute(&pool).await.unwrap();
            pool
        });
        Self { server, url, pool }
    }

    /// Empties all tables, and returns the URL of their database.
    pub(super) fn clean(&self, environment: &Environment) -> String {
        for table in ["idempotency_records", "floor", "effects"] {
            let truncate = AssertSqlSafe(format!("TRUNCATE `{table}`"));
            environment.wait(sqlx::raw_sql(truncate).execute(&self.pool)).unwrap();
        }
        self.url.clone()
    }

    /// Runs a query that returns one number.
    pub(crate) fn number(&self, environment: &Environment, query: &'static str) -> i64 {
        environment.wait(sqlx::query_scalar(query).fetch_one(&self.pool)).unwrap()
    }

    /// How many statements clients have sent.
    pub(crate) fn statements(&self, environment: &Environment) -> u64 {
        let questions = "SELECT CAST(variable_value AS INTEGER) \
            FROM information_schema.global_status WHERE variable_name = 'QUESTIONS'";
        self.number(environment, questions).unsigned_abs()
    }
}
