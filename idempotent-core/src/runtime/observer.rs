//! What a runtime tells an application about its work.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use crate::{error::StoreError, protocol::RecordCount, record_id::RecordId, short_text::ShortText};

/// What a runtime tells an application about its work, for metrics and alarms. Every method does
/// nothing by default.
///
/// The methods are called on the threads that do the work, most of them while a client waits:
/// return at once, and don't block. A panic of a method is logged, and costs only that call.
///
/// No method gets a key, a scope, or bytes of a request or a response. The name of an operation can
/// contain the path of a request: don't use it as a label of a metric unless you know the name.
pub trait Observer: Send + Sync + 'static {
    /// The store has decided a claim, which took this long. The wait for another attempt is not
    /// part of it, except that of a claim in a transaction for a transaction of another process.
    fn claimed(&self, operation: &str, took: Duration) {
        let _ = (operation, took);
    }

    /// A duplicate has waited this long for another attempt.
    fn waited(&self, operation: &str, took: Duration) {
        let _ = (operation, took);
    }

    /// An attempt of this process has its key.
    fn began(&self, operation: &str) {
        let _ = operation;
    }

    /// The work of an attempt took `ran` from the granted claim, and then it took `stored` until
    /// the end of the attempt was stored or [deferred](Self::deferred), or was refused. Not called
    /// if the future that ends the attempt is dropped.
    fn ended(&self, operation: &str, ran: Duration, stored: Duration) {
        let _ = (operation, ran, stored);
    }

    /// An attempt that [began](Self::began) is in flight no more, however it ended.
    fn left(&self, operation: &str) {
        let _ = operation;
    }

    /// A key is held from now on.
    ///
    /// Called at most once for each attempt, by the process that held the key, or that was the
    /// first to find that its lease had expired. The method is not called if that process dies at
    /// this moment or does not get the store's response, nor while no request meets an expired
    /// lease: [`counted`](Self::counted) has those keys too.
    fn held(&self, held: &HeldOperation) {
        let _ = held;
    }

    /// A step of an attempt that no longer had its key was refused.
    fn fenced(&self, step: FencedStep) {
        let _ = step;
    }

    /// The renewals of this many leases had this outcome.
    fn renewed(&self, outcome: RenewalOutcome, leases: usize) {
        let _ = (outcome, leases);
    }

    /// There are now this many ends that the store does not have yet, which take this many bytes.
    fn deferred(&self, ends: usize, bytes: usize) {
        let _ = (ends, bytes);
    }

    /// A purge has removed this many records.
    fn purged(&self, records: u64) {
        let _ = records;
    }

    /// The records of the store were counted, which the runtime does as often as
    /// [`count_every`](super::RuntimeOptions::count_every) says, if the store has an
    /// [`Administration`](crate::store::Administration).
    fn counted(&self, count: &RecordCount) {
        let _ = count;
    }

    /// The store has executed this many batches of this many steps each, of all runtimes that use
    /// it or a clone of it in this process. Called as often as [`counted`](Self::counted), for each
    /// size that has occurred since, if the store executes [batches](crate::Store::batches).
    fn batched(&self, steps: usize, batches: u64) {
        let _ = (steps, batches);
    }

    /// A call to the store has failed, or had no outcome in time. [`StoreError::operation`] names
    /// the step.
    fn store_failed(&self, error: &StoreError) {
        let _ = error;
    }
}

impl fmt::Debug for dyn Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// An operation whose outcome became unknown. `Display` has what a person needs to find it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldOperation {
    /// The id of its record.
    pub id: RecordId,
    /// The name of the operation.
    pub operation: ShortText,
    /// The reference that its handler had set, if this process knows it.
    pub reference: Option<ShortText>,
}

impl HeldOperation {
    pub(super) const fn new(
        id: RecordId,
        operation: ShortText,
        reference: Option<ShortText>,
    ) -> Self {
        Self { id, operation, reference }
    }
}

impl fmt::Display for HeldOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.id, self.operation)?;
        self.reference.iter().try_for_each(|reference| write!(f, ", {reference}"))
    }
}

/// A step that was refused because its attempt no longer has the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FencedStep {
    /// The renewal of its lease.
    Renewal,
    /// The end of the attempt.
    End,
}

impl FencedStep {
    /// All steps.
    pub const ALL: &[Self] = &[Self::Renewal, Self::End];

    /// Returns the word for a label of a metric.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Renewal => "renewal",
            Self::End => "end",
        }
    }
}

/// The outcome of the renewal of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RenewalOutcome {
    /// The lease was extended.
    Renewed,
    /// Another attempt owns the record, or the store has lost it.
    Fenced,
    /// The store does not know; the renewal is sent again.
    Unknown,
    /// The call failed; the renewal is sent again.
    Failed,
}

impl RenewalOutcome {
    /// All outcomes.
    pub const ALL: &[Self] = &[Self::Renewed, Self::Fenced, Self::Unknown, Self::Failed];

    /// Returns the word for a label of a metric.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Renewed => "renewed",
            Self::Fenced => "fenced",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
        }
    }
}

/// Calls an observer. Its panic must not end an attempt.
pub(super) fn notify(observer: &dyn Observer, call: impl FnOnce(&dyn Observer)) {
    if catch_unwind(AssertUnwindSafe(|| call(observer))).is_err() {
        tracing::error!("an `Observer` panicked");
    }
}
