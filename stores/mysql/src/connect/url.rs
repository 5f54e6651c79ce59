//! The URL of a database.

use std::{num::NonZeroU16, str::FromStr as _};

use sqlx::mysql::MySqlConnectOptions;

use crate::error::{NAME, connect_error};
use idempotent_core::{StoreError, store::url};
use idempotent_sql::max_transactions;

/// The parameters of a URL: those of sqlx, which would ignore any other, and the store's own.
const PARAMETERS: [&str; 13] = [
    "max_transactions",
    "sslmode",
    "ssl-mode",
    "sslca",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "socket",
    "charset",
    "collation",
    "statement-cache-capacity",
];

/// Parses a URL: the connections, and `max_transactions`.
pub(crate) fn parse(url: &str) -> Result<(MySqlConnectOptions, Option<NonZeroU16>), StoreError> {
    url::verify_server(NAME, url, &PARAMETERS)?;
    let (url, transactions) = max_transactions(NAME, url)?;
    let options = MySqlConnectOptions::from_str(&url).map_err(invalid_url)?;
    Ok((options, transactions))
}

/// An error of sqlx that wraps another one of sqlx quotes the value of `sslmode`.
fn invalid_url(error: sqlx::Error) -> StoreError {
    if let sqlx::Error::Configuration(source) = &error
        && source.is::<sqlx::Error>()
    {
        return StoreError::permanent(NAME, "connect", InvalidParameter);
    }
    connect_error(error)
}

/// A parameter of the URL has an invalid value.
#[derive(Debug, thiserror::Error)]
#[error(
    "the URL's parameter `ssl-mode` must be `DISABLED`, `PREFERRED`, `REQUIRED`, `VERIFY_CA` or \
     `VERIFY_IDENTITY`"
)]
struct InvalidParameter;
