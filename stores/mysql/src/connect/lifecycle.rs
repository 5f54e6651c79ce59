//! How connections are opened, verified, and closed after a dropped call.
//!
//! The driver does not notice that a call was dropped between the parts of a response, and the
//! server goes on with a statement whose client has gone. Such a connection is never used again:
//! its session is killed by another connection, so that its transaction ends and its locks are
//! free.

use std::{any::Any, sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{
    Connection as _, MySqlConnection,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
};
use tokio::sync::Semaphore;

use crate::{
    connect::session::Session,
    server::{io_thread::IO_THREAD, open, timeouts::RESPONSE_TIMEOUT},
    sql::positional::message,
};
use idempotent_sql::{
    ConnectionLifecycle, PooledConnection, open_as_pool, server::health::ServerHealth,
};

/// How many sessions are killed at the same time.
const KILLS: usize = 2;

/// Who uses the connections of a pool.
#[derive(Clone)]
pub(crate) enum Kind {
    /// Only the store, with these settings.
    Own(Arc<str>),
    /// Handlers, with the settings of the server or of the application's pool.
    Handlers,
}

/// The lifecycle of a store's connections.
pub(crate) struct MySqlLifecycle {
    health: Arc<ServerHealth>,
    options: Arc<MySqlConnectOptions>,
    kind: Kind,
    hooks: Option<MySqlPoolOptions>,
    kills: Arc<Semaphore>,
}

impl MySqlLifecycle {
    pub(crate) fn new(
        health: &Arc<ServerHealth>,
        options: &MySqlConnectOptions,
        kind: Kind,
        hooks: Option<MySqlPoolOptions>,
    ) -> Self {
        Self {
            health: health.clone(),
            options: Arc::new(options.clone()),
            kind,
            hooks,
            kills: Arc::new(Semaphore::new(KILLS)),
        }
    }
}

#[async_trait]
impl ConnectionLifecycle<MySqlConnection> for MySqlLifecycle {
    async fn open(&self, options: &MySqlConnectOptions) -> Result<MySqlConnection, sqlx::Error> {
        let Some(hooks) = &self.hooks else {
            let opened = MySqlConnection::connect_with(options);
            return self.health.exchange(RESPONSE_TIMEOUT, opened).await;
        };
        let opened = open_as_pool(hooks, options, RESPONSE_TIMEOUT);
        self.health.exchange(RESPONSE_TIMEOUT, opened).await
    }

    async fn attachment(
        &self,
        connection: &mut MySqlConnection,
    ) -> Result<Option<Arc<dyn Any + Send + Sync>>, sqlx::Error> {
        let session = async {
            match &self.kind {
                Kind::Own(settings) => Session::own(connection, settings).await,
                Kind::Handlers => Session::of_handlers(connection).await,
            }
        };
        let session = self.health.exchange(RESPONSE_TIMEOUT, session).await?;
        Ok(Some(Arc::new(session)))
    }

    async fn responds(&self, connection: &mut MySqlConnection) -> bool {
        self.health.responds(connection).await
    }

    fn epoch(&self) -> u64 {
        self.health.epoch()
    }

    fn reclaim(
        &self,
        mut connection: PooledConnection<MySqlConnection>,
        _base_depth: Option<usize>,
    ) {
        let (health, options, kills) =
            (self.health.clone(), self.options.clone(), self.kills.clone());
        IO_THREAD.spawn(async move {
            let session = connection.attachment::<Session>();
            connection.disconnect();
            let _place = kills.acquire().await;
            if let Some(session) = session {
                let killed = health.exchange(RESPONSE_TIMEOUT, kill(&options, session.id)).await;
                if let Err(error) = killed {
                    tracing::debug!(%error, "a session whose call was dropped was not killed");
                }
            }
            // Its place in the pool becomes free.
            connection.close();
        });
    }
}

/// Ends a session and its transaction.
async fn kill(options: &MySqlConnectOptions, id: i64) -> Result<(), sqlx::Error> {
    let mut connection = open(options).await?;
    let killed = message(format!("KILL CONNECTION {id}")).execute(&mut connection).await;
    let _ = connection.close().await;
    killed.map(drop)
}

/// How long [`give_back`] may take.
const CHECK_LIMIT: Duration = Duration::from_secs(2);

/// Returns a connection that a handler has used to its pool, unless the handler has changed its
/// session: no other handler meets that change.
pub(crate) fn give_back(connection: PooledConnection<MySqlConnection>, health: Arc<ServerHealth>) {
    IO_THREAD.spawn(async move {
        let mut connection = connection;
        let unchanged = match connection.attachment::<Session>() {
            Some(session) => {
                let unchanged = session.is_unchanged(&mut connection);
                health.exchange(CHECK_LIMIT, unchanged).await
            }
            None => Ok(false),
        };
        match unchanged {
            Ok(true) => connection.give_back(),
            Ok(false) | Err(_) => connection.close(),
        }
    });
}
