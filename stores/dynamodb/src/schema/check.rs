//! Verifies the table, and that the credentials permit each action.

use aws_sdk_dynamodb::types::{
    KeySchemaElement, MultiRegionConsistency, ScalarAttributeType, TableDescription,
};

use super::describe::{describe, is_active, missing, time_to_live, unsuitable};
use crate::{
    engine::Engine,
    error::{CallFailure, UnsuitableTable},
    guards::Guard,
    item::{Item, bytes, names},
    table::{Former, Queried},
};
use idempotent_core::RecordId;

/// A condition that no item fulfils, so that a write is permitted or denied, and changes nothing.
const NEVER: Guard =
    Guard { name: "NEVER", text: "attribute_exists(#id) AND attribute_not_exists(#id)" };

/// Verifies the table and the permissions. It changes nothing.
pub(crate) async fn check(engine: &Engine) -> Result<(), CallFailure> {
    let table = describe(engine).await.map_err(denied("DescribeTable"))?;
    let table = table.ok_or_else(|| missing(engine))?;
    verify(&table, engine.single_writer_region).map_err(unsuitable)?;
    if !is_active(&table) {
        return Err(CallFailure::NotActive);
    }
    match time_to_live(engine).await.map_err(denied("DescribeTimeToLive"))?.as_deref() {
        Some(names::GONE) => {}
        Some(other) => return Err(unsuitable(UnsuitableTable::OtherTimeToLive(other.to_owned()))),
        None => return Err(unsuitable(UnsuitableTable::NoTimeToLive)),
    }
    permissions(engine).await
}

fn verify(table: &TableDescription, single_writer_region: bool) -> Result<(), UnsuitableTable> {
    let of = |name: &str| {
        let mut attributes = table.attribute_definitions().iter();
        attributes.find(|of| of.attribute_name() == name).map(|of| of.attribute_type())
    };
    let key_of = |schema: &[KeySchemaElement]| {
        schema.iter().map(|key| key.attribute_name().to_owned()).collect::<Vec<_>>()
    };
    if key_of(table.key_schema()) != [names::ID] || of(names::ID) != Some(&ScalarAttributeType::B) {
        return Err(UnsuitableTable::Key);
    }
    let mut indexes = table.global_secondary_indexes().iter();
    let index = indexes.find(|index| index.index_name() == Some(names::WATCHED));
    let has_index = index.is_some_and(|index| {
        key_of(index.key_schema()) == [names::WATCHED, names::FIRST_SEEN]
            && of(names::WATCHED) == Some(&ScalarAttributeType::S)
            && of(names::FIRST_SEEN) == Some(&ScalarAttributeType::N)
    });
    if !has_index {
        return Err(UnsuitableTable::Index);
    }
    match (table.replicas(), &table.multi_region_consistency) {
        ([], _) => Ok(()),
        (_, Some(MultiRegionConsistency::Strong)) => Err(UnsuitableTable::StrongGlobalTable),
        _ if single_writer_region => Ok(()),
        _ => Err(UnsuitableTable::GlobalTable),
    }
}

/// Sends a request of each kind that the store sends.
async fn permissions(engine: &Engine) -> Result<(), CallFailure> {
    let nobody = RecordId::from_bytes([0; 32]);
    let key = engine.keys.record(&nobody);
    let table = &engine.table;
    let never =
        |update: Option<&str>| engine.expression(update.map(str::to_owned), &[NEVER], Vec::new());
    table.get(&key).await.map_err(denied("GetItem"))?;
    table.get_many(vec![key.clone()]).await.map_err(denied("BatchGetItem"))?;
    let item = Item::from([(names::ID.to_owned(), bytes(&key))]);
    table.put(item, never(None)).await.map_err(denied("PutItem"))?.ok();
    let update = never(Some("REMOVE #tag"));
    table.update(&key, update, Former::Unused).await.map_err(denied("UpdateItem"))?.ok();
    table.delete(&key, never(None)).await.map_err(denied("DeleteItem"))?.ok();
    let hash = engine.keys.log_shard();
    let wanted = Queried { hash, from: None, latest_first: true, after: None, limit: Some(1) };
    table.query(wanted).await.map_err(denied("Query"))?;
    table.scan(&[names::ID], (None, Some(1))).await.map_err(denied("Scan"))?;
    Ok(())
}

/// Names the action of a request that was denied.
fn denied(action: &'static str) -> impl Fn(CallFailure) -> CallFailure {
    move |failure| {
        if let CallFailure::MissingPermission(missing) = failure {
            CallFailure::MissingPermission(missing.or_action(action))
        } else {
            failure
        }
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::{
        AttributeDefinition, GlobalSecondaryIndexDescription, KeyType, ReplicaDescription,
    };

    use super::*;

    fn table() -> aws_sdk_dynamodb::types::builders::TableDescriptionBuilder {
        let attribute = |name, of| {
            let attribute = AttributeDefinition::builder().attribute_name(name).attribute_type(of);
            attribute.build().unwrap()
        };
        let key = |name, of| {
            KeySchemaElement::builder().attribute_name(name).key_type(of).build().unwrap()
        };
        let index = GlobalSecondaryIndexDescription::builder()
            .index_name(names::WATCHED)
            .key_schema(key(names::WATCHED, KeyType::Hash))
            .key_schema(key(names::FIRST_SEEN, KeyType::Range));
        TableDescription::builder()
            .key_schema(key(names::ID, KeyType::Hash))
            .attribute_definitions(attribute(names::ID, ScalarAttributeType::B))
            .attribute_definitions(attribute(names::WATCHED, ScalarAttributeType::S))
            .attribute_definitions(attribute(names::FIRST_SEEN, ScalarAttributeType::N))
            .global_secondary_indexes(index.build())
    }

    #[test]
    fn a_global_table_is_refused_unless_one_region_writes() {
        assert_eq!(verify(&table().build(), false), Ok(()));
        let replica = || ReplicaDescription::builder().region_name("eu-west-1").build();
        let eventual = table().replicas(replica()).build();
        assert_eq!(verify(&eventual, false), Err(UnsuitableTable::GlobalTable));
        assert_eq!(verify(&eventual, true), Ok(()));
        let strong = table().replicas(replica());
        let strong = strong.multi_region_consistency(MultiRegionConsistency::Strong).build();
        assert_eq!(verify(&strong, true), Err(UnsuitableTable::StrongGlobalTable));
    }

    #[test]
    fn a_table_without_its_index_is_refused() {
        let bare = table().set_global_secondary_indexes(None).build();
        assert_eq!(verify(&bare, false), Err(UnsuitableTable::Index));
        let other = table().set_key_schema(None).build();
        assert_eq!(verify(&other, false), Err(UnsuitableTable::Key));
    }
}
