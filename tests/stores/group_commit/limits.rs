//! The limits of batches.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn batches_are_as_large_as_allowed() {
    let limit = std::num::NonZeroU16::new(2).unwrap();
    let (url, file) = (database().await, File::new());
    let sqlite =
        batched_sqlite(file.open_with(SqliteStore::options().max_batch_steps(limit)).await);
    let postgres = PostgresStore::options().max_batch_steps(limit);
    let postgres = batched_postgres(postgres.connect(&url).await.unwrap());
    sqlite.migrate().await.unwrap();
    postgres.migrate().await.unwrap();
    claim_and_complete(&sqlite, 1..=MANY).await;
    claim_and_complete(&postgres, 1..=MANY).await;
    for counts in [sqlite.counts(), postgres.counts()] {
        assert!(2 * counts.batches >= counts.steps, "{counts:?}");
    }
    // Each step is larger.
    let bytes = std::num::NonZeroUsize::new(1).unwrap();
    let options = SqliteStore::options().table("other").max_batch_bytes(bytes);
    let store = batched_sqlite(file.open_with(options).await);
    store.migrate().await.unwrap();
    claim_and_complete(&store, 1..=MANY).await;
    assert_eq!(store.counts().batches, store.counts().steps);
}

/// In a batch, it would take more of the server's time, and the other steps would wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_recording_is_completed_alone_in_postgres() {
    const LARGE: usize = 64 << 10;
    let ([store, _], _database) = PostgresStore::open().await;
    for (number, bytes, batches) in [(1, LARGE - 1, 1), (2, LARGE, 1), (3, 4 * LARGE, 1), (4, 1, 2)]
    {
        let (claim, recording) = (request(), Bytes::from(vec![number; bytes]));
        assert_eq!(store.claim(&id(number), &claim).await.unwrap(), GRANTED);
        let lease = Lease { id: id(number), owner: claim.owner };
        assert_eq!(store.complete(&lease, &recording).await.unwrap(), Fence::Passed);
        let [_, completions] = postgres_batches(&store);
        assert_eq!(completions.batches, batches, "{bytes}");
        let replay = store.claim(&lease.id, &request()).await.unwrap();
        assert_eq!(replay, ClaimOutcome::Rejected(Rejection::Completed(recording)));
    }
}

/// The batches of two tables are separate, although both stores share connections.
#[tokio::test(flavor = "multi_thread")]
async fn batches_of_two_tables_are_separate() {
    let ([store, _], _database) = PostgresStore::open().await;
    let other = batched_postgres(postgres_with_table(&store, "other").unwrap());
    other.migrate().await.unwrap();
    let (one, other) = (Arc::new(store), Arc::new(other));
    tokio::join!(claim_and_complete(&*one, 1..=MANY), claim_and_complete(&*other, 1..=MANY));
}
