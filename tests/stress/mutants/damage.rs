//! Damaged records, which no version of this library writes.

use std::time::Duration;

use bytes::Bytes;
use sqlx::{AssertSqlSafe, SqlitePool};

use super::{
    Variant,
    backends::{Backend, postgres, redis_store, sqlite},
};
use crate::{
    fixtures::{Redis, unique},
    hammer::request,
};
use idempotent_core::{Lease, OwnerToken, RecordId, StoreError, protocol::Fence, store::Store};
use test_support::subjects::sqlite::File;

/// Whether a step accepts a damaged record.
pub(super) async fn is_accepted(backend: &Backend, variant: Variant) -> bool {
    let claim = request(Duration::from_secs(60));
    let lease = Lease { id: RecordId::from_bytes([1; 32]), owner: claim.owner };
    let damage = "SET state = 7";
    match backend {
        Backend::Sqlite => {
            let file = File::new();
            let store = sqlite(&file, variant).await;
            store.migrate().await.unwrap();
            store.claim(&lease.id, &claim).await.unwrap();
            let pool = SqlitePool::connect(&file.url()).await.unwrap();
            let damage = format!(
                "PRAGMA ignore_check_constraints = on; UPDATE idempotency_records {damage}"
            );
            sqlx::raw_sql(AssertSqlSafe(damage)).execute(&pool).await.unwrap();
            is_completed(&store, &lease).await
        }
        Backend::Postgres { url, pool, batched } => {
            let table = unique();
            let store = postgres(url, &table, variant, *batched).await;
            Store::migrate(&store).await.unwrap();
            store.claim(&lease.id, &claim).await.unwrap();
            let damage = AssertSqlSafe(format!("UPDATE {table} {damage}"));
            sqlx::raw_sql(damage).execute(pool).await.unwrap();
            is_completed(&store, &lease).await
        }
        #[cfg(feature = "mysql")]
        Backend::MySql { url, pool, batched } => {
            let table = unique();
            let store = super::backends::mysql(url, &table, variant, *batched).await;
            Store::migrate(&store).await.unwrap();
            store.claim(&lease.id, &claim).await.unwrap();
            let damage =
                format!("SET STATEMENT check_constraint_checks = OFF FOR UPDATE {table} {damage}");
            sqlx::raw_sql(AssertSqlSafe(damage)).execute(pool).await.unwrap();
            is_completed(&store, &lease).await
        }
        Backend::Redis(server) => is_accepted_by_redis(server, variant).await,
    }
}

async fn is_completed(store: &impl Store, lease: &Lease) -> bool {
    match store.complete(lease, &Bytes::new()).await {
        Ok(fence) => fence == Fence::Passed,
        Err(error) => {
            assert!(error.is_unreadable(), "{error:?}");
            false
        }
    }
}

async fn is_accepted_by_redis(server: &Redis, variant: Variant) -> bool {
    let prefix = unique();
    let store = redis_store(server.open(&prefix).await, variant);
    let lease = Lease { id: RecordId::from_bytes([1; 32]), owner: OwnerToken::from_bytes([2; 16]) };
    let key = [prefix.as_bytes(), lease.id.as_bytes()].concat();
    let mut raw = ::redis::Client::open(server.url.as_str()).unwrap().get_connection().unwrap();
    let first = [&[1, 1, 0, 0, 0, 0, 1], [2; 16].as_slice(), &[3; 36]].concat();
    // Neither completed nor noted, with an operation of two bytes, and with one entry in the
    // history or none.
    let times = [0, 0, 0, 9, 9, 9, 9, 9].repeat(4);
    let history = [[0; 10].as_slice(), &[2, 0, 0, 0, 12], &[0; 8], b"opc0000000000a"].concat();
    let head = [first.as_slice(), &times, &history].concat();
    let rest = [[0; 10].as_slice(), &[2, 0], &[0; 11], b"op"].concat();
    assert_eq!(head.len(), 114 + 14);
    let other = |at: usize, byte| {
        head.iter().enumerate().map(|(i, is)| if i == at { byte } else { *is }).collect()
    };
    let longer = [head.as_slice(), b"x"].concat();
    // As only its first owner has written it, with relative times.
    let relative = [first.as_slice(), &[0; 32], &rest].concat();
    let with_reference = [&relative[..103], &[1], &relative[104..]].concat();
    let damaged: [Vec<u8>; 13] = [
        head[..113].to_vec(),
        head[..127].to_vec(),
        longer,
        relative[..113].to_vec(),
        relative[..115].to_vec(),
        [relative.as_slice(), b"x"].concat(),
        with_reference,
        [&[2], &relative[1..]].concat(),
        other(0, 2),
        other(1, 0),
        other(1, 4),
        other(2, 2),
        vec![1],
    ];
    let is_refused =
        |result: Result<Fence, StoreError>| result.is_err_and(|error| error.is_unreadable());
    let mut set = |value: &[u8]| {
        let mut set = ::redis::cmd("SET");
        set.arg(&key).arg(value).arg("PX").arg(24 * 60 * 60 * 1000).exec(&mut raw).unwrap();
    };
    for whole in [&head, &relative] {
        set(whole);
        assert_eq!(store.complete(&lease, &Bytes::new()).await.unwrap(), Fence::Passed);
    }
    for damaged in damaged {
        set(&damaged);
        if !is_refused(store.release(&lease).await)
            || !is_refused(store.complete(&lease, &Bytes::new()).await)
        {
            return true;
        }
    }
    false
}
