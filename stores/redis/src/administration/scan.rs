//! Reading all records, and the search for ids.

use std::{collections::BTreeSet, ops::RangeInclusive, sync::Arc};

use super::records::{now, read};
use crate::{
    engine::Engine,
    error::CallFailure,
    net::{ConnectionRole, Message, Node, importing},
};
use idempotent_core::protocol::RecordPage;
use idempotent_core::{
    RecordId,
    clock::Timestamp,
    protocol::{InvalidPosition, ListedRecord, PagePosition, RecordFilter},
};

/// How many keys a server is asked for at a time, and how often for one page.
const KEYS: usize = 250;
const REPLIES: usize = 4;
/// How many keys a server is asked for at a time in a search.
const SEARCHED_KEYS: usize = 1_000;
/// How often a search begins again because slots have been moved meanwhile.
const SEARCHES: usize = 3;

/// Where a scan goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScanPosition {
    /// Identifies the servers, their order and their slots.
    servers: u64,
    /// The number of the server; in the second round, above the number of servers.
    node: usize,
    cursor: u64,
    /// The cursor of the next reply and the last record that was listed, if only a part of the
    /// reply was. The ids of a reply are in order.
    within: Option<(u64, RecordId)>,
}

impl ScanPosition {
    fn start(servers: u64) -> Self {
        Self { servers, node: 0, cursor: 0, within: None }
    }

    pub(super) fn parse(position: &PagePosition) -> Result<Self, InvalidPosition> {
        let mut parts = position.as_str().split('-');
        let mut next = || parts.next().ok_or(InvalidPosition);
        let servers = u64::from_str_radix(next()?, 16).map_err(|_| InvalidPosition)?;
        let node = next()?.parse().map_err(|_| InvalidPosition)?;
        let cursor = next()?.parse().map_err(|_| InvalidPosition)?;
        let within = match (parts.next(), parts.next(), parts.next()) {
            (None, ..) => None,
            (Some(next), Some(id), None) => {
                let next = next.parse().map_err(|_| InvalidPosition)?;
                Some((next, id.parse().map_err(|_| InvalidPosition)?))
            }
            _ => return Err(InvalidPosition),
        };
        Ok(Self { servers, node, cursor, within })
    }

    fn write(&self) -> Result<PagePosition, CallFailure> {
        let Self { servers, node, cursor, within } = self;
        let within = within.map_or(String::new(), |(next, id)| format!("-{next}-{id}"));
        let text = format!("{servers:x}-{node}-{cursor}{within}");
        text.parse().map_err(|_| CallFailure::Unexpected)
    }
}

pub(super) async fn page(
    engine: &Engine,
    filter: &RecordFilter,
    after: Option<ScanPosition>,
    limit: usize,
) -> Result<RecordPage, CallFailure> {
    let (masters, servers) = (masters(engine)?, engine.router.servers.identity());
    let start = ScanPosition::start(servers);
    let mut place = after.filter(|after| after.servers == servers).unwrap_or(start);
    let pattern = pattern(engine, &[]);
    let (mut records, mut at, mut goes_on) = (Vec::new(), None, true);
    for _ in 0..REPLIES {
        if records.len() >= limit {
            break;
        }
        match next_node(engine, &masters, place.node).await? {
            NextNode::Is(node) if node == place.node => {}
            NextNode::Is(node) => place = ScanPosition { node, ..start },
            NextNode::None => {
                goes_on = false;
                break;
            }
            NextNode::First => {
                place = ScanPosition::start(engine.router.servers.identity());
                break;
            }
        }
        let Some(node) = masters.iter().cycle().nth(place.node) else { break };
        let (cursor, ids) = keys(engine, node, (place.cursor, &pattern, KEYS)).await?;
        // Another cursor than the last time: the server has changed the size of its table, and the
        // reply has other keys.
        let listed = place.within.filter(|(next, _)| *next == cursor).map(|(_, id)| id);
        let ids: Vec<_> =
            ids.into_iter().filter(|id| listed.is_none_or(|listed| *id > listed)).collect();
        let listed = list(engine, filter, &ids, (limit, &mut records), &mut at).await?;
        if let Some(last) = listed {
            place.within = Some((cursor, last));
            break;
        }
        place = match cursor {
            0 => ScanPosition { node: place.node + 1, ..start },
            cursor => ScanPosition { cursor, within: None, ..place },
        };
    }
    let at = match at {
        Some(at) => at,
        None => now(engine).await?,
    };
    goes_on &= place.node < masters.len() || engine.router.servers.in_cluster();
    let next = goes_on.then(|| place.write()).transpose()?;
    Ok(RecordPage::new(records, at, next))
}

