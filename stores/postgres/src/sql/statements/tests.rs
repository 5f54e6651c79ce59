use super::*;
use idempotent_sql::TableName;

#[test]
fn every_placeholder_is_filled() {
    let schema = TableName::new("mine").ok().map(Into::into);
    let names = Names { schema, ..Names::default() };
    let statements = Statements::new(names, &Texts::default());
    assert!(statements.claim.as_str().contains(r#"INSERT INTO "mine"."idempotency_records""#));
    for text in [
        &statements.claim,
        &statements.insert_completed_in_transaction,
        &statements.complete_in_transaction,
        &statements.renew,
        &statements.purge,
    ] {
        assert!(!text.as_str().contains(['{', '}']), "{}", text.as_str());
    }
}
