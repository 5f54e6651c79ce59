//! The connection pools of a store.

use std::sync::Arc;

use sqlx::PgConnection;

use crate::{
    error::{PgErrorKind, error_kind},
    server::Server,
};
use idempotent_sql::{ConnectionPool, server::health::ServerHealth};

/// The connection pools of a store.
#[derive(Clone)]
pub(crate) struct Pools {
    pub(crate) steps: ConnectionPool<PgConnection>,
    pub(crate) batches: ConnectionPool<PgConnection>,
    /// Connections for renewals only, however busy the others are.
    pub(crate) renewals: ConnectionPool<PgConnection>,
    /// Connections that handlers keep while they run.
    pub(crate) transactions: ConnectionPool<PgConnection>,
    pub(crate) server: Server,
    pub(crate) health: Arc<ServerHealth>,
}

impl Pools {
    /// After an error that presumably concerns all connections, closes those that are idle, so that
    /// the next call opens one: to the primary, once the name of the server leads to it.
    pub(crate) fn discard_if_stale(&self, error: &sqlx::Error) {
        if error_kind(error) == PgErrorKind::StaleConnections {
            self.health.invalidate_idle();
            self.transactions.close_idle_shared();
        }
    }

    /// The connections of each kind. An application's pool has one kind for two uses.
    pub(crate) fn kinds(
        &self,
    ) -> impl Iterator<Item = (&'static str, &ConnectionPool<PgConnection>)> {
        let transactions = (self.steps.is_own() || self.transactions.is_own())
            .then_some(("transactions", &self.transactions));
        let always =
            [("steps", &self.steps), ("renewals", &self.renewals), ("batches", &self.batches)];
        always.into_iter().chain(transactions)
    }
}
