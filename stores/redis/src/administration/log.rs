//! The log of operators' decisions.

use std::cmp::Reverse;

use redis::Value;

use super::{
    masters::assert_reads_were_of_the_master,
    merged::{Beginning, merged},
};
use crate::{encoding::read_log_entry, engine::Engine, error::CallFailure};
use idempotent_core::{
    clock::Timestamp,
    protocol::{AuditPage, Audited, InvalidPosition, PagePosition},
};

/// How many entries are read of the log, or of each of many.
const OF_ONE_LOG: usize = 1_000;
const OF_EACH_LOG: usize = 16;

/// The place of an entry: the two numbers of its id in the stream, and the number of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    at: u64,
    number: u64,
    log: usize,
}

impl Place {
    pub(super) fn parse(position: &PagePosition) -> Result<Self, InvalidPosition> {
        let mut parts = position.as_str().split('-');
        let mut next = || parts.next().ok_or(InvalidPosition);
        let at = next()?.parse().map_err(|_| InvalidPosition)?;
        let number = next()?.parse().map_err(|_| InvalidPosition)?;
        let log = next()?.parse().map_err(|_| InvalidPosition)?;
        if parts.next().is_some() { Err(InvalidPosition) } else { Ok(Self { at, number, log }) }
    }

    fn write(&self) -> Result<PagePosition, CallFailure> {
        let Self { at, number, log } = self;
        format!("{at}-{number}-{log}").parse().map_err(|_| CallFailure::Unexpected)
    }

    /// Where to begin in another log, the latest entry first.
    fn end(&self, log: usize) -> String {
        let excluded = if log < self.log { "" } else { "(" };
        format!("{excluded}{}-{}", self.at, self.number)
    }
}

pub(super) async fn page(
    engine: &Engine,
    after: Option<Place>,
    limit: usize,
) -> Result<AuditPage, CallFailure> {
    let keys = engine.log.all();
    let most = if keys.len() == 1 { OF_ONE_LOG } else { OF_EACH_LOG };
    let most = most.min(limit.saturating_add(1));
    let command = |log, key: &[u8]| {
        let end = after.map_or_else(|| "+".to_owned(), |after| after.end(log));
        let mut range = redis::cmd("XREVRANGE");
        range.arg(key).arg(end).arg("-").arg("COUNT").arg(most);
        range
    };
    let mut logs = Vec::with_capacity(keys.len());
    let replies = engine.router.send_each(&keys, command).await?;
    for (log, reply) in replies.into_iter().enumerate() {
        let entries: Vec<Value> =
            redis::from_redis_value(reply?).map_err(CallFailure::unexpected_reply)?;
        let has_more = entries.len() >= most;
        let entries = entries.into_iter().map(|entry| stored(entry, log)).collect::<Result<_, _>>();
        logs.push(Beginning { entries: entries?, has_more });
    }
    assert_reads_were_of_the_master(engine).await?;
    let Beginning { entries, has_more } = merged(logs);
    let has_more = has_more || entries.len() > limit;
    let last = entries.iter().take(limit).next_back().map(|(Reverse(place), _)| *place);
    let entries = entries.into_iter().take(limit).filter_map(|(_, entry)| entry).collect();
    let next = last.filter(|_| has_more).map(|last| last.write()).transpose()?;
    Ok(AuditPage::new(entries, next))
}

/// Reads an entry of a stream; `None` if it is not an entry of the log.
fn stored(entry: Value, log: usize) -> Result<(Reverse<Place>, Option<Audited>), CallFailure> {
    let (id, fields): (String, Value) =
        redis::from_redis_value(entry).map_err(CallFailure::unexpected_reply)?;
    let (at, number) = id.split_once('-').ok_or(CallFailure::Unexpected)?;
    let parsed = |digits: &str| digits.parse().map_err(|_| CallFailure::Unexpected);
    let place = Place { at: parsed(at)?, number: parsed(number)?, log };
    let fields = redis::from_redis_value::<Vec<(String, Vec<u8>)>>(fields).ok();
    let entry = fields.and_then(|fields| read_log_entry(&fields).ok());
    let at = Timestamp::from_millis(place.at);
    Ok((Reverse(place), entry.map(|entry| Audited::new(entry, at))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_written_and_read() {
        let place = Place { at: 1_764_189_264_000, number: u64::MAX, log: 16_383 };
        assert_eq!(Place::parse(&place.write().unwrap()), Ok(place));
        for wrong in ["nowhere", "1-2", "1-2-x", "1-2-3-4"] {
            assert!(Place::parse(&wrong.parse().unwrap()).is_err(), "{wrong}");
        }
    }
}
