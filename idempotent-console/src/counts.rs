//! How many requests this process has served, by outcome: for rates without a recorder of metrics.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use idempotent_actix::RequestOutcome;

/// The length of a slot, and how many slots are kept: those of the last hour.
const SLOT: Duration = Duration::from_secs(10);
const SLOTS: usize = 360;
const OUTCOMES: usize = RequestOutcome::ALL.len();

#[derive(Clone, Copy)]
struct Slot {
    /// The number of the slot, since the start. One that is older is empty.
    number: u64,
    counts: [u64; OUTCOMES],
}

/// The counts of the last hour.
pub(crate) struct RequestCounts {
    started: Instant,
    /// Locked for a moment, never across an await.
    slots: Mutex<Vec<Slot>>,
}

impl Default for RequestCounts {
    fn default() -> Self {
        let slots = vec![Slot { number: 0, counts: [0; OUTCOMES] }; SLOTS];
        Self { started: Instant::now(), slots: Mutex::new(slots) }
    }
}

/// The number of requests with one outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutcomeCount {
    pub(crate) outcome: RequestOutcome,
    pub(crate) last_minute: u64,
    pub(crate) last_hour: u64,
}

impl RequestCounts {
    pub(crate) fn count(&self, outcome: RequestOutcome) {
        self.count_at(outcome, self.started.elapsed());
    }

    fn count_at(&self, outcome: RequestOutcome, at: Duration) {
        let Some(index) = RequestOutcome::ALL.iter().position(|known| *known == outcome) else {
            return;
        };
        let number = number(at);
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let place = usize::try_from(number).unwrap_or(0) % SLOTS;
        if let Some(slot) = slots.get_mut(place) {
            if slot.number != number {
                *slot = Slot { number, counts: [0; OUTCOMES] };
            }
            if let Some(count) = slot.counts.get_mut(index) {
                *count += 1;
            }
        }
    }

    /// The outcomes that occurred within the last hour.
    pub(crate) fn recent(&self) -> Vec<OutcomeCount> {
        self.recent_at(self.started.elapsed())
    }

    fn recent_at(&self, at: Duration) -> Vec<OutcomeCount> {
        let now = number(at);
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let within = |index: usize, length: u64| {
            let recent = slots.iter().filter(|slot| now.saturating_sub(slot.number) < length);
            recent.filter_map(|slot| slot.counts.get(index)).sum::<u64>()
        };
        let counts = RequestOutcome::ALL.iter().enumerate().map(|(index, outcome)| OutcomeCount {
            outcome: *outcome,
            last_minute: within(index, 6),
            last_hour: within(index, u64::try_from(SLOTS).unwrap_or(u64::MAX)),
        });
        counts.filter(|count| count.last_hour > 0).collect()
    }
}

fn number(at: Duration) -> u64 {
    at.as_secs() / SLOT.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_for_a_minute_and_for_an_hour() {
        let counts = RequestCounts::default();
        let seconds = Duration::from_secs;
        counts.count_at(RequestOutcome::Ran, seconds(1));
        counts.count_at(RequestOutcome::Ran, seconds(59));
        counts.count_at(RequestOutcome::Replayed, seconds(59));
        let recent = |at| {
            let recent = counts.recent_at(seconds(at)).into_iter();
            let shown = recent.map(|one| (one.outcome.label(), one.last_minute, one.last_hour));
            shown.collect::<Vec<_>>()
        };
        assert_eq!(recent(59), [("ran", 2, 2), ("replayed", 1, 1)]);
        assert_eq!(recent(60), [("ran", 1, 2), ("replayed", 1, 1)]);
        assert_eq!(recent(3_599), [("ran", 0, 2), ("replayed", 0, 1)]);
        assert_eq!(recent(3_600), [("ran", 0, 1), ("replayed", 0, 1)]);
        // The slots are used again.
        counts.count_at(RequestOutcome::Ran, seconds(3_601));
        assert_eq!(recent(3_601), [("ran", 1, 2), ("replayed", 0, 1)]);
        assert_eq!(recent(100_000), []);
    }
}
