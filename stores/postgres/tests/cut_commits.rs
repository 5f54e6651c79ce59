//! A connection that is cut at each byte of a completion and of its commit.

use std::any::Any;

use async_trait::async_trait;
use idempotent_core::RecordId;
use sqlx::{PgConnection, PgPool, Row};
use test_support::{
    cuts::commits::{Effects, cut_commits},
    servers::postgres::Postgres,
};

use crate::cut_connections::{CONCURRENT_CUTS, proxied_store};
use crate::helpers::sql;

/// Rows of a table, written in the handler's transaction and read with connections of its own.
struct Rows(PgPool);

#[async_trait]
impl Effects for Rows {
    async fn write(&self, connection: &mut (dyn Any + Send + Sync), id: &RecordId) {
        let connection = connection.downcast_mut::<PgConnection>().unwrap();
        let effect = sqlx::query("INSERT INTO effects VALUES ($1)").bind(id.as_bytes().to_vec());
        effect.execute(connection).await.unwrap();
    }

    async fn count(&self, id: &RecordId) -> [i64; 2] {
        let both = "SELECT (SELECT count(*) FROM effects WHERE id = $1) AS effects, \
                    (SELECT count(*) FROM idempotency_records WHERE \
                     id = $1 AND state = 2) AS completed";
        let row = sqlx::query(both).bind(&id.as_bytes()[..]).fetch_one(&self.0).await.unwrap();
        [row.get("effects"), row.get("completed")]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_cut_at_any_byte_leaves_one_effect_and_its_response() {
    let server = Postgres::without_fsync();
    let url = server.url("postgres");
    sql(&url, "CREATE TABLE effects (id bytea NOT NULL)").await;
    let mut stores = Vec::new();
    for _ in 0..CONCURRENT_CUTS {
        stores.push((proxied_store(&url).await, Rows(PgPool::connect(&url).await.unwrap())));
    }
    cut_commits(stores).await.assert_at_least(25, 125);
}
