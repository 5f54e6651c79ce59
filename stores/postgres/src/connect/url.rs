//! The URL of a database.

use std::{num::NonZeroU16, str::FromStr as _};

use sqlx::postgres::PgConnectOptions;

use crate::error::{NAME, connect_error};
use idempotent_core::{StoreError, store::url};
use idempotent_sql::max_transactions;

/// The parameters of a URL: those of sqlx, which would ignore any other, and the store's own.
const PARAMETERS: [&str; 21] = [
    "max_transactions",
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "options[",
    "options%5B",
];

/// Parses a URL: the connections, and `max_transactions`.
pub(crate) fn parse(url: &str) -> Result<(PgConnectOptions, Option<NonZeroU16>), StoreError> {
    url::verify_server(NAME, url, &PARAMETERS)?;
    let (url, transactions) = max_transactions(NAME, url)?;
    // PgBouncer refuses a startup parameter that it does not track, such as the
    // `extra_float_digits` that sqlx sets.
    let options = PgConnectOptions::from_str(&url).map_err(invalid_url)?.extra_float_digits(None);
    let options = if options.get_application_name().is_none() {
        options.application_name("idempotency")
    } else {
        options
    };
    Ok((options, transactions))
}

/// An error of sqlx that wraps another one of sqlx quotes the value of `sslmode`.
fn invalid_url(error: sqlx::Error) -> StoreError {
    if let sqlx::Error::Configuration(source) = &error
        && source.is::<sqlx::Error>()
    {
        return StoreError::permanent(NAME, "connect", InvalidSslMode);
    }
    connect_error(error)
}

/// The URL's parameter `sslmode` has an invalid value.
#[derive(Debug, thiserror::Error)]
#[error(
    "the URL's parameter `sslmode` must be `disable`, `allow`, `prefer`, `require`, `verify-ca` or \
     `verify-full`"
)]
struct InvalidSslMode;
