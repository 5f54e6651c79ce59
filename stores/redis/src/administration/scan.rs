//! Reading all records.

pub(super) use self::position::ScanPosition;
use super::{
    keyspace::{NextNode, keys, next_node, pattern},
    masters::{masters, now},
    records::{Found, read},
};
use crate::{engine::Engine, error::CallFailure};
use idempotent_core::{
    RecordId,
    clock::Timestamp,
    protocol::{ListedRecord, RecordFilter, RecordPage},
};

mod position;

/// How many keys a server is asked for at a time, and how often for one page.
const KEYS: usize = 250;
const REPLIES: usize = 4;

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
    let (mut list, mut goes_on) = (List::new(engine, filter, limit), true);
    for _ in 0..REPLIES {
        if list.records.len() >= limit {
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
        if let Some(last) = list.add(&ids).await? {
            place.within = Some((cursor, last));
            break;
        }
        place = match cursor {
            0 => ScanPosition { node: place.node + 1, ..start },
            cursor => ScanPosition { cursor, within: None, ..place },
        };
    }
    let at = match list.at {
        Some(at) => at,
        None => now(engine).await?,
    };
    goes_on &= place.node < masters.len() || engine.router.servers.in_cluster();
    let next = goes_on.then(|| place.write()).transpose()?;
    let mut page = RecordPage::new(list.records, at, next);
    page.unreadable = list.unreadable;
    Ok(page)
}

/// The records of a page.
struct List<'a> {
    engine: &'a Engine,
    filter: &'a RecordFilter,
    limit: usize,
    records: Vec<ListedRecord>,
    unreadable: Vec<RecordId>,
    /// When the latest record was read.
    at: Option<Timestamp>,
}

impl<'a> List<'a> {
    fn new(engine: &'a Engine, filter: &'a RecordFilter, limit: usize) -> Self {
        Self { engine, filter, limit, records: Vec::new(), unreadable: Vec::new(), at: None }
    }

    /// Adds what matches of these ids. Returns the last id that was added if it is not the last of
    /// all, because there are enough records.
    async fn add(&mut self, ids: &[RecordId]) -> Result<Option<RecordId>, CallFailure> {
        let mut last = None;
        for (id, found) in ids.iter().zip(read(self.engine, ids).await?) {
            match found {
                Found::Absent => continue,
                Found::Unreadable => self.unreadable.push(*id),
                Found::Record(found) => {
                    self.at = self.at.max(Some(found.at));
                    if !self.filter.matches(&found.record, found.at) {
                        continue;
                    }
                    if self.records.len() >= self.limit {
                        return Ok(last);
                    }
                    self.records.push(ListedRecord::new(*id, found.record));
                }
            }
            last = Some(*id);
        }
        Ok(None)
    }
}
