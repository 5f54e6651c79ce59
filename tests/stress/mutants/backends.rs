//! Stores with the statements or scripts of a variant.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId,
    conformance::{Action, TestedStore, history},
    protocol::{Claim, ClaimOutcome, Fence, Rejection},
    store::{Store, TransactionClaim},
};
use idempotent_postgres::{
    PostgresStore,
    internals::{alter_postgres, batched_postgres, postgres_batches},
};
use idempotent_redis::{
    RedisStore,
    internals::{alter_redis, with_options},
};
use idempotent_sqlite::{
    SqliteStore,
    internals::{alter_sqlite, batched_sqlite},
};
use sqlx::{AssertSqlSafe, PgPool, SqlitePool};

use super::Variant;
use crate::{
    claims_in_transactions::InTransaction,
    effects::Effects,
    fixtures::{Fixture, Redis, unique},
    hammer::request,
};
use test_support::{
    servers::{
        postgres::database,
        redis::{IN_MEMORY, Server},
    },
    subjects::{self, sqlite::File},
};

mod detectors;
mod shifted;

pub(super) use self::detectors::reads_from_a_replica;
use self::{
    detectors::completes_late_wrongly,
    shifted::{Rows, ShiftedStore},
};

pub(super) enum Backend {
    Sqlite,
    /// With all claims and completions in batches, or alone.
    Postgres {
        url: String,
        pool: PgPool,
        batched: bool,
    },
    Redis(Redis),
}

impl Backend {
    pub(super) async fn postgres() -> Self {
        let url = database().await;
        // Concurrent sessions that create the same table fail, even with `IF NOT EXISTS`.
        drop(Effects::postgres(&url).await);
        Self::Postgres { pool: PgPool::connect(&url).await.unwrap(), url, batched: false }
    }

    pub(super) async fn postgres_in_batches() -> Self {
        let mut backend = Self::postgres().await;
        if let Self::Postgres { batched, .. } = &mut backend {
            *batched = true;
        }
        backend
    }

    /// The folder of its statements or scripts.
    pub(super) fn folder(&self) -> &'static str {
        match self {
            Self::Sqlite => "stores/sqlite/src/sql",
            Self::Postgres { .. } => "stores/postgres/src/sql",
            Self::Redis(_) => "stores/redis/src/lua",
        }
    }

    /// Two stores of a variant.
    pub(super) async fn fixture(&self, variant: Variant) -> Fixture {
        match self {
            Self::Sqlite => {
                let file = File::new();
                let stores =
                    [sqlite(&file, variant).await, batched_sqlite(sqlite(&file, variant).await)];
                stores[0].migrate().await.unwrap();
                let effects = Effects::sqlite(&file.url()).await;
                Fixture::new(stores, file).with(effects)
            }
            Self::Postgres { url, batched, .. } => {
                let (table, open) = (unique(), postgres);
                let stores = [
                    open(url, &table, variant, *batched).await,
                    open(url, &table, variant, *batched).await,
                ];
                Store::migrate(&stores[0]).await.unwrap();
                Fixture::new(stores, ()).with(Effects::postgres(url).await)
            }
            Self::Redis(server) => {
                let prefix = unique();
                let open = || async { redis_store(server.open(&prefix).await, variant) };
                Fixture::new([open().await, open().await], ())
            }
        }
    }

    /// A store of a variant, whose time the suite can move.
    pub(super) async fn subject(
        &self,
        variant: Variant,
        in_transactions: bool,
    ) -> Arc<dyn TestedStore> {
        let subject: Arc<dyn TestedStore> = match self {
            Self::Sqlite => {
                let file = File::new();
                let store = sqlite(&file, variant).await;
                let pool = SqlitePool::connect(&file.url()).await.unwrap();
                let rows = Rows::Sqlite { pool, _file: file };
                Arc::new(ShiftedStore { store: boxed(store, in_transactions, None), rows })
            }
            Self::Postgres { url, pool, batched } => {
                let table = unique();
                let store = postgres(url, &table, variant, *batched).await;
                Arc::new(ShiftedStore {
                    store: boxed(store, in_transactions, Some(table.clone())),
                    rows: Rows::Postgres { pool: pool.clone(), table },
                })
            }
            Self::Redis(server) => {
                let raw =
                    ::redis::Client::open(server.url.as_str()).unwrap().get_connection().unwrap();
                let prefix = unique();
                let store = redis_store(server.open(&prefix).await, variant);
                Arc::new(subjects::redis::ShiftedRedis::new(store, prefix, Box::new(raw)))
            }
        };
        subject.store().migrate().await.unwrap();
        subject
    }
}

impl Backend {
    /// A random history. For Redis, a purge follows each advance, because Redis removes expired
    /// keys by itself.
    pub(super) fn history(&self, seed: u64) -> Vec<Action> {
        let purges = matches!(self, Self::Redis(_));
        let purge = |step| {
            if purges && step == Action::Advance { vec![step, Action::Purge] } else { vec![step] }
        };
        history(seed, 200).into_iter().flat_map(purge).collect()
    }

