//! Probes the server.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::{Connection as _, MySqlConnection, Row as _, mysql::MySqlConnectOptions};

use crate::error::is_reply;
use idempotent_sql::server::{
    health::{Probe, ServerProbe},
    within,
};

/// Differs between two servers behind one address, and between two starts of one server.
const IDENTITY: &str = "SELECT CONCAT(@@hostname, ' ', @@server_id, ' ', VERSION())";

/// How the server is probed.
pub(crate) struct MySqlProbe {
    pub(crate) options: MySqlConnectOptions,
}

#[async_trait]
impl ServerProbe for MySqlProbe {
    fn server(&self) -> &'static str {
        "MySQL"
    }

    async fn send(&self, limit: Duration) -> Probe {
        let exchange = async {
            let mut connection = MySqlConnection::connect_with(&self.options).await?;
            let row = sqlx::raw_sql(IDENTITY).fetch_one(&mut connection).await?;
            let identity = row.try_get::<String, _>(0)?;
            // If this fails, the server detects the closed connection by itself.
            let _ = connection.close().await;
            Ok(identity)
        };
        match within(limit, exchange).await {
            Some(Ok(identity)) => Probe::Alive(Some(identity)),
            Some(Err(error)) if is_reply(&error) => Probe::Alive(None),
            Some(Err(_)) | None => Probe::Dead,
        }
    }
}
