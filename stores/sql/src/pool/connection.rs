//! A connection of a pool, in use.

use std::{
    any::Any,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use deadpool::managed::Object;
use sqlx::{Connection, pool::PoolConnection};

use super::{ConnectionLifecycle, ConnectionManager};

/// A connection for one use. If it is dropped before it is given back, the
/// [lifecycle](ConnectionLifecycle::reclaim) takes it over; without a lifecycle, one of the
/// store's own is closed and a shared one returns to its pool.
pub struct PooledConnection<C: Connection> {
    pub(super) inner: Option<ConnectionInner<C>>,
    pub(super) lifecycle: Option<Arc<dyn ConnectionLifecycle<C>>>,
    /// Whether to close the connection instead of giving it back.
    pub(super) close_after_use: bool,
}

pub(super) enum ConnectionInner<C: Connection> {
    Own(Object<ConnectionManager<C>>),
    Shared(PoolConnection<C::Database>),
}

impl<C: Connection> PooledConnection<C> {
    /// Returns the connection to its pool for reuse.
    pub fn give_back(mut self) {
        if self.close_after_use {
            return self.close();
        }
        self.inner = None;
    }

    /// Closes one of the store's own instead of returning it: its session differs from a new one.
    pub fn close_after_use(&mut self) {
        self.close_after_use = self.is_own();
    }

    /// Closes the connection without notifying the server.
    pub fn close(mut self) {
        self.lifecycle = None;
        if let Some(ConnectionInner::Shared(connection)) =
            self.inner.take_if(|inner| matches!(inner, ConnectionInner::Shared(_)))
        {
            drop(connection.detach());
        }
    }

    /// Gives up a connection on which a transaction may be open; see
    /// [`ConnectionLifecycle::reclaim`].
    pub fn give_up(mut self, base_depth: usize) {
        match self.lifecycle.take() {
            Some(lifecycle) => lifecycle.reclaim(self, Some(base_depth)),
            None => self.close(),
        }
    }

    /// Closes the connection but keeps its place in the pool until this value is dropped. A shared
    /// pool has no such place.
    pub fn disconnect(&mut self) {
        match self.inner.take() {
            Some(ConnectionInner::Own(mut session)) => {
                session.connection = None;
                self.inner = Some(ConnectionInner::Own(session));
            }
            Some(ConnectionInner::Shared(connection)) => drop(connection.detach()),
            None => {}
        }
    }

    /// Whether the connection is the store's own.
    pub fn is_own(&self) -> bool {
        matches!(self.inner, Some(ConnectionInner::Own(_)))
    }

    /// Returns what was attached to the connection before.
    pub fn attachment<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let Some(ConnectionInner::Own(session)) = &self.inner else { return None };
        session.attachment.clone()?.downcast().ok()
    }

    /// Attaches data for later uses of the connection; returns `false` for a shared one, which
    /// cannot keep any.
    pub fn attach(&mut self, attachment: Arc<dyn Any + Send + Sync>) -> bool {
        let Some(ConnectionInner::Own(session)) = &mut self.inner else { return false };
        session.attachment = Some(attachment);
        true
    }
}

impl<C: Connection> Deref for PooledConnection<C> {
    type Target = C;

    #[expect(
        clippy::expect_used,
        reason = "only what consumes, drops or hangs up the connection takes it"
    )]
    fn deref(&self) -> &C {
        match self.inner.as_ref().expect("the connection is there") {
            ConnectionInner::Own(session) => {
                session.connection.as_ref().expect("the connection is open")
            }
            ConnectionInner::Shared(connection) => connection,
        }
    }
}

impl<C: Connection> DerefMut for PooledConnection<C> {
    #[expect(clippy::expect_used, reason = "as above")]
    fn deref_mut(&mut self) -> &mut C {
        match self.inner.as_mut().expect("the connection is there") {
            ConnectionInner::Own(session) => {
                session.connection.as_mut().expect("the connection is open")
            }
            ConnectionInner::Shared(connection) => connection,
        }
    }
}

impl<C: Connection> Drop for PooledConnection<C> {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        match (self.lifecycle.take(), inner) {
            (Some(lifecycle), inner) => lifecycle.reclaim(
                Self { inner: Some(inner), lifecycle: None, close_after_use: self.close_after_use },
                None,
            ),
            (None, ConnectionInner::Own(session)) => drop(Object::take(session)),
            (None, ConnectionInner::Shared(connection)) => drop(connection),
        }
    }
}
