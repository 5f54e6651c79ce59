//! Metrics, with the feature `metrics`.
//!
//! They go to the recorder of the [`metrics`] crate that the application has installed, such as
//! that of `metrics-exporter-prometheus`. Install it before the first request: what is counted
//! before goes nowhere, also later.
//!
//! | metric | labels | |
//! |---|---|---|
//! | `idempotency_requests_total` | `operation`, `outcome` | requests to guarded handlers, and runs of jobs, by the label of their [`RequestOutcome`] |
//! | `idempotency_claim_seconds` | `operation` | histogram: from the claim to the store's decision, without waits |
//! | `idempotency_wait_seconds` | `operation` | histogram: how long duplicates waited for another attempt |
//! | `idempotency_run_seconds` | `operation` | histogram: from the granted claim to the end of the handler |
//! | `idempotency_complete_seconds` | `operation` | histogram: until the store has the end of an attempt, or it is deferred |
//! | `idempotency_in_flight` | | gauge: attempts of this process that have not ended |
//! | `idempotency_held_total` | `operation` | keys that became held, as seen by this process |
//! | `idempotency_held` | | gauge: records of the store that are held |
//! | `idempotency_held_oldest_seconds` | | gauge: the age of the oldest of them; 0 if there is none |
//! | `idempotency_records` | | gauge: records of the store, as exactly as is cheap |
//! | `idempotency_renewals_total` | `result` | renewals of leases: `renewed`, `fenced`, `unknown`, `failed` |
//! | `idempotency_deferred_operations` | | gauge: ends of attempts that the store does not have yet |
//! | `idempotency_deferred_bytes` | | gauge: the memory that they take |
//! | `idempotency_fenced_total` | `step` | refused steps of attempts that had lost their key: `renewal`, `end` |
//! | `idempotency_purged_total` | | expired records that this process removed |
//! | `idempotency_batches` | | histogram: the steps in each batch in which a SQL store has executed claims and completions together; see [`BATCH_BUCKETS`] |
//! | `idempotency_store_errors_total` | `step`, `kind` | failed calls to the store: `transient`, `permanent`, `unreadable`, `share_exceeded` |
//!
//! An operation is labelled with the name of its records: the `name` of its attribute, or else its
//! method and route pattern, or the name of its [job](crate::job::Job). What has no such name, such
//! as a request to a default service, is `other`: no label contains a key, a scope, a path or bytes
//! of a request. The records and the batches are counted every minute; see
//! [`count_every`](crate::IdempotencyBuilder::count_every). Two `Idempotency` of one process that
//! share a store count its batches twice.
//!
//! Each operation's handles are made once, at its first request. Without the feature nothing is
//! measured.

