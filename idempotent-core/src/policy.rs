//! What an operation wants of its keys.

use std::time::Duration;

/// How the keys of one operation are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long the answer can be replayed, counted from the first claim.
    pub ttl: Duration,
    /// How long a claim outlives a process that died. At most half of `ttl`.
    pub lease: Duration,
    /// How long a duplicate waits for the first attempt's answer.
    pub wait: Duration,
    /// Which answers are kept.
    pub record: RecordRule,
    /// What happens to a key whose attempt was abandoned.
    pub abandoned: Abandoned,
}

impl Policy {
    /// The defaults of `#[idempotent]`: ttl 24 h, lease 30 s, no waiting, final answers, retry.
    pub const DEFAULT: Self = Self {
        ttl: Duration::from_secs(24 * 60 * 60),
        lease: Duration::from_secs(30),
        wait: Duration::ZERO,
        record: RecordRule::Final,
        abandoned: Abandoned::Retry,
    };
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Which answers end an operation and are replayed. All others release the key, and the next request runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordRule {
    /// Everything but 408, 425, 429 and 5xx: answers that say what became of the operation.
    Final,
    /// 2xx only.
    Success,
    /// Every answer, server errors too, as version 1 of Stripe's API does.
    All,
}

impl RecordRule {
    /// Whether an answer of this status is kept.
    #[must_use]
    pub const fn keeps(self, status: u16) -> bool {
        match self {
            Self::Final => !matches!(status, 408 | 425 | 429 | 500..),
            Self::Success => matches!(status, 200..=299),
            Self::All => true,
        }
    }
}

/// What happens to a key whose attempt ended without an outcome: its process died, or it panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// The next request runs the operation again.
    Retry,
    /// The key is held: nothing runs until someone resolves it, past its ttl too.
    Hold,
}

impl Abandoned {
    /// The more careful of two policies: a key that either wants held is held.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Retry, Self::Retry) => Self::Retry,
            (Self::Hold, _) | (_, Self::Hold) => Self::Hold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_keeps_what_its_name_says() {
        for (status, kept) in [
            (200, [true, true, true]),
            (302, [true, false, true]),
            (404, [true, false, true]),
            (408, [false, false, true]),
            (425, [false, false, true]),
            (429, [false, false, true]),
            (500, [false, false, true]),
            (599, [false, false, true]),
        ] {
            let rules = [RecordRule::Final, RecordRule::Success, RecordRule::All];
            assert_eq!(rules.map(|rule| rule.keeps(status)), kept, "{status}");
        }
    }
}