    /// Whether a key that is held, or could become held, expires in the server, or whether a
    /// completion after the TTL is refused although its claim is still stored.
    /// For Postgres, whether a completion after the TTL, in the transaction of its claim, does not
    /// start a new TTL.
    pub(super) async fn expires_wrongly(&self, variant: Variant) -> bool {
        if let Self::Postgres { url, pool, .. } = self {
            return completes_late_wrongly(url, pool, variant).await;
        }
        let Self::Redis(server) = self else { return false };
        let prefix = unique();
        let store = redis_store(server.open(&prefix).await, variant);
        let mut raw = ::redis::Client::open(server.url.as_str()).unwrap().get_connection().unwrap();
        let mut expires = false;
        for (number, abandoned) in [(1, Abandoned::Retry), (2, Abandoned::Hold)] {
            let claim = request(Duration::from_secs(60)).with_abandoned(abandoned);
            let lease = Lease { id: RecordId::from_bytes([number; 32]), owner: claim.owner };
            store.claim(&lease.id, &claim).await.unwrap();
            if abandoned == Abandoned::Retry {
                store.abandon(&lease, Abandoned::Hold).await.unwrap();
            }
            let key = [prefix.as_bytes(), lease.id.as_bytes()].concat();
            let left: i64 = ::redis::cmd("PTTL").arg(key).query(&mut raw).unwrap();
            expires |= left != -1;
        }
        let claim = request(Duration::from_millis(10)).with_ttl(Duration::from_millis(20));
        let lease = Lease { id: RecordId::from_bytes([3; 32]), owner: claim.owner };
        store.claim(&lease.id, &claim).await.unwrap();
        while store.look_up(&lease.id).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        expires || store.complete(&lease, &Bytes::new()).await.is_err()
    }

    /// Whether a repeated hold is accepted for a record that is absent, belongs to another owner,
    /// or is not held. There are no replicas, so a hold whose record matches must fail.
    pub(super) async fn holds_wrongly(&self, variant: Variant) -> bool {
        let Self::Redis(server) = self else { return false };
        let prefix = unique();
        let store = redis_store(server.open(&prefix).await, variant);
        let options = RedisStore::options().key_prefix(&prefix);
        let options = options.wait_for_replicas(1, Duration::from_millis(1));
        let without_replicas = with_options(&store, &options);
        let new = |number| (RecordId::from_bytes([number; 32]), request(Duration::from_secs(60)));
        let [absent, held, completed] = [1, 2, 3].map(new);
        for (id, claim) in [&held, &completed] {
            store.claim(id, claim).await.unwrap();
        }
        let lease = |(id, claim): &(RecordId, Claim)| Lease { id: *id, owner: claim.owner };
        store.complete(&lease(&completed), &Bytes::new()).await.unwrap();
        let held_fails = without_replicas.abandon(&lease(&held), Abandoned::Hold).await.is_err()
            && without_replicas.abandon(&lease(&held), Abandoned::Hold).await.is_err();
        let of_another_owner = Lease { owner: OwnerToken::from_bytes([2; 16]), ..lease(&held) };
        let mut fenced = true;
        for lease in [lease(&absent), of_another_owner, lease(&completed)] {
            fenced &= matches!(
                without_replicas.abandon(&lease, Abandoned::Hold).await,
                Ok(Fence::Fenced)
            );
        }
        !held_fails || !fenced
    }

    /// Whether a replay waits for a session that is writing the record. A replay that has waited
    /// too long is reported as in flight.
    pub(super) async fn waits_for_a_writer(&self, variant: Variant) -> bool {
        let Self::Postgres { url, pool, batched } = self else { return false };
        let (table, claim) = (unique(), request(Duration::from_secs(60)));
        let store = postgres(url, &table, variant, *batched).await;
        Store::migrate(&store).await.unwrap();
        let lease = Lease { id: RecordId::from_bytes([1; 32]), owner: claim.owner };
        store.claim(&lease.id, &claim).await.unwrap();
        store.complete(&lease, &Bytes::new()).await.unwrap();
        let mut writing = pool.begin().await.unwrap();
        let write = AssertSqlSafe(format!("UPDATE {table} SET lease_until = lease_until"));
        sqlx::raw_sql(write).execute(&mut *writing).await.unwrap();
        let replay = store.claim(&lease.id, &request(Duration::from_secs(60))).await;
        writing.rollback().await.unwrap();
        // A batch that waits fails, and the replay is then executed alone.
        let [claims, _] = postgres_batches(&store);
        claims.alone > 0
            || replay.is_ok_and(|outcome| {
                matches!(outcome, ClaimOutcome::Rejected(Rejection::InFlight { .. }))
            })
    }

