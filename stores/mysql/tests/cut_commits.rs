//! A connection that is cut at each byte of a completion and of its commit.

use std::any::Any;

use async_trait::async_trait;
use idempotent_core::RecordId;
use sqlx::{MySqlConnection, MySqlPool, Row};
use test_support::{
    cuts::commits::{Effects, cut_commits},
    servers::mariadb::{MariaDb, database_on, sql},
};

use crate::cut_connections::{CONCURRENT_CUTS, proxied_store};

/// Rows of a table, written in the handler's transaction and read with connections of its own.
struct Rows(MySqlPool);

#[async_trait]
impl Effects for Rows {
    async fn write(&self, connection: &mut (dyn Any + Send + Sync), id: &RecordId) {
        let connection = connection.downcast_mut::<MySqlConnection>().unwrap();
        let effect = sqlx::query("INSERT INTO effects VALUES (?)").bind(id.as_bytes().to_vec());
        effect.execute(connection).await.unwrap();
    }

    async fn count(&self, id: &RecordId) -> [i64; 2] {
        let both = "SELECT (SELECT COUNT(*) FROM effects WHERE id = ?) AS effects, \
                    (SELECT COUNT(*) FROM idempotency_records WHERE \
                     id = ? AND state = 2) AS completed";
        let row = sqlx::query(both).bind(&id.as_bytes()[..]).bind(&id.as_bytes()[..]);
        let row = row.fetch_one(&self.0).await.unwrap();
        [row.get("effects"), row.get("completed")]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_cut_at_any_byte_leaves_one_effect_and_its_response() {
    let server = MariaDb::without_fsync();
    let url = database_on(&server.url("mysql")).await;
    sql(&url, "CREATE TABLE effects (id varbinary(32) NOT NULL)").await;
    let mut stores = Vec::new();
    for _ in 0..CONCURRENT_CUTS {
        let store = proxied_store(&url, |store| store).await;
        stores.push((store, Rows(MySqlPool::connect(&url).await.unwrap())));
    }
    // What acknowledges a commit has 22 bytes.
    cut_commits(stores).await.assert_at_least(10, 125);
}
