//! Where connections come from, and where they go after use.
//!
//! sqlx's pool pings each connection that is given back, in a task of its own: a second round trip for each statement. Connections of
//! a store's own are kept by `deadpool`, which pings nothing; in return one that may be in the middle of a response is not used again
//! before that response has been read.

#[cfg(feature = "sqlite")]
use std::any::Any;
use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use deadpool::managed::{self, Metrics, Object, Pool, PoolError, QueueMode, RecycleError, RecycleResult};
use sqlx::{Connection, pool::PoolConnection};
use tokio::{runtime::Handle, time::timeout};

use crate::error::NoRuntime;

/// How long a call waits for a connection of a store's own.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// A connection of a store's own that was not used for longer is verified before its next use.
const FRESH: Duration = Duration::from_secs(1);

/// Gives connections out.
pub(crate) struct Connections<C: Connection> {
    source: Source<C>,
    care: Option<Arc<dyn Care<C>>>,
}

enum Source<C: Connection> {
    /// The store's own.
    Own(Pool<Opener<C>>),
    /// The application's as well.
    Shared(sqlx::Pool<C::Database>),
}

impl<C: Connection> Clone for Connections<C> {
    fn clone(&self) -> Self {
        let source = match &self.source {
            Source::Own(pool) => Source::Own(pool.clone()),
            Source::Shared(pool) => Source::Shared(pool.clone()),
        };
        Self { source, care: self.care.clone() }
    }
}

/// What connections to a server need and those to a file do not: the server may hang, and goes on with what its client gave up.
#[async_trait]
pub(crate) trait Care<C: Connection>: Send + Sync {
    /// Opens a connection.
    async fn open(&self, options: &C::Options) -> Result<C, sqlx::Error>;

    /// Takes a connection out of an application's pool.
    async fn acquire(&self, pool: &sqlx::Pool<C::Database>) -> Result<PoolConnection<C::Database>, sqlx::Error>;

    /// Whether the server responds on a connection.
    async fn responds(&self, connection: &mut C) -> bool;

    /// Changes whenever all connections that were opened before are taken to be dead.
    fn epoch(&self) -> u64;

    /// Takes over a connection that was given up in the middle of something. It keeps its place in the pool until it is dropped.
    /// Where a transaction may be open, `at_rest` is sqlx's transaction depth without it.
    fn abandoned(&self, connection: Lent<C>, at_rest: Option<usize>);
}

/// For how long a connection of a store's own is used.
#[derive(Clone, Copy)]
pub(crate) struct Lifetime {
    /// After so much time without use, what lies between it and the server may have forgotten it.
    pub(crate) idle: Duration,
    /// After so much time in all, a server behind a changed address is found, and a session's memory given back.
    pub(crate) all: Duration,
}

#[cfg(feature = "sqlite")]
impl Lifetime {
    pub(crate) const UNLIMITED: Self = Self { idle: Duration::MAX, all: Duration::MAX };
}

/// Opens connections of a store's own.
struct Opener<C: Connection> {
    options: C::Options,
    lifetime: Lifetime,
    care: Option<Arc<dyn Care<C>>>,
}

/// A connection of a store's own.
struct Session<C> {
    /// `None` once it has been hung up.
    connection: Option<C>,
    /// The [epoch](Care::epoch) in which it was opened.
    epoch: u64,
    /// What the store keeps with the connection.
    #[cfg(feature = "sqlite")]
    attachment: Option<Arc<dyn Any + Send + Sync>>,
}

/// A connection for one use. Dropped before it is given back, it is [abandoned](Care::abandoned); without [`Care`], one of a store's
/// own is closed, and a shared one left to its pool.
pub(crate) struct Lent<C: Connection> {
    held: Option<Held<C>>,
    care: Option<Arc<dyn Care<C>>>,
    /// Whether it is closed where it would be given back.
    retired: bool,
}

enum Held<C: Connection> {
    Own(Object<Opener<C>>),
    Shared(PoolConnection<C::Database>),
}

impl<C: Connection> managed::Manager for Opener<C> {
    type Type = Session<C>;
    type Error = sqlx::Error;