/// Which server is read next.
enum NextNode {
    /// The one with this number.
    Is(usize),
    /// The first one again, because slots have been moved.
    First,
    /// All have been read.
    None,
}

/// Returns the server with this number, or the next one that has to be read.
///
/// Between the replies of two servers a third party may move a key from the second to the first.
/// Its slot is then still being imported, or has other owners than before. So after all servers
/// those are read once more that are importing a slot, and a scan begins again if the owners have
/// changed (case `a_scan_finds_the_records_of_a_slot_that_is_moving`).
async fn next_node(
    engine: &Engine,
    masters: &[Arc<Node>],
    number: usize,
) -> Result<NextNode, CallFailure> {
    if number < masters.len() {
        return Ok(NextNode::Is(number));
    }
    if !engine.router.servers.in_cluster() {
        return Ok(NextNode::None);
    }
    let Some(importing) = importing(&engine.router, masters).await? else {
        return Ok(NextNode::First);
    };
    let numbers = (masters.len()..).zip(importing).skip(number - masters.len());
    let next = numbers.filter(|(_, is_importing)| *is_importing).map(|(number, _)| number).next();
    Ok(next.map_or(NextNode::None, NextNode::Is))
}

/// Adds what matches to the records. Returns the last id that was looked at if it is not the last
/// of all, because there are enough records.
async fn list(
    engine: &Engine,
    filter: &RecordFilter,
    ids: &[RecordId],
    (limit, records): (usize, &mut Vec<ListedRecord>),
    at: &mut Option<Timestamp>,
) -> Result<Option<RecordId>, CallFailure> {
    let mut last = None;
    for (id, found) in ids.iter().zip(read(engine, ids).await?) {
        let Some(found) = found else { continue };
        *at = (*at).max(Some(found.at));
        if !filter.matches(&found.record, found.at) {
            continue;
        }
        if records.len() >= limit {
            return Ok(last);
        }
        records.push(ListedRecord::new(*id, found.record));
        last = Some(*id);
    }
    Ok(None)
}

/// Searches for records whose ids are in a range.
pub(super) async fn find(
    engine: &Engine,
    (first, last): (&RecordId, &RecordId),
    limit: usize,
) -> Result<Vec<ListedRecord>, CallFailure> {
    let mut found = Vec::new();
    if first == last {
        add(engine, &[*first], (limit, &mut found)).await?;
        return Ok(found);
    }
    let same = first.as_bytes().iter().zip(last.as_bytes()).take_while(|(one, other)| one == other);
    let same: Vec<_> = same.map(|(byte, _)| *byte).collect();
    let (pattern, seen) = (pattern(engine, &same), BTreeSet::new());
    let mut search = Search { engine, range: first..=last, pattern, limit, seen, found };
    for _ in 0..SEARCHES {
        let (masters, mut number) = (masters(engine)?, 0);
        loop {
            match next_node(engine, &masters, number).await? {
                NextNode::Is(next) => {
                    number = next + 1;
                    if let Some(node) = masters.iter().cycle().nth(next) {
                        search.read(node).await?;
                    }
                }
                NextNode::First => break,
                NextNode::None => return Ok(search.found),
            }
            if search.found.len() >= limit {
                return Ok(search.found);
            }
        }
    }
    Err(CallFailure::SlotsMoved)
}

