//! Counting records.

use crate::{engine::Engine, error::CallFailure, schema};
use idempotent_core::{
    RecordId,
    protocol::{ListedRecord, ListedState, PagePosition, RecordCount, RecordFilter},
};

use super::watched::{READ, page};

pub(super) async fn count(engine: &Engine) -> Result<RecordCount, CallFailure> {
    let now = engine.now(&RecordId::from_bytes([0; 32])).await?.at;
    let mut count = RecordCount::none(now);
    count.records = schema::item_count(engine).await?;
    let (filter, is_held) = (RecordFilter::default(), RecordFilter::of_state(ListedState::Held));
    let mut after = None;
    loop {
        let part = page(engine, &filter, after, READ).await?;
        for ListedRecord { record, .. } in &part.records {
            if is_held.matches(record, part.at) {
                count.held += 1;
                let first_seen = record.first_seen;
                let oldest = count.oldest_held.map_or(first_seen, |oldest| oldest.min(first_seen));
                count.oldest_held = Some(oldest);
            } else {
                count.in_flight += 1;
            }
        }
        after = part.next.as_ref().map(PagePosition::number_and_id).and_then(Result::ok);
        // What has been claimed since then is not counted: otherwise the count might never end.
        if after.is_none_or(|(first_seen, _)| first_seen > count.at.as_millis()) {
            return Ok(count);
        }
    }
}