    async fn create(&self) -> Result<Session<C>, sqlx::Error> {
        // Read first: what changes while the connection is being opened counts against it.
        let epoch = self.epoch();
        let connection = match &self.care {
            Some(care) => care.open(&self.options).await?,
            None => C::connect_with(&self.options).await?,
        };
        Ok(Session {
            connection: Some(connection),
            epoch,
            #[cfg(feature = "sqlite")]
            attachment: None,
        })
    }

    async fn recycle(&self, session: &mut Session<C>, metrics: &Metrics) -> RecycleResult<sqlx::Error> {
        let idle = metrics.last_used();
        if idle > self.lifetime.idle || metrics.age() > self.lifetime.all || session.epoch != self.epoch() {
            return Err(RecycleError::message("the connection is old"));
        }
        let responds = match (&self.care, &mut session.connection) {
            (Some(care), Some(connection)) if idle > FRESH => care.responds(connection).await,
            (_, connection) => connection.is_some(),
        };
        if responds { Ok(()) } else { Err(RecycleError::message("the connection is dead")) }
    }
}

impl<C: Connection> Opener<C> {
    fn epoch(&self) -> u64 {
        self.care.as_ref().map_or(0, |care| care.epoch())
    }
}

/// Refuses a call from outside of a runtime, whose timers would panic.
pub(crate) fn in_runtime() -> Result<(), sqlx::Error> {
    Handle::try_current().map(drop).map_err(|_| sqlx::Error::Configuration(NoRuntime.into()))
}

impl<C: Connection> Connections<C> {
    /// Connections of a store's own; opens none before the first is needed.
    #[cfg(feature = "sqlite")]
    pub(crate) fn own(most: usize, options: C::Options, lifetime: Lifetime) -> Result<Self, sqlx::Error> {
        Self::own_with(most, options, lifetime, None)
    }

    /// The same, with care.
    pub(crate) fn own_with(
        most: usize,
        options: C::Options,
        lifetime: Lifetime,
        care: Option<Arc<dyn Care<C>>>,
    ) -> Result<Self, sqlx::Error> {
        let opener = Opener { options, lifetime, care: care.clone() };
        let pool = Pool::builder(opener).max_size(most).queue_mode(QueueMode::Lifo).build();
        let source = pool.map(Source::Own).map_err(|error| sqlx::Error::Configuration(error.into()))?;
        Ok(Self { source, care })
    }

    /// Connections of an application's pool.
    pub(crate) fn shared(pool: sqlx::Pool<C::Database>, care: Option<Arc<dyn Care<C>>>) -> Self {
        Self { source: Source::Shared(pool), care }
    }

    /// A connection, which may be broken.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn get(&self) -> Result<Lent<C>, sqlx::Error> {
        self.get_within(PATIENCE).await
    }

    /// The same, with another limit for one of a store's own.
    pub(crate) async fn get_within(&self, limit: Duration) -> Result<Lent<C>, sqlx::Error> {
        in_runtime()?;
        let held = match &self.source {
            Source::Own(pool) => match timeout(limit, pool.get()).await {
                Ok(Ok(session)) => Held::Own(session),
                Ok(Err(PoolError::Backend(error))) => return Err(error),
                Ok(Err(PoolError::Closed)) => return Err(sqlx::Error::PoolClosed),
                Ok(Err(_)) | Err(_) => return Err(sqlx::Error::PoolTimedOut),
            },
            Source::Shared(pool) => Held::Shared(match &self.care {
                Some(care) => care.acquire(pool).await?,
                None => pool.acquire().await?,
            }),
        };
        Ok(Lent { held: Some(held), care: self.care.clone(), retired: false })
    }

    /// Whether a connection can be had without waiting for others to give theirs back.
    #[cfg(feature = "postgres")]
    pub(crate) fn has_one_free(&self) -> bool {
        match &self.source {
            Source::Own(pool) => {
                let status = pool.status();
                status.waiting == 0 && (status.available > 0 || status.size < status.max_size)
            }
            Source::Shared(_) => true,
        }
    }

    /// A connection on which the server has just responded. As many as there may be can be broken.
    #[cfg(feature = "postgres")]
    pub(crate) async fn live(&self) -> Result<Lent<C>, sqlx::Error> {
        for _ in 0..self.most() {
            let mut connection = self.get().await?;
            let responds = match &self.care {
                Some(care) => care.responds(&mut connection).await,
                None => connection.ping().await.is_ok(),
            };
            if responds {
                return Ok(connection);
            }
            connection.close();
        }
        self.get().await
    }

    /// Whether they are the store's own.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.source, Source::Own(_))
    }

    /// The same with another number of them at most; an application's pool keeps its own.
    #[cfg(feature = "postgres")]
    pub(crate) fn with_most(&self, most: usize) -> Result<Self, sqlx::Error> {
        let Source::Own(pool) = &self.source else { return Ok(self.clone()) };
        let Opener { options, lifetime, care } = pool.manager();
        Self::own_with(most, options.clone(), *lifetime, care.clone())
    }

    /// How many there are at most.
    #[cfg(feature = "postgres")]
    pub(crate) fn most(&self) -> usize {
        match &self.source {
            Source::Own(pool) => pool.status().max_size,
            Source::Shared(pool) => usize::try_from(pool.options().get_max_connections()).unwrap_or(usize::MAX),
        }
    }
}