use std::{
    collections::HashMap,
    hash::BuildHasherDefault,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use idempotent_core::{
    StoreError,
    protocol::RecordCount,
    runtime::{FencedStep, HeldOperation, RenewalOutcome},
};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::outcome::RequestOutcome;

mod descriptions;
mod name_hasher;

use self::name_hasher::NameHasher;

/// Bounds of the buckets for the histograms, in seconds: from half a millisecond to ten seconds.
/// Pass them to the exporter, which cannot know them.
///
/// ```
/// // With metrics-exporter-prometheus:
/// // PrometheusBuilder::new()
/// //     .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS_BUCKETS)?
/// //     .set_buckets_for_metric(Matcher::Full("idempotency_batches".into()), &BATCH_BUCKETS)?
/// assert_eq!(idempotent_actix::metrics::SECONDS_BUCKETS.last(), Some(&10.0));
/// ```
pub const SECONDS_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

/// Bounds of the buckets for `idempotency_batches`, in steps. A batch has at most 64.
///
/// `rate(idempotency_batches_sum[5m]) / rate(idempotency_batches_count[5m])` is the average size.
pub const BATCH_BUCKETS: [f64; 7] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// The label of an operation without a name of its own.
const OTHER: &str = "other";

/// The handles of all metrics, each made when it is first needed.
#[derive(Default)]
pub(crate) struct Metrics {
    operations: RwLock<HashMap<Box<str>, Arc<OperationMetrics>, BuildHasherDefault<NameHasher>>>,
    other: OnceLock<Arc<OperationMetrics>>,
    process: OnceLock<ProcessMetrics>,
}

/// The metrics of one operation.
pub(crate) struct OperationMetrics {
    requests: Vec<(RequestOutcome, Counter)>,
    held: Counter,
    pub(crate) claim: Histogram,
    pub(crate) wait: Histogram,
    pub(crate) run: Histogram,
    pub(crate) complete: Histogram,
}

/// The metrics without an operation.
pub(crate) struct ProcessMetrics {
    pub(crate) in_flight: Gauge,
    pub(crate) purged: Counter,
    held: Gauge,
    held_oldest: Gauge,
    records: Gauge,
    deferred_operations: Gauge,
    deferred_bytes: Gauge,
    batches: Histogram,
    fenced: Vec<(FencedStep, Counter)>,
    renewals: Vec<(RenewalOutcome, Counter)>,
}

impl OperationMetrics {
    fn new(operation: &str) -> Self {
        let label = || operation.to_owned();
        Self {
            requests: each(RequestOutcome::ALL, |outcome| {
                let name = "idempotency_requests_total";
                counter!(name, "operation" => label(), "outcome" => outcome.label())
            }),
            held: counter!("idempotency_held_total", "operation" => label()),
            claim: histogram!("idempotency_claim_seconds", "operation" => label()),
            wait: histogram!("idempotency_wait_seconds", "operation" => label()),
            run: histogram!("idempotency_run_seconds", "operation" => label()),
            complete: histogram!("idempotency_complete_seconds", "operation" => label()),
        }
    }

    /// Counts a request.
    pub(crate) fn count(&self, outcome: RequestOutcome) {
        add(&self.requests, outcome, 1);
    }
}

impl ProcessMetrics {
    fn new() -> Self {
        descriptions::describe();
        Self {
            in_flight: gauge!("idempotency_in_flight"),
            purged: counter!("idempotency_purged_total"),
            held: gauge!("idempotency_held"),
            held_oldest: gauge!("idempotency_held_oldest_seconds"),
            records: gauge!("idempotency_records"),
            deferred_operations: gauge!("idempotency_deferred_operations"),
            deferred_bytes: gauge!("idempotency_deferred_bytes"),
            batches: histogram!("idempotency_batches"),
            // Before the first event: a rate begins at 0.
            fenced: each(
                FencedStep::ALL,
                |step| counter!("idempotency_fenced_total", "step" => step.as_str()),
            ),
            renewals: each(
                RenewalOutcome::ALL,
                |outcome| counter!("idempotency_renewals_total", "result" => outcome.as_str()),
            ),
        }
    }
}

impl Metrics {
    /// The metrics of an operation, which has a label of its own from now on. Its name must not
    /// contain anything of a request.
    pub(crate) fn registered(&self, operation: &str) -> Arc<OperationMetrics> {
        self.find(operation).unwrap_or_else(|| {
            let mut operations = self.operations.write().unwrap_or_else(PoisonError::into_inner);
            let metrics = operations.entry(operation.into());
            metrics.or_insert_with(|| Arc::new(OperationMetrics::new(operation))).clone()
        })
    }

    /// Calls this with the metrics of an operation, or of all others if it is not registered.
    pub(crate) fn of(&self, operation: &str, call: impl FnOnce(&OperationMetrics)) {
        let operations = self.operations.read().unwrap_or_else(PoisonError::into_inner);
        match operations.get(operation) {
            Some(metrics) => call(metrics),
            None => call(&self.other()),
        }
    }

    /// The metrics of operations without a name of their own.
    pub(crate) fn other(&self) -> Arc<OperationMetrics> {
        self.other.get_or_init(|| Arc::new(OperationMetrics::new(OTHER))).clone()
    }

    fn find(&self, operation: &str) -> Option<Arc<OperationMetrics>> {
        let operations = self.operations.read().unwrap_or_else(PoisonError::into_inner);
        operations.get(operation).cloned()
    }

    pub(crate) fn process(&self) -> &ProcessMetrics {
        self.process.get_or_init(ProcessMetrics::new)
    }

    pub(crate) fn held(&self, held: &HeldOperation) {
        self.of(&held.operation, |metrics| metrics.held.increment(1));
    }

    pub(crate) fn fenced(&self, step: FencedStep) {
        add(&self.process().fenced, step, 1);
    }

    pub(crate) fn renewed(&self, outcome: RenewalOutcome, leases: usize) {
        let leases = u64::try_from(leases).unwrap_or(u64::MAX);
        add(&self.process().renewals, outcome, leases);
    }

    pub(crate) fn deferred(&self, ends: usize, bytes: usize) {
        let process = self.process();
        process.deferred_operations.set(number(ends));
        process.deferred_bytes.set(number(bytes));
    }

    pub(crate) fn counted(&self, count: &RecordCount) {
        let process = self.process();
        let oldest = count.oldest_held.map(|oldest| count.at.duration_since(oldest));
        process.held.set(number(count.held));
        process.held_oldest.set(oldest.unwrap_or_default().as_secs_f64());
        process.records.set(number(count.records));
    }

    pub(crate) fn batched(&self, steps: usize, batches: u64) {
        let batches = usize::try_from(batches).unwrap_or(usize::MAX);
        self.process().batches.record_many(number(steps), batches);
    }

    pub(crate) fn store_failed(&self, error: &StoreError) {
        let kind = if error.is_share_exceeded() {
            "share_exceeded"
        } else if error.is_unreadable() {
            "unreadable"
        } else if error.is_transient() {
            "transient"
        } else {
            "permanent"
        };
        let step = error.operation();
        counter!("idempotency_store_errors_total", "step" => step, "kind" => kind).increment(1);
    }
}

/// A counter for each of these.
fn each<T: Copy>(all: &[T], counter: impl Fn(T) -> Counter) -> Vec<(T, Counter)> {
    all.iter().map(|each| (*each, counter(*each))).collect()
}

fn add<T: PartialEq>(counters: &[(T, Counter)], counted: T, by: u64) {
    if let Some((_, counter)) = counters.iter().find(|(each, _)| *each == counted) {
        counter.increment(by);
    }
}

/// A count as a gauge has it.
fn number(count: impl TryInto<u32>) -> f64 {
    // Beyond four thousand millions the gauge stays there.
    f64::from(count.try_into().unwrap_or(u32::MAX))
}
