//! Opens a store, and verifies what it needs of the servers.

use std::time::Duration;

pub(crate) use self::privileges::check;
use crate::{
    error::{CallFailure, NAME},
    net::{Address, Router},
};
use idempotent_core::{StoreError, store::url::verify_server};

mod privileges;

/// Finds and verifies the servers of a URL.
pub(crate) async fn connect(url: &str, response_timeout: Duration) -> Result<Router, StoreError> {
    let address = parse(url)?;
    let named = matches!(address, Address::Server(_));
    Router::open(address, response_timeout).await.map_err(|failure| match failure {
        // A replica that the URL itself names is a configuration mistake, not a failover.
        CallFailure::UnsuitableServer(_) if named => {
            StoreError::permanent(NAME, "connect", failure)
        }
        failure => failure.into_error("connect"),
    })
}

/// Parses a URL.
pub(crate) fn parse(url: &str) -> Result<Address, StoreError> {
    // The client library's marker for TLS without verification.
    let verified = url.strip_suffix("#insecure").unwrap_or(url);
    verify_server(NAME, verified, Address::parameters(url))?;
    Address::parse(url).map_err(|error| StoreError::permanent(NAME, "connect", error))
}
