//! What a runtime tells an application about its work.

use std::{fmt, time::Duration};

use crate::{error::StoreError, record_id::RecordId, short_text::ShortText};

/// What a runtime tells an application about its work, for metrics and alarms. Every method does
/// nothing by default.
///
/// The methods are called on the threads that do the work, some of them while a client waits:
/// return at once, and don't block. A panic is a panic of that work.
///
/// No method gets a key, a scope, or bytes of a request or a response.
pub trait Observer: Send + Sync + 'static {
    /// The store has decided a claim of this operation, which took this long, waits for another
    /// attempt excluded.
    fn claimed(&self, operation: &str, took: Duration) {
        let _ = (operation, took);
    }

    /// A duplicate has waited this long for another attempt.
    fn waited(&self, operation: &str, took: Duration) {
        let _ = (operation, took);
    }

    /// The work of an attempt has ended, this long after its claim was granted.
    fn ran(&self, operation: &str, took: Duration) {
        let _ = (operation, took);
    }

    /// The store has the end of an attempt, or it is deferred; that took this long.
    fn ended(&self, operation: &str, took: Duration) {
        let _ = (operation, took);
    }

    /// A key is held from now on. Called at most once for each attempt, by the process that held
    /// the key or found that its lease had run out.
    fn held(&self, held: &HeldOperation) {
        let _ = held;
    }

    /// A step of an attempt that no longer has its key was refused.
    fn fenced(&self, step: FencedStep) {
        let _ = step;
    }

    /// The store has answered a renewal of this many leases, of which so many were renewed.
    fn renewed(&self, leases: usize, renewed: usize) {
        let _ = (leases, renewed);
    }

    /// The number of ends that the store does not have yet, and the bytes that they take, have
    /// changed to this.
    fn deferred(&self, ends: usize, bytes: usize) {
        let _ = (ends, bytes);
    }

    /// A purge has removed this many records.
    fn purged(&self, records: u64) {
        let _ = records;
    }

    /// A call to the store has failed, or had no outcome in time. [`StoreError::operation`] names
    /// the step.
    fn store_failed(&self, error: &StoreError) {
        let _ = error;
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
    pub(super) fn new(id: RecordId, operation: ShortText, reference: Option<ShortText>) -> Self {
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
    /// Returns the word for a label of a metric.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Renewal => "renewal",
            Self::End => "end",
        }
    }
}
