//! The recording, the steps and the input of a record: inline, or in items of their own.

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::{Buf as _, Bytes};

use super::values::{blob, bytes};
use crate::error::Unreadable;

/// The parts of a record that only some steps read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) recording: Option<Content>,
    /// One after the other.
    pub(crate) steps: Vec<Content>,
    pub(crate) input: Option<Content>,
}

impl Contents {
    /// What is in items of its own.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = &BlobRef> {
        let all = self.recording.iter().chain(&self.steps).chain(&self.input);
        all.filter_map(|content| match content {
            Content::Inline(_) => None,
            Content::Blob(blob) => Some(blob),
        })
    }
}

/// Bytes, or where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Inline(Bytes),
    Blob(BlobRef),
}

/// Bytes in items of their own, which are written before the record refers to them, and never
/// changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlobRef {
    pub(crate) token: [u8; 16],
    pub(crate) chunks: u16,
    pub(crate) length: u32,
}

const INLINE: u8 = 0;
const BLOB: u8 = 1;

impl Content {
    pub(crate) fn value(&self) -> AttributeValue {
        match self {
            Self::Inline(content) => bytes(&[&[INLINE], &content[..]].concat()),
            Self::Blob(BlobRef { token, chunks, length }) => {
                let (chunks, length) = (chunks.to_be_bytes(), length.to_be_bytes());
                bytes(&[&[BLOB], &token[..], &chunks, &length].concat())
            }
        }
    }

    pub(crate) fn read(value: &AttributeValue) -> Result<Self, Unreadable> {
        let mut value = blob(value).ok_or(Unreadable)?;
        match value.try_get_u8() {
            Ok(INLINE) => Ok(Self::Inline(value)),
            Ok(BLOB) if value.len() == 22 => {
                let mut token = [0; 16];
                value.copy_to_slice(&mut token);
                let (chunks, length) = (value.get_u16(), value.get_u32());
                Ok(Self::Blob(BlobRef { token, chunks, length }))
            }
            _ => Err(Unreadable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_written_and_read() {
        let blob = BlobRef { token: [7; 16], chunks: 3, length: 1_000_000 };
        for content in [
            Content::Inline(Bytes::new()),
            Content::Inline(Bytes::from_static(b"done")),
            Content::Blob(blob),
        ] {
            assert_eq!(Content::read(&content.value()), Ok(content));
        }
        for wrong in [&[][..], &[2, 1], &[1; 22], &[1; 24]] {
            assert_eq!(Content::read(&bytes(wrong)), Err(Unreadable), "{wrong:?}");
        }
        assert_eq!(Content::read(&AttributeValue::Null(true)), Err(Unreadable));
    }
}
