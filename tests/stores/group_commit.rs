//! Claims and completions that the SQL stores execute in batches.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use idempotent_core::{
    Fingerprint, Lease, OwnerToken, RecordId, ShortText, Store,
    protocol::{Claim, ClaimOutcome, Fence, Rejection},
};
use idempotent_postgres::{
    PostgresStore,
    internals::{batched_postgres, postgres_batches, postgres_with_table},
};
use idempotent_sql::group_commit::BatchCounts;
use idempotent_sqlite::{
    SqliteStore,
    internals::{batched_sqlite, sqlite_batches},
};
use sqlx::AssertSqlSafe;
use tokio::task::JoinSet;

use test_support::{
    servers::postgres::{database, sql},
    subjects::sqlite::File,
};

mod limits;

const GRANTED: ClaimOutcome = ClaimOutcome::Granted { attempt: 1 };
/// More steps than a batch has.
const MANY: u8 = 200;

/// A store that executes everything in batches.
#[async_trait::async_trait]
trait Batched: Store + Clone {
    /// Two stores on one table, like two processes, and the table's database.
    async fn open() -> ([Self; 2], Database);

    fn counts(&self) -> BatchCounts;
}

enum Database {
    Sqlite(File),
    Postgres(String),
}

impl Database {
    /// Executes this statement for SQLite, or that one for Postgres.
    async fn execute(&self, sqlite: &str, postgres: &str) {
        match self {
            Self::Sqlite(file) => {
                let statement = AssertSqlSafe(sqlite.to_owned());
                sqlx::raw_sql(statement).execute(&file.pool().await).await.map(drop).unwrap();
            }
            Self::Postgres(url) => sql(url, postgres).await,
        }
    }
}

#[async_trait::async_trait]
impl Batched for SqliteStore {
    async fn open() -> ([Self; 2], Database) {
        let file = File::new();
        let stores = [file.open().await, file.open().await].map(batched_sqlite);
        stores[0].migrate().await.unwrap();
        (stores, Database::Sqlite(file))
    }

    fn counts(&self) -> BatchCounts {
        sqlite_batches(self)
    }
}

#[async_trait::async_trait]
impl Batched for PostgresStore {
    async fn open() -> ([Self; 2], Database) {
        let url = database().await;
        let open = || async { batched_postgres(PostgresStore::connect(&url).await.unwrap()) };
        let stores = [open().await, open().await];
        stores[0].migrate().await.unwrap();
        (stores, Database::Postgres(url))
    }

    fn counts(&self) -> BatchCounts {
        let [claims, completions] = postgres_batches(self);
        BatchCounts {
            batches: claims.batches + completions.batches,
            steps: claims.steps + completions.steps,
            alone: claims.alone + completions.alone,
        }
    }
}

fn id(number: u8) -> RecordId {
    RecordId::from_bytes([number; 32])
}

fn request() -> Claim {
    Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), OwnerToken::random().unwrap())
        .with_lease(Duration::from_secs(30))
        .with_ttl(Duration::from_secs(3600))
}

/// Runs a test on both stores.
async fn on_both<S, P>(
    sqlite: impl FnOnce([SqliteStore; 2], Database) -> S,
    postgres: impl FnOnce([PostgresStore; 2], Database) -> P,
) where
    S: Future<Output = ()>,
    P: Future<Output = ()>,
{
    let (stores, file) = SqliteStore::open().await;
    sqlite(stores, file).await;
    let (stores, database) = PostgresStore::open().await;
    postgres(stores, database).await;
}

