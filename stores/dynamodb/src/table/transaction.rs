//! A change of a record together with an entry of the log.

use aws_sdk_dynamodb::types::{
    Delete, Put, ReturnValuesOnConditionCheckFailure::AllOld, TransactWriteItem,
};

use super::{
    calls::{Response, Table},
    expression::Expression,
    refusal::{Refusal as _, Refused},
    writes::key_of,
};
use crate::{error::CallFailure, item::Item};

/// A change of one item, with its condition.
pub(crate) enum Change {
    Put(Item, Expression),
    Delete(Vec<u8>, Expression),
}

impl Table {
    /// Executes all changes, or none. The service executes a token once within ten minutes.
    pub(crate) async fn transact(
        &self,
        changes: Vec<Change>,
        token: &str,
    ) -> Result<Result<(), Refused>, CallFailure> {
        let changes: Result<Vec<_>, _> =
            changes.into_iter().map(|change| self.item_of(change)).collect();
        let write = self.client.transact_write_items().client_request_token(token);
        let write = write.set_transact_items(Some(changes?));
        let write = |probe| write.clone().customize().interceptor(probe).send();
        let Response { value, in_doubt } = self.call(write).await?;
        Ok(match value {
            Ok(_) => Ok(()),
            Err(refused) => Err(Refused { item: refused.into_item(), in_doubt }),
        })
    }

    fn item_of(&self, change: Change) -> Result<TransactWriteItem, CallFailure> {
        let item = TransactWriteItem::builder();
        let item = match change {
            Change::Put(put, expression) => {
                let put = Put::builder()
                    .table_name(&*self.name)
                    .set_item(Some(put))
                    .set_condition_expression(expression.condition)
                    .set_expression_attribute_names(expression.names)
                    .set_expression_attribute_values(expression.values)
                    .return_values_on_condition_check_failure(AllOld);
                item.put(put.build().map_err(CallFailure::not_built)?)
            }
            Change::Delete(key, expression) => {
                let delete = Delete::builder()
                    .table_name(&*self.name)
                    .set_key(Some(key_of(&key)))
                    .set_condition_expression(expression.condition)
                    .set_expression_attribute_names(expression.names)
                    .set_expression_attribute_values(expression.values)
                    .return_values_on_condition_check_failure(AllOld);
                item.delete(delete.build().map_err(CallFailure::not_built)?)
            }
        };
        Ok(item.build())
    }
}
