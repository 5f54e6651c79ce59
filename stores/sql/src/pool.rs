//! Connection pools of the SQL stores.
//!
//! sqlx's pool pings each connection that is returned to it, which costs a second round trip for
//! each statement. The stores' own connections are therefore pooled by `deadpool`, which does not
//! ping. In return, a connection that may be in the middle of a response is not reused before that
//! response has been read.

use std::{any::Any, sync::Arc, time::Duration};

use async_trait::async_trait;
use deadpool::managed::{self, Metrics, Pool, PoolError, QueueMode, RecycleError, RecycleResult};
use sqlx::{Connection, Database, pool::PoolConnection};
use tokio::{runtime::Handle, time::timeout};

use self::connection::ConnectionInner;
pub use self::connection::PooledConnection;
use idempotent_core::store::NoRuntime;

mod connection;

/// How long a call waits for one of the store's own connections.
pub(crate) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// One of the store's own connections that was idle for longer is pinged before its next use.
const PING_AFTER_IDLE: Duration = Duration::from_secs(1);

/// A pool of connections: the store's own, or one that the application shares.
pub struct ConnectionPool<C: Connection> {
    source: PoolInner<C>,
    lifecycle: Option<Arc<dyn ConnectionLifecycle<C>>>,
}

enum PoolInner<C: Connection> {
    /// Connections that only the store uses.
    Own(Pool<ConnectionManager<C>>),
    /// The application's pool.
    Shared(sqlx::Pool<C::Database>),
}

impl<C: Connection> Clone for ConnectionPool<C> {
    fn clone(&self) -> Self {
        let source = match &self.source {
            PoolInner::Own(pool) => PoolInner::Own(pool.clone()),
            PoolInner::Shared(pool) => PoolInner::Shared(pool.clone()),
        };
        Self { source, lifecycle: self.lifecycle.clone() }
    }
}

/// What connections to a server need and connections to a file do not: a server can hang, and it
/// goes on with a statement whose client has gone.
#[async_trait]
pub trait ConnectionLifecycle<C: Connection>: Send + Sync {
    /// Opens a connection.
    async fn open(&self, options: &C::Options) -> Result<C, sqlx::Error>;

    /// Reads what the store keeps with a connection that was just opened, and prepares its session.
    async fn attachment(
        &self,
        _connection: &mut C,
    ) -> Result<Option<Arc<dyn Any + Send + Sync>>, sqlx::Error> {
        Ok(None)
    }

    /// Acquires a connection from an application's pool.
    async fn acquire(
        &self,
        pool: &sqlx::Pool<C::Database>,
    ) -> Result<PoolConnection<C::Database>, sqlx::Error> {
        pool.acquire().await
    }

    /// Whether the server responds on a connection.
    async fn responds(&self, connection: &mut C) -> bool;

    /// Changes whenever all connections that were opened before are presumed dead.
    fn epoch(&self) -> u64;

    /// Takes over a connection that was dropped in the middle of a statement. It keeps its place in
    /// the pool until it is dropped. Where a transaction may be open, `base_depth` is sqlx's
    /// transaction depth without it.
    fn reclaim(&self, connection: PooledConnection<C>, base_depth: Option<usize>);
}

/// How long one of the store's own connections is used.
#[derive(Clone, Copy)]
pub struct Lifetime {
    /// The longest idle time; after it, a device between client and server may have dropped the
    /// connection.
    pub idle: Duration,
    /// The longest total time; after it, a changed address takes effect and the session's memory is
    /// freed.
    pub all: Duration,
}

impl Lifetime {
    /// Without limits, for connections to a file.
    pub const UNLIMITED: Self = Self { idle: Duration::MAX, all: Duration::MAX };
}

/// Opens the store's own connections.
struct ConnectionManager<C: Connection> {
    options: C::Options,
    lifetime: Lifetime,
    lifecycle: Option<Arc<dyn ConnectionLifecycle<C>>>,
}