/// Claims each of these keys concurrently, and then completes it; returns the leases.
async fn claim_and_complete<S: Batched>(store: &S, keys: impl Iterator<Item = u8>) -> Vec<Lease> {
    let operations = keys.map(|number| {
        let store = store.clone();
        async move {
            let (claim, recording) = (request(), Bytes::from(vec![number; usize::from(number)]));
            assert_eq!(store.claim(&id(number), &claim).await.unwrap(), GRANTED, "{number}");
            let lease = Lease { id: id(number), owner: claim.owner };
            assert_eq!(store.complete(&lease, &recording).await.unwrap(), Fence::Passed);
            let replay = store.claim(&lease.id, &request()).await.unwrap();
            assert_eq!(replay, ClaimOutcome::Rejected(Rejection::Completed(recording)), "{number}");
            lease
        }
    });
    operations.collect::<JoinSet<_>>().join_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_step_of_a_batch_has_an_outcome_of_its_own() {
    async fn test<S: Batched>([store, other]: [S; 2], _: Database) {
        claim_and_complete(&store, 1..=MANY).await;
        let counts = store.counts();
        assert!(counts.alone == 0 && counts.steps >= 2 * usize::from(MANY), "{counts:?}");
        assert!(2 * counts.batches < counts.steps, "{counts:?}");
        // Replays, mismatches, and keys in flight, of which some are new, in the same batches.
        let claims =
            (1..=MANY).map(|number| (number, request())).chain((0..10).map(|_| (0, request())));
        let outcomes = join_all(claims.map(|(number, claim)| {
            let claim = if number % 2 == 0 {
                claim
            } else {
                claim.with_fingerprint(Fingerprint::from_bytes([2; Fingerprint::BYTES]))
            };
            let other = &other;
            async move { (number, other.claim(&id(number), &claim).await.unwrap()) }
        }))
        .await;
        let mut granted = 0;
        for (number, outcome) in outcomes {
            match (number, outcome) {
                (0, outcome) => granted += usize::from(outcome == GRANTED),
                (_, ClaimOutcome::Rejected(Rejection::Completed(recording))) if number % 2 == 0 => {
                    assert_eq!(recording, vec![number; usize::from(number)]);
                }
                (_, ClaimOutcome::Rejected(Rejection::Mismatch { .. })) if number % 2 == 1 => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(granted, 1);
    }
    on_both(test, test).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_claims_of_a_key_in_a_batch_is_granted() {
    async fn test<S: Batched>(stores: [S; 2], _: Database) {
        for round in 1..=20 {
            let claims = (0..64).map(|number: usize| {
                let store = &stores[number % 2];
                async move { store.claim(&id(round), &request()).await.unwrap() }
            });
            let outcomes = join_all(claims).await;
            let granted = outcomes.iter().filter(|outcome| **outcome == GRANTED).count();
            let in_flight = |outcome: &&_| {
                matches!(outcome, ClaimOutcome::Rejected(Rejection::InFlight { .. }))
            };
            assert_eq!((granted, outcomes.iter().filter(in_flight).count()), (1, 63));
        }
    }
    on_both(test, test).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_and_a_completion_that_are_sent_twice_in_a_batch_pass_twice() {
    async fn test<S: Batched>([store, _]: [S; 2], _: Database) {
        for number in 1..=20 {
            let claim = request();
            let key = id(number);
            let claims = [(); 4].map(|()| store.claim(&key, &claim));
            for outcome in join_all(claims).await {
                assert_eq!(outcome.unwrap(), GRANTED);
            }
            let lease = Lease { id: id(number), owner: claim.owner };
            let stranger = Lease { owner: request().owner, ..lease };
            let recordings = [Bytes::from_static(b"one"), Bytes::from_static(b"two")];
            let (one, fenced, two) = tokio::join!(
                store.complete(&lease, &recordings[0]),
                store.complete(&stranger, &recordings[1]),
                store.complete(&lease, &recordings[1]),
            );
            assert_eq!(
                (one.unwrap(), fenced.unwrap(), two.unwrap()),
                (Fence::Passed, Fence::Fenced, Fence::Passed)
            );
            let ClaimOutcome::Rejected(Rejection::Completed(first)) =
                store.claim(&id(number), &request()).await.unwrap()
            else {
                panic!("it is completed")
            };
            assert!(recordings.contains(&first));
        }
    }
    on_both(test, test).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_the_database_refuses_costs_only_itself() {
    async fn test<S: Batched>([store, _]: [S; 2], database: Database) {
        database
            .execute(
                "CREATE TRIGGER refuses BEFORE INSERT ON idempotency_records
                 WHEN NEW.operation = 'refused' BEGIN SELECT RAISE(ABORT, 'refused'); END",
                "ALTER TABLE idempotency_records ADD CHECK (operation <> 'refused')",
            )
            .await;
        let refused = request().with_operation(ShortText::new("refused").unwrap());
        let claims = (1..=MANY).map(|number| {
            let (store, claim) = (&store, if number == 7 { refused.clone() } else { request() });
            async move { store.claim(&id(number), &claim).await }
        });
        for (number, outcome) in (1..).zip(join_all(claims).await) {
            match outcome {
                Ok(outcome) => assert_eq!((number == 7, outcome), (false, GRANTED)),
                Err(error) => assert!(number == 7 && !error.is_transient(), "{number}: {error:?}"),
            }
        }
        assert!(store.counts().alone > 0, "no batch was taken apart");
    }
    on_both(test, test).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_costs_only_its_own_steps() {
    async fn test<S: Batched>([store, _]: [S; 2], database: Database) {
        claim_and_complete(&store, 1..=MANY).await;
        let damage = "UPDATE idempotency_records SET state = 7 WHERE id =";
        let hex = "07".repeat(32);
        database
            .execute(
                &format!("PRAGMA ignore_check_constraints = on; {damage} x'{hex}'"),
                &format!(r"{damage} '\x{hex}'"),
            )
            .await;
        let claims = (1..=MANY).map(|number| {
            let store = &store;
            async move { store.claim(&id(number), &request()).await }
        });
        for (number, outcome) in (1..).zip(join_all(claims).await) {
            match outcome {
                Ok(ClaimOutcome::Rejected(Rejection::Completed(recording))) => {
                    assert_eq!(recording.len(), number)
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) => assert!(number == 7 && error.is_unreadable(), "{number}: {error:?}"),
            }
        }
    }
    on_both(test, test).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_of_several_processes_do_not_block_each_other() {
    async fn test<S: Batched>(stores: [S; 2], _: Database) {
        // Both claim and complete the same keys, in opposite orders.
        let work = |store: S, keys: Vec<u8>| async move {
            let operations = keys.into_iter().map(|number| {
                let store = store.clone();
                async move {
                    let claim = request();
                    let outcome = store.claim(&id(number), &claim).await.unwrap();
                    let granted = outcome == GRANTED;
                    if granted {
                        let lease = Lease { id: id(number), owner: claim.owner };
                        let passed = store.complete(&lease, &Bytes::new()).await.unwrap();
                        assert_eq!(passed, Fence::Passed);
                    }
                    usize::from(granted)
                }
            });
            operations.collect::<JoinSet<_>>().join_all().await.into_iter().sum::<usize>()
        };
        let [one, other] = stores;
        let (forward, backward) = ((1..=MANY).collect(), (1..=MANY).rev().collect());
        let (one, other) = tokio::join!(work(one, forward), work(other, backward));
        assert_eq!(one + other, usize::from(MANY));
    }
    on_both(test, test).await;
}

/// Fails if the outcomes of a batch get to the wrong steps: claims that are granted and completions
/// that are fenced are in the same batches.
#[tokio::test(flavor = "multi_thread")]
async fn steps_of_different_kinds_in_a_batch_have_outcomes_of_their_own() {
    async fn test<S: Batched>([store, _]: [S; 2], _: Database) {
        claim_and_complete(&store, 1..=MANY).await;
        let fenced = (1..=MANY).map(|number| {
            let (store, stranger) =
                (store.clone(), Lease { id: id(number), owner: request().owner });
            async move {
                let completed = store.complete(&stranger, &Bytes::new()).await.unwrap();
                assert_eq!(completed, Fence::Fenced, "{number}");
            }
        });
        let granted = (1..=MANY).map(|number| {
            let (store, mut new) = (store.clone(), [number; 32]);
            new[0] = 0;
            async move {
                let outcome = store.claim(&RecordId::from_bytes(new), &request()).await.unwrap();
                assert_eq!(outcome, GRANTED, "{number}");
            }
        });
        tokio::join!(async { fenced.collect::<JoinSet<_>>().join_all().await }, async {
            granted.collect::<JoinSet<_>>().join_all().await
        },);
    }
    on_both(test, test).await;
}

/// Fails if a row that takes too long stops the only writer, so that steps of other keys fail. An
/// endless row would stop it for ever.
#[tokio::test(flavor = "multi_thread")]
async fn an_endless_row_in_sqlite_fails_alone() {
    const ENDLESS: &str = "CREATE VIEW endless AS
            WITH RECURSIVE number (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM number)
            SELECT value FROM number WHERE value < 0;
        CREATE TRIGGER be_endless BEFORE INSERT ON idempotency_records
        WHEN NEW.operation = 'endless' BEGIN SELECT count(*) FROM endless; END";
    let ([store, _], database) = SqliteStore::open().await;
    database.execute(ENDLESS, "").await;
    let endless = request().with_operation(ShortText::new("endless").unwrap());
    let claims = (1..=MANY).map(|number| {
        let (store, claim) = (&store, if number == 7 { endless.clone() } else { request() });
        async move { store.claim(&id(number), &claim).await }
    });
    for (number, outcome) in (1..).zip(join_all(claims).await) {
        match outcome {
            Ok(outcome) => assert_eq!((number == 7, outcome), (false, GRANTED)),
            Err(error) => assert!(number == 7 && error.is_transient(), "{number}: {error:?}"),
        }
    }
    // A handler's transaction on the same connection has no limit of the store.
    let transaction = store.transactions().unwrap().begin().await.unwrap();
    assert!(transaction.roll_back().await);
}

/// A store without batches executes each step alone, as it did before there were batches.
#[tokio::test(flavor = "multi_thread")]
async fn without_group_commit_there_are_no_batches() {
    let file = File::new();
    let sqlite = file.open_with(SqliteStore::options().group_commit(false)).await;
    sqlite.migrate().await.unwrap();
    claim_and_complete(&sqlite, 1..=MANY).await;
    assert_eq!(sqlite.counts().batches, 0);
    let postgres = PostgresStore::options().group_commit(false);
    let postgres = postgres.connect(&database().await).await.unwrap();
    postgres.migrate().await.unwrap();
    claim_and_complete(&postgres, 1..=MANY).await;
    assert_eq!(postgres.counts().batches, 0);
}
