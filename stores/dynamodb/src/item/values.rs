//! The values of attributes.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;

/// The attributes of an item.
pub(crate) type Item = HashMap<String, AttributeValue>;

pub(crate) fn bytes(value: &[u8]) -> AttributeValue {
    AttributeValue::B(value.to_vec().into())
}

pub(crate) fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub(crate) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

/// The bytes of a binary value.
pub(crate) fn blob(value: &AttributeValue) -> Option<Bytes> {
    value.as_b().ok().map(|blob| Bytes::copy_from_slice(blob.as_ref()))
}