/// One of the store's own connections.
struct OwnConnection<C> {
    /// `None` once it has been disconnected.
    connection: Option<C>,
    /// The [epoch](ConnectionLifecycle::epoch) in which it was opened.
    epoch: u64,
    /// Data that the store keeps with the connection.
    attachment: Option<Arc<dyn Any + Send + Sync>>,
}

impl<C: Connection> managed::Manager for ConnectionManager<C> {
    type Type = OwnConnection<C>;
    type Error = sqlx::Error;

    async fn create(&self) -> Result<OwnConnection<C>, sqlx::Error> {
        // Read before connecting, so that an epoch that begins meanwhile ends this connection too.
        let epoch = self.epoch();
        let (connection, attachment) = match &self.lifecycle {
            Some(lifecycle) => {
                let mut connection = lifecycle.open(&self.options).await?;
                let attachment = lifecycle.attachment(&mut connection).await?;
                (connection, attachment)
            }
            // Boxed here and below: keeps the futures of all calls small where a pooled connection
            // is free.
            None => (Box::pin(C::connect_with(&self.options)).await?, None),
        };
        Ok(OwnConnection { connection: Some(connection), epoch, attachment })
    }

    async fn recycle(
        &self,
        session: &mut OwnConnection<C>,
        metrics: &Metrics,
    ) -> RecycleResult<sqlx::Error> {
        let idle = metrics.last_used();
        if idle > self.lifetime.idle
            || metrics.age() > self.lifetime.all
            || session.epoch != self.epoch()
        {
            return Err(RecycleError::message("the connection is old"));
        }
        let responds = match (&self.lifecycle, &mut session.connection) {
            (Some(lifecycle), Some(connection)) if idle > PING_AFTER_IDLE => {
                lifecycle.responds(connection).await
            }
            (_, connection) => connection.is_some(),
        };
        if responds {
            Ok(())
        } else {
            Err(RecycleError::message("the connection does not respond"))
        }
    }
}

impl<C: Connection> ConnectionManager<C> {
    fn epoch(&self) -> u64 {
        self.lifecycle.as_ref().map_or(0, |lifecycle| lifecycle.epoch())
    }
}

/// Refuses a call from outside a Tokio runtime, where timers would panic.
pub fn in_runtime() -> Result<(), sqlx::Error> {
    Handle::try_current().map(drop).map_err(|_| sqlx::Error::Configuration(NoRuntime.into()))
}

/// Opens a connection as an application's pool does: only sqlx can call the pool's `after_connect`.
/// A pool is made for it that opens nothing by itself, and is closed when the connection has left
/// it.
///
/// # Errors
/// As of the pool, which waits at most for `limit`.
pub async fn open_as_pool<D: Database>(
    pool: &sqlx::pool::PoolOptions<D>,
    options: &<D::Connection as Connection>::Options,
    limit: Duration,
) -> Result<D::Connection, sqlx::Error> {
    let pool = pool
        .clone()
        .min_connections(0)
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .acquire_timeout(pool.get_acquire_timeout().min(limit))
        .connect_lazy_with(options.clone());
    pool.acquire().await.map(PoolConnection::detach)
}

/// Logs that the application's pool has no free connection. The size is the application's setting,
/// which the error does not name.
fn log_exhausted<D: Database>(pool: &sqlx::Pool<D>, error: &sqlx::Error) {
    if matches!(error, sqlx::Error::PoolTimedOut) {
        let max_connections = pool.options().get_max_connections();
        let acquire_timeout = pool.options().get_acquire_timeout();
        tracing::warn!(
            max_connections,
            ?acquire_timeout,
            "no connection of the application's pool was free in time; raise its \
             `max_connections` above the number of handlers that have a `Tx` at the same time"
        );
    }
}

impl<C: Connection> ConnectionPool<C> {
    /// Creates a pool of the store's own connections; the first is opened when it is needed.
    pub fn new(
        max_size: usize,
        options: C::Options,
        lifetime: Lifetime,
    ) -> Result<Self, sqlx::Error> {
        Self::with_lifecycle(max_size, options, lifetime, None)
    }

