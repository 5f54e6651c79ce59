//! What a store tells of itself, for operators.

use crate::{clock::Timestamp, short_text::ShortText};

/// What a store tells of itself. The result of
/// [`Administration::measure`](crate::store::Administration::measure).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreFacts {
    /// The time of the store's clock.
    pub at: Timestamp,
    /// The name and the version of the database, such as `PostgreSQL 17.2`.
    pub server: ShortText,
    /// How much space what belongs to the store takes.
    pub sizes: Vec<Size>,
    /// What somebody should look at.
    pub findings: Vec<Finding>,
}

impl StoreFacts {
    /// Creates the facts of a store without sizes and findings.
    #[must_use]
    pub const fn new(at: Timestamp, server: ShortText) -> Self {
        Self { at, server, sizes: Vec::new(), findings: Vec::new() }
    }

    /// Adds a size.
    #[must_use]
    pub fn with_size(mut self, name: &'static str, bytes: u64) -> Self {
        self.sizes.push(Size { name, bytes });
        self
    }

    /// Adds a finding.
    #[must_use]
    pub fn with_finding(mut self, found: impl Into<String>, advice: impl Into<String>) -> Self {
        self.findings.push(Finding { found: found.into(), advice: advice.into() });
        self
    }
}

/// How much space a part of a store takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Size {
    /// The name of the part, such as `table` or `indexes`.
    pub name: &'static str,
    /// The space in bytes.
    pub bytes: u64,
}

/// Something about a store that is not an error, but that costs space, time or records.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was found, in a sentence.
    pub found: String,
    /// What to set or to do, in a sentence.
    pub advice: String,
}
