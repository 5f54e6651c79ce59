//! Writes of one item.

use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure::AllOld,
};

use super::{
    calls::{Response, Table},
    expression::Expression,
    refusal::{Refusal, Refused},
};
use crate::{
    error::CallFailure,
    item::{Item, bytes, names},
};

/// The former item if the write was executed; what is there if it was refused.
pub(crate) type Written = Result<Option<Item>, Refused>;

/// Whether a write that is executed returns the former item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Former {
    Returned,
    Unused,
}

impl Former {
    fn value(self) -> ReturnValue {
        match self {
            Self::Returned => ReturnValue::AllOld,
            Self::Unused => ReturnValue::None,
        }
    }
}

impl Table {
    pub(crate) async fn put(
        &self,
        item: Item,
        expression: Expression,
    ) -> Result<Written, CallFailure> {
        let put = self.client.put_item().table_name(&*self.name).set_item(Some(item));
        let put = put
            .set_condition_expression(expression.condition)
            .set_expression_attribute_names(expression.names)
            .set_expression_attribute_values(expression.values)
            .return_values_on_condition_check_failure(AllOld);
        let put = |probe| put.clone().customize().interceptor(probe).send();
        Ok(written(self.call(put).await?, |put| put.attributes))
    }

    pub(crate) async fn update(
        &self,
        key: &[u8],
        expression: Expression,
        former: Former,
    ) -> Result<Written, CallFailure> {
        let update = self.client.update_item().table_name(&*self.name).key(names::ID, bytes(key));
        let update = update
            .set_update_expression(expression.update)
            .set_condition_expression(expression.condition)
            .set_expression_attribute_names(expression.names)
            .set_expression_attribute_values(expression.values)
            .return_values(former.value())
            .return_values_on_condition_check_failure(AllOld);
        let update = |probe| update.clone().customize().interceptor(probe).send();
        Ok(written(self.call(update).await?, |updated| updated.attributes))
    }

    pub(crate) async fn delete(
        &self,
        key: &[u8],
        expression: Expression,
    ) -> Result<Written, CallFailure> {
        let delete = self.client.delete_item().table_name(&*self.name).key(names::ID, bytes(key));
        let delete = delete
            .set_condition_expression(expression.condition)
            .set_expression_attribute_names(expression.names)
            .set_expression_attribute_values(expression.values)
            .return_values(ReturnValue::AllOld)
            .return_values_on_condition_check_failure(AllOld);
        let delete = |probe| delete.clone().customize().interceptor(probe).send();
        Ok(written(self.call(delete).await?, |deleted| deleted.attributes))
    }
}

fn written<T, E: Refusal>(
    response: Response<Result<T, E>>,
    former: impl FnOnce(T) -> Option<Item>,
) -> Written {
    let Response { value, in_doubt } = response;
    match value {
        Ok(done) => Ok(former(done)),
        Err(refused) => Err(Refused { item: refused.into_item(), in_doubt }),
    }
}

/// The key of an item.
pub(super) fn key_of(key: &[u8]) -> Item {
    Item::from([(names::ID.to_owned(), AttributeValue::B(key.to_vec().into()))])
}
