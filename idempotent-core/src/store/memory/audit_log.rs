//! The log of operators' decisions.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use crate::{
    clock::Timestamp,
    protocol::{AuditEntry, AuditPage, Audited, InvalidPosition, PagePosition},
};

/// How many entries are kept.
const MAX_ENTRIES: usize = 10_000;

/// The latest decisions of operators.
#[derive(Default)]
pub(super) struct AuditLog(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    kept: VecDeque<Audited>,
    /// How many older entries were dropped.
    dropped: u64,
}

impl AuditLog {
    pub(super) fn add(&self, entry: AuditEntry, at: Timestamp) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.kept.len() == MAX_ENTRIES {
            entries.kept.pop_front();
            entries.dropped += 1;
        }
        entries.kept.push_back(Audited::new(entry, at));
    }

    /// The latest entries before this position.
    pub(super) fn page(
        &self,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<AuditPage, InvalidPosition> {
        let before = after.map_or(Ok(u64::MAX), PagePosition::number)?;
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let numbered = entries.kept.iter().enumerate().rev().map(|(place, entry)| {
            let place = u64::try_from(place).unwrap_or(u64::MAX);
            (entries.dropped + place, entry)
        });
        let mut older = numbered.filter(|(number, _)| *number < before).peekable();
        let (mut page, mut last) = (Vec::new(), None);
        while page.len() < usize::try_from(limit).unwrap_or(usize::MAX)
            && let Some((number, entry)) = older.next()
        {
            page.push(entry.clone());
            last = Some(number);
        }
        let next = last.filter(|_| older.peek().is_some()).map(PagePosition::after_number);
        Ok(AuditPage::new(page, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        protocol::{Actor, AuditAction, AuditedState},
        record_id::RecordId,
    };

    #[test]
    fn the_latest_entries_are_kept() {
        let (log, id) = (AuditLog::default(), RecordId::from_bytes([1; 32]));
        let entry = AuditEntry::new(AuditAction::Forget, id, AuditedState::Held, Actor::default());
        let most = u64::try_from(MAX_ENTRIES).unwrap();
        for at in 0..most + 7 {
            log.add(entry.clone(), Timestamp::from_millis(at));
        }
        assert_eq!(log.page(None, u32::MAX).unwrap().next, None);
        let (mut times, mut after) = (Vec::new(), None);
        loop {
            let page = log.page(after.as_ref(), 999).unwrap();
            times.extend(page.entries.iter().map(|entry| entry.at.as_millis()));
            // Meanwhile another entry replaces the oldest one.
            log.add(entry.clone(), Timestamp::from_millis(most + 7));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert!(times.is_sorted_by(|later, earlier| *later == earlier + 1));
        assert_eq!(times.first(), Some(&(most + 6)));
        // Eleven pages; the first ten were followed by an entry.
        assert_eq!(times.last(), Some(&(7 + 10)));
    }
}
