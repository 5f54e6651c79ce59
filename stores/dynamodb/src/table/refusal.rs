//! Requests that the service has refused because of their condition.

use aws_sdk_dynamodb::{
    operation::{
        batch_get_item::BatchGetItemError, create_table::CreateTableError,
        delete_item::DeleteItemError, describe_table::DescribeTableError,
        describe_time_to_live::DescribeTimeToLiveError, get_item::GetItemError,
        put_item::PutItemError, query::QueryError, scan::ScanError,
        transact_write_items::TransactWriteItemsError, update_item::UpdateItemError,
        update_table::UpdateTableError, update_time_to_live::UpdateTimeToLiveError,
    },
    types::error::TransactionCanceledException,
};

use crate::{
    error::{CallFailure, ServiceError},
    item::Item,
};

/// The error of a kind of request.
pub(crate) trait Refusal: Sized {
    /// Whether the condition of the request was false.
    fn is_refusal(&self) -> bool {
        false
    }

    /// The item that the condition was compared with.
    fn into_item(self) -> Option<Item> {
        None
    }

    /// A failure that the code of the error does not show.
    fn failure(&self) -> Option<CallFailure> {
        None
    }
}

macro_rules! conditional {
    ($($error:ident),+) => {
        $(impl Refusal for $error {
            fn is_refusal(&self) -> bool {
                self.is_conditional_check_failed_exception()
            }

            fn into_item(self) -> Option<Item> {
                match self {
                    Self::ConditionalCheckFailedException(refused) => refused.item,
                    _ => None,
                }
            }
        })+
    };
}

conditional!(PutItemError, UpdateItemError, DeleteItemError);

macro_rules! unconditional {
    ($($error:ident),+) => { $(impl Refusal for $error {})+ };
}

unconditional!(
    BatchGetItemError,
    CreateTableError,
    DescribeTableError,
    DescribeTimeToLiveError,
    GetItemError,
    QueryError,
    ScanError,
    UpdateTableError,
    UpdateTimeToLiveError
);

/// What a reason says of an item whose condition was false.
const CONDITION_WAS_FALSE: &str = "ConditionalCheckFailed";

impl Refusal for TransactWriteItemsError {
    fn is_refusal(&self) -> bool {
        cancelled(self).is_some_and(|cancelled| {
            let mut reasons = cancelled.cancellation_reasons().iter();
            reasons.any(|reason| reason.code() == Some(CONDITION_WAS_FALSE))
        })
    }

    fn into_item(self) -> Option<Item> {
        let Self::TransactionCanceledException(cancelled) = self else { return None };
        cancelled.cancellation_reasons?.into_iter().find_map(|reason| reason.item)
    }

    fn failure(&self) -> Option<CallFailure> {
        let reasons = cancelled(self)?.cancellation_reasons();
        let reason = reasons.iter().find(|reason| reason.code().is_some_and(|is| is != "None"))?;
        let failed = ServiceError::new(reason.code(), reason.message(), None);
        Some(CallFailure::Service(failed))
    }
}

fn cancelled(error: &TransactWriteItemsError) -> Option<&TransactionCanceledException> {
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = error else {
        return None;
    };
    Some(cancelled)
}

/// A write that was refused.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The item as it is, or `None` if there is none.
    pub(crate) item: Option<Item>,
    /// Whether an earlier request of the same call may have taken effect.
    pub(crate) in_doubt: bool,
}
