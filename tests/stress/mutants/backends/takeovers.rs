//! Takeovers of a record that changes between their read and their write.

use super::*;

impl Backend {
    /// The change of a record that a takeover misses, if any, when a concurrent writer makes the
    /// change after the takeover has read the record.
    pub(in crate::mutants) async fn misses_a_change(&self, variant: Variant) -> Option<String> {
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
            #[cfg(feature = "mysql")]
            Self::MySql { url, pool, batched } => {
                let table = unique();
                let store = mysql(url, &table, variant, *batched).await;
                Store::migrate(&store).await.unwrap();
                store.claim(&id, &first).await.unwrap();
                let mut other = pool.begin().await.unwrap();
                let change = change.replace("{other}", "REPEAT(X'00', 36)");
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

    /// Claims a key in Postgres while another session is inserting it, which then commits. The
    /// claim has looked for the record before, so only its insert can notice it.
    pub(in crate::mutants) async fn misses_an_insert(&self, variant: Variant) -> Option<String> {
        const POLL: Duration = Duration::from_millis(2);
        let Self::Postgres { url, pool, batched } = self else { return None };
        let [id, other_id] = [1, 2].map(|byte| RecordId::from_bytes([byte; 32]));
        let [first, claim] = [(); 2].map(|()| request(Duration::from_secs(60)));
        let table = unique();
        let store = postgres(url, &table, variant, *batched).await;
        Store::migrate(&store).await.unwrap();
        store.claim(&other_id, &first).await.unwrap();
        let mut other = pool.begin().await.unwrap();
        let insert = format!("UPDATE {table} SET id = decode(repeat('01', 32), 'hex')");
        sqlx::raw_sql(AssertSqlSafe(insert)).execute(&mut *other).await.unwrap();
        let session: i32 =
            sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *other).await.unwrap();
        let claimed = tokio::spawn(async move { store.claim(&id, &claim).await });
        let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity \
            WHERE $1 = ANY (pg_blocking_pids(pid)))";
        while !claimed.is_finished()
            && !sqlx::query_scalar::<_, bool>(waits).bind(session).fetch_one(pool).await.unwrap()
        {
            tokio::time::sleep(POLL).await;
        }
        other.commit().await.unwrap();
        let outcome = format!("{:?}", claimed.await.unwrap().unwrap());
        (!outcome.starts_with("InFlight")).then(|| format!("a claim during an insert: {outcome}"))
    }
}