/// A search for ids in a range, and what it has found.
struct Search<'a> {
    engine: &'a Engine,
    range: RangeInclusive<&'a RecordId>,
    /// The pattern of the keys.
    pattern: Vec<u8>,
    limit: usize,
    /// A key may be in several replies.
    seen: BTreeSet<RecordId>,
    found: Vec<ListedRecord>,
}

impl Search<'_> {
    /// Reads the keys of a server until there are enough records.
    async fn read(&mut self, node: &Arc<Node>) -> Result<(), CallFailure> {
        let mut cursor = 0;
        loop {
            let reply = keys(self.engine, node, (cursor, &self.pattern, SEARCHED_KEYS)).await?;
            let mut ids = Vec::from_iter(reply.1);
            ids.retain(|id| self.range.contains(&id) && self.seen.insert(*id));
            add(self.engine, &ids, (self.limit, &mut self.found)).await?;
            cursor = reply.0;
            if cursor == 0 || self.found.len() >= self.limit {
                return Ok(());
            }
        }
    }
}

async fn add(
    engine: &Engine,
    ids: &[RecordId],
    (limit, found): (usize, &mut Vec<ListedRecord>),
) -> Result<(), CallFailure> {
    let read = read(engine, ids).await?;
    let read = ids.iter().zip(read).filter_map(|(id, found)| Some((id, found?.record)));
    let listed = read.map(|(id, record)| ListedRecord::new(*id, record));
    found.extend(listed.take(limit.saturating_sub(found.len())));
    Ok(())
}

/// The servers, of which there is at least one.
pub(super) fn masters(engine: &Engine) -> Result<Vec<Arc<Node>>, CallFailure> {
    let masters = engine.router.servers.masters();
    if masters.is_empty() { Err(CallFailure::NoMaster) } else { Ok(masters) }
}

/// Asks a server for the next keys. Returns the cursor that follows, and the ids of the records in
/// order.
async fn keys(
    engine: &Engine,
    node: &Arc<Node>,
    (cursor, pattern, count): (u64, &[u8], usize),
) -> Result<(u64, BTreeSet<RecordId>), CallFailure> {
    let mut scan = redis::cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(count);
    let message = Message::Command(&scan);
    let reply = engine.router.send_to(node, ConnectionRole::Lists, message).await?;
    let (cursor, keys): (u64, Vec<Vec<u8>>) =
        redis::from_redis_value(reply).map_err(CallFailure::unexpected_reply)?;
    let id = |key: &Vec<u8>| key.strip_prefix(engine.prefix.as_bytes())?.try_into().ok();
    Ok((cursor, keys.iter().filter_map(id).map(RecordId::from_bytes).collect()))
}

/// The pattern of the keys of records whose ids begin with these bytes.
fn pattern(engine: &Engine, beginning: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::new();
    for byte in engine.prefix.as_bytes().iter().chain(beginning) {
        if b"*?[]\\".contains(byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern.push(b'*');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_written_and_read() {
        let start = ScanPosition::start(0xfedc_ba98_7654_3210);
        let id = RecordId::from_bytes([0xab; 32]);
        for position in [
            start,
            ScanPosition { node: 7, cursor: u64::MAX, ..start },
            ScanPosition { within: Some((u64::MAX, id)), ..start },
        ] {
            assert_eq!(ScanPosition::parse(&position.write().unwrap()), Ok(position));
        }
        let text = start.write().unwrap().to_string();
        for wrong in ["nowhere", "1-2", "1-2-x", &format!("{text}-1"), &format!("{text}-1-{id}-2")]
        {
            assert!(ScanPosition::parse(&wrong.parse().unwrap()).is_err(), "{wrong}");
        }
    }
}
