//! SQLite files that are moved, replaced or deleted while a store has them open.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use idempotent_core::{
    Fingerprint, Lease, OwnerToken, RecordId, Store, StoreError,
    protocol::{Claim, ClaimOutcome, Fence, Renewal},
};
use idempotent_sqlite::{SqliteStore, internals::batched_sqlite};

use test_support::{error_chain, subjects::sqlite::File};

const ID: RecordId = RecordId::from_bytes([6; 32]);
const NEW: RecordId = RecordId::from_bytes([7; 32]);
/// Within this time, a store that only reads notices that its file was moved.
const NOTICED: Duration = Duration::from_millis(600);

fn claim() -> Claim {
    Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), OwnerToken::random().unwrap())
        .with_lease(Duration::from_secs(30))
        .with_ttl(Duration::from_secs(60))
}

/// A migrated store that has granted [`ID`].
async fn claimed(store: SqliteStore) -> (SqliteStore, Lease) {
    store.migrate().await.unwrap();
    let claim = claim();
    store.claim(&ID, &claim).await.unwrap();
    (store, Lease { id: ID, owner: claim.owner })
}

fn assert_noticed<T: std::fmt::Debug>(call: &str, result: Result<T, StoreError>) {
    let error = result.unwrap_err();
    assert!(error.is_transient(), "{call}: {}", error_chain(&error));
    let shown = error_chain(&error);
    assert!(shown.contains("was moved, replaced or deleted"), "{call}: {shown}");
    assert!(!shown.contains("driver"), "{call}: {shown}");
}

/// Each call fails: at once if it writes.
async fn assert_every_call_fails(store: &SqliteStore, lease: &Lease) {
    let done = Bytes::from_static(b"done");
    assert_noticed("claim", store.claim(&NEW, &claim()).await);
    assert_noticed("complete", store.complete(lease, &done).await);
    assert_noticed("renew", store.renew(&[Renewal::new(*lease, NOTICED)]).await);
    assert_noticed("purge", store.purge(10).await);
    let transactions = store.transactions().unwrap();
    assert_noticed("begin", transactions.begin().await.map(drop));
    assert_noticed("claim", transactions.claim(&NEW, &claim(), Duration::ZERO).await);
    tokio::time::sleep(NOTICED).await;
    assert_noticed("look up", store.look_up(&ID).await);
    assert_noticed("check", store.check().await);
}

async fn assert_works(store: &SqliteStore, lease: &Lease) {
    let done = Bytes::from_static(b"done");
    store.check().await.unwrap();
    let granted = store.claim(&NEW, &claim()).await.unwrap();
    assert_eq!(granted, ClaimOutcome::Granted { attempt: 1 });
    assert_eq!(store.complete(lease, &done).await.unwrap(), Fence::Passed);
}

/// The database and the files beside it.
fn files(database: &Path) -> Vec<PathBuf> {
    let beside = |suffix: &str| PathBuf::from(format!("{}{suffix}", database.display()));
    ["", "-wal", "-shm"].map(beside).into_iter().filter(|file| file.exists()).collect()
}

fn move_to(database: &Path, to: &Path) {
    for file in files(database) {
        let suffix = file.to_str().unwrap().strip_prefix(database.to_str().unwrap()).unwrap();
        fs::rename(&file, format!("{}{suffix}", to.display())).unwrap();
    }
}

#[tokio::test]
async fn a_file_that_is_moved_is_noticed_and_works_again_in_its_place() {
    let (file, elsewhere) = (File::new(), File::new());
    for store in [
        file.open().await,
        batched_sqlite(file.open().await),
        SqliteStore::from_pool(file.pool().await).await.unwrap(),
    ] {
        let (store, lease) = claimed(store).await;
        let open = store.transactions().unwrap().begin().await.unwrap();
        move_to(&file.path(), &elsewhere.path());
        assert_noticed("commit", open.commit().await);
        assert_every_call_fails(&store, &lease).await;
        assert!(!file.path().exists(), "another file was created");
        move_to(&elsewhere.path(), &file.path());
        assert_works(&store, &lease).await;
        // The next store begins with an empty table.
        sqlx::query("DELETE FROM idempotency_records").execute(&file.pool().await).await.unwrap();
    }
}

#[tokio::test]
async fn a_file_that_is_deleted_is_noticed_and_not_created_again() {
    let file = File::new();
    let (store, lease) = claimed(file.open().await).await;
    for file in files(&file.path()) {
        fs::remove_file(file).unwrap();
    }
    assert_every_call_fails(&store, &lease).await;
    assert!(files(&file.path()).is_empty(), "{:?}", files(&file.path()));
}

#[tokio::test]
async fn a_file_that_is_replaced_is_noticed() {
    let (file, restored) = (File::new(), File::new());
    drop(claimed(restored.open().await).await);
    let (store, lease) = claimed(file.open().await).await;
    fs::rename(restored.path(), file.path()).unwrap();
    assert_every_call_fails(&store, &lease).await;
}

#[tokio::test]
async fn a_symbolic_link_that_is_changed_is_noticed() {
    let (one, two, link) = (File::new(), File::new(), File::new());
    drop(claimed(two.open().await).await);
    drop(one.open().await);
    symlink(one.path(), link.path()).unwrap();
    let (store, lease) = claimed(link.open().await).await;
    assert!(files(&one.path()).len() > 1, "SQLite keeps its files beside the target of a link");
    fs::remove_file(link.path()).unwrap();
    symlink(two.path(), link.path()).unwrap();
    assert_every_call_fails(&store, &lease).await;
    fs::remove_file(link.path()).unwrap();
    symlink(one.path(), link.path()).unwrap();
    assert_works(&store, &lease).await;
}

#[tokio::test]
async fn a_file_that_is_named_by_a_uri_is_noticed() {
    let (file, elsewhere) = (File::new(), File::new());
    let uri = format!("file:{}?cache=private", file.path().display());
    let options = file.options().filename(uri).journal_mode(sqlx::sqlite::SqliteJournalMode::Wal);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    let (store, lease) = claimed(SqliteStore::from_pool(pool).await.unwrap()).await;
    move_to(&file.path(), &elsewhere.path());
    assert_every_call_fails(&store, &lease).await;
    move_to(&elsewhere.path(), &file.path());
    assert_works(&store, &lease).await;
}
