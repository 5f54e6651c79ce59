//! Probes the server.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::{Connection as _, PgConnection, Row as _, postgres::PgConnectOptions};

use crate::error::is_reply;
use idempotent_sql::server::{
    health::{Probe, ServerProbe},
    within,
};

/// Differs between two servers behind one address, and between two starts of one server.
const IDENTITY: &str = "SELECT pg_postmaster_start_time()::text";

/// How the server is probed.
pub(crate) struct PgProbe {
    pub(crate) options: PgConnectOptions,
    /// Whether the server may be behind a pooler, which accepts clients and queues their statements
    /// while all of the server's sessions are in use.
    pub(crate) pooled: bool,
}

#[async_trait]
impl ServerProbe for PgProbe {
    fn server(&self) -> &'static str {
        "Postgres"
    }

    async fn send(&self, limit: Duration) -> Probe {
        let mut connected = false;
        let exchange = async {
            let mut connection = PgConnection::connect_with(&self.options).await?;
            connected = true;
            let identity = sqlx::raw_sql(IDENTITY)
                .fetch_one(&mut connection)
                .await?
                .try_get::<String, _>(0)?;
            // If this fails, the server detects the closed connection by itself.
            let _ = connection.close().await;
            Ok(identity)
        };
        match within(limit, exchange).await {
            Some(Ok(identity)) => Probe::Alive(Some(identity)),
            Some(Err(error)) if is_reply(&error) => Probe::Alive(None),
            // The statement may be queued because all of the server's sessions are in use.
            None if self.pooled && connected => Probe::Alive(None),
            Some(Err(_)) | None => Probe::Dead,
        }
    }
}
