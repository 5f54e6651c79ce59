//! Creates the table, its index and its time to live.

use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, CreateGlobalSecondaryIndexAction, GlobalSecondaryIndex,
    GlobalSecondaryIndexUpdate, KeySchemaElement, KeyType, Projection, ProjectionType,
    ScalarAttributeType, TableDescription, TimeToLiveSpecification,
};
use tokio::time::{Instant, sleep};

use super::describe::{describe, is_active, time_to_live, unsuitable};
use crate::{
    engine::Engine,
    error::{CallFailure, UnsuitableTable},
    item::names,
    table::done,
};

/// How long the service may take to create a table, or an index of an existing one.
const MIGRATED_WITHIN: Duration = Duration::from_secs(300);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Creates what is missing, and waits until it is ready. Several processes may do so at once.
pub(crate) async fn migrate(engine: &Engine) -> Result<(), CallFailure> {
    let until = Instant::now() + MIGRATED_WITHIN;
    let mut pause = FIRST_PAUSE;
    loop {
        let table = describe(engine).await?;
        let changed = match &table {
            None => create(engine).await,
            Some(table) if is_active(table) && !has_index(table) => create_index(engine).await,
            Some(table) if is_active(table) => break,
            Some(_) => Ok(()),
        };
        match changed {
            Ok(()) => {}
            // Another process is creating the same.
            Err(CallFailure::Service(error)) if error.is_in_use() => {}
            Err(failure) => return Err(failure),
        }
        if Instant::now() + pause >= until {
            return Err(CallFailure::NotActive);
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    enable_time_to_live(engine).await
}

fn has_index(table: &TableDescription) -> bool {
    table.global_secondary_indexes().iter().any(|index| index.index_name() == Some(names::WATCHED))
}

fn attribute(name: &str, of: ScalarAttributeType) -> Result<AttributeDefinition, CallFailure> {
    let attribute = AttributeDefinition::builder().attribute_name(name).attribute_type(of);
    attribute.build().map_err(CallFailure::not_built)
}

fn key(name: &str, of: KeyType) -> Result<KeySchemaElement, CallFailure> {
    let key = KeySchemaElement::builder().attribute_name(name).key_type(of);
    key.build().map_err(CallFailure::not_built)
}

fn projection() -> Projection {
    Projection::builder().projection_type(ProjectionType::KeysOnly).build()
}

fn attributes() -> Result<Vec<AttributeDefinition>, CallFailure> {
    Ok(vec![
        attribute(names::ID, ScalarAttributeType::B)?,
        attribute(names::WATCHED, ScalarAttributeType::S)?,
        attribute(names::FIRST_SEEN, ScalarAttributeType::N)?,
    ])
}

fn index_key() -> Result<Vec<KeySchemaElement>, CallFailure> {
    Ok(vec![key(names::WATCHED, KeyType::Hash)?, key(names::FIRST_SEEN, KeyType::Range)?])
}

async fn create(engine: &Engine) -> Result<(), CallFailure> {
    let index = GlobalSecondaryIndex::builder()
        .index_name(names::WATCHED)
        .set_key_schema(Some(index_key()?))
        .projection(projection())
        .build()
        .map_err(CallFailure::not_built)?;
    let create = engine.table.client.create_table().table_name(&*engine.table.name);
    let create = create
        .billing_mode(BillingMode::PayPerRequest)
        .set_attribute_definitions(Some(attributes()?))
        .key_schema(key(names::ID, KeyType::Hash)?)
        .global_secondary_indexes(index);
    let create = |probe| create.clone().customize().interceptor(probe).send();
    done(engine.table.call(create).await?).map(drop)
}

async fn create_index(engine: &Engine) -> Result<(), CallFailure> {
    let index = CreateGlobalSecondaryIndexAction::builder()
        .index_name(names::WATCHED)
        .set_key_schema(Some(index_key()?))
        .projection(projection())
        .build()
        .map_err(CallFailure::not_built)?;
    let index = GlobalSecondaryIndexUpdate::builder().create(index).build();
    let update = engine.table.client.update_table().table_name(&*engine.table.name);
    let update =
        update.set_attribute_definitions(Some(attributes()?)).global_secondary_index_updates(index);
    let update = |probe| update.clone().customize().interceptor(probe).send();
    done(engine.table.call(update).await?).map(drop)
}

async fn enable_time_to_live(engine: &Engine) -> Result<(), CallFailure> {
    match time_to_live(engine).await?.as_deref() {
        Some(names::GONE) => return Ok(()),
        Some(other) => return Err(unsuitable(UnsuitableTable::OtherTimeToLive(other.to_owned()))),
        None => {}
    }
    let setting = TimeToLiveSpecification::builder().attribute_name(names::GONE).enabled(true);
    let setting = setting.build().map_err(CallFailure::not_built)?;
    let update = engine.table.client.update_time_to_live().table_name(&*engine.table.name);
    let update = update.time_to_live_specification(setting);
    let update = |probe| update.clone().customize().interceptor(probe).send();
    match engine.table.call(update).await {
        Ok(updated) => done(updated).map(drop),
        // Another process may have enabled it since.
        Err(CallFailure::Service(error)) if error.is_invalid() || error.is_in_use() => {
            match time_to_live(engine).await?.as_deref() {
                Some(names::GONE) => Ok(()),
                _ => Err(CallFailure::Service(error)),
            }
        }
        Err(failure) => Err(failure),
    }
}
