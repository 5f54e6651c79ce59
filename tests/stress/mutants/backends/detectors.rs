//! Faults that only one backend can have.

use super::*;

/// Whether a record is read from a replica that was a master when the connection to it was opened.
pub(in crate::mutants) async fn reads_from_a_replica(variant: Variant) -> bool {
    let server = Server::start(IN_MEMORY);
    let store = redis_store(RedisStore::connect(&server.url()).await.unwrap(), variant);
    let id = RecordId::from_bytes([1; 32]);
    assert!(store.look_up(&id).await.unwrap().is_none());
    let () = server.command("REPLICAOF 127.0.0.1 1");
    store.look_up(&id).await.is_ok()
}

pub(super) async fn completes_late_wrongly(url: &str, pool: &PgPool, variant: Variant) -> bool {
    let (table, id) = (unique(), RecordId::from_bytes([1; 32]));
    let store = postgres(url, &table, variant, false).await;
    Store::migrate(&store).await.unwrap();
    let claim = request(Duration::from_millis(1)).with_ttl(Duration::from_millis(2));
    let claimed = store.transactions().unwrap().claim(&id, &claim, Duration::ZERO).await.unwrap();
    let TransactionClaim::Granted { transaction, .. } = claimed else {
        panic!("the claim of a new key was rejected")
    };
    tokio::time::sleep(Duration::from_millis(5)).await;
    let lease = Lease { id, owner: claim.owner };
    assert_eq!(
        transaction.complete_and_commit(&lease, &Bytes::new()).await.unwrap(),
        Fence::Passed
    );
    let ttl = AssertSqlSafe(format!("SELECT expires_at - completed_at FROM {table}"));
    sqlx::query_scalar::<_, i64>(ttl).fetch_one(pool).await.unwrap() != 2
}
