//! Bytes that are too large for the item of a record, in items of their own.

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::{Bytes, BytesMut};
use futures_util::future::{join_all, try_join_all};

use crate::{
    engine::Engine,
    error::CallFailure,
    item::{BlobRef, Content, Contents, Item, Stored, Tag, blob, bytes, gone, names, number},
};
use idempotent_core::{RecordId, clock::Timestamp};

/// The size of a chunk: an item has at most 400 KB.
const CHUNK: usize = 384 * 1024;
/// How many bytes are stored at most.
const MOST: usize = 64 * 1024 * 1024;

/// Stores bytes: inline up to this length, otherwise in items that the table removes an hour after
/// `expires`. The record refers to them only after they are written.
pub(super) async fn store(
    engine: &Engine,
    id: &RecordId,
    content: &Bytes,
    inline: usize,
    expires: Timestamp,
) -> Result<Content, CallFailure> {
    if content.len() <= inline || content.len() > MOST {
        return Ok(Content::Inline(content.clone()));
    }
    let token = *Tag::random().as_bytes();
    let chunks: Vec<Bytes> = (0..content.len())
        .step_by(CHUNK)
        .map(|start| content.slice(start..content.len().min(start + CHUNK)))
        .collect();
    let writes = chunks.iter().zip(0_u16..).map(|(chunk, number)| {
        let key = engine.keys.chunk(id, &token, number);
        put(engine, key, chunk, expires)
    });
    try_join_all(writes).await?;
    let chunks = u16::try_from(chunks.len()).unwrap_or(u16::MAX);
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    Ok(Content::Blob(BlobRef { token, chunks, length }))
}

async fn put(
    engine: &Engine,
    key: Vec<u8>,
    chunk: &Bytes,
    expires: Timestamp,
) -> Result<(), CallFailure> {
    let item = Item::from([
        (names::ID.to_owned(), bytes(&key)),
        (names::BYTES.to_owned(), bytes(chunk)),
        (names::GONE.to_owned(), number(gone(expires))),
    ]);
    // Nobody else writes this key, and a second sending writes the same.
    engine.table.put(item, engine.expression(None, &[], Vec::new())).await?.map(drop).ok();
    Ok(())
}

/// Reads bytes; `None` if they are no more there.
pub(super) async fn load(
    engine: &Engine,
    id: &RecordId,
    content: &Content,
) -> Result<Option<Bytes>, CallFailure> {
    let blob_ref = match content {
        Content::Inline(content) => return Ok(Some(content.clone())),
        Content::Blob(blob_ref) => blob_ref,
    };
    let keys = keys_of(engine, id, blob_ref);
    let chunks = try_join_all(keys.iter().map(|key| engine.table.get(key))).await?;
    let length = usize::try_from(blob_ref.length).unwrap_or(usize::MAX);
    let mut whole = BytesMut::new();
    for chunk in chunks {
        let Some(chunk) = chunk else { return Ok(None) };
        whole.extend_from_slice(&chunk.get(names::BYTES).and_then(blob).unwrap_or_default());
    }
    Ok((whole.len() == length).then(|| whole.freeze()))
}

/// Removes bytes that were written for a record which was then not changed, unless it refers to
/// them: a request whose response was lost has changed it then.
pub(super) async fn remove_unused(
    engine: &Engine,
    id: &RecordId,
    written: &Contents,
    stored: Option<&Stored>,
) {
    let referred: Vec<_> = stored.iter().flat_map(|stored| stored.contents.blobs()).collect();
    remove(engine, id, written.blobs().filter(|blob| !referred.contains(blob))).await;
}

/// Removes bytes to which no record refers any more. If that fails, the table removes them when
/// they expire.
pub(super) async fn remove<'a>(
    engine: &Engine,
    id: &RecordId,
    blobs: impl Iterator<Item = &'a BlobRef>,
) {
    let keys: Vec<_> = blobs.flat_map(|blob| keys_of(engine, id, blob)).collect();
    let removals = keys.iter().map(|key| async move {
        engine.table.delete(key, engine.expression(None, &[], Vec::new())).await
    });
    for removed in join_all(removals).await {
        if let Err(failure) = removed {
            let id = id.short();
            tracing::warn!(%id, error = %failure, "bytes of a record stay until they expire");
        }
    }
}

fn keys_of(engine: &Engine, id: &RecordId, blob: &BlobRef) -> Vec<Vec<u8>> {
    (0..blob.chunks).map(|chunk| engine.keys.chunk(id, &blob.token, chunk)).collect()
}

/// The values of contents.
pub(super) fn list(contents: &[Content]) -> AttributeValue {
    AttributeValue::L(contents.iter().map(Content::value).collect())
}
