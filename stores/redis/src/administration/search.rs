//! The search for ids.

use std::{collections::BTreeSet, ops::RangeInclusive, sync::Arc};

use super::{
    keyspace::{NextNode, keys, next_node, pattern},
    masters::{assert_reads_were_of_the_master, masters},
    records::{Found, read},
};
use crate::{engine::Engine, error::CallFailure, net::Node};
use idempotent_core::{
    RecordId,
    protocol::{ListedRecord, Snapshot},
};

/// How many keys a server is asked for at a time.
const SEARCHED_KEYS: usize = 1_000;
/// How often a search begins again because slots have been moved meanwhile.
const SEARCHES: usize = 3;

/// Searches for records whose ids are in a range.
pub(super) async fn find(
    engine: &Engine,
    (first, last): (&RecordId, &RecordId),
    limit: usize,
) -> Result<Vec<ListedRecord>, CallFailure> {
    let mut found = Vec::new();
    if first == last {
        add(engine, &[*first], (limit, &mut found)).await?;
        assert_reads_were_of_the_master(engine).await?;
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

/// Adds the records, up to the limit.
async fn add(
    engine: &Engine,
    ids: &[RecordId],
    (limit, found): (usize, &mut Vec<ListedRecord>),
) -> Result<(), CallFailure> {
    for (id, read) in ids.iter().zip(read(engine, ids).await?) {
        if found.len() >= limit {
            break;
        }
        match read {
            Found::Absent => {}
            Found::Record(Snapshot { record, .. }) => found.push(ListedRecord::new(*id, record)),
            Found::Unreadable => return Err(CallFailure::UnreadableRecord(*id)),
        }
    }
    Ok(())
}
