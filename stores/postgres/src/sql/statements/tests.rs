use super::*;
use idempotent_sql::TableName;

#[test]
fn every_placeholder_is_filled() {
    let schema = TableName::of_option("postgres", "schema", "mine").ok().map(Into::into);
    let names = Names { schema, ..Names::default() };
    let statements = Statements::new(names, &Texts::default());
    assert!(
        statements.steps.claim.as_str().contains(r#"INSERT INTO "mine"."idempotency_records""#)
    );
    for text in [
        &statements.steps.claim,
        &statements.insert_completed_in_transaction,
        &statements.complete_in_transaction,
        &statements.steps.renew,
        &statements.steps.purge,
    ] {
        assert!(!text.as_str().contains(['{', '}']), "{}", text.as_str());
    }
}