    /// Creates a pool of the store's own connections with a lifecycle.
    pub fn with_lifecycle(
        max_size: usize,
        options: C::Options,
        lifetime: Lifetime,
        lifecycle: Option<Arc<dyn ConnectionLifecycle<C>>>,
    ) -> Result<Self, sqlx::Error> {
        let opener = ConnectionManager { options, lifetime, lifecycle: lifecycle.clone() };
        let pool = Pool::builder(opener).max_size(max_size).queue_mode(QueueMode::Lifo).build();
        let source =
            pool.map(PoolInner::Own).map_err(|error| sqlx::Error::Configuration(error.into()))?;
        Ok(Self { source, lifecycle })
    }

    /// Uses an application's pool.
    pub fn shared(
        pool: sqlx::Pool<C::Database>,
        lifecycle: Option<Arc<dyn ConnectionLifecycle<C>>>,
    ) -> Self {
        Self { source: PoolInner::Shared(pool), lifecycle }
    }

    /// Returns a connection, which may be broken.
    ///
    /// # Cancel safety
    /// Safe: a connection that is not returned stays in the pool.
    pub async fn get(&self) -> Result<PooledConnection<C>, sqlx::Error> {
        self.get_within(ACQUIRE_TIMEOUT).await
    }

    /// Returns a connection; `limit` replaces the default wait for one of the store's own.
    pub async fn get_within(&self, limit: Duration) -> Result<PooledConnection<C>, sqlx::Error> {
        in_runtime()?;
        let inner = match &self.source {
            PoolInner::Own(pool) => match timeout(limit, pool.get()).await {
                Ok(Ok(session)) => ConnectionInner::Own(session),
                Ok(Err(PoolError::Backend(error))) => return Err(error),
                Ok(Err(PoolError::Closed)) => return Err(sqlx::Error::PoolClosed),
                Ok(Err(_)) | Err(_) => return Err(sqlx::Error::PoolTimedOut),
            },
            PoolInner::Shared(pool) => {
                let acquired = match &self.lifecycle {
                    Some(lifecycle) => lifecycle.acquire(pool).await,
                    None => Box::pin(pool.acquire()).await,
                };
                ConnectionInner::Shared(acquired.inspect_err(|error| log_exhausted(pool, error))?)
            }
        };
        Ok(PooledConnection {
            inner: Some(inner),
            lifecycle: self.lifecycle.clone(),
            close_after_use: false,
        })
    }

    /// Returns a connection on which the server has just responded. It tries as many as the pool
    /// can hold, since all of them may be broken.
    pub async fn get_verified(&self) -> Result<PooledConnection<C>, sqlx::Error> {
        for _ in 0..self.max_size() {
            let mut connection = self.get().await?;
            let responds = match &self.lifecycle {
                Some(lifecycle) => lifecycle.responds(&mut connection).await,
                None => connection.ping().await.is_ok(),
            };
            if responds {
                return Ok(connection);
            }
            connection.close();
        }
        self.get().await
    }

    /// Whether the connections are the store's own.
    pub fn is_own(&self) -> bool {
        matches!(self.source, PoolInner::Own(_))
    }

    /// Closes the idle connections of an application's pool without notifying the server.
    pub fn close_idle_shared(&self) {
        let PoolInner::Shared(pool) = &self.source else { return };
        for _ in 0..pool.num_idle() {
            let Some(connection) = pool.try_acquire() else { return };
            drop(connection.detach());
        }
    }

    /// The maximum number of connections.
    pub fn max_size(&self) -> usize {
        match &self.source {
            PoolInner::Own(pool) => pool.status().max_size,
            PoolInner::Shared(pool) => {
                usize::try_from(pool.options().get_max_connections()).unwrap_or(usize::MAX)
            }
        }
    }
}
