//! The stores under test. Most are opened twice, like by two processes, of which one executes its
//! claims and completions in batches, or stores recordings without a script if the server can.

use std::{
    any::Any,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    check_then_act::CheckThenActStore,
    effects::{Effects, hex},
};
use idempotent_core::{
    OwnerToken,
    clock::{Clock, SystemClock, Timestamp},
    store::{Store, memory::MemoryStore},
};
use idempotent_postgres::{PostgresStore, internals::batched_postgres};
use idempotent_redis::{RedisStore, internals::with_large_recordings_from};
use idempotent_sqlite::internals::batched_sqlite;
use test_support::{
    servers::{
        postgres::database,
        redis::{IN_MEMORY, Server},
    },
    subjects::sqlite::File,
};

/// Stores that share their records, and the resources that they need.
pub(super) struct Fixture {
    pub(super) stores: Vec<Arc<dyn Store>>,
    /// The effects of the stores' transactions, if they have transactions.
    pub(super) effects: Option<Arc<Effects>>,
    _kept: Box<dyn Any + Send + Sync>,
}

impl Fixture {
    pub(super) fn new(
        stores: impl IntoIterator<Item = impl Store>,
        kept: impl Any + Send + Sync,
    ) -> Self {
        let stores = stores.into_iter().map(|store| Arc::new(store) as Arc<dyn Store>).collect();
        Self { stores, effects: None, _kept: Box::new(kept) }
    }

    pub(super) fn with(self, effects: Effects) -> Self {
        Self { effects: Some(Arc::new(effects)), ..self }
    }

    /// Makes the workers complete without transactions.
    pub(super) fn without_effects(self) -> Self {
        Self { effects: None, ..self }
    }

    pub(super) fn memory() -> Self {
        Self::new([MemoryStore::with_clock(YieldingClock(SystemClock::new()))], ())
    }

    /// An unsafe memory store.
    pub(super) fn check_then_act() -> Self {
        Self::new([CheckThenActStore::new(YieldingClock(SystemClock::new()))], ())
    }

    pub(super) async fn sqlite() -> Self {
        let file = File::new();
        let stores = [file.open().await, batched_sqlite(file.open().await)];
        stores[0].migrate().await.unwrap();
        let effects = Effects::sqlite(&file.url()).await;
        Self::new(stores, file).with(effects)
    }

    pub(super) async fn postgres() -> Self {
        let url = database().await;
        let stores = [
            PostgresStore::options().group_commit(false).connect(&url).await.unwrap(),
            batched_postgres(PostgresStore::connect(&url).await.unwrap()),
        ];
        Store::migrate(&stores[0]).await.unwrap();
        Self::new(stores, ()).with(Effects::postgres(&url).await)
    }

    #[cfg(feature = "mysql")]
    pub(super) async fn mysql() -> Self {
        use idempotent_mysql::{MySqlStore, internals::batched_mysql};
        let url = test_support::servers::mariadb::database().await;
        let stores = [
            MySqlStore::options().group_commit(false).connect(&url).await.unwrap(),
            batched_mysql(MySqlStore::connect(&url).await.unwrap()),
        ];
        Store::migrate(&stores[0]).await.unwrap();
        Self::new(stores, ()).with(Effects::mysql(&url).await)
    }

    #[cfg(feature = "dynamodb")]
    pub(super) async fn dynamodb() -> Self {
        use test_support::servers::dynamodb::{Emulator, open, patient, unique_table};
        let (port, table) = (Emulator::shared().port, unique_table());
        let stores = [open(port, &table, patient()), open(port, &table, patient())];
        Store::migrate(&stores[0]).await.unwrap();
        Self::new(stores, ())
    }

    pub(super) async fn redis() -> Self {
        let (server, prefix) = (Redis::start(), format!("{}:", unique()));
        let [first, second] = [server.open(&prefix).await, server.open(&prefix).await];
        let stores = [first, with_large_recordings_from(second, 0)];
        Self::new(stores, server)
    }
}

/// A clock that lets other threads run before it returns the time. A memory store reads it in the
/// middle of each step, so that calls overlap.
struct YieldingClock(SystemClock);

impl Clock for YieldingClock {
    fn now(&self) -> Timestamp {
        // On a busy machine, one yield may take a time slice of each of the other threads.
        let until = Instant::now() + Duration::from_micros(100);
        for _ in 0..100 {
            std::thread::yield_now();
            if Instant::now() >= until {
                break;
            }
        }
        self.0.now()
    }
}

/// A unique name.
pub(super) fn unique() -> String {
    format!("s{}", hex(OwnerToken::random().unwrap().as_bytes()))
}

/// A Redis server: a private one, or the one that `REDIS_URL` names.
pub(super) struct Redis {
    pub(super) url: String,
    _own: Option<Server>,
}

impl Redis {
    pub(super) fn start() -> Self {
        if let Ok(url) = std::env::var("REDIS_URL") {
            return Self { url, _own: None };
        }
        let own = Server::start(IN_MEMORY);
        Self { url: own.url(), _own: Some(own) }
    }

    /// Opens a store with a long timeout, because the machine may be busy.
    pub(super) async fn open(&self, prefix: &str) -> RedisStore {
        let options = RedisStore::options().response_timeout(Duration::from_secs(60));
        options.key_prefix(prefix).connect(&self.url).await.unwrap()
    }
}
