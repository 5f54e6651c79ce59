//! The list of the records that may need somebody.

use futures_util::future::join_all;

use super::{
    masters::{assert_reads_were_of_the_master, now},
    merged::{Beginning, merged},
    records::{CONCURRENT_CALLS, Found, read},
};
use crate::{
    encoding::{GRACE, redis_millis},
    engine::Engine,
    error::CallFailure,
    lua::Arg,
    net::ConnectionRole,
};
use idempotent_core::{
    RecordId, RecordState,
    clock::Timestamp,
    protocol::{ListedRecord, RecordFilter, Snapshot},
};

/// How many entries are read of the list, or of each of many lists.
const OF_ONE_LIST: usize = 1_000;
const OF_EACH_LIST: usize = 16;
/// How many records are read at a time.
const READ: usize = 64;

/// The time of an entry in ms, and its record.
type Place = (u64, RecordId);

pub(super) struct Page {
    pub(super) records: Vec<ListedRecord>,
    pub(super) unreadable: Vec<RecordId>,
    pub(super) at: Timestamp,
    /// The last place that was looked at, unless the list ends there.
    pub(super) next: Option<Place>,
}

pub(super) async fn page(
    engine: &Engine,
    filter: &RecordFilter,
    after: Option<Place>,
    limit: usize,
) -> Result<Page, CallFailure> {
    let Beginning { entries, has_more } = merged(lists_after(engine, after).await?);
    let (mut records, mut unreadable, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    let (mut at, mut last, mut seen) = (None, None, 0);
    'entries: for some in entries.chunks(READ) {
        if records.len() >= limit {
            break;
        }
        let ids: Vec<_> = some.iter().map(|((_, id), ())| *id).collect();
        for (((time, id), ()), found) in some.iter().zip(read(engine, &ids).await?) {
            if records.len() >= limit {
                break 'entries;
            }
            (last, seen) = (Some((*time, *id)), seen + 1);
            let found = match found {
                Found::Absent => None,
                Found::Record(found) => Some(found),
                Found::Unreadable => {
                    unreadable.push(*id);
                    continue;
                }
            };
            at = at.max(found.as_ref().map(|found| found.at));
            let found = found.filter(is_open);
            let first_seen = found.as_ref().map(|found| found.record.first_seen);
            if first_seen.map(Timestamp::as_millis) != Some(*time) {
                wrong.push(*id);
            } else if first_seen.zip(at).is_some_and(|(seen, at)| filter.is_too_young(seen, at)) {
                (last, seen) = (None, entries.len());
                break 'entries;
            }
            if let Some(found) = found.filter(|found| filter.matches(&found.record, found.at)) {
                records.push(ListedRecord::new(*id, found.record));
            }
        }
    }
    mend(engine, &wrong).await;
    assert_reads_were_of_the_master(engine).await?;
    let at = match at {
        Some(at) => at,
        None => now(engine).await?,
    };
    let next = last.filter(|_| has_more || seen < entries.len());
    Ok(Page { records, unreadable, at, next })
}

fn is_open(found: &Snapshot) -> bool {
    !matches!(found.record.state, RecordState::Completed(_)) && !found.record.is_expired(found.at)
}

/// Reads the next entries of each list.
async fn lists_after(
    engine: &Engine,
    after: Option<Place>,
) -> Result<Vec<Beginning<Place, ()>>, CallFailure> {
    let keys = engine.watched.all();
    let most = if keys.len() == 1 { OF_ONE_LIST } else { OF_EACH_LIST };
    let (mut lists, mut unread, mut offset) = (Vec::new(), keys, 0);
    while !unread.is_empty() {
        let keys = std::mem::take(&mut unread);
        let command = |_, key: &[u8]| {
            let mut range = redis::cmd("ZRANGE");
            range.arg(key).arg(after.map_or(0, |(time, _)| time)).arg("+inf").arg("BYSCORE");
            range.arg("LIMIT").arg(offset).arg(most).arg("WITHSCORES");
            range
        };
        let replies = engine.router.send_each(&keys, command).await?;
        for (reply, key) in replies.into_iter().zip(keys) {
            let entries: Vec<(Vec<u8>, f64)> =
                redis::from_redis_value(reply?).map_err(CallFailure::unexpected_reply)?;
            let has_more = entries.len() >= most;
            let mut entries: Vec<_> = entries.iter().filter_map(place).collect();
            entries.retain(|(place, ())| after.is_none_or(|after| *place > after));
            if has_more && entries.is_empty() {
                // All of them have the time of the place, and are before it.
                unread.push(key);
            } else {
                lists.push(Beginning { entries, has_more });
            }
        }
        offset += most;
    }
    Ok(lists)
}

fn place((member, time): &(Vec<u8>, f64)) -> Option<(Place, ())> {
    let time = format!("{time:.0}").parse().ok()?;
    Some(((time, RecordId::from_bytes(member.as_slice().try_into().ok()?)), ()))
}

/// Corrects entries that do not match their records.
async fn mend(engine: &Engine, wrong: &[RecordId]) {
    // An entry may be written shortly before its record.
    let (script, age) = (&engine.scripts.mend, [Arg::Number(redis_millis(GRACE))]);
    for some in wrong.chunks(CONCURRENT_CALLS) {
        let mended =
            some.iter().map(|id| engine.correct_list(ConnectionRole::Lists, script, id, &age));
        join_all(mended).await;
    }
}
