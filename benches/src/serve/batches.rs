//! Counts the steps in batches, from the log events of the stores.

use std::{
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

static STEPS: AtomicUsize = AtomicUsize::new(0);

/// The number of steps that batches have taken so far, including those that were then executed
/// alone.
pub(super) fn counted() -> usize {
    STEPS.load(Ordering::Relaxed)
}

/// Starts counting.
pub(super) fn start_counting() {
    tracing::subscriber::set_global_default(Counter).unwrap();
}

struct Counter;

impl Visit for Counter {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "steps" {
            STEPS.fetch_add(value as usize, Ordering::Relaxed);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

impl Subscriber for Counter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().ends_with("group_commit")
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Self);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
