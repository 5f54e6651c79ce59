//! Entries that the runtime appends to a history.

use crate::{
    engine::Engine,
    error::CallFailure,
    guards::{APPEND_EXISTS, APPEND_ONCE, APPEND_ROOM},
    item::{Tag, decode, number},
    table::Former,
};
use idempotent_core::{
    History, RecordId,
    history::Kind,
    transition::{self, Change},
};

use super::{
    decided::{DECISIONS, replace},
    ends::list_of,
};

/// How many entries the list of an item has before its oldest ones are removed.
const ROOM: usize = 2 * History::MAX_ENTRIES;

/// Appends an entry: one write, or two if the list has to be shortened.
pub(crate) async fn append_history(
    engine: &Engine,
    id: &RecordId,
    kind: Kind,
) -> Result<(), CallFailure> {
    let now = engine.now(id).await?;
    let tag = Tag::random();
    let values =
        vec![(":room", number(ROOM)), (":tag", tag.value()), (":entry", list_of(kind, now))];
    let update = "SET #tag = :tag, #hist = list_append(#hist, :entry)".to_owned();
    let expression =
        engine.expression(Some(update), &[APPEND_EXISTS, APPEND_ONCE, APPEND_ROOM], values);
    let Err(refused) =
        engine.table.update(&engine.keys.record(id), expression, Former::Unused).await?
    else {
        return Ok(());
    };
    if refused.item.as_ref().is_some_and(|item| tag.is_of(item)) {
        return Ok(());
    }
    let mut stored = refused.item.as_ref().map(decode).transpose()?;
    for _ in 0..DECISIONS {
        let Some(seen) = stored else { return Ok(()) };
        let appended = transition::append_history(Some(&seen.record), kind, now.at);
        let Change::Put(record) = appended else { return Ok(()) };
        match replace(engine, id, &seen, record, seen.contents.clone()).await? {
            Ok(()) => return Ok(()),
            Err(changed) => stored = changed,
        }
    }
    Err(CallFailure::Contended)
}
