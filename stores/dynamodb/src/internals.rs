//! What the tests of this repository need beyond the public API. It is not covered by semantic
//! versioning.

use std::{sync::Arc, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    config::{Builder, Credentials, Region},
    types::{
        AttributeDefinition, AttributeValue, BillingMode, GlobalSecondaryIndex, KeySchemaElement,
        KeyType, Projection, ProjectionType, ScalarAttributeType, TimeToLiveSpecification,
    },
};
use idempotent_core::{RecordId, StoreError, clock::millis};

use crate::{
    DynamoDbStore,
    address::Address,
    connect,
    engine::Engine,
    error::CallFailure,
    guards,
    item::{Item, names},
    steps,
    table::Table,
};

/// The names of all guards, and their texts.
pub fn guards() -> impl Iterator<Item = (&'static str, &'static str)> {
    guards::GUARDS.iter().map(|guard| (guard.name, guard.text))
}

/// The store without one of the guards.
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

/// How many entries the history of a record has in its item.
///
/// # Errors
/// Fails if the table cannot be read.
pub async fn history_length(store: &DynamoDbStore, id: &RecordId) -> Result<usize, StoreError> {
    let item = store.engine.table.get(&key_of(store, id)).await.map_err(failed)?;
    let history = item.and_then(|item| item.get(names::HISTORY)?.as_l().ok().map(Vec::len));
    Ok(history.unwrap_or(0))
}

/// The keys of all items of the table.
async fn keys(store: &DynamoDbStore) -> Result<Vec<Vec<u8>>, StoreError> {
    let key = |item: &Item| Some(item.get(names::ID)?.as_b().ok()?.as_ref().to_vec());
    let (mut keys, mut after): (Vec<_>, Option<Vec<u8>>) = (Vec::new(), None);
    loop {
        let from = (after.as_deref(), None);
        let part = store.engine.table.scan(&[names::ID], from).await.map_err(failed)?;
        keys.extend(part.items.iter().filter_map(key));
        after = part.next.as_ref().and_then(key);
        if after.is_none() {
            return Ok(keys);
        }
    }
}

/// How many items the table has.
///
/// # Errors
/// Fails if the table cannot be read.
pub async fn items(store: &DynamoDbStore) -> Result<usize, StoreError> {
    keys(store).await.map(|keys| keys.len())
}

/// What the items of the table contain, up to a megabyte.
///
/// # Errors
/// Fails if the table cannot be read.
pub async fn contents(store: &DynamoDbStore) -> Result<Vec<u8>, aws_sdk_dynamodb::Error> {
    let Table { client, name, .. } = &store.engine.table;
    let page = client.scan().table_name(&**name).consistent_read(true).send().await?;
    let mut bytes = Vec::new();
    page.items().iter().flatten().for_each(|(_, value)| append(&mut bytes, value));
    Ok(bytes)
}

/// Appends the texts and the bytes of a value.
fn append(bytes: &mut Vec<u8>, value: &AttributeValue) {
    match value {
        AttributeValue::B(value) => bytes.extend(value.as_ref()),
        AttributeValue::S(text) | AttributeValue::N(text) => bytes.extend(text.as_bytes()),
        AttributeValue::L(values) => values.iter().for_each(|value| append(bytes, value)),
        AttributeValue::M(values) => values.values().for_each(|value| append(bytes, value)),
        // The store writes no other kind.
        AttributeValue::Bool(_) | _ => {}
    }
}

/// Removes the log of operators' decisions, and returns how many entries it had.
///
/// # Errors
/// Fails if the table cannot be changed.
pub async fn clear_log(store: &DynamoDbStore) -> Result<usize, StoreError> {
    let mut removed = 0;
    for key in keys(store).await? {
        if store.engine.keys.log_entry_of(&key).is_some() {
            let always = store.engine.expression(None, &[], Vec::new());
            store.engine.table.delete(&key, always).await.map_err(failed)?.ok();
            removed += 1;
        }
    }
    Ok(removed)
}

fn failed(failure: CallFailure) -> StoreError {
    failure.into_error("test")
}

/// Creates tables, each of which lacks something, with what a refusal says of it.
///
/// # Errors
/// Fails if the service fails.
pub async fn unsuitable_tables(
    endpoint: &str,
) -> Result<Vec<(String, &'static str)>, aws_sdk_dynamodb::Error> {
    let client = client_of(endpoint);
    let mut tables = Vec::new();
    for lacks in ["no index", "not enabled", "instead of", "the key of the table"] {
        let table = format!("test-{:x}", fastrand::u64(..));
        let (key, of) = match lacks {
            "the key of the table" => (names::ID, ScalarAttributeType::S),
            _ => (names::ID, ScalarAttributeType::B),
        };
        let attribute = |name, of| {
            AttributeDefinition::builder().attribute_name(name).attribute_type(of).build()
        };
        let part = |name, of| KeySchemaElement::builder().attribute_name(name).key_type(of).build();
        let mut create = client
            .create_table()
            .table_name(&table)
            .billing_mode(BillingMode::PayPerRequest)
            .attribute_definitions(attribute(key, of)?)
            .key_schema(part(key, KeyType::Hash)?);
        if lacks != "no index" {
            let index = GlobalSecondaryIndex::builder()
                .index_name(names::WATCHED)
                .key_schema(part(names::WATCHED, KeyType::Hash)?)
                .key_schema(part(names::FIRST_SEEN, KeyType::Range)?)
                .projection(
                    Projection::builder().projection_type(ProjectionType::KeysOnly).build(),
                );
            create = create
                .attribute_definitions(attribute(names::WATCHED, ScalarAttributeType::S)?)
                .attribute_definitions(attribute(names::FIRST_SEEN, ScalarAttributeType::N)?)
                .global_secondary_indexes(index.build()?);
        }
        create.send().await?;
        if lacks == "instead of" {
            let other = TimeToLiveSpecification::builder().attribute_name("other").enabled(true);
            let update = client.update_time_to_live().table_name(&table);
            update.time_to_live_specification(other.build()?).send().await?;
        }
        tables.push((table, lacks));
    }
    Ok(tables)
}
