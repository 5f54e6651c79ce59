//! What the tests of this repository need beyond the public API. It is not covered by semantic
//! versioning.

use std::{sync::Arc, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    config::{Builder, Credentials, Region},
};
use idempotent_core::{RecordId, StoreError, clock::millis};

use crate::{
    DynamoDbStore, address::Address, connect, engine::Engine, guards, steps, table::Table,
};

/// The names of all guards, and their texts.
pub fn guards() -> impl Iterator<Item = (&'static str, &'static str)> {
    guards::GUARDS.iter().map(|guard| (guard.name, guard.text))
}

/// The store without one of the [guards].
pub fn without_guard(store: &DynamoDbStore, name: &'static str) -> DynamoDbStore {
    with_engine(Engine { removed: Some(name), ..(*store.engine).clone() })
}

/// The store with a time of its own, that tests can shift.
pub fn with_own_time(store: &DynamoDbStore) -> DynamoDbStore {
    let engine = (*store.engine).clone();
    let time = Arc::new(engine.table.time.shifted(0));
    with_engine(Engine { table: Table { time, ..engine.table }, ..engine })
}

/// Lets the time of a store pass.
pub fn advance(store: &DynamoDbStore, by: Duration) {
    store.engine.table.time.shift(signed(by));
}

/// Sets the time of a store back.
pub fn set_back(store: &DynamoDbStore, by: Duration) {
    store.engine.table.time.shift(-signed(by));
}

fn signed(by: Duration) -> i64 {
    i64::try_from(millis(by)).unwrap_or(i64::MAX)
}

fn with_engine(engine: Engine) -> DynamoDbStore {
    DynamoDbStore { engine: Arc::new(engine) }
}

/// The key of a record's item.
pub fn key_of(store: &DynamoDbStore, id: &RecordId) -> Vec<u8> {
    store.engine.keys.record(id)
}

/// A client for an emulator at this address.
pub fn client_of(endpoint: &str) -> Client {
    let config = Builder::new()
        .behavior_version_latest()
        .http_client(connect::http_client())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
        .endpoint_url(endpoint);
    Client::from_conf(config.build())
}

/// Removes up to `limit` records that the table's time to live may remove now, as if it were never
/// late, and returns how many that were.
///
/// # Errors
/// Fails if the table cannot be read.
///
/// # Panics
/// If the time to live would remove a record that is live, or never removes one that has expired.
pub async fn expire(store: &DynamoDbStore, limit: u32) -> Result<u64, StoreError> {
    steps::expire(&store.engine, limit).await.map_err(|failure| failure.into_error("purge"))
}

/// Verifies the URL of a table, without opening anything.
///
/// # Errors
/// As for [`DynamoDbStore::connect`].
pub fn verify_dynamodb_url(url: &str) -> Result<(), StoreError> {
    Address::parse(url).map(drop)
}
