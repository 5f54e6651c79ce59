//! Opens a connection in a limited time.

use sqlx::{ConnectOptions as _, PgConnection, postgres::PgConnectOptions};
use tokio::time::timeout;

use super::timeouts::RESPONSE_TIMEOUT;
use idempotent_sql::server::NoResponse;

/// Opens a connection.
pub(crate) async fn open(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let opened = timeout(RESPONSE_TIMEOUT, options.connect()).await;
    opened.unwrap_or_else(|_| Err(NoResponse::TimedOut.into()))
}
