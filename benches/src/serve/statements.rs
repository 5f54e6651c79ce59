//! Counts the statements that sqlx runs, from the log events of sqlx.

use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::{
    Event, Metadata, Subscriber,
    span::{Attributes, Id, Record},
};

static STATEMENTS: AtomicUsize = AtomicUsize::new(0);

/// The number of statements so far.
pub(super) fn counted() -> usize {
    STATEMENTS.load(Ordering::Relaxed)
}

/// Starts counting.
pub(super) fn start_counting() {
    tracing::subscriber::set_global_default(Counter).unwrap();
}

struct Counter;

impl Subscriber for Counter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::query"
    }

    fn event(&self, _: &Event<'_>) {
        STATEMENTS.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