impl<C: Connection> Lent<C> {
    /// Gives it back as one that can be used again.
    pub(crate) fn give_back(mut self) {
        if self.retired {
            return self.close();
        }
        self.held = None;
    }

    /// Has one of the store's own closed where it would be given back: its session is not as a new one.
    #[cfg(feature = "postgres")]
    pub(crate) fn retire(&mut self) {
        self.retired = self.is_own();
    }

    /// Closes it, without a word to the server.
    pub(crate) fn close(mut self) {
        self.care = None;
        if let Some(Held::Shared(connection)) = self.held.take_if(|held| matches!(held, Held::Shared(_))) {
            drop(connection.detach());
        }
    }

    /// Gives it up where a transaction may be open; see [`Care::abandoned`].
    #[cfg(feature = "postgres")]
    pub(crate) fn abandon(mut self, at_rest: usize) {
        match self.care.take() {
            Some(care) => care.abandoned(self, Some(at_rest)),
            None => self.close(),
        }
    }

    /// Closes the connection and keeps its place in the pool until this is dropped. A shared pool has no such place.
    #[cfg(feature = "postgres")]
    pub(crate) fn hang_up(&mut self) {
        match self.held.take() {
            Some(Held::Own(mut session)) => {
                session.connection = None;
                self.held = Some(Held::Own(session));
            }
            Some(Held::Shared(connection)) => drop(connection.detach()),
            None => {}
        }
    }

    /// Whether it is the store's own.
    #[cfg(feature = "postgres")]
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.held, Some(Held::Own(_)))
    }

    /// What was attached to it before.
    #[cfg(feature = "sqlite")]
    pub(crate) fn attachment<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let Some(Held::Own(session)) = &self.held else { return None };
        session.attachment.clone()?.downcast().ok()
    }

    /// Attaches something for later uses of the connection; `false` for a shared one, which has
    /// no place for it.
    #[cfg(feature = "sqlite")]
    pub(crate) fn attach(&mut self, attachment: Arc<dyn Any + Send + Sync>) -> bool {
        let Some(Held::Own(session)) = &mut self.held else { return false };
        session.attachment = Some(attachment);
        true
    }
}

impl<C: Connection> Deref for Lent<C> {
    type Target = C;

    #[expect(clippy::expect_used, reason = "only what consumes, drops or hangs up the connection takes it")]
    fn deref(&self) -> &C {
        match self.held.as_ref().expect("the connection is there") {
            Held::Own(session) => session.connection.as_ref().expect("the connection is open"),
            Held::Shared(connection) => connection,
        }
    }
}

impl<C: Connection> DerefMut for Lent<C> {
    #[expect(clippy::expect_used, reason = "as above")]
    fn deref_mut(&mut self) -> &mut C {
        match self.held.as_mut().expect("the connection is there") {
            Held::Own(session) => session.connection.as_mut().expect("the connection is open"),
            Held::Shared(connection) => connection,
        }
    }
}

impl<C: Connection> Drop for Lent<C> {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        match (self.care.take(), held) {
            (Some(care), held) => care.abandoned(Self { held: Some(held), care: None, retired: self.retired }, None),
            (None, Held::Own(session)) => drop(Object::take(session)),
            (None, Held::Shared(connection)) => drop(connection),
        }
    }
}
