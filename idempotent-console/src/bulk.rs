//! One decision about all held operations that a filter selects, up to 1,000 of them.
//!
//! The operations are those that were shown: the form has a digest of each attempt that was seen.
//! What has changed since then, or was held since then, is left.

use std::{collections::HashSet, collections::VecDeque};

use idempotent_core::{
    RecordId,
    protocol::Actor,
    report::{RecordPageView, RecordView, SeenAttempt},
};
use serde::{Deserialize, Serialize};

use crate::{
    decisions::{Decision, decide},
    failure::Failure,
    parts::ConsoleParts,
    records::{ListQuery, Listed},
};

/// About how many operations one decision is made at most.
pub(crate) const MAX: usize = 1_000;
/// How many records are read at a time.
const PAGE: u32 = 200;
/// How many decisions are made between two reports of the progress.
const STEP: usize = 10;

/// What is decided about all of them.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BulkAction {
    Complete,
    Release,
}

/// The operations that a filter selects, the oldest first.
#[derive(Debug)]
pub(crate) struct Selected {
    pub(crate) records: Vec<RecordView>,
    /// Whether there are more.
    pub(crate) is_cut: bool,
}

impl Selected {
    /// The digests of the attempts, for the form that confirms the decision.
    pub(crate) fn seen(&self) -> String {
        let seen: Vec<_> = self.records.iter().map(|record| record.seen.to_string()).collect();
        seen.join(" ")
    }
}

/// Reads the held operations that the filter selects.
pub(crate) async fn select(console: &ConsoleParts, query: &ListQuery) -> Result<Selected, Failure> {
    let query = ListQuery { state: Listed::Held, ..query.clone() };
    let (filter, mut after) = (query.filter()?, None);
    let mut records = Vec::new();
    loop {
        let page = console.administrator.watched(&filter, after.as_ref(), PAGE).await?;
        records.extend(RecordPageView::from(&page).records);
        after = page.next;
        if after.is_none() || records.len() > MAX {
            let is_cut = records.len() > MAX;
            records.truncate(MAX);
            return Ok(Selected { records, is_cut });
        }
    }
}

/// Reads digests of attempts.
pub(crate) fn seen_attempts(text: &str) -> Result<HashSet<SeenAttempt>, Failure> {
    let seen: Result<HashSet<_>, _> = text.split_whitespace().map(str::parse).collect();
    let seen = seen.map_err(|error| crate::records::invalid(&error))?;
    match seen.len() {
        1..=MAX => Ok(seen),
        _ => Err(Failure::Invalid(format!("select from 1 to {MAX} operations"))),
    }
}

/// How far a decision about many operations has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// How many were selected.
    pub(crate) selected: usize,
    /// How many were decided.
    pub(crate) decided: usize,
    /// How many have changed since they were shown, and were left.
    pub(crate) changed: usize,
    /// The store failed for this many. Whether the decision took effect is not known.
    pub(crate) failed: usize,
}

impl Tally {
    pub(crate) const fn done(&self) -> usize {
        self.decided + self.changed + self.failed
    }
}

/// A decision about many operations, which is made in steps. If it is dropped, the rest is left.
pub(crate) struct Bulk {
    console: ConsoleParts,
    left: VecDeque<(RecordId, SeenAttempt)>,
    decision: Decision,
    actor: Actor,
    tally: Tally,
}

impl Bulk {
    /// Finds the operations that were seen. Those that the filter no longer selects have changed.
    pub(crate) async fn new(
        console: &ConsoleParts,
        query: &ListQuery,
        seen: &HashSet<SeenAttempt>,
        decision: Decision,
        actor: Actor,
    ) -> Result<Self, Failure> {
        let found = select(console, query).await?.records;
        let found = found.into_iter().filter(|record| seen.contains(&record.seen));
        let left: VecDeque<_> = found.map(|record| (record.id, record.seen)).collect();
        let (selected, changed) = (seen.len(), seen.len().saturating_sub(left.len()));
        let tally = Tally { selected, changed, ..Tally::default() };
        Ok(Self { console: console.clone(), left, decision, actor, tally })
    }

    /// Makes some decisions; returns `None` once there is nothing left to decide.
    pub(crate) async fn step(&mut self) -> Option<Tally> {
        if self.left.is_empty() {
            return None;
        }
        for _ in 0..STEP {
            let Some((id, seen)) = self.left.pop_front() else { break };
            match decide(&self.console, &id, seen, &self.decision, &self.actor).await {
                Ok(()) => self.tally.decided += 1,
                Err(Failure::Store(_)) => self.tally.failed += 1,
                Err(_) => self.tally.changed += 1,
            }
        }
        Some(self.tally.clone())
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally.clone()
    }

    /// Makes all decisions.
    pub(crate) async fn finish(mut self) -> Tally {
        while self.step().await.is_some() {}
        self.tally
    }
}
