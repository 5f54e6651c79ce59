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
    pub(super) fn add(&self, entry: &AuditEntry, at: Timestamp) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.kept.len() == MAX_ENTRIES {
            entries.kept.pop_front();
            entries.dropped += 1;
        }
        entries.kept.push_back(Audited::new(entry.clone(), at));
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
            (entries.dropped.saturating_add(place), entry)
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
