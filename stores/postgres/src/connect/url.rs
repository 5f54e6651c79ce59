//! The URL of a database.

use std::{num::NonZeroU16, str::FromStr as _};

use sqlx::postgres::PgConnectOptions;

use crate::error::{NAME, connect_error};
use idempotent_core::{StoreError, store::url};

/// The URL's parameter for the number of handlers that can have a transaction at the same time.
const TRANSACTIONS: &str = "max_transactions=";

/// Removes the parameter `max_transactions` from a URL, since sqlx does not know it, and returns
/// its value.
fn transactions(url: &str) -> Result<(String, Option<NonZeroU16>), StoreError> {
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let (found, others): (Vec<_>, Vec<_>) =
        query.split('&').partition(|pair| pair.starts_with(TRANSACTIONS));
    let values: Vec<_> = found.iter().filter_map(|pair| pair.strip_prefix(TRANSACTIONS)).collect();
    let others = others.join("&");
    let rest = if others.is_empty() { address.to_owned() } else { format!("{address}?{others}") };
    let invalid = || StoreError::permanent(NAME, "connect", InvalidTransactions);
    match values.as_slice() {
        [] => Ok((rest, None)),
        [max_size] => Ok((rest, Some(max_size.parse().map_err(|_| invalid())?))),
        _ => Err(invalid()),
    }
}

/// The URL's parameter `max_transactions` has an invalid value, or occurs more than once.
#[derive(Debug, thiserror::Error)]
#[error("the URL's parameter `max_transactions` must be given once, with a number from 1 to 65535")]
struct InvalidTransactions;

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
    let (url, transactions) = transactions(url)?;
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
