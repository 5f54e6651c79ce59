//! The descriptions that an exporter shows beside the metrics.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Describes all metrics to the recorder of the application.
pub(super) fn describe() {
    for (name, text) in [
        ("idempotency_requests_total", "Requests to guarded handlers, and runs of jobs."),
        ("idempotency_held_total", "Keys that became held."),
        ("idempotency_renewals_total", "Renewals of leases."),
        ("idempotency_fenced_total", "Refused steps of attempts that had lost their key."),
        ("idempotency_purged_total", "Expired records that were removed."),
        ("idempotency_store_errors_total", "Failed calls to the store."),
    ] {
        describe_counter!(name, text);
    }
    for (name, text) in [
        ("idempotency_claim_seconds", "The time of a claim, without waits."),
        ("idempotency_wait_seconds", "How long duplicates waited for another attempt."),
        ("idempotency_run_seconds", "The time of a handler."),
        ("idempotency_complete_seconds", "The time until the store has the end of an attempt."),
    ] {
        describe_histogram!(name, Unit::Seconds, text);
    }
    describe_histogram!("idempotency_batches", Unit::Count, "The steps in each batch of a store.");
    for (name, unit, text) in [
        ("idempotency_in_flight", Unit::Count, "Attempts of this process that have not ended."),
        ("idempotency_held", Unit::Count, "Records of the store that are held."),
        ("idempotency_held_oldest_seconds", Unit::Seconds, "The age of the oldest held record."),
        ("idempotency_records", Unit::Count, "Records of the store."),
        (
            "idempotency_deferred_operations",
            Unit::Count,
            "Ends of attempts that the store does not have yet.",
        ),
        ("idempotency_deferred_bytes", Unit::Bytes, "The memory of deferred ends."),
    ] {
        describe_gauge!(name, unit, text);
    }
}
