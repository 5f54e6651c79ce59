//! Faults of a backend that no other detector finds.

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

impl Backend {
    /// A random history. For Redis, a purge follows each advance, because Redis removes expired
    /// keys by itself.
    pub(in crate::mutants) fn history(&self, seed: u64) -> Vec<Action> {
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
    pub(in crate::mutants) async fn expires_wrongly(&self, variant: Variant) -> bool {
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
    pub(in crate::mutants) async fn holds_wrongly(&self, variant: Variant) -> bool {
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
    pub(in crate::mutants) async fn waits_for_a_writer(&self, variant: Variant) -> bool {
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

    /// Whether a batch returns a large recording, instead of leaving it to a step alone, or leaves
    /// other steps to be executed alone.
    pub(in crate::mutants) async fn batches_wrongly(&self, variant: Variant) -> bool {
        match self {
            Self::Postgres { url, batched, .. } => {
                let store = postgres(url, &unique(), variant, *batched).await;
                complete_and_replay(&store).await;
                postgres_batches(&store)[0].alone == 0
            }
            #[cfg(feature = "mysql")]
            Self::MySql { url, batched, .. } => {
                let store = mysql(url, &unique(), variant, *batched).await;
                complete_and_replay(&store).await;
                let batches = idempotent_mysql::internals::mysql_batches(&store);
                batches.map(|counts| counts.alone) != [1, 0]
            }
            Self::Sqlite | Self::Redis(_) => false,
        }
    }
}

/// Claims and completes 100 keys one after the other, of which the last one has a large recording,
/// and replays them all at once.
async fn complete_and_replay(store: &impl Store) {
    const LARGE: u8 = 100;
    store.migrate().await.unwrap();
    let record = |number| RecordId::from_bytes([number; 32]);
    for number in 1..=LARGE {
        let claim = request(Duration::from_secs(60));
        let lease = Lease { id: record(number), owner: claim.owner };
        store.claim(&lease.id, &claim).await.unwrap();
        let recording = vec![number; if number == LARGE { 64 << 10 } else { 1 }];
        store.complete(&lease, &recording.into()).await.unwrap();
    }
    let replays = (1..=LARGE).map(|number| async move {
        store.claim(&record(number), &request(Duration::from_secs(60))).await
    });
    for replay in futures_util::future::join_all(replays).await {
        assert!(matches!(replay.unwrap(), ClaimOutcome::Rejected(Rejection::Completed(_))));
    }
}
