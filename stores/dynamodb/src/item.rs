//! The items: records, parts that are too large for them, and the log of operators' decisions.

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use idempotent_core::Record;

pub(crate) use self::{
    contents::{BlobRef, Content, Contents},
    decode::{decode, decode_listed},
    encode::{encode, entry, gone},
    keys::Keys,
    log::{log_entry, read_log_entry},
};
use crate::table::Item;

mod contents;
mod decode;
mod encode;
mod keys;
mod log;
pub(crate) mod names;

/// The version of the attributes.
const VERSION: &str = "1";

/// What differs after every write of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag([u8; 16]);

impl Tag {
    pub(crate) fn random() -> Self {
        Self(fastrand::u128(..).to_be_bytes())
    }

    pub(crate) fn value(&self) -> AttributeValue {
        bytes(&self.0)
    }

    /// Whether an item was written with this tag.
    pub(crate) fn is_of(&self, item: &Item) -> bool {
        item.get(names::TAG) == Some(&self.value())
    }

    /// The token of a transaction: 32 characters.
    pub(crate) fn token(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    /// The record without its recording, steps and input.
    pub(crate) record: Record,
    pub(crate) contents: Contents,
    pub(crate) tag: Tag,
    /// The last note that was added.
    pub(crate) noted: Tag,
    /// Whether the record is in the index.
    pub(crate) watched: bool,
}

pub(crate) fn bytes(value: &[u8]) -> AttributeValue {
    AttributeValue::B(value.to_vec().into())
}

pub(crate) fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub(crate) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

/// The bytes of a text that a record shows, for instance.
pub(crate) fn blob(value: &AttributeValue) -> Option<Bytes> {
    value.as_b().ok().map(|blob| Bytes::copy_from_slice(blob.as_ref()))
}
