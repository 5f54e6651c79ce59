//! A consumer of a Redis stream that applies each message once in Postgres, whenever it dies.
//!
//! ```text
//! $ export REDIS_URL=redis://127.0.0.1 DATABASE_URL=postgres://me@localhost/ledger
//! $ redis-cli XADD deposits '*' id d-1 account alice cents 1200
//! $ redis-cli XADD deposits '*' id d-2 account bob cents 500
//! $ redis-cli XADD deposits '*' id d-1 account alice cents 1200
//! $ redis-cli XADD deposits '*' id d-2 account bob cents 900
//! $ redis-cli XADD deposits '*' id d-3 account bob cents -1
//! $ cargo run -p consumer
//! consumer 4711 is ready
//! d-1: applied, the balance of alice is 1200
//! d-2: applied, the balance of bob is 500
//! d-1: replayed, the balance of alice is 1200
//! d-2: set aside: the key was first used with another input
//! d-3: set aside: the operation failed: the amount is not positive
//! ```
//! Messages that were set aside are in the stream `deposits:aside`. The others are deposits:
//! ```text
//! $ psql $DATABASE_URL -Atc 'SELECT * FROM balances'
//! alice|1200
//! bob|500
//! ```
//! The field `id`, which the producer chooses, is the key. The producer may send a message twice,
//! and Redis delivers one again if its consumer dies. Start several consumers, and kill one with
//! `kill -9`: another one takes over its messages (`XAUTOCLAIM`) after `REDELIVER_AFTER_MS`, 5000
//! by default.
//!
//! The claim, the deposit and its result are one commit. With `CLAIM=lease`, the claim is committed
//! before, as a consumer needs that calls other services while it works.
//!
//! A message is acknowledged once it has a result. If the result is an error that does not pass by
//! itself, the message is set aside before.

use std::{env, error::Error, process, time::Duration};

use idempotent_core::{
    Key, Policy, Runtime, ScopeId,
    job::{ClaimMode, Failure, Job, JobTransaction, RunError},
    runtime::RuntimeOptions,
};
use idempotent_postgres::PostgresStore;
use redis::{
    AsyncCommands, AsyncConnectionConfig, RedisError,
    aio::MultiplexedConnection,
    streams::{
        StreamAutoClaimOptions, StreamAutoClaimReply, StreamId, StreamReadOptions, StreamReadReply,
    },
};
use sqlx::{Connection, PgConnection};

const STREAM: &str = "deposits";
const ASIDE: &str = "deposits:aside";
const GROUP: &str = "ledger";
/// How many messages are read at once.
const BATCH: usize = 10;
/// How long a read waits for a new message at most.
const WAIT: Duration = Duration::from_millis(500);
/// How long the producer may send a message again, and Redis may deliver it again.
const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

const DEPOSIT: Job = Job::new("deposit");

/// The lock prevents that two consumers create the tables at the same time.
const TABLES: &str = "
    SELECT pg_advisory_xact_lock(7146);
    CREATE TABLE IF NOT EXISTS balances (account text PRIMARY KEY, cents bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS deposits (message text, account text, cents bigint);
";

/// What a message says. Another deposit with the same key is a mismatch.
#[derive(serde::Serialize)]
struct Deposit {
    account: String,
    cents: i64,
}

struct Consumer {
    redis: MultiplexedConnection,
    runtime: Runtime,
    job: Job,
    name: String,
    redeliver_after: Duration,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let database = variable("DATABASE_URL", "postgres://localhost/postgres");
    sqlx::raw_sql(TABLES).execute(&mut PgConnection::connect(&database).await?).await?;
    let store = PostgresStore::connect(&database).await?;
    store.migrate().await?;

    let redeliver_after = Duration::from_millis(variable("REDELIVER_AFTER_MS", "5000").parse()?);
    let in_transaction = variable("CLAIM", "transaction") == "transaction";
    let claim = if in_transaction { ClaimMode::Transaction } else { ClaimMode::Lease };
    // When a message is delivered again, the lease of the consumer that died has expired.
    let policy = Policy::DEFAULT.with_ttl(RETENTION).with_lease(redeliver_after / 2);

    // The limit on the response is longer than `WAIT`.
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(WAIT * 10));
    let client = redis::Client::open(variable("REDIS_URL", "redis://127.0.0.1"))?;
    let mut redis = client.get_multiplexed_async_connection_with_config(&config).await?;
    let created: Result<(), RedisError> = redis.xgroup_create_mkstream(STREAM, GROUP, "0").await;
    created.or_else(|error| if error.code() == Some("BUSYGROUP") { Ok(()) } else { Err(error) })?;

    let mut options = RuntimeOptions::default();
    options.namespace = Some(env!("CARGO_PKG_NAME").to_owned());
    let mut consumer = Consumer {
        redis,
        runtime: Runtime::new(store, options),
        job: DEPOSIT.with_policy(policy).with_claim(claim),
        name: process::id().to_string(),
        redeliver_after,
    };
    println!("consumer {} is ready", consumer.name);
    loop {
        for message in consumer.receive().await? {
            consumer.process(&message).await?;
        }
    }
}

