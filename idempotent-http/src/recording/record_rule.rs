//! Which responses are recorded.

/// Which responses are recorded and replayed. Any other response leaves the operation incomplete:
/// the next request runs it again, unless the key is held under
/// [`OnAbandon::Hold`](idempotent_core::OnAbandon::Hold).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordRule {
    /// Every status except 408, 425, 429 and 5xx: the statuses that state the outcome of the
    /// operation.
    #[default]
    Final,
    /// Only 2xx.
    Success,
    /// Every status including 5xx, as version 1 of Stripe's API does.
    All,
}

impl RecordRule {
    /// Returns the rule in the words of the specification and of the attribute's `record`.
    #[must_use]
    pub const fn specified(self) -> &'static str {
        match self {
            Self::Final => "final",
            Self::Success => "success",
            Self::All => "all",
        }
    }

    /// Returns whether a response with this status is recorded.
    #[must_use]
    pub const fn keeps(self, status: u16) -> bool {
        match self {
            Self::Final => !matches!(status, 408 | 425 | 429 | 500..),
            Self::Success => matches!(status, 200..=299),
            Self::All => true,
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