    /// Whether a batch returns a large recording, instead of leaving it to a step alone.
    pub(super) async fn returns_a_large_recording(&self, variant: Variant) -> bool {
        const LARGE: u8 = 100;
        let Self::Postgres { url, batched, .. } = self else { return false };
        let store = postgres(url, &unique(), variant, *batched).await;
        Store::migrate(&store).await.unwrap();
        let record = |number| RecordId::from_bytes([number; 32]);
        for number in 1..=LARGE {
            let claim = request(Duration::from_secs(60));
            let lease = Lease { id: record(number), owner: claim.owner };
            store.claim(&lease.id, &claim).await.unwrap();
            let recording = vec![number; if number == LARGE { 64 << 10 } else { 1 }];
            store.complete(&lease, &recording.into()).await.unwrap();
        }
        let before = postgres_batches(&store)[0].alone;
        let replays = (1..=LARGE).map(|number| {
            let store = &store;
            async move { store.claim(&record(number), &request(Duration::from_secs(60))).await }
        });
        for replay in futures_util::future::join_all(replays).await {
            assert!(matches!(replay.unwrap(), ClaimOutcome::Rejected(Rejection::Completed(_))));
        }
        postgres_batches(&store)[0].alone == before
    }

    /// The change of a record that a takeover misses, if any, when a concurrent writer makes the
    /// change after the takeover has read the record.
    pub(super) async fn misses_a_change(&self, variant: Variant) -> Option<String> {
        for (change, known) in [
            ("attempt = attempt + 2", "Granted { attempt: 4 }"),
            ("fingerprint = {other}", "Mismatch"),
            ("abandoned = 1", "Held { newly: true, reference: None }"),
        ] {
            let outcome = self.takeover_during(variant, change).await?;
            if !outcome.starts_with(known) {
                return Some(format!("after {change} a takeover returned {outcome}"));
            }
        }
        None
    }

    async fn takeover_during(&self, variant: Variant, change: &str) -> Option<String> {
        const WAITS: Duration = Duration::from_millis(200);
        let (id, first) = (RecordId::from_bytes([1; 32]), request(Duration::ZERO));
        let claim = request(Duration::from_secs(60));
        let outcome = match self {
            Self::Sqlite => {
                let file = File::new();
                let store = sqlite(&file, variant).await;
                store.migrate().await.unwrap();
                store.claim(&id, &first).await.unwrap();
                let pool = SqlitePool::connect(&file.url()).await.unwrap();
                let mut other = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
                let takeover = tokio::spawn(async move { store.claim(&id, &claim).await });
                tokio::time::sleep(WAITS).await;
                let change = AssertSqlSafe(format!(
                    "UPDATE idempotency_records SET {}",
                    change.replace("{other}", "zeroblob(36)")
                ));
                sqlx::raw_sql(change).execute(&mut *other).await.unwrap();
                other.commit().await.unwrap();
                takeover.await.unwrap()
            }
            Self::Postgres { url, pool, batched } => {
                let table = unique();
                let store = postgres(url, &table, variant, *batched).await;
                Store::migrate(&store).await.unwrap();
                store.claim(&id, &first).await.unwrap();
                let mut other = pool.begin().await.unwrap();
                let change = change.replace("{other}", "decode(repeat('00', 36), 'hex')");
                let change = AssertSqlSafe(format!("UPDATE {table} SET {change}"));
                sqlx::raw_sql(change).execute(&mut *other).await.unwrap();
                let takeover = tokio::spawn(async move { store.claim(&id, &claim).await });
                tokio::time::sleep(WAITS).await;
                other.commit().await.unwrap();
                takeover.await.unwrap()
            }
            Self::Redis(_) => return None,
        };
        Some(format!("{:?}", outcome.unwrap()))
    }
}

fn boxed(store: impl Store, in_transactions: bool, table: Option<String>) -> Box<dyn Store> {
    if in_transactions { Box::new(InTransaction { store, table }) } else { Box::new(store) }
}

pub(super) async fn sqlite(file: &File, variant: Variant) -> SqliteStore {
    alter_sqlite(file.open().await, |name, text| variant.alter(&format!("{name}.sql"), text))
}

pub(super) async fn postgres(
    url: &str,
    table: &str,
    variant: Variant,
    batched: bool,
) -> PostgresStore {
    let store = PostgresStore::options().table(table).group_commit(batched);
    let store = store.connect(url).await.unwrap();
    let store = if batched { batched_postgres(store) } else { store };
    alter_postgres(store, |name, text| variant.alter(&format!("{name}.sql"), text))
}

pub(super) fn redis_store(store: RedisStore, variant: Variant) -> RedisStore {
    let files = super::files("stores/redis/src/lua");
    let altered = files.iter().map(|file| {
        let text = super::read("stores/redis/src/lua", file);
        let altered = variant.alter(file, &text);
        (text, altered)
    });
    alter_redis(store, &altered.collect::<Vec<_>>())
}
