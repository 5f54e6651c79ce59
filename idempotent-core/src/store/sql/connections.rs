//! Where connections come from, and where they go after use.
//!
//! sqlx's pool asks each connection that is given back whether it is well, in a task of its own: a second round trip for each statement.
//! Connections of a store's own are kept by `deadpool`, which asks nothing; in return one that may be in the middle of an answer is
//! closed.

#[cfg(feature = "sqlite")]
use std::{any::Any, sync::Arc};
use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use deadpool::managed::{self, Metrics, Object, Pool, PoolError, QueueMode, RecycleError, RecycleResult};
use sqlx::{Connection, pool::PoolConnection};
use tokio::time::timeout;

/// How long a call waits for a connection of a store's own.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long the server has to say that a connection is well.
#[cfg(feature = "postgres")]
const PING: Duration = Duration::from_secs(10);

/// Gives connections out.
pub(crate) enum Connections<C: Connection> {
    /// The store's own.
    Own(Pool<Opener<C>>),
    /// The application's as well.
    Shared(sqlx::Pool<C::Database>),
}

impl<C: Connection> Clone for Connections<C> {
    fn clone(&self) -> Self {
        match self {
            Self::Own(pool) => Self::Own(pool.clone()),
            Self::Shared(pool) => Self::Shared(pool.clone()),
        }
    }
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
pub(crate) struct Opener<C: Connection> {
    options: C::Options,
    lifetime: Lifetime,
}

/// A connection of a store's own.
pub(crate) struct Session<C> {
    connection: C,
    /// What was prepared on it by SQL, which sqlx does not know of.
    #[cfg(feature = "postgres")]
    prepared: Vec<String>,
    /// What the store keeps with the connection.
    #[cfg(feature = "sqlite")]
    attachment: Option<Arc<dyn Any + Send + Sync>>,
}

/// A connection for one use. Dropped before it is given back, one of a store's own is closed, and a shared one left to its pool.
pub(crate) struct Lent<C: Connection> {
    held: Option<Held<C>>,
}

enum Held<C: Connection> {
    Own(Object<Opener<C>>),
    Shared(PoolConnection<C::Database>),
}

impl<C: Connection> managed::Manager for Opener<C> {
    type Type = Session<C>;
    type Error = sqlx::Error;

    async fn create(&self) -> Result<Session<C>, sqlx::Error> {
        Ok(Session {
            connection: C::connect_with(&self.options).await?,
            #[cfg(feature = "postgres")]
            prepared: Vec::new(),
            #[cfg(feature = "sqlite")]
            attachment: None,
        })
    }

    async fn recycle(&self, _: &mut Session<C>, metrics: &Metrics) -> RecycleResult<sqlx::Error> {
        if metrics.last_used() > self.lifetime.idle || metrics.age() > self.lifetime.all {
            return Err(RecycleError::message("it is old"));
        }
        Ok(())
    }
}

impl<C: Connection> Connections<C> {
    /// Opens none before it is asked for one.
    pub(crate) fn own(most: usize, options: C::Options, lifetime: Lifetime) -> Result<Self, sqlx::Error> {
        let opener = Opener { options, lifetime };
        let pool = Pool::builder(opener).max_size(most).queue_mode(QueueMode::Lifo).build();
        pool.map(Self::Own).map_err(|error| sqlx::Error::Configuration(error.into()))
    }

    /// A connection, which may be broken.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn get(&self) -> Result<Lent<C>, sqlx::Error> {
        let held = match self {
            Self::Own(pool) => match timeout(PATIENCE, pool.get()).await {
                Ok(Ok(session)) => Held::Own(session),
                Ok(Err(PoolError::Backend(error))) => return Err(error),
                Ok(Err(PoolError::Closed)) => return Err(sqlx::Error::PoolClosed),
                Ok(Err(_)) | Err(_) => return Err(sqlx::Error::PoolTimedOut),
            },
            Self::Shared(pool) => Held::Shared(pool.acquire().await?),
        };
        Ok(Lent { held: Some(held) })
    }

    /// Whether a connection can be had without waiting for others to give theirs back.
    #[cfg(feature = "postgres")]
    pub(crate) fn has_one_free(&self) -> bool {
        match self {
            Self::Own(pool) => {
                let status = pool.status();
                status.waiting == 0 && (status.available > 0 || status.size < status.max_size)
            }
            Self::Shared(_) => true,
        }
    }

    /// A connection that has just answered. As many as there may be can be broken.
    #[cfg(feature = "postgres")]
    pub(crate) async fn live(&self) -> Result<Lent<C>, sqlx::Error> {
        for _ in 0..self.most() {
            let mut connection = self.get().await?;
            match timeout(PING, connection.ping()).await {
                Ok(Ok(())) => return Ok(connection),
                Ok(Err(_)) | Err(_) => connection.close(),
            }
        }
        self.get().await
    }

    /// Whether they are the store's own.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self, Self::Own(_))
    }

    /// How many there are at most.
    #[cfg(feature = "postgres")]
    pub(crate) fn most(&self) -> usize {
        match self {
            Self::Own(pool) => pool.status().max_size,
            Self::Shared(pool) => usize::try_from(pool.options().get_max_connections()).unwrap_or(usize::MAX),
        }
    }
}

impl<C: Connection> Lent<C> {
    /// Gives it back as one that can be used again.
    pub(crate) fn give_back(mut self) {
        self.held = None;
    }

    /// Closes it, without a word to the server.
    pub(crate) fn close(mut self) {
        if let Some(Held::Shared(connection)) = self.held.take_if(|held| matches!(held, Held::Shared(_))) {
            drop(connection.detach());
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

    /// Takes note that this is prepared on it by SQL; says whether it was not before.
    #[cfg(feature = "postgres")]
    pub(crate) fn prepares(&mut self, name: &str) -> bool {
        let Some(Held::Own(session)) = &mut self.held else { return false };
        let new = !session.prepared.iter().any(|prepared| prepared == name);
        if new {
            session.prepared.push(name.to_owned());
        }
        new
    }
}

impl<C: Connection> Deref for Lent<C> {
    type Target = C;

    #[expect(clippy::expect_used, reason = "only what consumes or drops the connection takes it")]
    fn deref(&self) -> &C {
        match self.held.as_ref().expect("the connection is there") {
            Held::Own(session) => &session.connection,
            Held::Shared(connection) => connection,
        }
    }
}

impl<C: Connection> DerefMut for Lent<C> {
    #[expect(clippy::expect_used, reason = "as above")]
    fn deref_mut(&mut self) -> &mut C {
        match self.held.as_mut().expect("the connection is there") {
            Held::Own(session) => &mut session.connection,
            Held::Shared(connection) => connection,
        }
    }
}

impl<C: Connection> Drop for Lent<C> {
    fn drop(&mut self) {
        if let Some(Held::Own(session)) = self.held.take() {
            drop(Object::take(session));
        }
    }
}