fn variable(name: &str, default: &str) -> String {
    env::var(name).unwrap_or_else(|_| default.to_owned())
}

impl Consumer {
    /// Receives messages that another consumer has left, or else new ones.
    async fn receive(&mut self) -> Result<Vec<StreamId>, RedisError> {
        let idle = self.redeliver_after.as_millis().to_string();
        let options = StreamAutoClaimOptions::default().count(BATCH);
        let left: StreamAutoClaimReply =
            self.redis.xautoclaim_options(STREAM, GROUP, &self.name, idle, "0-0", options).await?;
        if !left.claimed.is_empty() {
            return Ok(left.claimed);
        }
        let wait = WAIT.min(self.redeliver_after).as_millis().try_into().unwrap_or(usize::MAX);
        let options = StreamReadOptions::default().group(GROUP, &self.name).count(BATCH);
        let new: Option<StreamReadReply> =
            self.redis.xread_options(&[STREAM], &[">"], &options.block(wait)).await?;
        Ok(new.into_iter().flat_map(|new| new.keys).flat_map(|key| key.ids).collect())
    }

    /// Applies a message and acknowledges it, or leaves it for a later delivery.
    async fn process(&mut self, message: &StreamId) -> Result<(), RedisError> {
        let id: String = message.get("id").unwrap_or_default();
        let reason = match parse(message) {
            None => "not a deposit".to_owned(),
            Some((key, deposit)) => match self.apply(&key, deposit).await {
                Ok(applied) => {
                    println!("{id}: {applied}");
                    return self.acknowledge(message).await;
                }
                Err(error) if error.is_transient() => {
                    println!("{id}: left for a later delivery: {error}");
                    return Ok(());
                }
                Err(error) => error.to_string(),
            },
        };
        println!("{id}: set aside: {reason}");
        let fields = [("id", id), ("reason", reason)];
        let _: Option<String> = self.redis.xadd(ASIDE, "*", &fields).await?;
        self.acknowledge(message).await
    }

    async fn acknowledge(&mut self, message: &StreamId) -> Result<(), RedisError> {
        self.redis.xack(STREAM, GROUP, &[&message.id]).await
    }

    /// Makes a deposit once for its key.
    async fn apply(&self, key: &Key, deposit: Deposit) -> Result<String, RunError> {
        let (scope, message) = (ScopeId::global(), key.as_str().to_owned());
        let Deposit { account, cents } = &deposit;
        let work = async |_, mut transaction: JobTransaction<PgConnection>| {
            if *cents <= 0 {
                return Err(Failure::Final("the amount is not positive".to_owned()));
            }
            let connection = transaction.connection().await?;
            sqlx::query("INSERT INTO deposits (message, account, cents) VALUES ($1, $2, $3)")
                .bind(message)
                .bind(account)
                .bind(cents)
                .execute(&mut *connection)
                .await?;
            let balance: i64 = sqlx::query_scalar(
                "INSERT INTO balances AS old (account, cents) VALUES ($1, $2)
                 ON CONFLICT (account) DO UPDATE SET cents = old.cents + excluded.cents
                 RETURNING cents",
            )
            .bind(account)
            .bind(cents)
            .fetch_one(connection)
            .await?;
            Ok(balance)
        };
        let Self { runtime, job, .. } = self;
        let run = runtime.run_in_transaction(job, &scope, key, &deposit, work);
        let done = run.await?;
        let verb = if done.replayed { "replayed" } else { "applied" };
        Ok(format!("{verb}, the balance of {account} is {}", done.value))
    }
}

/// The key and the content of a message, unless it is malformed.
fn parse(message: &StreamId) -> Option<(Key, Deposit)> {
    let key = Key::from_text(message.get::<String>("id")?).ok()?;
    let (account, cents) = (message.get("account")?, message.get("cents")?);
    Some((key, Deposit { account, cents }))
}
