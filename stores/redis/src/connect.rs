//! Opens a store, and verifies what it needs of the servers.

pub(crate) use self::privileges::check;
use crate::{
    engine::Engine,
    error::{CallFailure, NAME},
    lua::Scripts,
    net::{Address, Router},
    options::RedisOptions,
};
use idempotent_core::{StoreError, store::url::verify_server};

mod losses;
mod privileges;

/// Finds and verifies the servers of a URL.
pub(crate) async fn open(url: &str, options: &RedisOptions) -> Result<Engine, StoreError> {
    let address = parse(url)?;
    let named = matches!(address, Address::Server(_));
    match Router::open(address, options.response_timeout).await {
        Ok(router) => Ok(Engine::new(router, Scripts::shipped(), options)),
        // A replica that the URL itself names is a configuration mistake, not a failover.
        Err(refused @ CallFailure::UnsuitableServer(_)) if named => {
            Err(StoreError::permanent(NAME, "connect", refused))
        }
        Err(failure) => Err(failure.into_error("connect")),
    }
}

/// Parses a URL.
pub(crate) fn parse(url: &str) -> Result<Address, StoreError> {
    // The client library's marker for TLS without verification.
    let verified = url.strip_suffix("#insecure").unwrap_or(url);
    verify_server(NAME, verified, Address::parameters(url))?;
    Address::parse(url).map_err(|error| StoreError::permanent(NAME, "connect", error))
}
