//! Where connections come from, and where they go after use.
//!
//! sqlx's pool asks each connection that is given back whether it is well, in a task of its own: a second round trip for each statement.
//! Connections of the store's own are kept by `deadpool`, which asks nothing; in return one that may be in the middle of an answer is
//! closed.

use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use deadpool::managed::{self, Metrics, Object, Pool, PoolError, QueueMode, RecycleError, RecycleResult};
use sqlx::{Connection as _, PgConnection, PgPool, Postgres, pool::PoolConnection, postgres::PgConnectOptions};
use tokio::time::timeout;

use super::run::LIMIT;
use crate::store::sql::Lent;

/// How long a call waits for a connection of the store's own.
const PATIENCE: Duration = Duration::from_secs(5);
/// A connection that was idle for longer is opened anew: what lies between may have forgotten it.
const IDLE: Duration = Duration::from_secs(10 * 60);
/// And one that is older, so that a server behind a changed address is found, and a session's memory is given back.
const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// Gives connections out.
#[derive(Clone)]
pub(super) enum Connections {
    /// The store's own.
    Own(Pool<Opener>),
    /// The application's as well.
    Shared(PgPool),
}

/// Opens connections of the store's own.
pub(super) struct Opener(PgConnectOptions);

/// A connection of the store's own.
pub(super) struct Session {
    connection: PgConnection,
    /// What was prepared on it by SQL, which sqlx does not know of.
    prepared: Vec<String>,
}

/// A connection for one use. Dropped before it is given back, one of the store's own is closed, and a shared one left to its pool.
pub(super) struct Connection {
    held: Option<Held>,
}

enum Held {
    Own(Object<Opener>),
    Shared(PoolConnection<Postgres>),
}

impl managed::Manager for Opener {
    type Type = Session;
    type Error = sqlx::Error;

    async fn create(&self) -> Result<Session, sqlx::Error> {
        Ok(Session { connection: PgConnection::connect_with(&self.0).await?, prepared: Vec::new() })
    }

    async fn recycle(&self, _: &mut Session, metrics: &Metrics) -> RecycleResult<sqlx::Error> {
        if metrics.last_used() > IDLE || metrics.age() > LIFETIME {
            return Err(RecycleError::message("it is old"));
        }
        Ok(())
    }
}

impl Connections {
    /// Opens none before it is asked for one.
    pub(super) fn own(most: usize, options: PgConnectOptions) -> Result<Self, sqlx::Error> {
        let pool = Pool::builder(Opener(options)).max_size(most).queue_mode(QueueMode::Lifo).build();
        pool.map(Self::Own).map_err(|error| sqlx::Error::Configuration(error.into()))
    }

    /// A connection, which may be broken.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn get(&self) -> Result<Connection, sqlx::Error> {
        let held = match self {
            Self::Own(pool) => match timeout(PATIENCE, pool.get()).await {
                Ok(Ok(session)) => Held::Own(session),
                Ok(Err(PoolError::Backend(error))) => return Err(error),
                Ok(Err(PoolError::Closed)) => return Err(sqlx::Error::PoolClosed),
                Ok(Err(_)) | Err(_) => return Err(sqlx::Error::PoolTimedOut),
            },
            Self::Shared(pool) => Held::Shared(pool.acquire().await?),
        };
        Ok(Connection { held: Some(held) })
    }

    /// A connection that has just answered. As many as there may be can be broken.
    pub(super) async fn live(&self) -> Result<Connection, sqlx::Error> {
        for _ in 0..self.most() {
            let mut connection = self.get().await?;
            match timeout(LIMIT, connection.ping()).await {
                Ok(Ok(())) => return Ok(connection),
                Ok(Err(_)) | Err(_) => connection.close(),
            }
        }
        self.get().await
    }

    /// How many there are at most.
    pub(super) fn most(&self) -> usize {
        match self {
            Self::Own(pool) => pool.status().max_size,
            Self::Shared(pool) => usize::try_from(pool.options().get_max_connections()).unwrap_or(usize::MAX),
        }
    }
}

impl Connection {
    /// Whether it is the store's own.
    pub(super) fn is_own(&self) -> bool {
        matches!(self.held, Some(Held::Own(_)))
    }

    /// Takes note that this is prepared on it by SQL; says whether it was not before.
    pub(super) fn prepares(&mut self, name: &str) -> bool {
        let Some(Held::Own(session)) = &mut self.held else { return false };
        let new = !session.prepared.iter().any(|prepared| prepared == name);
        if new {
            session.prepared.push(name.to_owned());
        }
        new
    }
}

impl Deref for Connection {
    type Target = PgConnection;

    #[expect(clippy::expect_used, reason = "only what consumes or drops the connection takes it")]
    fn deref(&self) -> &PgConnection {
        match self.held.as_ref().expect("the connection is there") {
            Held::Own(session) => &session.connection,
            Held::Shared(connection) => connection,
        }
    }
}

impl DerefMut for Connection {
    #[expect(clippy::expect_used, reason = "as above")]
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self.held.as_mut().expect("the connection is there") {
            Held::Own(session) => &mut session.connection,
            Held::Shared(connection) => connection,
        }
    }
}

impl Lent for Connection {
    fn give_back(mut self) {
        self.held = None;
    }

    fn close(mut self) {
        if let Some(Held::Shared(connection)) = self.held.take_if(|held| matches!(held, Held::Shared(_))) {
            drop(connection.detach());
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(Held::Own(session)) = self.held.take() {
            drop(Object::take(session));
        }
    }
}
