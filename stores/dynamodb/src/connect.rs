//! Opens a store.

use std::sync::Arc;

use aws_config::{BehaviorVersion, Region, timeout::TimeoutConfig};
use aws_sdk_dynamodb::{
    Client,
    config::{Builder, SharedHttpClient, retry::RetryConfig},
};
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};

use crate::{
    address::Address, engine::Engine, error::NAME, options::DynamoDbOptions,
    service_time::ServiceTime, table::Table,
};
use idempotent_core::StoreError;

/// The longest prefix, which a position in a list contains.
const MAX_PREFIX: usize = 64;

#[derive(Debug, thiserror::Error)]
#[error("the prefix of the keys has {0} bytes; at most {MAX_PREFIX} are allowed")]
struct PrefixTooLong(usize);

/// Opens the table of a URL. It sends nothing to the service.
pub(crate) async fn open(url: &str, options: &DynamoDbOptions) -> Result<Engine, StoreError> {
    let Address { region, table, endpoint } = Address::parse(url)?;
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http_client());
    if let Some(region) = region {
        loader = loader.region(Region::new(region));
    }
    if let Some(endpoint) = endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    engine(Builder::from(&loader.load().await), &table, options)
}

/// A client with TLS by `ring` and the machine's certificates.
pub(crate) fn http_client() -> SharedHttpClient {
    let provider = tls::Provider::Rustls(CryptoMode::Ring);
    aws_smithy_http_client::Builder::new().tls_provider(provider).build_https()
}

/// The store in a table of the application's client.
pub(crate) fn share(
    client: &Client,
    table: &str,
    options: &DynamoDbOptions,
) -> Result<Engine, StoreError> {
    engine(client.config().to_builder(), table, options)
}

/// The store sends its requests again by itself, because it must know which ones it has sent twice.
fn engine(config: Builder, table: &str, options: &DynamoDbOptions) -> Result<Engine, StoreError> {
    let length = options.key_prefix.len();
    if length > MAX_PREFIX {
        return Err(StoreError::permanent(NAME, "connect", PrefixTooLong(length)));
    }
    let config = config
        .retry_config(RetryConfig::disabled())
        .timeout_config(TimeoutConfig::builder().connect_timeout(options.response_timeout).build());
    let table = Table {
        client: Client::from_conf(config.build()),
        name: Arc::from(table),
        time: Arc::new(ServiceTime::new()),
        response_timeout: options.response_timeout,
        call_timeout: options.call_timeout,
    };
    Ok(Engine::new(table, options))
}
