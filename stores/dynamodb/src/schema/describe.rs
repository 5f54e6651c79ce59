//! What the service tells of the table.

use aws_sdk_dynamodb::types::{IndexStatus, TableDescription, TableStatus, TimeToLiveStatus};

use crate::{
    engine::Engine,
    error::{CallFailure, UnsuitableTable},
    item::names,
    table::done,
};
use idempotent_core::{RecordId, ShortText, protocol::StoreFacts};

/// Describes the table; `None` if it does not exist.
pub(super) async fn describe(engine: &Engine) -> Result<Option<TableDescription>, CallFailure> {
    let describe = engine.table.client.describe_table().table_name(&*engine.table.name);
    let describe = |probe| describe.clone().customize().interceptor(probe).send();
    match engine.table.call(describe).await {
        Ok(described) => Ok(done(described)?.table),
        Err(CallFailure::Service(error)) if error.is_not_found() => Ok(None),
        Err(failure) => Err(failure),
    }
}

pub(super) fn unsuitable(why: UnsuitableTable) -> CallFailure {
    CallFailure::UnsuitableTable(why)
}

pub(super) fn missing(engine: &Engine) -> CallFailure {
    unsuitable(UnsuitableTable::Missing(engine.table.name.to_string()))
}

/// The attribute of the time to live, if it is enabled or about to be.
pub(super) async fn time_to_live(engine: &Engine) -> Result<Option<String>, CallFailure> {
    let describe = engine.table.client.describe_time_to_live().table_name(&*engine.table.name);
    let describe = |probe| describe.clone().customize().interceptor(probe).send();
    let described = done(engine.table.call(describe).await?)?.time_to_live_description;
    Ok(described.and_then(|described| {
        let status = described.time_to_live_status?;
        let enabled = matches!(status, TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling);
        described.attribute_name.filter(|_| enabled)
    }))
}

/// The items of the table, as the service has counted them last.
pub(crate) async fn item_count(engine: &Engine) -> Result<u64, CallFailure> {
    let table = describe(engine).await?.ok_or_else(|| missing(engine))?;
    Ok(table.item_count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0))
}

/// What the service tells of the table.
pub(crate) async fn facts(engine: &Engine) -> Result<StoreFacts, CallFailure> {
    let now = engine.now(&RecordId::from_bytes([0; 32])).await?;
    let table = describe(engine).await?.ok_or_else(|| missing(engine))?;
    let size = |bytes: Option<i64>| bytes.and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
    let indexes = table.global_secondary_indexes().iter().map(|index| size(index.index_size_bytes));
    let server = ShortText::truncated("Amazon DynamoDB");
    let mut facts = StoreFacts::new(now.at, server)
        .with_size("table", size(table.table_size_bytes))
        .with_size("indexes", indexes.sum());
    if time_to_live(engine).await?.as_deref() != Some(names::GONE) {
        facts = facts.with_finding(
            "The time to live of the table is not enabled for `gone`: no record is ever removed.",
            "Enable it: call `migrate`.",
        );
    }
    if table.deletion_protection_enabled != Some(true) {
        facts = facts.with_finding(
            "The table is not protected from being deleted.",
            "Enable its deletion protection.",
        );
    }
    Ok(facts)
}

/// Whether the table is ready, and its index.
pub(super) fn is_active(table: &TableDescription) -> bool {
    let is_ready = |status: Option<&TableStatus>| {
        matches!(status, Some(TableStatus::Active | TableStatus::Updating))
    };
    is_ready(table.table_status.as_ref())
        && table
            .global_secondary_indexes()
            .iter()
            .filter(|index| index.index_name() == Some(names::WATCHED))
            .all(|index| index.index_status == Some(IndexStatus::Active))
}
