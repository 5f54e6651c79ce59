//! A record that was read, and the tag of its last write.

use aws_sdk_dynamodb::types::AttributeValue;
use idempotent_core::Record;

use super::{
    contents::Contents,
    names,
    values::{Item, bytes},
};

/// What differs after every write of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag([u8; 16]);

impl Tag {
    pub(crate) fn random() -> Self {
        Self(fastrand::u128(..).to_be_bytes())
    }

    pub(crate) const fn of(bytes: [u8; 16]) -> Self {
        Self(bytes)
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
