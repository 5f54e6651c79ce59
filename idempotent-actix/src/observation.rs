//! What an application gets to know about the work of the guard: its calls of `on_held`, and its
//! metrics.

#[cfg(feature = "metrics")]
use std::time::Duration;

use actix_web::HttpResponse;
use idempotent_core::runtime::{HeldOperation, Observer};
#[cfg(feature = "metrics")]
use idempotent_core::{
    StoreError,
    protocol::RecordCount,
    runtime::{FencedStep, RenewalOutcome},
};

#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
use crate::outcome::RequestOutcome;

/// Counts the request of one operation.
#[derive(Clone)]
pub(crate) struct RequestCount {
    #[cfg(feature = "metrics")]
    operation: std::sync::Arc<crate::metrics::OperationMetrics>,
}

impl RequestCount {
    /// Prepares to count a request of the operation with this name, if it has one.
    #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
    pub(crate) fn new(observation: &Observation, name: Option<&str>) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            operation: match name {
                Some(name) => observation.metrics.registered(name),
                None => observation.metrics.other(),
            },
        }
    }

    /// Counts the request by the outcome in the extensions of its response.
    #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
    pub(crate) fn of_response(&self, response: &HttpResponse) {
        #[cfg(feature = "metrics")]
        if let Some(outcome) = response.extensions().get() {
            self.of(*outcome);
        }
    }

    #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
    pub(crate) fn of(&self, outcome: RequestOutcome) {
        #[cfg(feature = "metrics")]
        self.operation.count(outcome);
    }
}

/// A function of the application that gets each key that is held from now on.
pub(crate) type OnHeld = Box<dyn Fn(&HeldOperation) + Send + Sync>;

/// The observer of the runtime.
#[derive(Default)]
pub(crate) struct Observation {
    pub(crate) on_held: Option<OnHeld>,
    #[cfg(feature = "metrics")]
    pub(crate) metrics: Metrics,
}

impl Observation {
    /// Whether there is anything to observe for.
    pub(crate) fn is_needed(&self) -> bool {
        cfg!(feature = "metrics") || self.on_held.is_some()
    }
}

impl Observer for Observation {
    fn held(&self, held: &HeldOperation) {
        #[cfg(feature = "metrics")]
        self.metrics.held(held);
        if let Some(on_held) = &self.on_held {
            on_held(held);
        }
    }

    #[cfg(feature = "metrics")]
    fn claimed(&self, operation: &str, took: Duration) {
        self.metrics.of(operation, |metrics| metrics.claim.record(took));
    }

    #[cfg(feature = "metrics")]
    fn waited(&self, operation: &str, took: Duration) {
        self.metrics.of(operation, |metrics| metrics.wait.record(took));
    }

    #[cfg(feature = "metrics")]
    fn began(&self, _: &str) {
        self.metrics.process().in_flight.increment(1.0);
    }

    #[cfg(feature = "metrics")]
    fn ended(&self, operation: &str, ran: Duration, stored: Duration) {
        self.metrics.of(operation, |metrics| {
            metrics.run.record(ran);
            metrics.complete.record(stored);
        });
    }

    #[cfg(feature = "metrics")]
    fn left(&self, _: &str) {
        self.metrics.process().in_flight.decrement(1.0);
    }

    #[cfg(feature = "metrics")]
    fn fenced(&self, step: FencedStep) {
        self.metrics.fenced(step);
    }

    #[cfg(feature = "metrics")]
    fn renewed(&self, outcome: RenewalOutcome, leases: usize) {
        self.metrics.renewed(outcome, leases);
    }

    #[cfg(feature = "metrics")]
    fn deferred(&self, ends: usize, bytes: usize) {
        self.metrics.deferred(ends, bytes);
    }

    #[cfg(feature = "metrics")]
    fn purged(&self, records: u64) {
        self.metrics.process().purged.increment(records);
    }

    #[cfg(feature = "metrics")]
    fn counted(&self, count: &RecordCount) {
        self.metrics.counted(count);
    }

    #[cfg(feature = "metrics")]
    fn batched(&self, steps: usize, batches: u64) {
        self.metrics.batched(steps, batches);
    }

    #[cfg(feature = "metrics")]
    fn store_failed(&self, error: &StoreError) {
        self.metrics.store_failed(error);
    }
}
