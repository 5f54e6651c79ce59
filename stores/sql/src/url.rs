//! The parameter of a URL that the stores on a server have beside those of sqlx.

use std::num::NonZeroU16;

use idempotent_core::StoreError;

/// The URL's parameter for the number of handlers that can have a transaction at the same time.
const TRANSACTIONS: &str = "max_transactions=";

/// Removes the parameter `max_transactions` from a URL, since sqlx does not know it, and returns
/// its value.
///
/// # Errors
/// Fails with a permanent error of the store if the value is no number, or occurs twice.
pub fn max_transactions(
    store: &'static str,
    url: &str,
) -> Result<(String, Option<NonZeroU16>), StoreError> {
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let (found, others): (Vec<_>, Vec<_>) =
        query.split('&').partition(|pair| pair.starts_with(TRANSACTIONS));
    let values: Vec<_> = found.iter().filter_map(|pair| pair.strip_prefix(TRANSACTIONS)).collect();
    let others = others.join("&");
    let rest = if others.is_empty() { address.to_owned() } else { format!("{address}?{others}") };
    let invalid = || StoreError::permanent(store, "connect", InvalidTransactions);
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
